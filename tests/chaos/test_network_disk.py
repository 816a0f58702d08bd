"""A study whose home two machines see on a network disk that is slow to show what has changed.

Each machine is a process in namespaces of its own: another host's name, other processes, another
local disk. The disk is a mount for each of them, without locks.
"""

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from chaos.audit import Endings, audit_all
from chaos.fault_table import Fault
from chaos.workplace import Process, Workplace
from stale_mount import stale_mount

from hsweep.record.journal_reader import JournalReader
from hsweep.record.log import segment_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STUDY = "shared"
STALE_SECONDS = 8.0
NAMESPACES = 'unshare|--uts|--pid|--fork|--mount-proc|sh|-c|hostname {} && exec "$@"|sh'


class Machine:
    """One of the machines, which sees the home at a mount of its own."""

    def __init__(self, workplace: Workplace, name: str, home: Path) -> None:
        self._workplace, self._name, self._home = workplace, name, home
        self._disk = workplace.root / f"disk-{name}"

    def start(self, *arguments: object) -> Process:
        return self._workplace.start(
            *(*arguments, "--runner", "inline", "--home", self._home),
            *("--tracking-uri", self._workplace.store(STUDY)),
            within=NAMESPACES.format(self._name).split("|"),
            HSWEEP_NODE_DIR=str(self._disk),
        )


@pytest.fixture
def machines(workplace: Workplace) -> Iterator[tuple[Machine, Machine]]:
    home = workplace.home(STUDY)
    home.mkdir(exist_ok=True)
    with contextlib.ExitStack() as mounts:
        first, second = (
            Machine(
                workplace,
                name,
                mounts.enter_context(
                    stale_mount(home, workplace.root / f"home-on-{name}", STALE_SECONDS)
                ),
            )
            for name in ("one", "two")
        )
        yield first, second


def signal_all(process: Process, number: signal.Signals) -> None:
    for child in psutil.Process(process.pid).children(recursive=True):
        os.kill(child.pid, number)


def segments(workplace: Workplace) -> Sequence[Path]:
    return segment_files(workplace.study(STUDY) / "journal")


def settle(workplace: Workplace, tried: Fault, calm: Endings) -> None:
    study = workplace.study(STUDY)
    JournalReader(study / "journal").close()
    tried.settle(audit_all(study, calm, workplace.seen, workplace.store(STUDY)))


def test_a_driver_frozen_past_its_lease(
    workplace: Workplace,
    machines: tuple[Machine, Machine],
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
) -> None:
    tried = fault("driver frozen past its lease, taken over on another machine, and thawed")
    frozen = machines[0].start("run", workplace.sweep, "--study", STUDY)
    workplace.wait_for_report(STUDY, frozen)
    frozen.runs_until(frozen.seconds() + rng.uniform(0.0, 3.0))
    signal_all(frozen, signal.SIGSTOP)
    tried.tries += 1
    before = len(segments(workplace))
    # It waits for a sign of life as long as a lease.
    later = machines[1].start("resume", STUDY)
    assert later.until(lambda: len(segments(workplace)) > before), later.output
    workplace.wait_for_report(STUDY, later)
    signal_all(frozen, signal.SIGCONT)
    assert frozen.wait() == 1, frozen.output
    assert "another driver has taken the study 'shared' over: process" in frozen.stderr
    assert "Traceback" not in frozen.output
    assert later.wait() == 0, later.output
    assert "gives no sign of life" in later.stderr
    settle(workplace, tried, calm)


def test_drivers_killed_and_resumed_on_the_other_machine(
    workplace: Workplace,
    machines: tuple[Machine, Machine],
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
) -> None:
    tried = fault("driver's machine lost, resumed on another that sees the home")
    driver = machines[0].start("run", workplace.sweep, "--study", STUDY)
    for number in range(1, 4):
        workplace.wait_for_report(STUDY, driver)
        if number == 1:
            refused = machines[1].start("resume", STUDY)
            assert refused.wait() == 2, refused.output
            assert "'shared' is being run by process" in refused.stderr
            assert " on one" in refused.stderr
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 2.0))
        if not driver.runs:
            break
        signal_all(driver, signal.SIGKILL)
        driver.wait()
        tried.tries += 1
        driver = machines[number % 2].start("resume", STUDY)
    assert driver.wait() == 0, driver.output
    settle(workplace, tried, calm)
