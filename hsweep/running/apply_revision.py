"""Recording an edited sweep: one transaction, so that a kill leaves all of it or nothing."""

import sqlite3
from dataclasses import replace

from hsweep.coordination.coordinator import planned_row
from hsweep.errors import UserError
from hsweep.planning.revision import Revision
from hsweep.record.journal import Journal
from hsweep.record.manifest import Manifest
from hsweep.record.study import Study


def apply_revision(study: Study, revision: Revision, manifest: Manifest, source: str) -> None:
    """Make a study that of an edited sweep; its lock must be held.

    Args:
        study: as it is.
        revision: what becomes of its trials.
        manifest: the study's from now on, the edit being the last of its revisions.
        source: text of the edited sweep file.

    Raises:
        UserError: the study's folder cannot be written to.
    """
    try:
        with study.journal(read_only=False) as journal, journal.transaction():
            _enter(journal, revision)
            study.record_revision(journal, manifest, source)
        study.manifest = manifest
        study.export()
    except (OSError, sqlite3.Error) as error:
        raise UserError(
            f"the edited sweep cannot be taken over by {study.name!r}: {study.paths.root} cannot "
            f"be written to ({error}). Nothing on record is lost; free space or restore the right "
            "to write there, then give the command again"
        ) from error


def _enter(journal: Journal, revision: Revision) -> None:
    before = {row.key: row for row in journal.trials(orphaned=True)}
    planned = [planned_row(trial) for trial in revision.plan.trials]
    journal.add_trials(planned)
    # A trial stays made of what it was made of, also where other code is accepted as the same.
    placed = [replace(row, parts=before[row.key].parts) for row in planned if row.key in before]
    journal.place_trials(row for row in placed if row.entry() != before[row.key].entry())
    for each in revision.continued:
        assert each.status is not None, "it goes on from the shorter training"
        journal.adopt(
            each.trial.key,
            list(journal.reports(each.source.key)),
            status=each.status,
            reason=each.reason,
            value=each.source.value,
            continues=each.checkpoints,
            origins=journal.origins(each.source.key).get(each.source.key, []),
        )
    journal.set_orphaned([row.key for row in revision.back], "")
    for why, orphans in revision.reasons().items():
        journal.set_orphaned([orphan.row.key for orphan in orphans], why)
