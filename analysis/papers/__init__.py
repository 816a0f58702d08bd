"""What the papers printed."""
