"""The question of a surrogate."""
