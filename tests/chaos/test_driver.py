"""Drivers killed and interrupted at random moments."""

import random
from collections.abc import Callable

import pytest
from chaos.audit import Endings
from chaos.ledger import Fault
from chaos.scene import Scene
from chaos.torment import Torment

pytestmark = pytest.mark.slow

INLINE = ("--runner", "inline")
RAY = ("--max-concurrent", "4")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("how", "start"), [pytest.param(INLINE, 4.0, id="inline"), pytest.param(RAY, 12.0, id="ray")]
)
def test_drivers_killed_ten_times_in_a_row(
    scene: Scene,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    tried = fault(f"driver killed (kill -9) at random moments, {how[0]} {how[1]}")
    torment = Torment(scene, "killed", how, rng, tried, start=start)
    torment.kill_drivers(10)
    torment.kill_conclusions(2, seconds=4.0)
    tried.settle(torment.end(calm))
