"""The standard streams of a command as a shell hands them over: JSON alone, odd terminals, readers
that leave."""

import ctypes.util
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from hsweep.errors import ROOT
from hsweep.record.log import segment_files

LIBC = ctypes.util.find_library("c")

SWEEP = f'''
"""Größe und Form."""

import atexit
import ctypes
import os

from hsweep import Sweep, epochs, grid

LIBC = ctypes.CDLL({LIBC!r})
print("a print")
os.write(1, b"a write\\n")
os.system("echo a child")
LIBC.printf(b"held back until the end\\n")
atexit.register(os.write, 1, b"the very end\\n")


def train(point, run):
    os.system("echo a child of a trial")
    os.write(1, b"a write of a trial\\n")
    for epoch in range(1, run.budget + 1):
        print("a print of a trial")
        run.report(epoch, top1=0.2 * epoch)


SWEEP = Sweep(
    name="loud",
    space=grid(heads=[1], größe=["groß", "klein"]),
    train=train,
    metric="top1",
    goal="max",
    budget=epochs(1),
)
'''


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "loud.py"
    path.write_text(SWEEP, "utf-8")
    return path


def called(
    folder: Path,
    *words: str,
    stdout: int | IO[bytes] = subprocess.PIPE,
    before: str = "",
    **variables: str,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a process, started by a shell that does something first."""
    command = f'{before} exec "$@"'
    return subprocess.run(
        ["bash", "-c", command, "bash", sys.executable, "-m", "hsweep", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HSWEEP_HOME": str(folder / "home"),
            **variables,
        },
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


def test_json_is_alone_whatever_python_c_code_and_children_print(sweep: Path) -> None:
    ran = called(sweep.parent, "run", sweep.name, "--runner", "inline", "--json")
    assert json.loads(ran.stdout)["finished"] == 2
    for text in ("a print", "a write", "a child", "held back until the end", "the very end"):
        assert f"{text}\n".encode() in ran.stderr
    for text in ("a print of a trial", "a write of a trial", "a child of a trial"):
        assert ran.stderr.count(f"{text}\n".encode()) == 2
    shown = called(sweep.parent, "show", "loud-quick", "--json")
    assert json.loads(shown.stdout)["finished"] == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_terminal_cannot_show_is_replaced(sweep: Path, encoding: str) -> None:
    other = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    sweep.write_text(SWEEP.replace("größe=", "größe_μ="), "utf-8")
    planned = called(sweep.parent, "plan", sweep.name, PYTHONIOENCODING=encoding, **other)
    assert planned.returncode == 0, planned.stderr
    axis = "größe_μ".encode(encoding, "replace")
    assert axis in planned.stdout


def test_a_reader_that_leaves_is_no_error_and_a_full_disk_is(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    for words in (["list"], ["list", "--json"]):
        with open(os.dup(write), "wb") as gone:  # noqa: PTH123
            left = called(tmp_path, *words, stdout=gone)
        assert left.returncode == 1
        assert b"Errno" not in left.stderr
        with Path("/dev/full").open("wb") as full:
            refused = called(tmp_path, *words, stdout=full)
        assert refused.returncode == 2
        assert b"hsweep: No space left on device" in refused.stderr
        assert b"Errno" not in refused.stderr
    os.close(write)


def test_no_file_of_a_study_gets_the_number_of_a_closed_stream(sweep: Path) -> None:
    ran = called(
        sweep.parent, "run", sweep.name, "--runner", "inline", before="exec 0<&- 1>&- 2>&-;"
    )
    assert ran.returncode == 0
    shown = called(sweep.parent, "show", "loud-quick", "--json")
    assert json.loads(shown.stdout)["finished"] == 2
    journal = sweep.parent / "home" / "studies" / "loud-quick" / "journal"
    content = b"".join(segment.read_bytes() for segment in segment_files(journal))
    assert all(line.startswith(b'{"crc32"') for line in content.splitlines())


WAITING = """
import contextlib
import os

from hsweep import Sweep, epochs, grid


def train(point, run):
    print("now training")
    with contextlib.suppress(OSError):
        os.read(0, 1)
    for epoch in (1, 2):
        run.report(epoch, top1=0.5)


SWEEP = Sweep(
    name="waiting",
    space=grid(heads=[1, 2]),
    train=train,
    metric="top1",
    goal="max",
    budget=epochs(2),
)
"""


def test_a_study_whose_terminal_goes_away_ends_in_order(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING, "utf-8")
    terminal, its_other_end = pty.openpty()
    place = os.ttyname(its_other_end)
    words = [sys.executable, "-m", "hsweep", "run", "waiting.py", "--runner", "inline"]
    # The first terminal that the leader of a session opens is the session's.
    study = subprocess.Popen(
        ["bash", "-c", f'exec 0<>{place} 1>&0 2>&0; exec "$@"', "bash", *words, "--no-check"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HSWEEP_HOME": str(tmp_path / "home")},
        start_new_session=True,
    )
    printed = b""
    while b"now training" not in printed:
        printed += os.read(terminal, 4096)
    os.close(its_other_end)
    os.close(terminal)
    assert study.wait() == 130
    shown = json.loads(called(tmp_path, "show", "waiting-quick", "--json").stdout)
    assert (shown["state"], shown["planned"]) == ("interrupted", 2)
