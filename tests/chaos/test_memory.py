"""Devices on which batches do not fit, whose drivers are killed besides."""

import random
from collections.abc import Callable

import pytest
from chaos.audit import read_record
from chaos.fault_table import Fault
from chaos.kill_loop import KillLoop
from chaos.workplace import Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_out_of_memory(
    workplace: Workplace,
    rng: random.Random,
    fault: Callable[[str], Fault],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three examples of eight fit (injected): trials go on in parts, also after a kill."""
    monkeypatch.setenv("CHAOS_ROOM", "3")
    tried = fault("out of memory on the device (injected), driver killed besides")
    workplace.end("calm", "--runner", "inline", pace=0.0)
    calm = workplace.endings("calm")
    assert {each.status for each in calm.values()} == {"finished"}
    kills = KillLoop(workplace, "cramped", ("--runner", "inline"), rng, tried, start=4.0)
    for driver in kills.drivers(4):
        kills.kill(driver)
    tried.settle(kills.end(calm))
    reports = [
        entry for entry in read_record(workplace.study("cramped")).log if entry.kind == "report"
    ]
    assert {entry.payload["micro_batch"] for entry in reports} == {2}
