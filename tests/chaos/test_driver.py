"""Drivers killed and interrupted at random moments."""

import random
from collections.abc import Callable

import pytest
from chaos.audit import Endings
from chaos.fault_table import Fault
from chaos.kill_loop import KillLoop
from chaos.workplace import PACE, UPDATES, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

INLINE = ("--runner", "inline")
RAY = ("--max-concurrent", "2")
RUNNERS = pytest.mark.parametrize(
    ("how", "start"), [pytest.param(INLINE, 4.0, id="inline"), pytest.param(RAY, 12.0, id="ray")]
)


def by(how: tuple[str, ...]) -> str:
    return "inline" if how is INLINE else "on Ray"


@RUNNERS
def test_drivers_killed_ten_times_in_a_row(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"driver killed (kill -9) at random moments, {by(how)}")
    kills = KillLoop(workplace, "killed", how, rng, tried, start=start)
    for driver in kills.drivers(10, at_the_end=1):
        kills.kill(driver)
    tried.settle(kills.end(calm))
    assert workplace.left_at_last() == []


@RUNNERS
def test_one_interrupt_ends_a_driver_cleanly(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"one interrupt (Ctrl-C) at random moments, {by(how)}")
    kills = KillLoop(workplace, "interrupted", how, rng, tried, start=start)
    for driver in kills.drivers(3 if how is INLINE else 2, at_the_end=1):
        driver.interrupt()
        code = driver.wait()
        assert driver.left_behind() == []
        assert "Traceback" not in driver.output
        if "ending cleanly" in driver.stderr:
            assert code in (130, 0), driver.output
            assert code == 0 or "hsweep resume interrupted" in driver.stdout
            kills.weigh(0.0)
    tried.settle(kills.end(calm))


@RUNNERS
def test_a_notice_costs_no_update(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"preemption notice (SIGTERM) at random moments, {by(how)}")
    kills = KillLoop(workplace, "noticed", (*how, "--no-check"), rng, tried, start=start)
    for driver in kills.drivers(4, at_the_end=1, in_their_start=0.25):
        driver.terminate()
        code = driver.wait()
        assert driver.left_behind() == []
        assert "Traceback" not in driver.output
        if "ending cleanly" in driver.stderr:
            assert code in (75, 0), driver.output
            assert code == 0 or "hsweep resume noticed" in driver.stdout
    tried.settle(kills.end(calm))
    tried.cost([(workplace.updates() - UPDATES) * PACE])
    assert workplace.updates() == UPDATES, "no update is done again"


@RUNNERS
def test_two_interrupts_end_a_driver_at_once(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"two interrupts at random moments, {by(how)}")
    kills = KillLoop(workplace, "hurried", how, rng, tried, start=start)
    for driver in kills.drivers(3):
        driver.interrupt()
        driver.interrupt()
        driver.wait()
        assert driver.left_behind() == []
        kills.weigh(1.0)
    tried.settle(kills.end(calm))
