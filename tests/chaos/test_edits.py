"""Sweeps that are edited between kills."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.audit import audit, audit_tracking, read_record
from chaos.ledger import Fault
from chaos.scene import Scene
from chaos.torment import Torment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

INLINE = ("--runner", "inline")
AFTER = (2, 3, 4, 5)


def test_an_edited_sweep(
    scene: Scene,
    tmp_path_factory: pytest.TempPathFactory,
    store: Path,
    rng: random.Random,
    fault: Callable[[str], Fault],
) -> None:
    """One width falls out, another comes; drivers are killed before, while and after."""
    tried = fault("sweep edited between kills: one width out, another in")
    other = Scene(tmp_path_factory.mktemp("edited"), store=store, widths=AFTER)
    other.end("calm", *INLINE, pace=0.0)
    calm = other.endings("calm")
    torment = Torment(scene, "edited", INLINE, rng, tried, start=4.0)
    for driver in torment.drivers(3, in_their_start=0.0):
        torment.kill(driver)
    before = read_record(scene.study("edited")).rows.keys()
    assert len(before) == 24
    scene.write_sweep(widths=AFTER)
    edit = ("run", scene.sweep, "--study", "edited", *INLINE, "--home", scene.home("edited"))
    for _ in range(2):
        driver = scene.start(*edit)
        driver.runs_until(rng.uniform(0.0, 8.0))
        torment.kill(driver)
        tried.tries += 1
    ended = scene.start(*edit)
    assert ended.wait() == 0, ended.output
    scene.look("edited")
    found = audit(scene.study("edited"), calm, scene.seen)
    audit_tracking(found, scene.study("edited"), scene.store("edited"))
    tried.settle(found)
    assert len(before & calm.keys()) == 18
