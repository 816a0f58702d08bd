"""Processes that train, killed or stopped at random moments."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.audit import Endings, audit_all, read_record
from chaos.fault_table import Fault
from chaos.workplace import PACE, UPDATES, Process, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOW = {
    signal.SIGKILL: "killed (kill -9)",
    signal.SIGSTOP: "stopped (hangs, report_timeout)",
    signal.SIGTERM: "told to go (SIGTERM, preemption notice)",
}
RAY = ("--max-concurrent", "2")


@pytest.fixture
def workplace(tmp_path: Path, store: Path) -> Workplace:
    """Trials that are tried again as often as it takes, and count as hung after eight seconds."""
    return Workplace(tmp_path, store=store, more="max_failures=20,\n    report_timeout=8.0,")


def strike(
    workplace: Workplace, driver: Process, rng: random.Random, tried: Fault, number: int, sign: int
) -> None:
    """Send a signal to a process that trains, so often, while the driver runs."""
    # The driver has tried two trials out before the start.
    struck = {driver.pid}
    while tried.tries < number:
        assert driver.until(lambda: bool(set(workplace.trainers()) - struck)), driver.output
        if not driver.runs_until(driver.seconds() + rng.uniform(0.1, 1.5)):
            return
        living = sorted(set(workplace.trainers()) - struck)
        if living:
            victim = rng.choice(living)
            os.kill(victim, sign)
            struck.add(victim)
            tried.tries += 1


@pytest.mark.parametrize(
    ("sign", "number"),
    [
        pytest.param(signal.SIGKILL, 6, id="killed"),
        pytest.param(signal.SIGSTOP, 2, id="stopped"),
        pytest.param(signal.SIGTERM, 4, id="noticed"),
    ],
)
def test_workers(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    sign: int,
    number: int,
) -> None:
    """They cost the trials that they train an attempt each, and the others nothing."""
    tried = fault(f"worker {HOW[sign]} at random moments")
    driver = workplace.go_on("struck", *RAY, "--no-check")
    # Where nothing trains at all yet, a study pauses after three processes that die alike.
    workplace.wait_for_report("struck", driver)
    strike(workplace, driver, rng, tried, number, sign)
    assert driver.wait() == 0, driver.output
    assert driver.left_behind() == []
    workplace.look("struck")
    study = workplace.study("struck")
    tried.settle(audit_all(study, calm, workplace.seen, workplace.store("struck")))
    assert tried.tries == number
    again = sum(row.attempt - 1 for row in read_record(study).rows.values())
    assert again <= number
    if sign == signal.SIGTERM:
        tried.cost([(workplace.updates() - UPDATES) * PACE])
        assert workplace.updates() == UPDATES, "no update is done again"
