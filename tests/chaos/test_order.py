"""The same results to the bit, whatever runs the trials, how many at once and in which order."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Endings, audit
from chaos.fault_table import Fault
from chaos.kill_loop import KillLoop
from chaos.workplace import SEARCHING, STOPPING, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def workplace(tmp_path: Path, store: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path, store=store, more=STOPPING)
    yield workplace
    workplace.close()


@pytest.fixture
def searching(tmp_path: Path, store: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path, store=store, more=SEARCHING)
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


@pytest.mark.parametrize(
    ("how", "start"),
    [
        pytest.param(("--runner", "inline"), 4.0, id="inline"),
        pytest.param(("--max-concurrent", "2"), 12.0, id="ray"),
    ],
)
def test_a_search_across_kills(
    searching: Workplace,
    calm_searching: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    how: tuple[str, ...],
    start: float,
) -> None:
    """Killed in any of its rounds, it asks for the same trials."""
    assert {each.status for each in calm_searching.values()} == {"finished", "not_needed"}
    runner = "inline" if "inline" in how else "on Ray"
    tried = fault(f"search in rounds, drivers killed {runner}, against undisturbed inline")
    kills = KillLoop(searching, "broken", how, rng, tried, start=start)
    for driver in kills.drivers(6):
        kills.kill(driver)
    tried.settle(kills.end(calm_searching))
