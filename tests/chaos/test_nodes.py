"""Nodes of a cluster that are lost while trials run on them."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from chaos.audit import Endings, audit, audit_all
from chaos.fault_table import Fault
from chaos.workplace import PACE, TESTS, UPDATES, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOTICES: Final = int(os.environ.get("CHAOS_NOTICES", "4"))
"""For a study's drivers, one each."""


class Nodes:
    """Ray's test cluster, in a process of its own."""

    def __init__(self, number: int, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(TESTS / "chaos" / "cluster.py"), str(number)],
            env={**os.environ, "PYTHONPATH": str(TESTS.parent), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.partition(" ")
            if word == "said":
                return rest.strip()
        raise AssertionError("the cluster ended")

    def order(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._answer() == "done"

    def close(self) -> None:
        self._process.communicate(timeout=100)


@pytest.fixture
def nodes(workplace: Workplace) -> Iterator[Nodes]:
    nodes = Nodes(2, workplace.variables())
    yield nodes
    nodes.close()


def test_nodes_lost(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    nodes: Nodes,
    tmp_path: Path,
) -> None:
    tried = fault("node of a cluster lost at random moments, and another added")
    storage = tmp_path / "shared"
    driver = workplace.go_on("lost", "--address", nodes.address, "--storage", storage)
    workplace.wait_for_report("lost", driver)
    for _ in range(2):
        if driver.runs_until(driver.seconds() + rng.uniform(0.0, 3.0)):
            workplace.look("lost")
            nodes.order("lose")
            nodes.order("get")
            tried.tries += 1
    assert driver.wait() == 0, driver.output
    tried.settle(audit_all(workplace.study("lost"), calm, workplace.seen, workplace.store("lost")))


def test_nodes_that_get_notice(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    nodes: Nodes,
    tmp_path: Path,
) -> None:
    tried = fault("node of a cluster drained (preemption notice) at random moments")
    how = "--address", nodes.address, "--storage", tmp_path / "shared", "--no-check"
    driver = workplace.go_on("drained", *how)
    workplace.wait_for_report("drained", driver)
    for _ in range(2):
        if driver.runs_until(driver.seconds() + rng.uniform(0.0, 3.0)):
            nodes.order("drain")
            nodes.order("get")
            tried.tries += 1
    assert driver.wait() == 0, driver.output
    found = audit(workplace.study("drained"), calm, workplace.seen)
    tried.settle(found)
    tried.cost([(workplace.updates() - UPDATES) * PACE])
    assert workplace.updates() == UPDATES, "no update is done again"


def test_notices_in_the_first_minute_of_a_driver(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    tmp_path: Path,
) -> None:
    tried = fault("preemption notice (SIGTERM) in the first minute of a driver on a cluster")
    nodes = Nodes(2, workplace.variables(pace=1.0))
    try:
        how = "--storage", tmp_path / "shared", "--no-check"
        for _ in range(NOTICES):
            driver = workplace.go_on("told", *how, RAY_ADDRESS=nodes.address)
            assert driver.runs_until(rng.uniform(0.2, 60.0)), driver.output
            driver.terminate()
            assert driver.wait() == 75, driver.output
            assert "Traceback" not in driver.output
            tried.tries += 1
        workplace.end("told", *how, "--runner", "inline", pace=0.0)
    finally:
        nodes.close()
    tried.settle(audit(workplace.study("told"), calm, workplace.seen))
