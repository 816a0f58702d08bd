"""The copy of a study's log in its storage, from which it goes on when its machine is lost.

``STORAGE/STUDY/journal/`` holds the segments of the log in parts of whole lines, whose names say
what they hold: ``SEGMENT-OWNER-START-END.jsonl``. A part is written once; where its segment has
grown a longer part takes its place. So a copy is whole at every instant, whatever a slow or late
writer does.

Machines without a file system in common cannot begin a segment exclusively. Each writes its own,
and of several segments of one number the one with the smallest owner counts: every driver looks for
segments of others each time it copies, and ends where one counts instead of its own.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from hsweep.command_line import command
from hsweep.errors import FencedError, UserError
from hsweep.files import replacing
from hsweep.paths import Home, StudyPaths, below, node_folder
from hsweep.record.journal import Journal
from hsweep.record.lease import Lease, read_holder, refuse_held
from hsweep.record.log import owner_of, segment_file, segment_files
from hsweep.record.manifest import Manifest
from hsweep.record.study import StudyFolder, holds_a_study
from hsweep.terminal import print_step
from hsweep.training.storage import StorageError, Store

COPY_SECONDS: Final = 5.0
"""How often a running study is copied."""
_STATUS_SECONDS: Final = 30.0
_SILENT_SECONDS: Final = 120.0
"""After so long without news a study in a storage is taken for one that does not run."""
_CLOSING_SECONDS: Final = 30.0
_PART_BYTES: Final = 4_000_000
_TRIES: Final = 5
_PART: Final = re.compile(r"(\d{6,})-(\w+)-(\d+)-(\d+)\.jsonl")
_JOURNAL, _HOLDER, _OWNER = "journal", "journal/holder.json", "study.json"
_STATUS, _CODE, _PLAN = "status.json", "code.json", "plan.json"
_NOT_COPIED: Final = "the copy in the storage is not up to date"


@dataclass(frozen=True, slots=True)
class _Part:
    """The bytes of a segment from ``start`` to ``end``."""

    segment: int
    owner: str
    start: int
    end: int

    @property
    def file(self) -> str:
        span = f"{self.start:012}-{self.end:012}"
        return f"{_JOURNAL}/{self.segment:06}-{self.owner}-{span}.jsonl"


def _store(storage: str, name: str = "") -> Store:
    return Store(storage, name, subject=f"the copy of the study {name!r}", patience=0)


def _segments(store: Store) -> dict[int, list[_Part]]:
    """Return the parts that make up each segment of a copy, in their order."""
    matches = filter(None, map(_PART.fullmatch, store.sizes(_JOURNAL)))
    parts = [_Part(int(m[1]), m[2], int(m[3]), int(m[4])) for m in matches]
    segments: dict[int, list[_Part]] = {}
    for part in sorted(parts, key=lambda part: (part.segment, part.owner, part.start, -part.end)):
        chain = segments.setdefault(part.segment, [])
        end = chain[-1].end if chain else 0
        if part.start <= end < part.end and (not chain or part.owner == chain[0].owner):
            chain.append(part)
    return {number: chain for number, chain in segments.items() if chain}


def _owner_id(segment: Path) -> str:
    """Return what tells a segment from others of its number."""
    return str(owner_of(segment).get("id", "unknown"))[:12]


def _note(store: Store, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of a copy; an empty one if there is none."""
    return dict(json.loads(store.read(name) or b"{}"))


def check_storage(manifest: Manifest, paths: StudyPaths) -> None:
    """Refuse a study's storage before anything is recorded.

    Raises:
        UserError: nothing can be written there, it has a copy of another study, or of more of this
            one than there is here: it has gone on from there on another machine.
    """
    assert manifest.storage is not None
    Store(manifest.storage, patience=0).check_writable()
    store = _store(manifest.storage, manifest.name)
    with _as_user_errors():
        owner, segments = _note(store, _OWNER), _segments(store)
    resume = command("resume", manifest.name, "--from", manifest.storage, home=paths.home)
    remedy = f"go on with that by `{resume}`"
    if owner and owner.get("study") != manifest.study_id:
        raise UserError(
            f"{store.path} belongs to another study called {manifest.name!r}, of "
            f"{owner.get('home')} on {owner.get('host')}; {remedy}, choose another name with "
            "--study NAME, or remove that folder"
        )
    for number, chain in segments.items():
        file = segment_file(paths.journal, number)
        is_here = file.exists() and _owner_id(file) == chain[0].owner
        if not is_here or file.stat().st_size < chain[-1].end:
            raise UserError(
                f"{store.path} has more of the study {manifest.name!r} than {paths.root}: it was "
                f"run from another home; {remedy}"
            )


def remove_copy(storage: str, name: str, home: Path) -> None:
    """Remove all that a study has in a storage, if that is of this home: it may have gone on from
    there in another one."""
    store = _store(storage, name)
    with _as_user_errors():
        if _note(store, _OWNER).get("home", str(home)) != str(home):
            return
        for folder in ("checkpoints", "weights", "ray", "trials", _JOURNAL):
            store.remove_folder(folder)
    for file in (_OWNER, _STATUS, _CODE, _PLAN):
        store.remove(file)


