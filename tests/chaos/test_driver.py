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
@pytest.mark.parametrize(
    ("what", "signals", "code"),
    [
        pytest.param("one interrupt (Ctrl-C)", ["interrupt"], 130, id="interrupt"),
        pytest.param("two interrupts", ["interrupt"] * 2, None, id="two"),
        pytest.param("preemption notice (SIGTERM)", ["terminate"], 75, id="notice"),
    ],
)
def test_a_driver_that_is_told_to_end_leaves_nothing_behind(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
    what: str,
    signals: list[str],
    code: int | None,
) -> None:
    """A first signal ends it cleanly with its exit code, unless all trials have ended; a second one
    at once. A notice costs no update."""
    tried, is_notice = fault(f"{what} at random moments, {by(how)}"), code == 75
    options = (*how, "--no-check") if is_notice else how
    ends = KillLoop(workplace, "told", options, rng, tried, start=start)
    in_their_start = 0.25 if is_notice else 0.4
    for driver in ends.drivers(3, at_the_end=int(code is not None), in_their_start=in_their_start):
        for name in signals:
            getattr(driver, name)()
        ending = driver.wait()
        assert driver.left_behind() == []
        if code is None:
            ends.weigh(1.0)
            continue
        assert "Traceback" not in driver.output
        if "ending cleanly" in driver.stderr:
            assert ending in (code, 0), driver.output
            assert ending == 0 or "hsweep resume told" in driver.stdout
            ends.weigh(0.0)
    tried.settle(ends.end(calm))
    if is_notice:
        tried.cost([(workplace.updates() - UPDATES) * PACE])
        assert workplace.updates() == UPDATES, "no update is done again"
