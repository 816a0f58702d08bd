"""A study on disk: one folder that holds everything needed to read it, resume it, repeat it."""

import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hsweep.command_line import command
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home, StudyPaths
from hsweep.record.endings import PROPOSALS, SEARCH_END
from hsweep.record.journal import Journal
from hsweep.record.journal_file import recover_line
from hsweep.record.manifest import (
    Manifest,
    manifest_content,
    manifest_text,
    parse_manifest,
    write_json,
    write_text,
)
from hsweep.record.reading import reading
from hsweep.record.study_lock import StudyLock
from hsweep.record.tables import write_table
from hsweep.redaction import redact_command

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Manifest",
    "Study",
    "holds_a_study",
    "list_studies",
    "manifest_content",
    "write_json",
]

MANIFEST_META: Final = "study.json"
SWEEP_META: Final = "sweep.py"
"""Under these names the record keeps the study's two files, to restore them from."""
CLOSELY: Final = 5_000
"""Trials up to which a study is looked at row by row by verbs that only show how it stands."""


class Study:
    """A study's folder.

    Args:
        paths: where it lies.
        manifest: what was asked for.
    """

    def __init__(self, paths: StudyPaths, manifest: Manifest) -> None:
        self.paths = paths
        self.manifest = manifest

    @property
    def name(self) -> str:
        """The study's name."""
        return self.paths.name

    @classmethod
    def create(
        cls, home: Home, manifest: Manifest, *, sweep_source: str, plan: Mapping[str, Any]
    ) -> "Study":
        """Make a new study's folder.

        Raises:
            UserError: the name is taken.
        """
        paths = home.study(manifest.name)
        # Made under a name that no study can have, so that a kill leaves none half made.
        draft = StudyPaths(home.studies / f".{manifest.name}.{os.getpid()}.tmp")
        draft.root.mkdir(parents=True)
        try:
            draft.sweep_source.write_text(sweep_source)
            write_json(draft.plan, plan)
            with Journal(draft.journal, create=True) as journal:
                journal.set_meta(MANIFEST_META, manifest_text(manifest))
                journal.set_meta(SWEEP_META, sweep_source)
            write_text(draft.manifest, manifest_text(manifest))
            draft.root.rename(paths.root)
        except KeyboardInterrupt:
            shutil.rmtree(draft.root, ignore_errors=True)
            raise
        except (OSError, sqlite3.Error, UserError) as error:
            shutil.rmtree(draft.root, ignore_errors=True)
            if holds_a_study(paths):
                raise UserError(
                    f"a study called {manifest.name!r} exists in {home.root}; go on with it by "
                    f"`{command('resume', manifest.name, home=home.root)}`, or start another with "
                    "--study NAME"
                ) from None
            why = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"the study's folder {paths.root} cannot be made ({why}); if something else is "
                "there remove it, or choose another name with --study NAME; on a full disk free "
                "some space"
            ) from error
        return cls(paths, manifest)

    @classmethod
    def open(cls, home: Home, name: str) -> "Study":
        """Open an existing study.

        Raises:
            UserError: there is none of that name, or it cannot be read.
        """
        paths = home.study(name)
        if not holds_a_study(paths):
            known = [study.name for study in list_studies(home)]
            listed = f"studies there: {', '.join(known)}" if known else "it holds no study yet"
            raise UserError(f"no study called {name!r} in {home.root}; {listed}")
        paths.refuse_links_out()
        return cls.at(paths)

    @classmethod
    def at(cls, paths: StudyPaths) -> "Study":
        """Open the study in a folder, wherever that lies.

        Raises:
            UserError: the folder holds no study, or one that cannot be read.
        """
        try:
            return cls(paths, parse_manifest(paths.manifest.read_text()))
        except PermissionError as error:
            raise UserError(
                f"the study {paths.name!r} cannot be read: {paths.manifest}: {error.strerror}"
            ) from error
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"the study {paths.name!r} cannot be read: {paths.manifest}: {why}; "
                f"`{recover_line(paths.root)}` restores it from the study's record"
            ) from error

    def extend(self, entry: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """Record an extension, and the plan it leads to."""
        self.manifest = replace(self.manifest, extensions=[*self.manifest.extensions, dict(entry)])
        write_text(self.paths.manifest, manifest_text(self.manifest))
        write_json(self.paths.plan, plan)

    def accept(self, entry: Mapping[str, Any]) -> None:
        """Record a change of code that was accepted (see ``Manifest.accepted``)."""
        dated = {"time": time.time(), "command": " ".join(redact_command(sys.argv)), **entry}
        self.manifest = replace(self.manifest, accepted=[*self.manifest.accepted, dated])
        write_text(self.paths.manifest, manifest_text(self.manifest))

    def revise(self, manifest: Manifest, plan: Mapping[str, Any]) -> None:
        """Record what the study is from now on, and its plan."""
        write_json(self.paths.plan, plan)
        self.manifest = manifest
        write_text(self.paths.manifest, manifest_text(manifest))

    def renew_plan(self, plan: Mapping[str, Any]) -> None:
        """Write the plan if its file has got lost; nothing is read back from it."""
        if not self.paths.plan.exists():
            with contextlib.suppress(OSError):
                write_json(self.paths.plan, plan)

    def journal(self, *, read_only: bool = True) -> Journal:
        """Open the record; for writing, it also keeps what the study is run with."""
        journal = Journal(self.paths.journal, read_only=read_only)
        if not read_only:
            journal.set_meta(MANIFEST_META, manifest_text(self.manifest))
            with contextlib.suppress(OSError, UnicodeDecodeError):
                journal.set_meta(SWEEP_META, self.paths.sweep_source.read_text())
        return journal

    def locked(self) -> AbstractContextManager[None]:
        """Hold the study for this process; the lock of a dead process does not count.

        Raises:
            UserError: another process holds it, or its folder cannot be written to.
        """
        return StudyLock(self.paths).hold()

    def is_running(self) -> bool:
        """Whether a living process of this machine runs the study."""
        return StudyLock(self.paths).is_held()

    def is_adaptive(self) -> bool:
        """Whether a search has proposed its trials one by one."""
        with self.journal() as journal:
            return bool(journal.metas(PROPOSALS))

    def checkpoints(self) -> str:
        """Return the folder or URI that holds the checkpoints."""
        return self.paths.checkpoint_root(self.manifest.storage)

    def tables(self, *, orphaned: bool = False) -> "tuple[pa.Table, pa.Table]":
        """Return the trials and the reports as they stand; ``orphaned`` adds those of trials that
        are no longer part of the study."""
        with reading(self, orphaned=orphaned) as tables:
            return tables.trials, tables.reports

    def write_tables(self) -> None:
        """Write ``trials.parquet`` and ``reports.parquet``."""
        trials, reports = self.tables()
        write_table(trials, self.paths.trials_table)
        write_table(reports, self.paths.reports_table)

    def status(self) -> dict[str, Any]:
        """Return how the study stands, as plain content.

        Of up to `CLOSELY` trials every row is held against its checksum; more are only counted.
        """
        running = self.is_running()
        with self.journal() as journal, journal.snapshot():
            totals = journal.totals()
            if totals.trials + totals.orphaned <= CLOSELY:
                journal.trials(orphaned=True)
            search_end = journal.meta(SEARCH_END)
        open_trials = totals.counts[TrialStatus.PLANNED] + totals.counts[TrialStatus.RUNNING]
        state = "running" if running else "complete" if open_trials == 0 else "interrupted"
        return {
            "study": self.name,
            "sweep": self.manifest.sweep,
            "preset": self.manifest.preset,
            "state": state,
            "created": self.manifest.created,
            "trials": totals.trials,
            **{str(status): number for status, number in totals.counts.items()},
            "reused": totals.reused,
            "tried_again": totals.tried_again,
            "orphaned": totals.orphaned,
            "units_done": totals.units,
            "budget": totals.budget,
            "wall_seconds": totals.wall_seconds,
            "data_wait_share": totals.data_wait_share,
            "search_end": search_end,
            "folder": str(self.paths.root),
        }


def list_studies(home: Home) -> list[StudyPaths]:
    """Return the studies of a home, newest first."""
    if not home.studies.is_dir():
        return []
    found = [
        paths
        for paths in map(StudyPaths, home.studies.iterdir())
        if not paths.name.startswith(".") and holds_a_study(paths)
    ]
    return sorted(found, key=_age)


def holds_a_study(paths: StudyPaths) -> bool:
    """Whether a folder holds a study, whole or damaged."""
    try:
        return any(path.is_file() for path in (paths.manifest, paths.journal, paths.journal_copy))
    except OSError:
        return False


def _age(paths: StudyPaths) -> float:
    for path in (paths.manifest, paths.root):
        with contextlib.suppress(OSError):
            return -path.stat().st_mtime
    return 0.0
