"""The answer of a study that searched for its transition, from the tests of its search."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from analysis.questions.base import StudyRuns
from analysis.questions.transition.design import Located
from analysis.questions.transition.limits import WINDOW_SEEDS
from analysis.questions.transition.result import RetrievalDimension, TransitionResult
from analysis.questions.transition.search import TransitionSearch
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.values import number

if TYPE_CHECKING:
    from analysis.questions.transition.question import Transition

_SETTLES: Final = "--search grid trains every cell"


def searched_answer(
    study: StudyRuns,
    question: "Transition",
    fit: Callable[[Runs], TransitionResult],
    layers: int,
) -> TransitionResult:
    """Return the answer: the numbers of the runs that the search has tested with, and its verdict;
    that of ``fit`` is of a grid, which these are none of."""
    planned = frozenset(study.every_trial["key"])
    rows = [row for row in study.tables.rows if row.key in planned]
    amount, scouts = int(study.manifest.budget["amount"]), study.manifest.scouts
    parts = study.question.get("parts", 1)
    search = TransitionSearch(rows, question, amount, scouts, parts)
    asked = search.replay(rows, study.manifest.metric)
    trials = study.trials.loc[study.trials["key"].isin(asked)]
    is_full = trials["status"].isin(FULL)
    is_tested = is_full & trials["seed"].lt(scouts + WINDOW_SEEDS)
    tested = trials.loc[is_tested if is_tested.any() else is_full].reset_index(drop=True)
    result = fit(Runs(tested, study.manifest.metric))
    answer, film = search.played.answer, search.film()
    if answer is None:
        answer = Located("open", "the search has not ended")
    elif answer.verdict == "open":
        answer = replace(answer, reason=f"{answer.reason}; {_SETTLES}")
    heads = [number(head) for head in search.heads]
    if answer.hidden is not None:
        size, low, high = answer.hidden
        film = replace(film, hidden=(max(0.0, size), heads[low], heads[high]))
    place: dict[str, Any] = {"h_set": (), "d_eff": None}
    place |= dict.fromkeys(("p", "scatter", "survives"))
    if star := answer.star:
        at = heads[star]
        place |= {"h_star": at, "bracket": (heads[star - 1], at), "h_peak": at}
        place |= {"drop": answer.drop, "excess": answer.excess}
        if answer.verdict == "collapse":
            places = [*answer.places, star]
            place["h_set"] = tuple(heads[k] for k in answer.places)
            place |= {name: getattr(answer, name) for name in ("p", "scatter", "survives")}
            place["gamma_above"] = answer.slope
            place["d_eff"] = RetrievalDimension.of(
                result.x, heads, min(places), max(places), layers
            )
    return replace(
        result,
        verdict=answer.verdict,
        reason=answer.reason,
        shown_by=answer.shown_by,
        growth=answer.growth,
        missing=(),
        qualifications=(),
        warnings=(),
        counts=(),
        p_h={},
        noise_gap="",
        suggested=False,
        film=film,
        **place,
    )