@contextlib.contextmanager
def _as_user_errors() -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except StorageError as error:
        raise UserError(str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"the study's copy in the storage is damaged: {error}") from error


class Mirror:
    """Keeps the copy of a study that this process holds up to date, from a thread of its own.

    Args:
        code: the files that the sweep imports, by their paths from the sweep's folder.
    """

    def __init__(self, study: StudyFolder, lease: Lease, code: Mapping[str, Path]) -> None:
        assert study.manifest.storage is not None
        self._study, self._lease, self._code = study, lease, code
        self._store = _store(study.manifest.storage, study.name)
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._has_begun, self._next_status = False, 0.0

    def confirm(self) -> None:
        """Make sure that what is on record outlives this machine (see ``Lease.confirm``)."""
        self._lease.beat()
        self.copy()

    def copy(self, *, is_last: bool = False) -> None:
        """Bring the copy up to date; ``is_last`` says in it that the study no longer runs.

        Raises:
            FencedError: another process goes on from the copy.
            OSError: the storage does not work.
        """
        with self._lock:
            try:
                self._copy(is_last=is_last)
                self._lease.copy_problem = ""
            except FencedError:
                raise
            except Exception as error:
                self._lease.copy_problem = str(error)
                raise

    def _copy(self, *, is_last: bool) -> None:
        paths, store = self._study.paths, self._store
        self._lease.check(at_once=True)  # without its folder the copy looks like another driver's
        copied = _segments(store)
        for file in segment_files(paths.journal)[: self._lease.number]:
            number, owner = int(file.stem), _owner_id(file)
            chain = copied.pop(number, [])
            if chain and chain[0].owner != owner:
                self._fence(number)
            self._copy_segment(file, number, owner, chain)
        if copied:
            self._fence(max(copied))
        if not self._has_begun:
            owner_note = {"study": self._study.manifest.study_id, "home": str(paths.home)}
            store.write(_OWNER, json.dumps({**owner_note, "host": platform.node()}).encode())
            code = {
                name: file.read_text("utf-8", "replace")
                for name, file in self._code.items()
                if file.is_file()
            }
            store.write(_CODE, json.dumps(code).encode())
            store.write(_PLAN, paths.plan.read_bytes())
            self._has_begun = True
        if (holder := read_holder(paths)) is not None:
            note = asdict(replace(holder, is_released=is_last))
            store.write(_HOLDER, json.dumps(note).encode())
        if is_last or time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + _STATUS_SECONDS
            status = {**self._study.status(runs=not is_last), "time": time.time()}
            store.write(_STATUS, json.dumps(status, default=str).encode())

    def _copy_segment(self, file: Path, number: int, owner: str, chain: list[_Part]) -> None:
        """Copy what a segment has more than its parts in the storage; the last part grows up to a
        size."""
        last = chain[-1] if chain else _Part(number, owner, 0, 0)
        start = last.end if last.end - last.start >= _PART_BYTES else last.start
        with file.open("rb") as opened:
            opened.seek(start)
            content = opened.read()
        # Half a line may be taken back.
        end = start + content.rfind(b"\n") + 1
        if end > last.end:
            self._store.write(_Part(number, owner, start, end).file, content[: end - start])
            if start == last.start and chain:
                self._store.remove(last.file)

    def _fence(self, number: int) -> None:
        error = FencedError(
            f"another driver goes on with the study {self._study.name!r} from its copy in "
            f"{self._store.path} (segment {number}); this one ends. What it has recorded since "
            "does not count"
        )
        self._closed.set()
        self._lease.fence(error)
        raise error

    def serve(self) -> None:
        """Copy every few seconds until the study is let go or lost."""
        while not self._closed.wait(COPY_SECONDS):
            with contextlib.suppress(Exception):  # the next copying tries again
                self.copy()

    def close(self) -> None:
        """Copy what is left, which may take half a minute, and stop."""
        self._closed.set()
        end = time.monotonic() + _CLOSING_SECONDS
        while True:
            try:
                return self.copy(is_last=True)
            except Exception as error:
                if isinstance(error, FencedError) or time.monotonic() > end:
                    return None
            time.sleep(1.0)


@contextlib.contextmanager
def mirroring(
    study: StudyFolder, journal: Journal, code: Mapping[str, Path], console: Console
) -> Iterator[None]:
    """Copy a study into its storage within this context; without a storage do nothing. FencedError
    if another process goes on with the copy."""
    if study.manifest.storage is None or journal.lease is None:
        yield
        return
    mirror = Mirror(study, journal.lease, code)
    with contextlib.suppress(OSError):
        mirror.copy()
    journal.lease.confirm = mirror.confirm
    threading.Thread(target=mirror.serve, name="hsweep-mirror", daemon=True).start()
    try:
        yield
    finally:
        mirror.close()
        if problem := journal.lease.copy_problem:
            console.print(f"{_NOT_COPIED}: {problem}", style="yellow", soft_wrap=True)


