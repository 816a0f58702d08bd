"""What a store that fails, hangs or is somebody else's leads to: on an S3 server and on disk."""

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from object_store import KEYS, ObjectStore, object_store
from pyarrow.fs import LocalFileSystem
from tiny_studies import SWEEP_FILE

from hsweep.paths import Home
from hsweep.training import storage
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.storage import StorageError, Store, UnusableStorageError

Invoke = Callable[..., Result]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with object_store("bucket") as served:
        yield served


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which take no time here."""
    slept: list[float] = []
    start = time.monotonic()

    class Clock:
        monotonic = staticmethod(lambda: start + sum(slept))
        sleep = staticmethod(slept.append)

    monkeypatch.setattr(storage, "time", Clock)
    return slept


@pytest.mark.parametrize("size", [0, 10, 12_000_000])
def test_what_is_written_comes_back_whole(held: ObjectStore, tmp_path: Path, size: int) -> None:
    content = bytes(size)
    for root in (held.uri(), str(tmp_path / "new" / "folder")):
        store = Store(root)
        assert store.read("one/file") is None
        store.write("one/file", content)
        assert store.read("one/file") == content
        assert (store.sizes("one"), store.folders()) == ({"file": size}, ["one"])
        store.remove("one/file")
        assert store.read("one/file") is None


def test_one_file_is_one_put_and_one_reading_is_one_get(held: ObjectStore) -> None:
    store = Store(held.uri())
    store.write("file", bytes(4_000_000))
    assert {name for name in held.written if not name.endswith("/")} == {"bucket/runs/file"}
    before = len(held.requests)
    store.read("file")
    assert [method for method, _ in held.requests[before:]].count("GET") == 1


@pytest.mark.slow  # the client of S3 takes seconds for its own tries
@pytest.mark.parametrize("fault", ["refuse", "drop"])
def test_an_outage_costs_a_delay_and_is_told(
    held: ObjectStore, pauses: list[float], fault: str
) -> None:
    store = CheckpointStore(held.uri(), "t1", 1)
    store.save(1, {"unit": 1})
    assert store.trouble() == ""
    held.fault = lambda method, path: None if pauses else fault
    store.save(2, {"unit": 2})
    assert pauses
    assert "checkpoints in bucket/runs/t1 cannot be written" in store.trouble()
    assert store.trouble() == ""
    assert store.search().unit == 2


class Failing:
    """A file system that gives each call one of these errors, as long as there are some."""

    type_name = "s3"

    def __init__(self, errors: Iterator[OSError]) -> None:
        self._files, self._errors = LocalFileSystem(), errors

    def __getattr__(self, name: str) -> Any:
        if (error := next(self._errors, None)) is not None:
            raise error
        return getattr(self._files, name)


def store_of(folder: Path, errors: Iterable[OSError], monkeypatch: pytest.MonkeyPatch) -> Store:
    files = Failing(iter(errors))
    monkeypatch.setattr(storage, "file_system", lambda root: (files, root))
    return Store(str(folder), subject="weights")


BUSY = OSError("AWS Error SLOW_DOWN during PutObject operation: Slow down (Request ID: 1)")


def test_what_fails_for_a_while_is_tried_again_and_told(
    tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path, [BUSY] * 3, monkeypatch)
    store.write("file", b"whole")
    assert pauses == [1, 2, 4]
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert store.trouble == (
        f"weights in {tmp_path} cannot be written and are tried again (AWS Error SLOW_DOWN during "
        "PutObject operation: Slow down)"
    )


def test_an_outage_that_does_not_end_is_an_error_after_two_minutes(
    tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path, itertools.repeat(BUSY), monkeypatch)
    with pytest.raises(StorageError, match=r"cannot be written .*; see to it that the storage wo"):
        store.write("file", b"")
    assert 100 < sum(pauses) <= 120


def test_what_trying_again_does_not_mend_is_an_error_at_once(
    held: ObjectStore, pauses: list[float]
) -> None:
    with pytest.raises(StorageError, match="NO_SUCH_BUCKET"):
        Store(held.uri().replace("bucket", "none")).write("file", b"")
    assert not pauses


def test_a_store_that_gives_no_answer_is_told_and_given_up(
    held: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(held.uri(), patience=0)
    store.write("file", b"before")
    assert not capsys.readouterr().err
    monkeypatch.setattr(storage, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(storage, "_SILENT_SECONDS", 0.1)
    held.fault = lambda method, path: "hang"
    with pytest.raises(StorageError, match="no answer within 0 s"):
        store.write("file", b"after")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{store.path} has given no answer for 0 s; waiting up to 0 s")
    held.fault = None
    monkeypatch.undo()
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert store.read("file") == b"before"


# Before a study is on record.


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    file = tmp_path / "tiny_question.py"
    file.write_text(SWEEP_FILE)
    return file


def run(hsweep: Invoke, sweep_file: Path, storage: str, *more: str) -> Result:
    options = ("--runner", "inline", "--study", "mine", "--storage", storage)
    return hsweep("run", sweep_file, *options, *more)


@pytest.mark.slow  # the client of S3 takes seconds for its own tries
def test_a_storage_that_cannot_be_reached_is_refused(
    held: ObjectStore, hsweep: Invoke, sweep_file: Path, home: Home
) -> None:
    refused = run(hsweep, sweep_file, held.uri().replace("127.0.0.1", "127.0.0.1.invalid"))
    assert (refused.exit_code, "the bucket exists" in refused.stderr) == (2, True)
    assert not home.study("mine").root.exists()


def test_a_storage_that_cannot_be_written_to_is_refused_before_anything_is_recorded(
    held: ObjectStore, hsweep: Invoke, sweep_file: Path, home: Home
) -> None:
    (sweep_file.parent / "file").write_text("")
    for uri, told in (
        (held.uri().replace("bucket", "none"), "NO_SUCH_BUCKET"),
        (
            str(sweep_file.parent / "file" / "below"),
            "make it a folder with space that can be written to",
        ),
    ):
        refused = run(hsweep, sweep_file, uri)
        assert refused.exit_code == 2, refused.output
        assert "cannot be written to" in refused.stderr
        assert told in refused.stderr
        assert "or give another --storage" in refused.stderr
        assert not home.study("mine").root.exists()
    with pytest.raises(UnusableStorageError):
        Store(held.uri().replace("bucket", "none"), patience=0).check_writable()


def test_a_storage_with_a_study_of_another_home_is_refused(
    hsweep: Invoke, sweep_file: Path, home: Home, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    assert run(hsweep, sweep_file, str(shared)).exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*")}
    other = ("--home", str(tmp_path / "other"))
    refused = run(hsweep, sweep_file, str(shared), *other)
    assert refused.exit_code == 2
    assert f"belongs to another study called 'mine', of {home.root} on " in refused.stderr
    assert not (tmp_path / "other" / "studies" / "mine").exists()
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*")} == before
    # The one it belongs to goes on; once it is deleted the name is free.
    assert run(hsweep, sweep_file, str(shared)).exit_code == 0
    assert json.loads((shared / "mine" / "study.json").read_text())["home"] == str(home.root)
    assert hsweep("delete", "mine", "--yes").exit_code == 0
    assert run(hsweep, sweep_file, str(shared), *other).exit_code == 0
