"""Studies that are handed to a Ray cluster as jobs, of one user or of two."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow_stores import DEADLINE, Server, free_port, history, make_database, recorded, runs_of
from tiny_studies import SWEEP_FILE

from hsweep.errors import ROOT
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

pytestmark = pytest.mark.slow

TESTS = Path(__file__).resolve().parents[1]


class Head:
    """A Ray of two processors, with the dashboard that takes jobs."""

    def __init__(self, folder: Path) -> None:
        own = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
        self._environment = own | {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}",
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "ab" * 16,
            # Otherwise pytest's own, which are not those of a user.
            "PYTEST_ADDOPTS": "",
        }
        self._dashboard = f"http://127.0.0.1:{(port := free_port())}"
        # Sockets lie in it, whose paths are short.
        self._temporary = tempfile.TemporaryDirectory(prefix="r", dir="/tmp")
        self._log = (folder / "head.log").open("w")
        self._process = subprocess.Popen(
            [
                *self._ray("start", "--head", "--block", "--num-cpus=2", "--disable-usage-stats"),
                *(f"--port={free_port()}", "--node-ip-address=127.0.0.1"),
                *(f"--dashboard-port={port}", f"--dashboard-agent-listen-port={free_port()}"),
                *(f"--ray-client-server-port={free_port()}", "--include-dashboard=true"),
                f"--temp-dir={self._temporary.name}",
            ],
            env=self._environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _ray(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ray.scripts.scripts", *words]

    def submit(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Run ``hsweep`` as a job; the process that submits it ends with it, and has its output."""
        environment = json.dumps({"env_vars": variables})
        command = self._ray("job", "submit", "--address", self._dashboard)
        return subprocess.Popen(
            [
                *command,
                "--runtime-env-json",
                environment,
                "--",
                sys.executable,
                "-m",
                "hsweep",
                *words,
            ],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self) -> None:
        """Wait until it takes jobs."""
        deadline = time.monotonic() + DEADLINE
        while not self._answers():
            assert self._process.poll() is None, Path(self._log.name).read_text()
            assert time.monotonic() < deadline, Path(self._log.name).read_text()
            time.sleep(0.2)

    def _answers(self) -> bool:
        listing = self._ray("job", "list", "--address", self._dashboard)
        done = subprocess.run(listing, env=self._environment, capture_output=True, check=False)
        return done.returncode == 0

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(60)
        self._log.close()
        self._temporary.cleanup()


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    head = Head(tmp_path_factory.mktemp("head"))
    try:
        head.wait()
        yield head
    finally:
        head.close()


def ended(job: "subprocess.Popen[str]") -> tuple[int, str]:
    output, _ = job.communicate(timeout=DEADLINE)
    return job.returncode, output


def test_a_job_runs_a_study_on_the_cluster(head: Head, sweep_file: Path, home: Home) -> None:
    job = head.submit("run", str(sweep_file), "--study", "mine", "--home", str(home.root))
    code, output = ended(job)
    assert code == 0, output
    assert StudyFolder.open(home, "mine").status()["state"] == "complete"
    assert "3 runs in" in output


def test_what_is_refused_ends_the_job_with_1_and_is_said_in_its_log(
    head: Head, sweep_file: Path, home: Home
) -> None:
    job = head.submit("run", str(sweep_file), "--set", "hight=3", "--home", str(home.root))
    code, output = ended(job)
    assert code == 1, output
    assert "hsweep: " in output
    assert "hight" in output
    assert "Traceback" not in output.partition("hsweep: ")[2]
    assert not home.studies.exists()


def test_two_users_studies_of_one_name_share_cluster_and_server_and_stay_apart(
    head: Head, tmp_path: Path
) -> None:
    folder = tmp_path / "mlflow"
    folder.mkdir()
    server = Server(make_database(folder))
    server.start()
    try:
        jobs: dict[str, Any] = {}
        for user in ("ann", "bob"):
            file = tmp_path / user / "sweep.py"
            file.parent.mkdir()
            file.write_text(SWEEP_FILE)
            jobs[user] = head.submit(
                *("run", str(file), "--study", "mine", "--home", str(tmp_path / user / "home")),
                *("--tracking-uri", server.uri, "--no-reuse"),
                MLFLOW_TRACKING_USERNAME=user,
            )
        for user, job in jobs.items():
            code, output = ended(job)
            assert code == 0, (user, output)
        runs = runs_of(server.target("tiny"))
        assert len(runs) == 8
        for user in jobs:
            own = [run for run in runs if run.data.tags["mlflow.user"] == user]
            (parent,) = [run for run in own if "hsweep.trial" not in run.data.tags]
            trials = {run.data.tags["hsweep.trial"]: run for run in own if run is not parent}
            study = StudyFolder.open(Home(tmp_path / user / "home"), "mine")
            with study.journal() as journal:
                assert {row.key for row in journal.trials()} == trials.keys()
                for key, run in trials.items():
                    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
                    rows = history(server.target("tiny"), run, "nmse")
                    assert rows == recorded(journal, key)
    finally:
        server.kill()
