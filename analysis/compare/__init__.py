"""Studies side by side."""
