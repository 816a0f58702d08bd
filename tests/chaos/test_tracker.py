"""A real MLflow server that is killed and started again while a study runs."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Endings, audit, audit_tracking
from chaos.fault_table import Fault
from chaos.workplace import Workplace
from mlflow_stores import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def server(tmp_path: Path, store: Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    shutil.copy(store, folder / "mlflow.db")
    server = Server(folder / "mlflow.db")
    server.start()
    yield server
    server.kill()


def test_a_server_killed_and_started_again(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    server: Server,
) -> None:
    tried = fault("MLflow server killed (kill -9) and started again, while a study runs")
    how = ("--runner", "inline", "--tracking-uri", server.uri)
    driver = workplace.go_on("tracked", *how)
    workplace.wait_for_report("tracked", driver)
    while driver.runs_until(driver.seconds() + rng.uniform(0.0, 4.0)) and tried.tries < 3:
        server.kill()
        tried.tries += 1
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 4.0))
        server.start()
    assert driver.wait() == 0, driver.output
    assert workplace.start("sync", "tracked", "--home", workplace.home("tracked")).wait() == 0
    found = audit(workplace.study("tracked"), calm, workplace.seen)
    audit_tracking(found, workplace.study("tracked"), server.uri)
    tried.settle(found)


def test_a_driver_killed_while_its_server_comes_and_goes(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    server: Server,
) -> None:
    tried = fault("MLflow server and driver killed in turn")
    how = ("--runner", "inline", "--tracking-uri", server.uri)
    for _ in range(3):
        driver = workplace.go_on("both", *how)
        workplace.wait_for_report("both", driver)
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 3.0))
        server.kill()
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 2.0))
        driver.kill()
        workplace.look("both")
        server.start()
        tried.tries += 2
    workplace.end("both", *how)
    assert workplace.start("sync", "both", "--home", workplace.home("both")).wait() == 0
    found = audit(workplace.study("both"), calm, workplace.seen)
    audit_tracking(found, workplace.study("both"), server.uri)
    tried.settle(found)
