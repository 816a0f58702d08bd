"""``hsweep ui`` as it is used: a process that serves MLflow's pages of a home."""

import contextlib
import http.client
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from cli_process import Workplace
from click.testing import Result
from tiny_studies import new_study

from hsweep.paths import Home
from hsweep.tracking.target import StoreState, target_of

CHARTS = "#/experiments/7/runs?compareRunsMode=CHART"


def tracked_study(home: Home, name: str, tracking_uri: str | None = None) -> None:
    """Make a study whose charts a store has."""
    study = new_study(home, name, tracking_uri=f"sqlite:///{home.root}/mlflow.db")
    state = StoreState.of(study.paths.journal, target_of(study, home, tracking_uri))
    state.experiment, state.view = "7", "made"
    state.save()


def first_page(port: int) -> str | None:
    """Return where the plain address leads; None while nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", "/")
        return connection.getresponse().headers["Location"]
    return None


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGHUP,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGINT)),
    ],
)
def test_it_opens_on_the_charts_and_leaves_nothing_however_it_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    workplace = Workplace(tmp_path)
    tracked_study(Home(workplace.home), "mine")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = workplace.start("ui", "--port", str(port))
    try:
        server.until(lambda: first_page(port) is not None)
        assert CHARTS in str(first_page(port))
        started = psutil.Process(server.process.pid).children(recursive=True)
        server.process.send_signal(number)
        server.wait()
        assert psutil.wait_procs(started, timeout=10)[1] == []
        socket.create_server(("127.0.0.1", port)).close()
    finally:
        workplace.close()


def test_it_opens_on_the_study_that_is_asked_for_or_the_only_one(
    hsweep: Callable[..., Result], home: Home
) -> None:
    uri = "http://ann:secret@127.0.0.1:5007"

    def opened(*arguments: str) -> str:
        refused = hsweep("ui", *arguments, "--tracking-uri", uri)
        assert refused.exit_code == 2
        assert "the store is a server already: open http://127.0.0.1:5007/#/" in refused.output
        return refused.output

    tracked_study(home, "mine", uri)
    assert CHARTS in opened()
    new_study(home, "fresh")
    assert "#/experiments?workflowType=machine_learning" in opened()
    assert "#/experiments?workflowType=machine_learning" in opened("fresh")
    assert CHARTS in opened("mine")
    assert hsweep("ui", "nobody").exit_code == 2
