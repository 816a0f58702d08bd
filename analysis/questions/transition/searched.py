"""The answer of a study that searched for its transition, from the tests of its search."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.adaptive.planned import PlannedRun, TransitionSearch
from analysis.adaptive.rounds import Round
from analysis.adaptive.transition import Located
from analysis.questions.base import StudyRuns
from analysis.questions.transition.result import (
    RetrievalDimension,
    SearchFilm,
    SearchRound,
    TransitionResult,
)
from analysis.runs.statuses import FULL, NOT_NEEDED
from analysis.values import number
from hsweep.design.question import Scale
from hsweep.design.search import WINDOW_SEEDS

_OPEN = {"planned", "running"}


def searched_answer(
    study: StudyRuns,
    x: str,
    by: str | None,
    scale: Scale,
    layers: int,
    fit: Callable[[pd.DataFrame], TransitionResult],
) -> TransitionResult:
    """Return the answer: the numbers of the runs that the search has tested with, and its verdict.

    Args:
        fit: answers from trials; its verdict is that of a grid, which these are none of.
    """
    trials, scouts = study.every_trial, study.manifest.scouts
    axes = [x, *([] if by is None else [by])]
    points: list[Any] = trials[axes].to_dict("records")
    seeds = trials["seed"].astype(int)
    rows = [PlannedRun(*row) for row in zip(trials["key"], points, seeds, strict=True)]
    search = TransitionSearch(rows, x, by, scale, study.question.get("eval_size"), scouts)
    is_full = trials["status"].isin(FULL)
    values = trials[study.manifest.metric].where(is_full)
    known = zip(trials["key"], values, trials["status"], strict=True)
    search.next_round(
        {key: None if pd.isna(value) else float(value) for key, value, status in known
         if status not in _OPEN | {NOT_NEEDED}}
    )  # fmt: skip
    asked = trials["status"].ne(NOT_NEEDED) & trials["seed"].ge(scouts)
    is_tested = trials["seed"].lt(scouts + WINDOW_SEEDS) & trials["status"].isin(FULL)
    tested = trials.loc[asked & (is_tested if is_tested.any() else is_full)]
    result = fit(tested.reset_index(drop=True))
    rounds, answer = search.played.rounds, search.played.answer
    film = SearchFilm(tuple(_round(search, each, x, by) for each in rounds), len(trials))
    result = replace(
        result,
        missing=(),
        qualifications=(),
        warnings=(),
        counts=(),
        p=None,
        p_h={},
        noise_gap="",
        suggested=False,
    )
    if answer is None:
        reason = f"the search has not ended; {film.runs} runs of it have"
        return replace(result, verdict="open", reason=reason, film=film)
    return _with(result, search, answer, film, layers)


def _with(
    result: TransitionResult,
    search: TransitionSearch,
    answer: Located,
    film: SearchFilm,
    layers: int,
) -> TransitionResult:
    heads = [number(head) for head in search.heads]
    if answer.hidden is not None:
        size, low, high = answer.hidden
        film = replace(film, hidden=(max(0.0, size), heads[low], heads[high]))
    star = answer.star
    if star is None or not star:
        return replace(result, verdict=answer.verdict, reason=answer.reason, film=film)
    before, at = heads[star - 1], heads[star]
    is_claimed = answer.verdict == "collapse"
    dimension = RetrievalDimension.of(result.x, heads, star, star, layers) if is_claimed else None
    return replace(
        result,
        verdict=answer.verdict,
        reason=answer.reason,
        shown_by=answer.shown_by,
        growth=answer.growth,
        h_star=at,
        bracket=(before, at),
        h_peak=at,
        h_set=(at,) if is_claimed else (),
        drop=answer.drop,
        excess=answer.excess,
        d_eff=dimension,
        film=film,
    )


def _round(search: TransitionSearch, asked: Round, x: str, by: str | None) -> SearchRound:
    """Return a round with its cells in words."""
    heads = _values(search.heads, {run.head for run in asked.runs})
    cells = f"{x} = {heads}"
    if by is not None:
        cells += f" at {by} = {_values(search.lengths, {run.length for run in asked.runs})}"
    return SearchRound(asked.phase, len(asked.runs), cells, asked.why)


def _values(values: Sequence[float], indices: set[int]) -> str:
    return ", ".join(f"{values[index]:g}" for index in sorted(indices))
