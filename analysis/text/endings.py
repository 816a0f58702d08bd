"""The report page's words on what befell trials, and on how the study was edited meanwhile."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from analysis.text.numbers import number_text
from analysis.text.tables import Table, varying_columns
from hsweep.record.summary import Remark, TrialOutcome, remarks

_COLUMNS: Final = ("key", "status", "reason", "failures", "micro_batch", "reused_from")
_COUNTS: Final = {
    "kept": "kept",
    "restored": "back again",
    "new": "new",
    "extended": "extended to a longer budget",
    "orphaned": "orphaned",
}


def endings_table(
    trials: pd.DataFrame,
    axes: Sequence[str],
    orphaned: Mapping[str, int],
    notes: Mapping[str, tuple[str, ...]],
) -> Table:
    """Return what befell the trials besides training to the end; no row where nothing did.

    Args:
        trials: one row a trial; any column but the axes may be missing.
        axes: the swept axes.
        orphaned: how many trials are no longer part of the study, by the reason.
        notes: of the reports, by trial.
    """
    varying = varying_columns(trials, axes) or [name for name in axes if name in trials.columns]
    rows = [
        (each.what, str(each.trials), each.details) for each in _remarks(trials, varying, notes)
    ]
    rows += [
        ("orphaned", str(number), f"{why}; their results are kept and in no number here")
        for why, number in orphaned.items()
    ]
    return Table(("what happened", "trials", "which and why"), tuple(rows))


def _remarks(
    trials: pd.DataFrame, axes: Sequence[str], notes: Mapping[str, tuple[str, ...]]
) -> list[Remark]:
    known = trials.reindex(columns=[*axes, *_COLUMNS]).astype(object)
    known = known.where(known.notna(), None)
    shapes: dict[tuple[Any, ...], str] = {}
    ends = []
    for row in known.itertuples(index=False, name=None):
        values = row[: len(axes)]
        key, status, reason, failures, micro_batch, reused_from = row[len(axes) :]
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
    return remarks(ends) if ends else []


def _value(value: Any) -> str:
    if value is None:
        return "none"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number_text(value) if is_number else str(value)


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
