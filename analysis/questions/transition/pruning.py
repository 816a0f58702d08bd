"""What stopped the runs of a sweep, and whether its answer depends on what they hid.

A run that was stopped early is a bound: y at the full budget is at most y when it was stopped. How
far below it may lie is not known; the largest improvement that a full-budget run showed from there
on is taken. Both ends serve as a warning light for an answer, never as an estimate of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from analysis.questions.transition.history import KEYS
from analysis.questions.transition.result import Bound, Competition, Pruning, Refit, Rung
from analysis.questions.transition.run_table import RunTable
from analysis.statistics.values import FloatArray
from analysis.values import number

_IN_ORDER: Final = 0.95
"""Share of pairs in order from which a comparison is taken to have decided who was stopped."""
_MOSTLY: Final = 0.9
_FEWEST_PAIRS: Final = 10


def examine(
    table: RunTable, answer: Refit | None, refit: Callable[[RunTable], Refit]
) -> tuple[Pruning | None, list[str]]:
    """Return what the history says about the runs that were stopped early, and warnings.

    Args:
        table: with its history; None is returned without one, or where nothing was stopped.
        answer: what the full-budget runs say; None asks for no sensitivity.
        refit: answers the question for another table.
    """
    reports, runs = table.history, table.frame
    if reports is None or not runs["status"].eq("stopped_early").any():
        return None, []
    stopped = _stopped(runs, reports)
    ends = runs.loc[runs["complete"], [*KEYS, "y"]]
    rungs = tuple(
        _rung(float(budget), stopped, reports, ends) for budget in sorted(set(stopped["reached"]))
    )
    improvement = {rung.budget: rung.improvement for rung in rungs}
    bounds = tuple(
        Bound(
            number(x),
            None if np.isnan(by) else number(by),
            str(replicate),
            float(budget),
            None if (fall := improvement[budget]) is None else float(y) - fall,
            float(y),
        )
        for x, by, replicate, budget, y in zip(
            *(stopped[name] for name in (*KEYS, "reached", "y")), strict=True
        )
    )
    within, across = _order(stopped, reports)
    competition = _competition(within, across)
    notes = []
    if competition == "across_x":
        notes.append(
            f"runs were stopped by comparing them across {table.x}: its worse values lose their"
            " runs first; compare runs within a cell instead"
        )
    at_high = at_low = None
    if answer is not None and len(stopped):
        at_high = refit(_completed(table, stopped, bounds, low=False))
        if all(bound.low is not None for bound in bounds):
            at_low = refit(_completed(table, stopped, bounds, low=True))
        notes += _warning_light(answer, at_high, at_low)
    return Pruning(rungs, competition, within, across, bounds, at_high, at_low), notes


def _warning_light(answer: Refit, at_high: Refit, at_low: Refit | None) -> list[str]:
    ends = {"where they were stopped": at_high}
    if at_low is not None:
        ends["as low as full runs fell from there on"] = at_low
    return [
        f"had the stopped runs ended {where}, the answer would be {end.verdict}"
        f"{'' if end.h_star is None else f' at {end.h_star:g}'}: more full-budget runs would tell"
        for where, end in ends.items()
        if end != answer
    ]


def _stopped(runs: pd.DataFrame, reports: pd.DataFrame) -> pd.DataFrame:
    """Return the stopped runs that have a report: KEYS, reached and y of the last one."""
    last = reports.groupby(KEYS, sort=False, dropna=False).tail(1)[[*KEYS, "reached", "y"]]
    ended = runs.loc[runs["status"].eq("stopped_early"), KEYS]
    return ended.merge(last, on=KEYS).reset_index(drop=True)


def _rung(budget: float, stopped: pd.DataFrame, reports: pd.DataFrame, ends: pd.DataFrame) -> Rung:
    here = reports[reports["reached"] <= budget].groupby(KEYS, sort=False, dropna=False).tail(1)
    both = ends.merge(here[[*KEYS, "y"]], on=KEYS, suffixes=("_end", "_here"))
    fall = both["y_here"] - both["y_end"]
    got_there = reports.loc[reports["reached"] >= budget, KEYS].drop_duplicates()
    return Rung(
        budget,
        len(got_there),
        int((stopped["reached"] == budget).sum()),
        max(float(fall.max()), 0.0) if len(fall) else None,
    )


def _order(stopped: pd.DataFrame, reports: pd.DataFrame) -> tuple[float | None, float | None]:
    """Return the share of pairs (stopped, gone on) at a rung in which the stopped one was worse.

    Within a cell, and across different x at one T.
    """
    within: list[FloatArray] = []
    across: list[FloatArray] = []
    last = reports.groupby(KEYS, sort=False, dropna=False)["reached"].transform("max")
    for budget, ended in stopped.groupby("reached"):
        going = reports[(reports["reached"] == budget) & (last > budget)]
        for by, here in ended.groupby("by", dropna=False):
            same_by = going["by"].isna() if pd.isna(by) else going["by"] == by
            others = going[same_by]
            worse = here["y"].to_numpy()[:, None] >= others["y"].to_numpy()[None, :]
            same_x = here["x"].to_numpy()[:, None] == others["x"].to_numpy()[None, :]
            within.append(worse[same_x].astype(np.float64))
            across.append(worse[~same_x].astype(np.float64))
    return _mean(within), _mean(across)


def _mean(parts: list[FloatArray]) -> float | None:
    pairs = np.concatenate(parts) if parts else np.zeros(0)
    return float(pairs.mean()) if pairs.size >= _FEWEST_PAIRS else None


def _competition(within: float | None, across: float | None) -> Competition:
    if across is not None and across >= _IN_ORDER and (within is None or within >= _MOSTLY):
        return "across_x"
    return "within_cells" if within is not None and within >= _MOSTLY else "unclear"


def _completed(
    table: RunTable, stopped: pd.DataFrame, bounds: Sequence[Bound], *, low: bool
) -> RunTable:
    """Return the table with every stopped run taken to have ended at one end of its interval."""
    y = [bound.high if bound.low is None or not low else bound.low for bound in bounds]
    ends = stopped[KEYS].assign(_y=np.array(y))
    frame = table.frame.merge(ends, on=KEYS, how="left")
    known = frame["_y"].notna()
    frame.loc[known, "y"] = frame.loc[known, "_y"]
    frame.loc[known, "status"] = "finished"
    frame.loc[known, "complete"] = True
    return replace(table, frame=frame.drop(columns="_y"), history=None)
