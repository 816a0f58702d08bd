"""The seed that faults are drawn from, the table of what was tried, and the bound on its time."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from chaos.audit import Endings
from chaos.ledger import Fault, table, write_table
from chaos.scene import STOPPING, Scene

_MINUTES: Final = 20
_DEFAULT_SEED: Final = 1
_FAULTS: Final = pytest.StashKey[list[Fault]]()
_BEGAN: Final = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-seed", type=int, help="What moments and victims are drawn from.")
    parser.addoption("--chaos-table", type=Path, help="A file to write the table into.")


def pytest_report_header(config: pytest.Config) -> str:
    return f"chaos: --chaos-seed {_seed(config)}"


def _seed(config: pytest.Config) -> int:
    # The option is known only where these tests are named on the command line.
    given = config.getoption("--chaos-seed", default=None)
    return _DEFAULT_SEED if given is None else int(given)


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
    return _seed(request.config)


@pytest.fixture
def rng(request: pytest.FixtureRequest, chaos_seed: int) -> random.Random:
    """Random numbers that depend on the seed and on the test, not on what ran before."""
    return random.Random(f"{chaos_seed}/{request.node.name}")


@pytest.fixture
def fault(request: pytest.FixtureRequest, chaos_seed: int) -> Callable[[str], Fault]:
    """Enter a fault into the table."""
    faults = request.config.stash.setdefault(_FAULTS, [])
    test = request.node.nodeid

    def enter(name: str) -> Fault:
        faults.append(Fault(name, test, chaos_seed))
        return faults[-1]

    return enter


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
    from hsweep.tracking.tracker import TrackingTarget

    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    initialise_database(TrackingTarget(f"sqlite:///{file}", None, "none"))
    return file


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Endings:
    """How the trials of the scene's sweep end when nothing happens."""
    return _undisturbed(Scene(tmp_path_factory.mktemp("calm"), store=store))


@pytest.fixture(scope="session")
def calm_stopping(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Endings:
    """The same with early stopping."""
    return _undisturbed(Scene(tmp_path_factory.mktemp("calm"), store=store, more=STOPPING))


def _undisturbed(scene: Scene) -> Endings:
    scene.end("calm", "--runner", "inline", pace=0.0)
    return scene.endings("calm")


@pytest.fixture
def scene(tmp_path: Path, store: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, store=store)
    yield scene
    scene.close()
