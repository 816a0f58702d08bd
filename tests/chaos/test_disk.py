"""A small disk of its own that fills up, or can no longer be written to, while a study runs."""

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Endings, audit_all
from chaos.fault_table import Fault
from chaos.workplace import PATIENCE, Process, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Disk:
    """A file system in memory, of a size of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mount(self, *options: str) -> None:
        self._run("mount", "-t", "tmpfs", "-o", ",".join(("size=24m", *options)), "tmpfs")

    def remount(self, option: str) -> None:
        """Change it, as soon as nothing is open for writing on it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._run("mount", "-o", f"remount,{option}")
            except subprocess.CalledProcessError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def _run(self, *command: str) -> None:
        subprocess.run([*command, str(self.folder)], check=True, capture_output=True)

    def unmount(self) -> None:
        self._run("umount", "-l")

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Take all the space that is left."""
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(64))

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    # Where the workplace has the home of a study called "full".
    folder = tmp_path / "home-full"
    folder.mkdir()
    disk = Disk(folder)
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    try:
        disk.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a small disk cannot be mounted: {error.stderr.decode().strip()}")
    yield disk
    disk.unmount()


def assert_paused(workplace: Workplace, study: str, driver: Process) -> None:
    """It ended by itself, said why and how to go on, and can still be looked at."""
    code = driver.wait()
    assert driver.left_behind() == []
    assert code != 0, driver.output
    assert "Traceback" not in driver.output
    assert workplace.look(study) is not None or code == 2


@pytest.mark.parametrize(
    ("how", "number"),
    [
        pytest.param(("--runner", "inline"), 3, id="inline"),
        pytest.param(("--max-concurrent", "2"), 1, id="ray"),
    ],
)
def test_a_disk_that_fills_up(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    disk: Disk,
    how: tuple[str, ...],
    number: int,
) -> None:
    """The whole home lies on it: record, checkpoints and the MLflow store."""
    tried = fault(f"disk full while a study runs, {'inline' if 'inline' in how else 'on Ray'}")
    assert workplace.home("full") == disk.folder
    for _ in range(number):
        driver = workplace.go_on("full", *how)
        workplace.wait_for_report("full", driver)
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 3.0))
        workplace.look("full")
        disk.fill()
        tried.tries += 1
        assert_paused(workplace, "full", driver)
        disk.free()
    workplace.end("full", *how)
    tried.settle(audit_all(workplace.study("full"), calm, workplace.seen, workplace.store("full")))


def test_storage_that_becomes_read_only(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    disk: Disk,
) -> None:
    """Checkpoints lie on it, the record does not."""
    tried = fault("checkpoint storage read-only while a study runs")
    how = ("--runner", "inline")
    for _ in range(3):
        begins = () if workplace.study("sealed").exists() else ("--storage", disk.folder)
        driver = workplace.go_on("sealed", *how, *begins)
        workplace.wait_for_report("sealed", driver)
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 2.0))
        workplace.look("sealed")
        disk.remount("ro")
        tried.tries += 1
        assert_paused(workplace, "sealed", driver)
        disk.remount("rw")
    workplace.end("sealed", *how)
    tried.settle(
        audit_all(workplace.study("sealed"), calm, workplace.seen, workplace.store("sealed"))
    )
