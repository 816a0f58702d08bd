"""How many seeds a search for the front may train."""

from typing import Final

FRONT_SEEDS: Final = 8
"""Seeds of a shape that a search for the front may train, from 0 on."""
