"""Sweeps that are edited between kills."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.audit import audit_all, read_record
from chaos.fault_table import Fault
from chaos.kill_loop import KillLoop
from chaos.workplace import Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

INLINE = ("--runner", "inline")
AFTER = (2, 3, 4, 5)


def test_an_edited_sweep(
    workplace: Workplace,
    tmp_path_factory: pytest.TempPathFactory,
    store: Path,
    rng: random.Random,
    fault: Callable[[str], Fault],
) -> None:
    """One width falls out, another comes; drivers are killed before, while and after."""
    tried = fault("sweep edited between kills: one width out, another in")
    other = Workplace(tmp_path_factory.mktemp("edited"), store=store, widths=AFTER)
    other.end("calm", *INLINE, pace=0.0)
    calm = other.endings("calm")
    kills = KillLoop(workplace, "edited", INLINE, rng, tried, start=4.0)
    for driver in kills.drivers(3, in_their_start=0.0):
        kills.kill(driver)
    before = read_record(workplace.study("edited")).rows.keys()
    assert len(before) == 24
    workplace.write_sweep(widths=AFTER)
    edit = (
        "run",
        workplace.sweep,
        "--study",
        "edited",
        *INLINE,
        "--home",
        workplace.home("edited"),
    )
    for _ in range(2):
        driver = workplace.start(*edit)
        driver.runs_until(rng.uniform(0.0, 8.0))
        kills.kill(driver)
        tried.tries += 1
    ended = workplace.start(*edit)
    assert ended.wait() == 0, ended.output
    workplace.look("edited")
    tried.settle(
        audit_all(workplace.study("edited"), calm, workplace.seen, workplace.store("edited"))
    )
    assert len(before & calm.keys()) == 18
