"""Numbers of the judge and of the search for a transition."""

from typing import Final

FEWEST_FOR_A_BREAK: Final = 4
"""Values of the searched axis that the test of abruptness needs."""
FIRST_BREAK: Final = 2
"""Index of the first value of the searched axis at which a drop differs measurably from diminishing
returns: two values lie below it."""
WINDOW_SEEDS: Final = 7
"""Seeds of a cell that a search for a transition may test with, from 0 on."""
SEARCH_SEEDS: Final = 4
"""Seeds, after those, that it may search with: what has chosen the window is no part of its
tests."""


def searched_length(number: int) -> int:
    """Return the index of the length, of so many, at which a transition is searched: the second
    longest."""
    return max(0, number - 2)
