"""The same results to the bit, whatever runs the trials, how many at once and in which order."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Endings, audit
from chaos.ledger import Fault
from chaos.scene import STOPPING, Scene
from chaos.torment import Torment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def scene(tmp_path: Path, store: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, store=store, more=STOPPING)
    yield scene
    scene.close()


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_on_ray(
    scene: Scene, calm_stopping: Endings, fault: Callable[[str], Fault], at_once: int
) -> None:
    assert {each.status for each in calm_stopping.values()} == {"finished", "stopped_early"}
    tried = fault(f"early stopping, {at_once} trials at once on Ray, against inline")
    scene.end("ordered", "--max-concurrent", at_once, pace=0.003)
    tried.tries = 1
    tried.settle(audit(scene.study("ordered"), calm_stopping))


def test_across_kills(
    scene: Scene, calm_stopping: Endings, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    tried = fault("early stopping, drivers killed, against undisturbed")
    torment = Torment(scene, "broken", ("--runner", "inline"), rng, tried, start=4.0)
    for driver in torment.drivers(5):
        torment.kill(driver)
    tried.settle(torment.end(calm_stopping))
