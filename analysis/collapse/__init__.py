"""Is there a collapse among cells, and where? The rules, for a grid and a search alike."""
