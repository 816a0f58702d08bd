"""The question of effects of single axes."""
