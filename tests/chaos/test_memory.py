"""Devices on which batches do not fit, whose drivers are killed besides."""

import random
from collections.abc import Callable

import pytest
from chaos.audit import read_record
from chaos.ledger import Fault
from chaos.scene import Scene
from chaos.torment import Torment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_out_of_memory(
    scene: Scene, rng: random.Random, fault: Callable[[str], Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three examples of eight fit (injected): trials go on in parts, also after a kill."""
    monkeypatch.setenv("CHAOS_ROOM", "3")
    tried = fault("out of memory on the device (injected), driver killed besides")
    scene.end("calm", "--runner", "inline", pace=0.0)
    calm = scene.endings("calm")
    assert {each.status for each in calm.values()} == {"finished"}
    torment = Torment(scene, "cramped", ("--runner", "inline"), rng, tried, start=4.0)
    for driver in torment.drivers(4):
        torment.kill(driver)
    tried.settle(torment.end(calm))
    reports = [entry for entry in read_record(scene.study("cramped")).log if entry.kind == "report"]
    assert {entry.payload["micro_batch"] for entry in reports} == {2}
