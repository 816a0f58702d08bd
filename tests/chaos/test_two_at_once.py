"""Drivers that are started together on one study."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from chaos.audit import Endings, audit_all
from chaos.fault_table import Fault
from chaos.workplace import Process, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def has_ended(process: Process) -> bool:
    return not process.runs


def test_two_drivers_started_together(
    workplace: Workplace, calm: Endings, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    """One of them runs the study, the other is refused and told which process has it."""
    tried = fault("two drivers started at once on one study")
    for _ in range(4):
        one, other = (workplace.go_on("shared", "--runner", "inline") for _ in range(2))
        one.until(partial(has_ended, other))
        refused, running = (other, one) if one.runs else (one, other)
        assert refused.wait() == 2, refused.output
        assert "Traceback" not in refused.output
        assert f"process {running.pid}" in refused.stderr or "exists" in refused.stderr
        tried.tries += 1
        if running.runs_until(running.seconds() + rng.uniform(0.0, 3.0)):
            workplace.look("shared")
            running.kill()
        assert running.left_behind() == []
    workplace.end("shared", "--runner", "inline")
    tried.settle(
        audit_all(workplace.study("shared"), calm, workplace.seen, workplace.store("shared"))
    )
