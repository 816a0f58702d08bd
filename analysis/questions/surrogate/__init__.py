"""What untried shapes are expected to do."""
