"""The seed that faults are drawn from, the table of what was tried, and the bound on its time."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from chaos.ledger import Fault, table, write_table

_MINUTES: Final = 20
_DEFAULT_SEED: Final = 1
_FAULTS: Final = pytest.StashKey[list[Fault]]()
_BEGAN: Final = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-seed", type=int, help="What moments and victims are drawn from.")
    parser.addoption("--chaos-table", type=Path, help="A file to write the table into.")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    faults = config.stash.get(_FAULTS, [])
    if not faults:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(table(faults))
    file = config.getoption("--chaos-table", default=None)
    if file is not None:
        write_table(faults, file)


@pytest.fixture
def chaos_seed(request: pytest.FixtureRequest) -> int:
    given = request.config.getoption("--chaos-seed", default=None)
    seed = _DEFAULT_SEED if given is None else int(given)
    print(f"--chaos-seed {seed}")
    return seed


@pytest.fixture
def rng(request: pytest.FixtureRequest, chaos_seed: int) -> random.Random:
    """Random numbers that depend on the seed and on the test, not on what ran before."""
    return random.Random(f"{chaos_seed}/{request.node.name}")


@pytest.fixture
def fault(request: pytest.FixtureRequest, chaos_seed: int) -> Iterator[Callable[[str], Fault]]:
    """Enter a fault into the table."""
    faults = request.config.stash.setdefault(_FAULTS, [])
    test = request.node.nodeid

    def enter(name: str) -> Fault:
        faults.append(Fault(name, test, chaos_seed))
        return faults[-1]

    yield enter


@pytest.fixture(autouse=True)
def within_the_bound(request: pytest.FixtureRequest) -> None:
    """The suite ends within its time: what it does not come to is a failure, not a longer wait."""
    began = request.config.stash.setdefault(_BEGAN, time.monotonic())
    minutes = (time.monotonic() - began) / 60
    if request.node.get_closest_marker("slow") is not None and minutes > _MINUTES:
        pytest.fail(f"not tried: {minutes:.0f} of {_MINUTES} minutes are over")
