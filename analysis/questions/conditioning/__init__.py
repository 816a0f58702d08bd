"""The question of conditioning."""
