"""A real MLflow server that is killed and started again while a study runs."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Endings, audit, audit_tracking
from chaos.ledger import Fault
from chaos.scene import Scene
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
    scene: Scene, calm: Endings, rng: random.Random, fault: Callable[[str], Fault], server: Server
) -> None:
    tried = fault("MLflow server killed (kill -9) and started again, while a study runs")
    how = ("--runner", "inline", "--tracking-uri", server.uri)
    driver = scene.go_on("tracked", *how)
    scene.wait_for_report("tracked", driver)
    while driver.runs_until(driver.seconds() + rng.uniform(0.0, 4.0)) and tried.tries < 3:
        server.kill()
        tried.tries += 1
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 4.0))
        server.start()
    assert driver.wait() == 0, driver.output
    assert scene.start("sync", "tracked", "--home", scene.home("tracked")).wait() == 0
    found = audit(scene.study("tracked"), calm, scene.seen)
    audit_tracking(found, scene.study("tracked"), server.uri)
    tried.settle(found)


def test_a_driver_killed_while_its_server_comes_and_goes(
    scene: Scene, calm: Endings, rng: random.Random, fault: Callable[[str], Fault], server: Server
) -> None:
    tried = fault("MLflow server and driver killed in turn")
    how = ("--runner", "inline", "--tracking-uri", server.uri)
    for _ in range(3):
        driver = scene.go_on("both", *how)
        scene.wait_for_report("both", driver)
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 3.0))
        server.kill()
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 2.0))
        driver.kill()
        scene.look("both")
        server.start()
        tried.tries += 2
    scene.end("both", *how)
    assert scene.start("sync", "both", "--home", scene.home("both")).wait() == 0
    found = audit(scene.study("both"), calm, scene.seen)
    audit_tracking(found, scene.study("both"), server.uri)
    tried.settle(found)
