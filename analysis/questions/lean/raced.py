"""The answer of a study whose shapes were raced, from the tests of the race."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scipy import special

from analysis.adaptive.film import SearchFilm
from analysis.adaptive.lean import Standing
from analysis.adaptive.planned import LeanSearch, recorded_search
from analysis.questions.base import StudyRuns
from analysis.questions.lean.result import LeanResult, LeanRow, LeanVerdict
from analysis.statistics.values import Interval


class RaceJudge:
    """Gives the comparisons of a study the verdict of its race.

    Attributes:
        film: of the race.
    """

    def __init__(self, study: StudyRuns) -> None:
        search, _ = recorded_search(study.manifest, study.tables.rows, study.goal)
        assert isinstance(search, LeanSearch)
        self._within, self._races = study.question["within"], search.played.answer
        self._shapes = search.shapes
        self.film = SearchFilm.of(search)

    def __call__(self, result: LeanResult, value: str | None = None) -> LeanResult:
        """Return a comparison with the verdict of the race.

        Args:
            result: as a grid's would be.
            value: of the axis that parts the comparisons, in words.
        """
        if result.verdict in ("untrained", "no_candidates"):
            return replace(result, missing=())
        standings = [
            (self._shapes[each.shape], each)
            for raced in self._races or ()
            for each in raced
            if value is None or str(self._shapes[each.shape].get(self._within)) == value
        ]
        found = ((row, _standing_of(row.config, standings)) for row in result.table)
        table = tuple(_with(row, standing, result) for row, standing in found)
        chosen = next((row for row in table if row.accepted), None)
        verdict: LeanVerdict = "undecided"
        if chosen is not None:
            verdict = "found"
        elif standings and all(each.outcome == "excluded" for _, each in standings):
            verdict = "excluded"
        return replace(
            result,
            verdict=verdict,
            reason="",
            table=table,
            choice=None if chosen is None else chosen.label,
            missing=(),
            warnings=(),
            is_open=self._races is None,
        )


def _standing_of(
    config: Mapping[str, Any], standings: Sequence[tuple[Mapping[str, Any], Standing]]
) -> Standing | None:
    return next(
        (
            each
            for shape, each in standings
            if all(shape.get(axis) == value for axis, value in config.items())
        ),
        None,
    )


def _with(row: LeanRow, standing: Standing | None, result: LeanResult) -> LeanRow:
    """Return a row with what the race has shown at the last look that the shape had."""
    if standing is None:
        return replace(row, outcome="undecided", seeds_needed=None)
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
