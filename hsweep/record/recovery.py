"""A damaged study made whole again: its record, and the files that the record keeps a copy of.

Verbs that write do it by themselves and say so; ``hsweep recover`` does it for those who only want
to read. A damaged file is never thrown away, it gets another name beside the new one.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from hsweep.command_line import command
from hsweep.errors import UserError
from hsweep.paths import Home, StudyPaths
from hsweep.record.journal import Journal
from hsweep.record.manifest import parse_manifest, write_text
from hsweep.record.repair import keep_aside, repair_journal
from hsweep.record.study import MANIFEST_META, SWEEP_META, Study, holds_a_study
from hsweep.record.study_lock import StudyLock


def open_whole(home: Home, name: str, say: Callable[[str], object]) -> Study:
    """Open a study for a verb that writes; what is damaged is restored first, and said.

    Raises:
        UserError: there is none of that name, another process holds it, or it cannot be restored.
    """
    for line in recover(home, name):
        say(line)
    return Study.open(home, name)


def open_readable(home: Home, name: str, say: Callable[[str], object]) -> Study:
    """Open a study for a verb that adds little; restored if it could not be read otherwise.

    Raises:
        UserError: there is none of that name, another process holds it, or it cannot be restored.
    """
    with contextlib.suppress(UserError):
        study = Study.open(home, name)
        study.status()
        return study
    return open_whole(home, name, say)


def recover(home: Home, name: str) -> list[str]:
    """Restore what is damaged of a study.

    Returns:
        What was found and what was done, a line each; nothing for a study that is whole.

    Raises:
        UserError: there is none of that name, another process holds it, or it cannot be restored.
    """
    paths = home.study(name)
    if not holds_a_study(paths):
        Study.open(home, name)
    paths.refuse_links_out()
    with StudyLock(paths).hold():
        try:
            said = repair_journal(paths.journal)
            with Journal(paths.journal, read_only=True) as journal:
                said += _restore_manifest(paths, journal)
                said += _restore_sweep(paths, journal)
        except OSError as error:
            raise UserError(
                f"the study {name!r} cannot be restored: {error.filename or paths.root} cannot be "
                f"written or read ({error.strerror}); free some space or make it writable, then "
                f"try again. Nothing is lost meanwhile"
            ) from error
        return [*said, *_renew_derived(Study.at(paths))]


def _restore_manifest(paths: StudyPaths, journal: Journal) -> Iterator[str]:
    path = paths.manifest
    try:
        parse_manifest(path.read_text())
        return
    except FileNotFoundError:
        what = "is missing"
    except ValueError as error:
        what = f"cannot be read ({error})"
    recorded = journal.meta(MANIFEST_META)
    if recorded is None:
        raise UserError(
            f"{path} {what}, and the record of {paths.name!r}, written by an earlier version of "
            "hsweep, keeps no copy of it: restore it from a backup"
        )
    kept = keep_aside(path)
    write_text(path, recorded)
    yield _restored(path, what, kept)


def _restore_sweep(paths: StudyPaths, journal: Journal) -> Iterator[str]:
    path = paths.sweep_source
    recorded = journal.meta(SWEEP_META)
    try:
        compile(path.read_text(), str(path), "exec")
        return
    except FileNotFoundError:
        what = "is missing"
    except (SyntaxError, ValueError) as error:
        what = f"is no Python any more ({error})"
    if recorded is None:
        # Reading the study does not need it, so this is no reason to refuse the rest.
        yield (
            f"{path.name} {what} and the record keeps no copy of it: before the study can go on, "
            "put the sweep file it was begun with in its place"
        )
        return
    kept = keep_aside(path)
    write_text(path, recorded)
    yield _restored(path, what, kept)


def _restored(path: Path, what: str, kept: Path | None) -> str:
    aside = f"; the damaged file is kept as {kept.name}" if kept is not None else ""
    return f"{path.name} {what}: restored from the study's record{aside}"


def _renew_derived(study: Study) -> Iterator[str]:
    """Replace what is only ever written from the record, where it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = study.paths
    for table in (paths.trials_table, paths.reports_table):
        if table.exists():
            try:
                pq.read_table(table)
            except (OSError, pa.ArrowException) as error:
                study.write_tables()
                yield f"{table.name} could not be read ({_first_line(error)}): written anew"
    for path, verb in ((paths.plan, "resume"), (paths.analysis, "analyze")):
        if path.exists():
            try:
                json.loads(path.read_text())
            except (OSError, ValueError) as error:
                kept = keep_aside(path)
                yield (
                    f"{path.name} could not be read ({_first_line(error)}): kept as "
                    f"{kept.name if kept else path.name}; "
                    f"`{command(verb, study.name, home=paths.home)}` writes it anew"
                )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
