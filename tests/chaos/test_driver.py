"""Drivers killed and interrupted at random moments."""

import random
from collections.abc import Callable

import pytest
from chaos.audit import Endings
from chaos.ledger import Fault
from chaos.scene import Scene
from chaos.torment import Torment

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
    scene: Scene,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"driver killed (kill -9) at random moments, {by(how)}")
    torment = Torment(scene, "killed", how, rng, tried, start=start)
    for driver in torment.drivers(10, at_the_end=1):
        torment.kill(driver)
    tried.settle(torment.end(calm))
    assert scene.left_at_last() == []


@RUNNERS
def test_one_interrupt_ends_a_driver_cleanly(
    scene: Scene,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"one interrupt (Ctrl-C) at random moments, {by(how)}")
    torment = Torment(scene, "interrupted", how, rng, tried, start=start)
    for driver in torment.drivers(3 if how is INLINE else 2, at_the_end=1):
        driver.interrupt()
        code = driver.wait()
        assert driver.left_behind() == []
        assert "Traceback" not in driver.output
        if "ending cleanly" in driver.stderr:
            assert code in (130, 0), driver.output
            assert code == 0 or "hsweep resume interrupted" in driver.stdout
            torment.weigh(0.0)
    tried.settle(torment.end(calm))


@RUNNERS
def test_two_interrupts_end_a_driver_at_once(
    scene: Scene,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"two interrupts at random moments, {by(how)}")
    torment = Torment(scene, "hurried", how, rng, tried, start=start)
    for driver in torment.drivers(3):
        driver.interrupt()
        driver.interrupt()
        driver.wait()
        assert driver.left_behind() == []
        torment.weigh(1.0)
    tried.settle(torment.end(calm))
