"""The question of lean equivalents."""
