"""Taking an edited sweep over, so that a kill at any instant loses nothing.

All that is going to be done is written into one file first. Then it is done, step by step, and the
file removed. If it is there when the study is opened for training, all of it is done again: every
step leaves what it finds done as it is.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from hsweep.command_line import command
from hsweep.coordination.coordinator import planned_row
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.planning.revision import Revision
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.manifest import Manifest, manifest_content, manifest_text, write_json, write_text
from hsweep.record.study import MANIFEST_META, SWEEP_META, Study


def take_over(
    study: Study, revision: Revision, manifest: Manifest, plan: Mapping[str, Any], source: str
) -> None:
    """Make a study that of an edited sweep; its lock must be held.

    Args:
        study: as it is.
        revision: what becomes of its trials.
        manifest: the study's from now on, the edit being the last of its revisions.
        plan: the study's from now on, as plain content.
        source: text of the edited sweep file.

    Raises:
        UserError: the study's folder cannot be written to.
    """
    content = {
        "manifest": manifest_content(manifest),
        "plan": plan,
        "source": source,
        "rows": [_content(planned_row(trial)) for trial in revision.plan.trials],
        "orphaned": {orphan.row.key: orphan.why for orphan in revision.orphaned},
        "back": [row.key for row in revision.back],
        "continued": [
            {
                "key": each.trial.key,
                "source": each.source.key,
                "checkpoints": each.checkpoints,
                "status": each.status,
                "reason": each.reason,
                "value": each.source.value,
            }
            for each in revision.continued
        ],
    }
    with _saying_why(study):
        write_json(study.paths.pending_revision, content)
    finish(study)


def finish(study: Study) -> bool:
    """Finish what a kill has interrupted, if anything; the study's lock must be held.

    Returns:
        Whether an edited sweep was waiting to be taken over.

    Raises:
        UserError: what is going to be done cannot be read, or the study's folder not written to.
    """
    path = study.paths.pending_revision
    if not path.exists():
        return False
    try:
        content = json.loads(path.read_text())
        manifest = Manifest(**content["manifest"])
        source, plan = str(content["source"]), content["plan"]
        planned = [TrialRow(**row) for row in content["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the edited sweep that {study.name!r} was taking over cannot be read ({path}: "
            f"{error}); remove that file and give the sweep again: "
            f"{command('resume', study.name, '--sweep', 'FILE', home=study.paths.home)}"
        ) from error
    with _saying_why(study):
        with study.journal(read_only=False) as journal:
            _replace_sweep(study, len(manifest.revisions), source)
            _enter(journal, planned, content)
            journal.set_meta(SWEEP_META, source)
            journal.set_meta(MANIFEST_META, manifest_text(manifest))
        study.revise(manifest, plan)
        path.unlink()
    return True


def complete(study: Study, console: Console) -> None:
    """Finish taking an edited sweep over where a kill interrupted it; the lock must be held."""
    if finish(study):
        console.print(
            f"{study.name}: an edited sweep was being taken over when the study was killed; that "
            "is complete now",
            style="yellow",
            soft_wrap=True,
        )


def is_pending(study: Study) -> bool:
    """Whether a kill has interrupted the taking over of an edited sweep."""
    return study.paths.pending_revision.exists()


@contextlib.contextmanager
def _saying_why(study: Study) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise UserError(
            f"the edited sweep cannot be taken over by {study.name!r}: {study.paths.root} cannot "
            f"be written to ({error}). Nothing on record is lost; free space or restore the right "
            "to write there, then give the command again"
        ) from error


def _replace_sweep(study: Study, number: int, source: str) -> None:
    earlier = study.paths.earlier_sweep_source(number)
    # Done already if it is there: what the study runs may be the edited sweep by now.
    if not earlier.exists():
        write_text(earlier, study.paths.sweep_source.read_text())
    write_text(study.paths.sweep_source, source)


def _enter(journal: Journal, planned: Sequence[TrialRow], content: Mapping[str, Any]) -> None:
    """Bring the record to what an edit makes of it, leaving out what has been done."""
    journal.add_trials(planned)
    rows = {row.key: row for row in journal.trials(orphaned=True)}
    journal.place_trials(row for row in _placed(planned, rows) if _differs(row, rows[row.key]))
    for each in content["continued"]:
        if rows[each["key"]].unit == 0 and not rows[each["key"]].continues:
            journal.adopt(
                each["key"],
                list(journal.reports(each["source"])),
                status=TrialStatus(each["status"]),
                reason=each["reason"],
                value=each["value"],
                continues=each["checkpoints"],
                origins=journal.origins(each["source"]).get(each["source"], []),
            )
    by_reason: dict[str, list[str]] = {"": [key for key in content["back"] if rows[key].orphaned]}
    for key, why in content["orphaned"].items():
        if not rows[key].orphaned:
            by_reason.setdefault(why, []).append(key)
    for why, keys in by_reason.items():
        journal.set_orphaned(keys, why)


def _placed(planned: Iterable[TrialRow], rows: Mapping[str, TrialRow]) -> Iterator[TrialRow]:
    """Yield rows as they are to be on record: a trial stays made of what it was made of, also where
    other code is accepted as the same."""
    for row in planned:
        yield replace(row, parts=rows[row.key].parts or row.parts)


def _content(row: TrialRow) -> dict[str, Any]:
    content = {name: getattr(row, name) for name in TrialRow.__dataclass_fields__}
    return content | {name: dict(content[name]) for name in ("point", "counts", "parts")}


def _differs(planned: TrialRow, recorded: TrialRow) -> bool:
    names: Sequence[str] = ("ordinal", "point", "replicate", "stratum", "counts", "parts")
    return any(getattr(planned, name) != getattr(recorded, name) for name in names)
