"""The question of fronts."""