def mirror_line(paths: StudyPaths) -> str:
    """Return how the copy of a study stands, empty if all is well or it has none."""
    holder = read_holder(paths)
    if holder is None or not holder.copy_problem:
        return ""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(holder.time))
    return f"{_NOT_COPIED} ({since}): {holder.copy_problem}"


# Reading a copy.


def copied_home(storage: str, name: str) -> Home:
    """Return a home on this machine's disk with the study of this name as it is in a storage: its
    record, of which what is new is fetched, without checkpoints and weights. UserError if there is
    no such study, or it cannot be read."""
    home = Home(node_folder() / "mirrors" / hashlib.sha256(storage.encode()).hexdigest()[:12])
    paths = home.study(name)
    with _as_user_errors():
        store = _store(storage, name)
        if not _segments(store):
            names = ", ".join(_store(storage).folders()) or "none"
            raise UserError(f"no study called {name!r} has a copy in {storage}; there: {names}")
        _fetch(store, paths.journal)
    return home


def stored_studies(storage: str) -> list[dict[str, Any]]:
    """Return how each study with a copy in a storage stood when that was last noted; UserError if
    it cannot be read."""
    rows = []
    with _as_user_errors():
        for name in _store(storage).folders():
            if status := _note(_store(storage, name), _STATUS):
                if status["state"] == "running" and time.time() - status["time"] > _SILENT_SECONDS:
                    status["state"] = "interrupted"
                rows.append({**status, "folder": below(storage, name)})
        return sorted(rows, key=lambda row: -row["created"])


def bring(storage: str, name: str, home: Home) -> StudyFolder:
    """Bring a study from its copy in a storage into a home, to go on with it there; where the home
    has it, what the home lacks. UserError if there is no such study, it cannot be read, or a living
    process runs it."""
    copy, store = copied_home(storage, name).study(name), _store(storage, name)

    def refresh() -> None:
        with contextlib.suppress(StorageError):
            _fetch_holder(store, copy.journal)

    refuse_held(copy, refresh)
    paths = home.create().study(name)
    with _as_user_errors():
        _fetch(store, copy.journal)
        if holds_a_study(paths):
            refuse_held(paths)
            _fetch(store, paths.journal)
        else:
            draft = StudyPaths(home.studies / f".{name}.{os.getpid()}.tmp")
            shutil.copytree(copy.journal, draft.journal)
            _write_code(_note(store, _CODE), draft.code)
            draft.plan.write_bytes(store.read(_PLAN) or b"")
            draft.root.rename(paths.root)
        lost = Home(Path(_note(store, _OWNER).get("home", "/")))
    study = StudyFolder.at(paths)
    manifest = replace(study.manifest, storage=storage)
    if manifest.tracking_uri == lost.default_tracking_uri and not lost.mlflow_database.exists():
        manifest = replace(manifest, tracking_uri=home.default_tracking_uri)
    if manifest != study.manifest:
        with study.writer() as journal:
            study.record_manifest(journal, manifest)
    return study


def _fetch(store: Store, folder: Path) -> None:
    """Bring the folder of a log up to its copy; segments that do not count are set aside."""
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(_TRIES):
        if all(
            _fetch_segment(store, folder, chain) for _, chain in sorted(_segments(store).items())
        ):
            break
    _fetch_holder(store, folder)


def _fetch_segment(store: Store, folder: Path, chain: Sequence[_Part]) -> bool:
    """Fetch what the file of a segment lacks; return whether all parts were still there."""
    file, owner = segment_file(folder, chain[0].segment), chain[0].owner
    if file.exists() and _owner_id(file) != owner:
        for other in segment_files(folder)[chain[0].segment - 1 :]:
            aside = other.rename(f"{other}.{_owner_id(other)}")
            print_step(f"the study went on elsewhere: {other} does not count, kept as {aside}")
    size = file.stat().st_size if file.exists() else 0
    for part in chain:
        if part.end > size:
            if (content := store.read(part.file)) is None:
                return False
            with (
                contextlib.nullcontext(file) if size else replacing(file) as place,
                place.open("r+b" if size else "wb") as opened,
            ):
                opened.seek(part.start)
                opened.write(content)
            size = part.end
    return True


def _fetch_holder(store: Store, folder: Path) -> None:
    content = store.read(_HOLDER)
    if content is not None:
        with replacing(folder / "holder.json") as draft:
            draft.write_bytes(content)


def _write_code(texts: Mapping[str, str], folder: Path) -> None:
    for name, text in texts.items():
        file = folder / name
        if ".." in Path(name).parts or not file.is_relative_to(folder):
            raise UserError(f"the copy of the study has code outside its own folder: {name!r}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
