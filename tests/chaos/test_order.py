"""The same results to the bit, whatever runs the trials, how many at once and in which order."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Endings, audit
from chaos.fault_table import Fault
from chaos.kill_loop import KillLoop
from chaos.workplace import STOPPING, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def workplace(tmp_path: Path, store: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path, store=store, more=STOPPING)
    yield workplace
    workplace.close()


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_on_ray(
    workplace: Workplace, calm_stopping: Endings, fault: Callable[[str], Fault], at_once: int
) -> None:
    assert {each.status for each in calm_stopping.values()} == {"finished", "stopped_early"}
    tried = fault(f"early stopping, {at_once} trials at once on Ray, against inline")
    workplace.end("ordered", "--max-concurrent", at_once, pace=0.003)
    tried.tries = 1
    tried.settle(audit(workplace.study("ordered"), calm_stopping))


def test_across_kills(
    workplace: Workplace, calm_stopping: Endings, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    tried = fault("early stopping, drivers killed, against undisturbed")
    kills = KillLoop(workplace, "broken", ("--runner", "inline"), rng, tried, start=4.0)
    for driver in kills.drivers(5):
        kills.kill(driver)
    tried.settle(kills.end(calm_stopping))
