"""Studies, one lab note a file."""
