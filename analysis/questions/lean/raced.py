"""The answer of a study whose shapes were raced, from the tests of the race."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scipy import special

from analysis.adaptive.film import SearchFilm
from analysis.adaptive.lean import Standing
from analysis.adaptive.planned import LeanSearch, recorded_search
from analysis.questions.base import StudyRuns
from analysis.questions.lean.result import RACING, LeanResult, LeanRow, LeanVerdict
from analysis.statistics.values import Interval


class RaceJudge:
    """Gives the comparisons of a study the verdict of its race.

    Attributes:
        film: of the race.
    """

    def __init__(self, study: StudyRuns) -> None:
        search, _ = recorded_search(study.manifest, study.tables.rows, study.goal)
        assert isinstance(search, LeanSearch)
        self._races, self._shapes = search.played.answer, search.shapes
        self.film = SearchFilm.of(search)

    def __call__(self, result: LeanResult, at: Mapping[str, Any]) -> LeanResult:
        """Return a comparison with the verdict of the race; ``at`` has the value of the axis that
        parts it from others."""
        if result.verdict in ("untrained", "no_candidates"):
            return replace(result, missing=())
        standings = {
            self._shapes[each.shape]: each for raced in self._races or () for each in raced
        }
        standings = {shape: each for shape, each in standings.items() if shape.has(at)}
        table = tuple(
            next(
                (_with(row, each, result) for shape, each in standings.items()
                 if shape.has(row.config)),
                replace(row, outcome="undecided", seeds_needed=None),
            )
            for row in result.table
        )  # fmt: skip
        chosen = next((row for row in table if row.accepted), None)
        verdict: LeanVerdict = "undecided"
        if chosen is not None:
            verdict = "found"
        elif standings and all(each.outcome == "excluded" for each in standings.values()):
            verdict = "excluded"
        return replace(
            result,
            verdict=verdict,
            reason="" if self._races is not None else RACING,
            table=table,
            choice=None if chosen is None else chosen.label,
            missing=(),
            warnings=(),
        )


def _with(row: LeanRow, standing: Standing, result: LeanResult) -> LeanRow:
    """Return a row with what the race has shown at the last look that the shape had."""
    row = replace(row, outcome=standing.outcome, seeds_needed=None)
    if not standing.se > 0:
        return row
    quantile = special.stdtrit(standing.df, (1 + result.settings.confidence) / 2)
    diff, reach = standing.diff, standing.se * float(quantile)
    return replace(
        row,
        diff=diff,
        ci=Interval(diff, diff - reach, diff + reach),
        df=standing.df,
        p_raw=float(special.stdtr(standing.df, -(diff + result.margin) / standing.se)),
        p_holm=standing.p,
        p_worse=standing.p_worse,
    )
