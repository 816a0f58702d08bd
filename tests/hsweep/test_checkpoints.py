"""Which checkpoint counts, whatever was half-written, damaged or written by whom."""

import hashlib
import io
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from object_store import KEYS, object_store

from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.storage import StorageError, file_system

CPU = torch.device("cpu")


def store(root: Path | str, attempt: int = 1, key: str = "t1") -> CheckpointStore:
    return CheckpointStore(str(root), key, attempt)


def state(unit: int) -> dict[str, object]:
    return {"unit": unit, "weights": torch.full((3,), float(unit))}


def files(root: Path, key: str = "t1") -> list[Path]:
    return sorted((root / key).glob("*.pt"))


def newest_unit(root: Path | str, attempt: int = 1) -> int | None:
    found = store(root, attempt).search().state
    return None if found is None else found["unit"]


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    assert newest_unit(tmp_path) is None
    store(tmp_path).save(3, state(3))
    assert store(tmp_path, key="t2").search().state is None
    found = store(tmp_path).search().state
    assert found is not None
    assert found["unit"] == 3
    assert torch.equal(found["weights"], torch.full((3,), 3.0))


def test_the_newest_and_the_one_before_are_kept(tmp_path: Path) -> None:
    for unit in (1, 2, 3, 10):
        store(tmp_path).save(unit, state(unit))
    assert [int(file.name[:9]) for file in files(tmp_path)] == [3, 10]
    assert newest_unit(tmp_path) == 10


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit])
def test_a_damaged_newest_file_is_passed_over_for_the_one_before(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for unit in (1, 2):
        store(tmp_path).save(unit, state(unit))
    damage(files(tmp_path)[-1])
    assert newest_unit(tmp_path) == 1


def test_a_file_that_was_being_written_when_its_writer_died_does_not_count(tmp_path: Path) -> None:
    store(tmp_path).save(1, state(1))
    (written,) = files(tmp_path)
    half = written.with_name(f".{written.name.replace('000000001', '000000002')}.tmp")
    half.write_bytes(written.read_bytes()[:100])
    assert newest_unit(tmp_path) == 1
    store(tmp_path, attempt=2).save(2, state(2))
    assert newest_unit(tmp_path, attempt=2) == 2


def test_strange_files_beside_the_checkpoints_do_not_matter(tmp_path: Path) -> None:
    store(tmp_path).save(1, state(1))
    (tmp_path / "t1" / "notes.txt").write_text("by hand")
    (tmp_path / "t1" / "999999999.pt").write_text("no digest")
    assert newest_unit(tmp_path) == 1


def test_an_attempt_reads_what_earlier_ones_left_and_not_its_successors_work(
    tmp_path: Path,
) -> None:
    store(tmp_path, attempt=1).save(4, state(4))
    assert newest_unit(tmp_path, attempt=2) == 4
    store(tmp_path, attempt=2).save(6, state(6))
    assert newest_unit(tmp_path, attempt=1) == 4


@settings(max_examples=60, deadline=None)
@given(saves=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=12))
def test_an_attempt_never_removes_a_later_attempts_file(
    tmp_path_factory: pytest.TempPathFactory, saves: list[tuple[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("checkpoints")
    for attempt, unit in saves:
        others = {file for file in files(root) if int(file.name[10:15]) > attempt}
        store(root, attempt).save(unit, state(unit))
        assert others <= set(files(root))


@pytest.mark.parametrize("num_damaged", [1, 2, 3])
def test_what_was_just_saved_stays_whatever_damaged_files_lie_ahead(
    tmp_path: Path, num_damaged: int
) -> None:
    for unit in range(7, 7 + num_damaged):
        folder = tmp_path / "t1"
        folder.mkdir(exist_ok=True)
        (folder / f"{unit:09d}-00001-{'0' * 16}.pt").write_bytes(b"damaged")
    store(tmp_path, attempt=2).save(1, state(1))
    assert newest_unit(tmp_path, attempt=2) == 1


class RunsCode:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


def torch_saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def torch_trusting(content: bytes) -> object:
    return torch.load(io.BytesIO(content), weights_only=False)


@pytest.mark.parametrize(
    ("write", "trusting"),
    [(partial(pickle.dumps, protocol=2), pickle.loads), (torch_saved, torch_trusting)],
)
def test_a_checkpoint_with_code_in_it_is_passed_over_and_the_code_never_runs(
    tmp_path: Path, write: Callable[[object], bytes], trusting: Callable[[bytes], object]
) -> None:
    store(tmp_path).save(1, state(1))
    bait = tmp_path / "bait"
    content = write({"unit": 2, "object": RunsCode(bait)})
    digest = hashlib.sha256(content).hexdigest()[:16]
    (tmp_path / "t1" / f"{2:09d}-00001-{digest}.pt").write_bytes(content)
    found = store(tmp_path).search()
    assert (found.unit, found.damaged) == (1, (2,))
    assert not bait.exists()
    trusting(content)
    assert bait.exists()


def test_a_search_tells_what_it_passed_over_and_takes_what_its_caller_can_use(
    tmp_path: Path,
) -> None:
    for unit in (1, 2):
        store(tmp_path).save(unit, state(unit))
    found = store(tmp_path).search(lambda saved: saved["unit"] != 2)
    assert (found.unit, found.damaged) == (1, (2,))
    flip_a_bit(files(tmp_path)[-1])
    found = store(tmp_path).search()
    assert (found.unit, found.damaged) == (1, (2,))
    nothing = store(tmp_path).search(lambda saved: False)
    assert (nothing.unit, nothing.state, nothing.damaged) == (0, None, (2, 1))


def test_what_an_earlier_attempt_was_writing_when_it_died_is_cleared_away(tmp_path: Path) -> None:
    store(tmp_path, attempt=2).save(1, state(1))
    (written,) = files(tmp_path)
    half = {
        attempt: written.with_name(f".{9:09d}-{attempt:05d}-{'0' * 16}.pt.tmp")
        for attempt in (1, 2, 3)
    }
    for file in half.values():
        file.write_bytes(b"half")
    store(tmp_path, attempt=2).save(2, state(2))
    assert [attempt for attempt, file in half.items() if file.exists()] == [2, 3]


def test_remove_takes_every_attempts_files_and_only_this_trials(tmp_path: Path) -> None:
    for attempt in (1, 2):
        store(tmp_path, attempt).save(attempt, state(attempt))
    store(tmp_path, key="t2").save(1, state(1))
    store(tmp_path, attempt=0).remove()
    assert not (tmp_path / "t1").exists()
    assert len(files(tmp_path, "t2")) == 1
    store(tmp_path, attempt=0).remove()


def test_a_file_uri_and_its_path_are_one_place(tmp_path: Path) -> None:
    store(tmp_path.as_uri()).save(5, state(5))
    assert newest_unit(tmp_path) == 5
    assert newest_unit(tmp_path.as_uri()) == 5
    assert newest_unit(f"{tmp_path}/") == 5
    store(tmp_path.as_uri()).remove()
    assert newest_unit(tmp_path) is None


def test_a_folder_with_spaces_and_other_letters_is_a_place_too(tmp_path: Path) -> None:
    root = tmp_path / "mein Ordner %20 ü"
    store(root).save(2, state(2))
    assert newest_unit(root) == 2


@pytest.mark.parametrize("root", ["nowhere://bucket/folder", "relative/folder", ""])
def test_a_storage_that_cannot_be_used_is_the_users_error(root: str) -> None:
    with pytest.raises(UserError, match="storage") as refusal:
        file_system(root)
    # A trial that meets it ends by its storage, and is not to blame.
    assert isinstance(refusal.value, StorageError)


def test_an_object_store_reached_by_the_query_of_its_uri(
    monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with object_store("bucket") as held:
        root = home.study("mine").stored(held.uri(), home.study("mine").checkpoints)
        store(root).save(3, state(3))
        store(root).save(5, state(5))
        assert newest_unit(root) == 5
        last = max(name for name in held.objects if name.endswith(".pt"))
        assert last.startswith("bucket/runs/mine/checkpoints/t1/000000005-")
        held.put(last, b"damaged")
        assert newest_unit(root) == 3
        store(root).remove()
        assert not [name for name in held.objects if name.endswith(".pt")]
        written = {name for name in held.written if not name.endswith("/")}
        assert all(name.startswith("bucket/runs/mine/checkpoints/t1/") for name in written)
