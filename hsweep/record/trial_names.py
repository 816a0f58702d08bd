"""Names of trials for people: the key, its beginning, or shape and seed."""

from typing import TYPE_CHECKING, Final

from hsweep.errors import UserError, shown
from hsweep.record.rows import TrialRow, labels_of

if TYPE_CHECKING:
    from hsweep.record.study import StudyFolder

_MOST_NAMED: Final = 5


def trial_named(study: "StudyFolder", name: str, *, orphaned: bool = False) -> TrialRow:
    """Return the trial whose label or key is ``name``, or whose key begins with it; ``orphaned``
    includes trials that are no longer part of the study.

    Raises:
        UserError: there is no such trial, or there are several.
    """
    with study.journal() as journal:
        rows = journal.trials(orphaned=orphaned)
    labels = labels_of(rows)
    matches = [row for row in rows if name == labels[row.key]]
    matches = matches or [row for row in rows if name and row.key.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    examples = ", ".join(row.key for row in matches[:_MOST_NAMED])
    ellipsis = ", ..." if len(matches) > _MOST_NAMED else ""
    several = f"{len(matches)} trials of {study.name} are ({examples}{ellipsis})"
    key, label = next(iter(labels.items()), ("t0123", "heads=2 #0"))
    raise UserError(
        f"{several if matches else 'no trial is'} called {shown(name)}; a trial is "
        f"named by the beginning of its key, or as tables name it and its seed: {key!r} or "
        f"{label!r}"
    )
