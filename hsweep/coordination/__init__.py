"""Which trial is next, what becomes of each, and who is stopped early; runs nothing itself."""
