"""The words that tools use for how a run ended.

The last value of a run that was stopped early is a bound on its result at the full budget; a run
that failed, diverged or did not fit its device has no result. An answer depends on this difference,
so an unknown word is an error.
"""

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from hsweep.errors import UserError

AT_CHANCE: Final = "at_chance"
"""A run to the full budget that learned no more than a constant predictor. No study records it; it
follows from the runs' results (`analysis.runs.chance`)."""
FULL: Final = ("finished", AT_CHANCE)
"""Statuses of runs with a result at their full budget."""
NOT_NEEDED: Final = "not_needed"
"""A run that was never started, because its setting or point had lost with other seeds or at a
shorter budget."""
SHORT: Final = "short"
"""A run that ended short of the budget asked for, where no word says that it was stopped."""
DROPPED: Final = ("stopped_early", NOT_NEEDED)
"""Statuses of runs that early stopping kept from their full budget."""
STATUSES: Final = (
    *(*FULL, *DROPPED, SHORT, "failed", "diverged", "too_large", "running", "planned"),
)

_WORDS: Final = {
    "finished": ("complete", "completed", "terminated", "done", "success", "succeeded"),
    "stopped_early": ("pruned", "stopped", "early_stopped", "killed", "canceled", "cancelled"),
    "failed": ("fail", "error", "errored", "crash", "crashed", "preempted", "timeout"),
    "too_large": ("oom", "out_of_memory"),
    "running": ("paused",),
    "planned": ("waiting", "pending", "scheduled", "queued"),
}
"""Words of Optuna, Ray Tune, MLflow and Weights & Biases for the same states, in lower case."""
_KNOWN: Final = {
    **{word: status for status, words in _WORDS.items() for word in words},
    **{status: status for status in STATUSES},
}


def read_statuses(
    column: "pd.Series[Any]",
    name: str,
    *,
    complete: Sequence[str] = (),
    pruned: Sequence[str] = (),
    failed: Sequence[str] = (),
) -> "pd.Series[str]":
    """Return each run's status, one of `STATUSES`.

    Args:
        column: words in upper or lower case; true and false, if ``complete`` is one of these.
        name: the column's name, for messages.
        complete, pruned, failed: see `analysis.runs.columns.RunColumns`.

    Raises:
        UserError: empty entries or unknown words, with a list of these.
    """
    if column.isna().any():
        raise UserError(f"column {name!r} has {int(column.isna().sum())} empty entries")
    written = column.astype(str)
    # Few words, many rows.
    words = written.map({word: _plain(word) for word in written.unique()})
    by_argument = {
        **{_plain(word): "stopped_early" for word in pruned},
        **{_plain(word): "failed" for word in failed},
        **{_plain(word): "finished" for word in complete},
    }
    known = {**_KNOWN, **by_argument}
    if set(words) <= {"true", "false"} and any(_plain(word) in words.array for word in complete):
        known = {"true": "stopped_early", "false": "stopped_early", **by_argument}
    unknown = sorted(set(words) - set(known))
    if unknown:
        raise UserError(
            f"unknown status in column {name!r}: {', '.join(map(repr, unknown))}; known:"
            f" {', '.join(sorted(known))}. Say what the others mean, --complete {unknown[0]!r} for"
            " runs to the full budget, or --pruned, or --failed; where the column does not say how"
            f" runs ended, --ignore {name}"
        )
    return words.map(known)


def holds_endings(column: "pd.Series[Any]") -> bool:
    """Whether a column of words holds one for how a run ended, and no more words than there are
    for that: one that says crash beside words of the user's own, too."""
    if pd.api.types.is_numeric_dtype(column):
        return False
    words = {_plain(str(word)) for word in column.dropna().unique()}
    return len(words) <= len(STATUSES) and not words.isdisjoint(_KNOWN)


def _plain(word: str) -> str:
    """Return a word in lower case, ``_`` for a space; Optuna writes TrialState.COMPLETE, too."""
    return word.strip().lower().removeprefix("trialstate.").replace(" ", "_")
