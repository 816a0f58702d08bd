"""What was found, in sentences and in rows of tables."""
