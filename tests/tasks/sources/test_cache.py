import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tasks.base import DataError
from tasks.sources.cache import cache_folder, cached_arrays

PROJECT = Path(__file__).resolve().parents[3]


def numbers() -> dict[str, np.ndarray]:
    return {"x": np.arange(6).reshape(2, 3), "y": np.array([1.5])}


def refuse() -> dict[str, np.ndarray]:
    raise AssertionError("made again")


def full_disk(*_: object) -> None:
    raise OSError("No space left on device")


def test_arrays_are_made_once_and_read_back_equal(cache: Path) -> None:
    for make in (numbers, refuse):
        arrays = cached_arrays("numbers", make)
        assert sorted(arrays) == ["x", "y"]
        assert all(np.array_equal(arrays[name], numbers()[name]) for name in arrays)
    assert cache_folder() == cache


def test_what_a_reader_writes_stays_its_own() -> None:
    cached_arrays("numbers", numbers)["x"][:] = 0
    assert cached_arrays("numbers", refuse)["x"].sum() == 15


def test_a_failure_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        cached_arrays("numbers", refuse)
    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(DataError):
        cached_arrays("numbers", numbers)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_a_full_disk_is_reported_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(DataError, match=r"No space left on device.*HSWEEP_CACHE"):
        cached_arrays("numbers", numbers)


def test_a_damaged_entry_is_named(cache: Path) -> None:
    cached_arrays("numbers", numbers)
    (cache / "numbers" / "x.npy").write_bytes(b"")
    with pytest.raises(DataError, match=r"numbers is damaged .* delete it"):
        cached_arrays("numbers", numbers)


def test_what_a_killed_process_left_unfinished_is_removed(cache: Path) -> None:
    code = (
        "import os\n"
        "from tasks.sources.cache import cached_folder\n"
        "def write(folder):\n"
        "    (folder / 'half').write_text('')\n"
        "    os._exit(9)\n"
        "cached_folder('numbers', write)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=False).returncode == 9
    assert [path for path in cache.iterdir() if path.is_dir()] != []
    cached_arrays("numbers", numbers)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["numbers"]


def test_a_cache_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="set HSWEEP_CACHE to a folder"):
        cache_folder()


def test_processes_that_start_together_share_one_entry(cache: Path, tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from tasks.sources.cache import cached_arrays\n"
        "def make():\n"
        "    with Path(sys.argv[1]).open('a') as file: file.write('made\\n')\n"
        "    return {'x': np.arange(1_000_000)}\n"
        "sys.stdin.readline()\n"
        "print(int(cached_arrays('big', make)['x'].sum()))\n"
    )
    made = tmp_path / "made"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(made)],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    sums = [process.communicate()[0].strip() for process in processes]
    assert sums == ["499999500000"] * 3
    assert made.read_text() == "made\n"
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["big"]
