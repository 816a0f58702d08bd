"""What the tests of faults share: seed, table, undisturbed runs, and the bound on their time."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from chaos.audit import Endings
from chaos.fault_table import Fault
from chaos.reporting import note
from chaos.workplace import SEARCHING, STOPPING, Workplace

_MINUTES: Final = 45
_BEGAN: Final = pytest.StashKey[float]()


@pytest.fixture
def chaos_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--chaos-seed"))


@pytest.fixture
def rng(request: pytest.FixtureRequest, chaos_seed: int) -> random.Random:
    """Random numbers that depend on the seed and on the test, not on what ran before."""
    return random.Random(f"{chaos_seed}/{request.node.name}")


@pytest.fixture
def fault(request: pytest.FixtureRequest, chaos_seed: int) -> Iterator[Callable[[str], Fault]]:
    """Enter a fault into the table."""
    entered: list[Fault] = []

    def enter(name: str) -> Fault:
        # Behind the @ is the group that xdist keeps in one process.
        entered.append(Fault(name, request.node.nodeid.partition("@")[0], chaos_seed))
        return entered[-1]

    yield enter
    for each in entered:
        note(request.node, each)


@pytest.fixture(autouse=True)
def within_the_bound(request: pytest.FixtureRequest) -> None:
    """The suite ends within its time: what it does not come to is a failure, not a longer wait."""
    began = request.config.stash.setdefault(_BEGAN, time.monotonic())
    minutes = (time.monotonic() - began) / 60
    if request.node.get_closest_marker("slow") is not None and minutes > _MINUTES:
        pytest.fail(f"not tried: {minutes:.0f} of {_MINUTES} minutes are over")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database, made once."""
    from hsweep.tracking.store import initialise_database
    from hsweep.tracking.target import TrackingTarget

    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    initialise_database(TrackingTarget(f"sqlite:///{file}", None, "none"))
    return file


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Endings:
    """How the trials of the workplace's sweep end when nothing happens."""
    return _undisturbed(Workplace(tmp_path_factory.mktemp("calm"), store=store))


@pytest.fixture(scope="session")
def calm_stopping(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Endings:
    """The same with early stopping."""
    return _undisturbed(Workplace(tmp_path_factory.mktemp("calm"), store=store, more=STOPPING))


@pytest.fixture(scope="session")
def calm_searching(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Endings:
    """The same with a search for a transition."""
    return _undisturbed(Workplace(tmp_path_factory.mktemp("calm"), store=store, more=SEARCHING))


def _undisturbed(workplace: Workplace) -> Endings:
    workplace.end("calm", "--runner", "inline", pace=0.0)
    return workplace.endings("calm")


@pytest.fixture
def workplace(tmp_path: Path, store: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path, store=store)
    yield workplace
    workplace.close()
