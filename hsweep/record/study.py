"""A study on disk: one folder that holds everything needed to read it, resume it, repeat it."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.command_line import command, running_command
from hsweep.design.labels import first_of
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError, shown
from hsweep.files import cause, set_aside, write_text
from hsweep.paths import Home, StudyPaths, weights_file
from hsweep.record.index import remove_index
from hsweep.record.journal import Journal, JournalReader
from hsweep.record.lease import holding, is_held, refuse_held
from hsweep.record.log import Entry
from hsweep.record.manifest import Manifest, manifest_text, parse_manifest
from hsweep.record.rows import TrialRow, labels_of
from hsweep.record.summary import PROPOSALS, SEARCH_END
from hsweep.record.tables import StudyTables, write_table
from hsweep.record.weights import FinalWeights, KeptWeights, WeightsFolder, WeightsKeeper
from hsweep.secrets import redact_command
from hsweep.terminal import warn

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Manifest", "StudyFolder", "existing", "holds_a_study", "list_studies"]

FILE_META: Final = "file:"
"""Begins the names under which the text of a file of the study's folder is on record."""
CLOSELY: Final = 5_000
"""Trials up to which commands that show how a study stands list its trials."""


class StudyFolder:
    """A study's folder and its manifest."""

    def __init__(self, paths: StudyPaths, manifest: Manifest) -> None:
        self.paths = paths
        self.manifest = manifest

    @property
    def name(self) -> str:
        return self.paths.name

    @classmethod
    def create(
        cls, home: Home, manifest: Manifest, *, sweep_source: str, plan: Mapping[str, Any]
    ) -> "StudyFolder":
        """Make a new study's folder; UserError if the name is taken or it cannot be made."""
        paths = home.study(manifest.name)
        # Made under a name that no study can have, so that a kill leaves none half made.
        draft = StudyPaths(home.studies / f".{manifest.name}.{os.getpid()}.tmp")
        draft.root.mkdir(parents=True)
        study = cls(draft, manifest)
        try:
            with Journal(draft.journal, create=True) as journal:
                texts = {draft.manifest: manifest_text(manifest), draft.sweep_source: sweep_source}
                journal.set_metas({_on_record(path): text for path, text in texts.items()})
                study._export(journal, plan)
            draft.root.rename(paths.root)
        except BaseException as error:
            shutil.rmtree(draft.root, ignore_errors=True)
            if not isinstance(error, (OSError, UserError)):
                raise
            if holds_a_study(paths):
                raise UserError(
                    f"a study called {manifest.name!r} exists in {home.root}; go on with it by "
                    f"`{command('resume', manifest.name, home=home.root)}`, or start another with "
                    "--study NAME"
                ) from None
            raise UserError(
                f"the study's folder {paths.root} cannot be made ({cause(error)}); if something "
                "else is there remove it, or choose another name with --study NAME; on a full disk "
                "free some space"
            ) from error
        return cls(paths, manifest)

    @classmethod
    def open(cls, home: Home, name: str) -> "StudyFolder":
        """Open the study of this name; UserError if there is none, or it cannot be read."""
        return cls.at(existing(home, name))

    @classmethod
    def open_to_run(cls, home: Home, name: str) -> "StudyFolder":
        """Open an existing study that is going to run.

        Its index is built from its log again: damage to an index may go unnoticed otherwise.
        UserError if there is none of that name, another process runs it, or it cannot be read.
        """
        paths = existing(home, name)
        refuse_held(paths)
        with contextlib.suppress(OSError):
            remove_index(paths.index)
        return cls.at(paths)

    @classmethod
    def at(cls, paths: StudyPaths) -> "StudyFolder":
        """Open the study in a folder; UserError if it holds none, or one that cannot be read."""
        with JournalReader(paths.journal) as journal:
            text = _recorded_text(journal, paths.manifest)
        try:
            return cls(paths, parse_manifest(text))
        except ValueError as error:
            raise _unreadable(paths.manifest, error) from error

    def accept(self, journal: Journal, entry: Mapping[str, Any]) -> None:
        """Record a change of code that was accepted (see ``Manifest.accepted``)."""
        accepted = [*self.manifest.accepted, dated(entry)]
        self.record_manifest(journal, replace(self.manifest, accepted=accepted))

    def record_manifest(self, journal: Journal, manifest: Manifest) -> None:
        """Record a new manifest of the study; its sweep file stays."""
        journal.set_meta(_on_record(self.paths.manifest), manifest_text(manifest))
        self.manifest = manifest
        self.export()

    def manifest_entries(self, journal: Journal, manifest: Manifest, source: str) -> list[Entry]:
        """Return the entries by which the study is another from now on; where the manifest has one
        more revision, ``source`` is the text of its sweep file, and the one before is kept."""
        texts: dict[str, str | None] = {_on_record(self.paths.manifest): manifest_text(manifest)}
        if len(manifest.revisions) > len(self.manifest.revisions):
            source_meta = _on_record(self.paths.sweep_source)
            earlier = self.paths.earlier_sweep_source(len(manifest.revisions))
            texts |= {_on_record(earlier): journal.meta(source_meta), source_meta: source}
        return journal.meta_entries(texts)

    def sweep_text(self) -> str:
        """Return the text of the study's sweep file, as it is on record; of the file itself where
        the line that held it is damaged."""
        with self.journal() as journal:
            return _recorded_text(journal, self.paths.sweep_source)

    def sweep_file(self) -> Path:
        """Return the study's own sweep file, written anew where it differs from the record."""
        self.export()
        return self.paths.sweep_source

    def origin(self) -> Path | None:
        """Return the user's file that the study's sweep came from, as it is now; None where it has
        gone, or there was none but the cells of a notebook."""
        recorded = [self.manifest.provenance, *(e["provenance"] for e in self.manifest.revisions)]
        file = Path(recorded[-1].get("sweep_file") or self.paths.sweep_source)
        is_users = file.parent.resolve() == Path(self.manifest.sweep_folder or "").resolve()
        return file if is_users and file.is_file() and file != self.paths.sweep_source else None

    def export(self, plan: Mapping[str, Any] | None = None) -> None:
        """Write the files that people read, and the plan if given, where they differ from the
        record; no command reads these files back."""
        with self.journal() as journal:
            self._export(journal, plan)

    def _export(self, journal: JournalReader, plan: Mapping[str, Any] | None) -> None:
        texts = journal.metas(FILE_META)
        if plan is not None:
            texts[self.paths.plan.name] = json.dumps(plan, indent=1, default=str) + "\n"
        for name, text in texts.items():
            self._export_file(self.paths.root / name, text, texts.values())

    def _export_file(self, path: Path, text: str, recorded_digests: Collection[str]) -> None:
        present = path.read_text("utf-8", errors="replace") if path.exists() else None
        if present == text:
            return
        if (
            path == self.paths.sweep_source
            and present is not None
            and present not in recorded_digests
        ):
            # Somebody's work, perhaps.
            aside = set_aside(path, "changed")
            edited = command("run", aside, "--study", self.name, home=self.paths.home)
            warn(
                f"{path} was not what is on record: it is kept as {aside.name}, and what is on "
                f"record is in its place; `{edited}` goes on with the changed one"
            )
        write_text(path, text)

    def journal(self) -> JournalReader:
        """Open the record to read it, also beside a running driver."""
        return JournalReader(self.paths.journal)

    @contextlib.contextmanager
    def writer(self) -> Iterator[Journal]:
        """Hold the study for this process, and open the record to write it; UserError if another
        process holds it, or it cannot be written to."""
        with holding(self.paths) as lease, Journal(self.paths.journal, lease=lease) as journal:
            for path in (self.paths.manifest, self.paths.sweep_source):
                # Where a damaged line of the log held it, it is on record again.
                journal.set_meta(_on_record(path), _recorded_text(journal, path))
            yield journal

    def is_running(self) -> bool:
        """Whether a living process runs the study."""
        return is_held(self.paths)

    def is_adaptive(self) -> bool:
        """Whether a search has proposed its trials one by one."""
        with self.journal() as journal:
            return bool(journal.metas(PROPOSALS))

    def checkpoints(self) -> str:
        return self.paths.stored(self.manifest.storage, self.paths.checkpoints)

    def weights(self) -> WeightsFolder:
        return WeightsFolder(self.paths.stored(self.manifest.storage, self.paths.weights))

    def kept_weights(self, journal: JournalReader) -> KeptWeights:
        """Return which final weights are there, and which should be."""
        return WeightsKeeper(self.manifest, self.weights()).kept(journal.trials(orphaned=True))

    def figures(self) -> list[Path]:
        """Return the files of the figures behind the answer."""
        return sorted(self.paths.figures.glob("*.png"))

    @property
    def may_have_weights(self) -> bool:
        """Whether final weights may be kept; those of a study that was edited to keep none stay."""
        return self.manifest.keep != "none" or self.paths.weights.is_dir()

    @contextlib.contextmanager
    def final_weights(self, *, with_files: bool) -> Iterator[list[FinalWeights]]:
        """Yield the final weights that are kept, ``with_files`` on this machine; StorageError if
        the storage cannot be read."""
        folder = self.weights()
        with self.journal() as journal:
            trials = self.kept_weights(journal).trials if self.may_have_weights else ()
        with contextlib.ExitStack() as files:
            weights = []
            for row in trials:
                name = weights_file(row.key, row.attempt)
                file = None
                if with_files:
                    file = files.enter_context(folder.local((row.key, row.attempt)))
                weights.append(FinalWeights(row.key, name, f"{folder.root}/{name}", file))
            yield weights

    def trial_named(self, name: str, *, orphaned: bool = False) -> TrialRow:
        """Return the trial whose label or key is ``name``, or whose key begins with it,
        ``orphaned`` also among those that are no longer part of the study; UserError if there is
        none, or several."""
        with self.journal() as journal:
            rows = journal.trials(orphaned=orphaned)
        labels = labels_of(rows)
        matches = [row for row in rows if name == labels[row.key]]
        matches = matches or [row for row in rows if name and row.key.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        examples = first_of([row.key for row in matches])
        several = f"{len(matches)} trials of {self.name} are ({examples})"
        key, label = next(iter(labels.items()), ("t0123", "heads=2 #0"))
        raise UserError(
            f"{several if matches else 'no trial is'} called {shown(name)}; a trial is named by "
            f"the beginning of its key, or as tables name it and its seed: {key!r} or {label!r}"
        )

    @contextlib.contextmanager
    def reading(self, *, orphaned: bool = False) -> Iterator[StudyTables]:
        """Read the study as of one instant, whatever is recorded meanwhile; ``orphaned`` adds the
        trials that are no longer part of it."""
        with self.journal() as journal, journal.snapshot():
            metrics = self.manifest.metrics
            if self.manifest.training:
                metrics = [*metrics, *journal.further_metrics(metrics)]
            yield StudyTables(journal, self.name, metrics, orphaned=orphaned)

    def tables(self, *, orphaned: bool = False) -> "tuple[pa.Table, pa.Table]":
        """Return the trials and the reports as they stand; ``orphaned`` adds those of trials that
        are no longer part of the study."""
        with self.reading(orphaned=orphaned) as tables:
            return tables.trials, tables.reports

    def write_tables(self) -> None:
        trials, reports = self.tables()
        write_table(trials, self.paths.trials_table)
        write_table(reports, self.paths.reports_table)

    def status(self, *, runs: bool | None = None) -> dict[str, Any]:
        """Return how the study stands; ``runs`` where it is known whether a process runs it."""
        running = self.is_running() if runs is None else runs
        with self.journal() as journal, journal.snapshot():
            totals = journal.totals()
            if self.manifest.training:  # when it waits for data is not known
                totals["data_wait_share"] = None
            search_end, num_runs = journal.meta(SEARCH_END), journal.num_runs()
        # One that ended before its trials were recorded has none.
        has_trials = any(totals[status] for status in TrialStatus)
        is_open = not has_trials or totals[TrialStatus.PLANNED] or totals[TrialStatus.RUNNING]
        state = "running" if running else "interrupted" if is_open else "complete"
        return {
            "study": self.name,
            "sweep": self.manifest.sweep,
            "preset": self.manifest.preset,
            "state": state,
            "created": self.manifest.created,
            **totals,
            "runs": num_runs,
            "search_end": search_end,
            "folder": str(self.paths.root),
        }


def dated(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the manifest with the time and this command."""
    return {"time": time.time(), "command": " ".join(redact_command(running_command())), **entry}


def _on_record(path: Path) -> str:
    return f"{FILE_META}{path.name}"


def _recorded_text(journal: JournalReader, path: Path) -> str:
    """Return the text of a file of a study as it is on record; of the file itself where the line
    that held it is damaged."""
    text = journal.meta(_on_record(path))
    try:
        return path.read_text("utf-8") if text is None else text
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(
        f"the study {path.parent.name!r} cannot be read: {path}: {cause(error)}; restore it from a "
        "backup"
    )


def existing(home: Home, name: str) -> StudyPaths:
    """Return the paths of an existing study; UserError if there is none of this name, or if it has
    links that lead out of the home."""
    paths = home.study(name)
    if not holds_a_study(paths):
        names = [study.name for study in list_studies(home)]
        listed = f"studies there: {', '.join(names)}" if names else "it holds no study yet"
        raise UserError(f"no study called {name!r} in {home.root}; {listed}")
    paths.refuse_links_out()
    return paths


def list_studies(home: Home) -> list[StudyPaths]:
    """Return the studies of a home, newest first."""
    if not home.studies.is_dir():
        return []
    studies = [
        paths
        for paths in map(StudyPaths, home.studies.iterdir())
        if not paths.name.startswith(".") and holds_a_study(paths)
    ]
    return sorted(studies, key=_age)


def statuses(home: Home) -> list[dict[str, Any]]:
    """Return how each study of a home stands, newest first; of one that cannot be read, why."""
    rows: list[dict[str, Any]] = []
    for paths in list_studies(home):
        try:
            rows.append(StudyFolder.open(home, paths.name).status())
        except Exception as error:  # whatever has become of its files, the others are listed
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            rows.append({"study": paths.name, "state": "unreadable", "error": f"{kind}{error}"})
    return rows


def holds_a_study(paths: StudyPaths) -> bool:
    """Whether a folder holds a study, whole or damaged."""
    try:
        return paths.manifest.is_file() or paths.journal.is_dir()
    except OSError:
        return False


def _age(paths: StudyPaths) -> float:
    for path in (paths.manifest, paths.root):
        with contextlib.suppress(OSError):
            return -path.stat().st_mtime
    return 0.0
