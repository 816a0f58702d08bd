"""How tests share out among processes, and the command line that many of them use."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hsweep.cli import main
from hsweep.paths import Home

pytest_plugins = ["chaos.reporting"]
# Their assertions say what they found, like those of test files.
pytest.register_assert_rewrite("model_contract", "runner_contract", "task_contract")

# Ray's workers give way to every other program unless told otherwise: beside tests that compute,
# those that wait for Ray would wait for minutes.
os.environ.setdefault("RAY_worker_niceness", "0")

HERE = Path(__file__).parent
TOGETHER = ("hsweep/", "examples/", "analysis/test_report_browser.py", "chaos/test_every_write.py")
"""Where the tests of one file stay in one process: they share a Ray, an MLflow store, a browser,
trained trials, or a process that forks."""


# Before xdist reads what group a test is of.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        if place.startswith(TOGETHER):
            item.add_marker(pytest.mark.xdist_group(place))


@pytest.fixture(autouse=True, scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indices of studies whose homes a later test run has again lie elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HSWEEP_NODE_DIR", str(tmp_path_factory.mktemp("node")))
        yield


@pytest.fixture(autouse=True, scope="session")
def activated() -> Iterator[None]:
    """A shell finds the program of these tests, so that commands are printed with its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    """A sweep of three tiny trials."""
    from tiny_studies import SWEEP_FILE

    file = tmp_path / "sweep.py"
    file.write_text(SWEEP_FILE)
    return file


@pytest.fixture
def hsweep(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Run the command line in this process, with a home of the test's own."""
    monkeypatch.setenv("HSWEEP_HOME", str(home.root))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    yield invoke
    for name in [name for name in sys.modules if name == "hsweep.sweep_file"]:
        del sys.modules[name]
