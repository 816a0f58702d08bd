"""The answer of a study that searched for its transition, from the tests of its search."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pandas as pd

from analysis.adaptive.planned import TransitionSearch, recorded_search
from analysis.adaptive.transition import Located
from analysis.questions.base import StudyRuns
from analysis.questions.transition.result import RetrievalDimension, TransitionResult
from analysis.runs.statuses import FULL
from analysis.values import number
from hsweep.design.search import WINDOW_SEEDS

_SETTLES: Final = (
    "the search has had all its seeds there, and every cell (--search grid) may settle it"
)


def searched_answer(
    study: StudyRuns,
    layers: int,
    fit: Callable[[pd.DataFrame], TransitionResult],
) -> TransitionResult:
    """Return the answer: the numbers of the runs that the search has tested with, and its verdict.

    Args:
        fit: answers from trials; its verdict is that of a grid, which these are none of.
    """
    search, asked = recorded_search(study.manifest, study.tables.rows, study.goal)
    assert isinstance(search, TransitionSearch)
    trials = study.trials.loc[study.trials["key"].isin(asked)]
    is_full = trials["status"].isin(FULL)
    is_tested = is_full & trials["seed"].lt(study.manifest.scouts + WINDOW_SEEDS)
    tested = trials.loc[is_tested if is_tested.any() else is_full]
    result, answer, film = fit(tested.reset_index(drop=True)), search.played.answer, search.film()
    if answer is None:
        answer = Located("open", f"the search has not ended; {film.runs} runs of it have")
    elif answer.verdict == "open":
        answer = replace(answer, reason=f"{answer.reason}; {_SETTLES}")
    heads = [number(head) for head in search.heads]
    if answer.hidden is not None:
        size, low, high = answer.hidden
        film = replace(film, hidden=(max(0.0, size), heads[low], heads[high]))
    result = replace(
        result,
        verdict=answer.verdict,
        reason=answer.reason,
        missing=(),
        qualifications=(),
        warnings=(),
        counts=(),
        p=None,
        p_h={},
        noise_gap="",
        suggested=False,
        film=film,
    )
    star = answer.star
    if not star:
        return result
    at, is_claimed = heads[star], answer.verdict == "collapse"
    dimension = RetrievalDimension.of(result.x, heads, star, star, layers) if is_claimed else None
    return replace(
        result,
        shown_by=answer.shown_by,
        growth=answer.growth,
        h_star=at,
        bracket=(heads[star - 1], at),
        h_peak=at,
        h_set=(at,) if is_claimed else (),
        drop=answer.drop,
        excess=answer.excess,
        d_eff=dimension,
    )
