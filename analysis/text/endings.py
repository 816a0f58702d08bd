"""The report page's words on what befell trials, and on how the study was edited meanwhile."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from analysis.text.numbers import number_text
from analysis.text.tables import Table, varying_columns
from hsweep.record.summary import TrialOutcome, remarks

_ASKED: Final = ("key", "status", "reason", "failures", "micro_batch", "reused_from")
_COUNTS: Final = {
    "kept": "kept",
    "restored": "back again",
    "new": "new",
    "extended": "extended to a longer budget",
    "orphaned": "orphaned",
}


def endings_table(
    trials: pd.DataFrame,
    reports: pd.DataFrame,
    axes: Sequence[str],
    orphaned: Mapping[str, int],
    notes: Mapping[str, tuple[str, ...]] | None = None,
) -> Table:
    """Return what befell the trials besides training to the end; no row where nothing did.

    Args:
        trials: one row a trial; any column but the axes may be missing.
        reports: one row a report; ``key`` and ``note``, if there are notes.
        axes: the swept axes.
        orphaned: how many trials are no longer part of the study, by the reason.
        notes: of the reports, by trial; None takes those of ``reports``.
    """
    if notes is None:
        notes = _notes(reports)
    varying = varying_columns(trials, axes) or [name for name in axes if name in trials.columns]
    found = remarks(_ends(trials, notes, varying)) if len(trials) else []
    rows = [(each.what, str(each.trials), each.details) for each in found]
    rows += [
        ("orphaned", str(number), f"{why}; their results are kept and in no number here")
        for why, number in orphaned.items()
    ]
    return Table(("what happened", "trials", "which and why"), tuple(rows))


def revisions_table(revisions: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M", time.localtime(float(each.get("time", 0)))),
            _changes(each),
            str(each.get("command", "")),
        )
        for each in revisions
    ]
    return Table(("edited", "trials", "command"), tuple(rows))


def _changes(revision: Mapping[str, Any]) -> str:
    counts = revision.get("counts", {})
    parts = [f"{counts[name]} {word}" for name, word in _COUNTS.items() if counts.get(name)]
    reasons = [f"{number} {why}" for why, number in revision.get("reasons", {}).items()]
    return ", ".join(parts) + (f" ({'; '.join(reasons)})" if reasons else "")


def _notes(reports: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    if not {"key", "note"} <= set(reports.columns):
        return {}
    noted = reports.loc[reports["note"].notna() & reports["note"].ne(""), ["key", "note"]]
    return {str(key): tuple(map(str, notes)) for key, notes in noted.groupby("key")["note"]}


def _ends(
    trials: pd.DataFrame, notes: Mapping[str, tuple[str, ...]], axes: Sequence[str]
) -> list[TrialOutcome]:
    shapes: dict[tuple[Any, ...], str] = {}
    ends = []
    for values, key, status, reason, failures, micro_batch, reused_from in zip(
        zip(*(trials[axis].tolist() for axis in axes), strict=True) if axes else [()] * len(trials),
        *(_column(trials, name) for name in _ASKED),
        strict=True,
    ):
        # The replicates of a shape are called alike; 1 and True are alike only to a dictionary.
        alike = (*values, *map(type, values))
        if alike not in shapes:
            pairs = zip(axes, values, strict=True)
            shapes[alike] = ", ".join(f"{axis}={_value(value)}" for axis, value in pairs)
        ends.append(
            TrialOutcome(
                shape=shapes[alike],
                status=str(status or ""),
                reason=str(reason or ""),
                failures=int(failures or 0),
                micro_batch=None if micro_batch is None else int(micro_batch),
                reused_from=str(reused_from or ""),
                notes=notes.get(str(key), ()),
            )
        )
    return ends


def _column(trials: pd.DataFrame, name: str) -> list[Any]:
    """Return a column, None where nothing is recorded or there is no such column."""
    if name not in trials.columns:
        return [None] * len(trials)
    column = trials[name].astype(object)
    return column.where(column.notna(), None).tolist()


def _value(value: Any) -> str:
    if pd.isna(value):
        return "none"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number_text(value) if is_number else str(value)
