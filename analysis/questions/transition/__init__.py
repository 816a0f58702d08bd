"""The question of a transition."""
