"""The rounds of a search as a table."""

from analysis.adaptive.film import SearchFilm
from analysis.text.tables import Table


def rounds_table(film: SearchFilm | None) -> Table:
    """Return the rounds of a search; no rows without one."""
    rounds = () if film is None else film.rounds
    return Table(
        ("round", "for", "runs", "cells", "why"),
        tuple(
            (str(number), asked.phase, str(asked.runs), asked.cells, asked.why)
            for number, asked in enumerate(rounds, 1)
        ),
    )
