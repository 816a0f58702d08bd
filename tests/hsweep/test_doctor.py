import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import Result
from mlflow_stores import free_port

from hsweep.commands import doctor, probes
from hsweep.commands.probes import Check, ProbeError
from hsweep.paths import Home

HANG = "import json, threading; print(json.dumps({}), flush=True); threading.Event().wait()"


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """Return a place where nobody, root included, can make a folder: below a file."""
    file = tmp_path / "file"
    file.write_text("")
    return file / "home"


def by_name(found: list[Check]) -> dict[str, Check]:
    assert len({check.name for check in found}) == len(found)
    return {check.name: check for check in found}


def test_a_healthy_machine_has_no_problems_and_is_left_as_it_was(tmp_path: Path) -> None:
    home, store = Home(tmp_path / "home"), f"sqlite:///{tmp_path / 'mlflow.db'}"
    found = by_name(doctor.diagnose(home, thorough=True, tracking_uri=store))
    assert {name: check.detail for name, check in found.items() if check.status == "problem"} == {}
    assert {"python", "torch", "model families", "ray", "mlflow", "home", "journal"} <= set(found)
    assert list(tmp_path.iterdir()) == []


def test_by_default_torch_alone_is_started(
    hsweep: Callable[..., Result], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, run = [], probes.run

    def noting(*probe: str) -> Any:
        started.append(probe)
        return run(*probe)

    monkeypatch.setattr(probes, "run", noting)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found = {each["name"]: each for each in json.loads(hsweep("doctor", "--json").stdout)}
    assert {name for name, each in found.items() if each["status"] == "problem"} == set()
    assert {"python", "packages", "torch", "ray", "mlflow", "home", "journal"} <= set(found)
    assert "--thorough runs a task" in found["ray"]["detail"]
    assert "made by the first run; --thorough opens it" in found["mlflow"]["detail"]
    assert started == [("-c", probes._TORCH)]
    assert not home.root.exists()


def test_whatever_is_not_ok_says_what_to_do(
    blocked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HSWEEP_CACHE", str(blocked))
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    (tmp_path / "damaged.db").write_text("this is no database, and too long to be an empty one")
    found = doctor.diagnose(Home(blocked), tracking_uri=f"sqlite:///{tmp_path / 'damaged.db'}")
    bad = [check for check in found if check.status != "ok"]
    problems = {check.name for check in bad if check.status == "problem"}
    assert {"ray", "mlflow", "home", "cache"} <= problems
    assert str(blocked) in next(check.detail for check in bad if check.name == "home")
    assert [check for check in bad if not check.remedy] == []


@pytest.mark.parametrize(("free", "status"), [(10, "ok"), (3, "warning"), (0.1, "problem")])
def test_the_disk_is_judged_by_what_is_free(
    free: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=100 * 2**30, free=int(free * 2**30))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check = doctor.disk(tmp_path / "not" / "yet", "disk", want_gib=5)
    assert check.status == status


@pytest.mark.parametrize(("kind", "status"), [("ext4", "ok"), ("nfs4", "warning")])
def test_a_journal_on_a_network_file_system_is_warned_of(
    kind: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = [
        SimpleNamespace(mountpoint="/", fstype="xfs"),
        SimpleNamespace(mountpoint=str(tmp_path.resolve()), fstype=kind),
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)  # noqa: A006
    assert doctor.write_ahead_log(tmp_path / "home").status == status


def test_a_probe_answers_with_its_last_line() -> None:
    assert probes.run("-c", "print('noise'); print('{\"version\": 1}')") == {"version": 1}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise OSError('libcudart.so is missing\\n(a hint)')", "OSError: libcudart.so is missing"),
        ("import os; os.abort()", "exit status -6"),
        ("print('hello')", "no answer, but 'hello'"),
    ],
)
def test_a_probe_without_an_answer_says_why(code: str, why: str) -> None:
    with pytest.raises(ProbeError) as failure:
        probes.run("-c", code)
    assert str(failure.value) == why


def test_a_probe_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {HANG!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "child.wait()\n"
    )
    with pytest.raises(ProbeError, match="no answer within 8 s"):
        probes.run("-c", code, timeout=8)
    alive = [pid for pid in map(int, pids.read_text().split()) if is_running(pid)]
    assert alive == []


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_probe_runs_our_packages_wherever_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.py").write_text("raise RuntimeError('not ours')")
    monkeypatch.chdir(tmp_path)
    code = "import json, models; print(json.dumps({'file': models.__file__}))"
    facts = probes.run("-c", code)
    assert Path(facts["file"]).parents[1] == Path(probes.__file__).parents[2]


def test_torch_on_gpus_names_each_with_its_memory() -> None:
    gpus = [{"name": "H200", "bytes": 139 * 2**30}]
    facts = {"version": "2.13.0", "threads": 8, "gpus": gpus}
    check = probes.judge_torch(facts, has_nvidia_driver=True)
    assert (check.status, check.detail) == ("ok", "torch 2.13.0 on H200 (139 GiB)")


def test_a_gpu_that_torch_cannot_use_is_warned_of() -> None:
    facts = {"version": "2.13.0+cpu", "threads": 8, "gpus": []}
    assert probes.judge_torch(facts, has_nvidia_driver=True).status == "warning"
    assert probes.judge_torch(facts, has_nvidia_driver=False).status == "ok"


def test_packages_are_compared_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probes.packages().status == "ok"
    asked = ["click<8", "pandas", "no-such-package>=2", 'another-one; extra == "test"']
    monkeypatch.setattr(probes, "requires", lambda _: asked)
    check = probes.packages()
    assert check.status == "problem"
    assert re.fullmatch(
        r"needed: click<8 \(8\.\S+ is installed\), no-such-package>=2 \(none is installed\)",
        check.detail,
    )


@pytest.mark.parametrize("uri", ["postgresql://ann@db/runs", "./mlruns"])
def test_stores_that_only_mlflow_can_open_are_left_to_the_thorough_look(
    tmp_path: Path, uri: str
) -> None:
    check = probes.mlflow(Home(tmp_path), uri, thorough=False)
    assert (check.status, "not looked at; --thorough opens it" in check.detail) == ("ok", True)


def test_a_damaged_mlflow_store_is_a_problem(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    home.mlflow_database.write_text("this is no database, and too long to be an empty one")
    check = probes.mlflow(home, thorough=False)
    assert check.status == "problem"
    assert "not a database" in check.detail
    assert str(home.mlflow_database) in check.remedy


def test_an_mlflow_server_that_is_down_is_a_problem(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    for thorough in (False, True):
        check = probes.mlflow(Home(tmp_path), uri, thorough=thorough)
        assert (check.status, "--tracking-uri" in check.remedy) == ("problem", True)
    assert probes.mlflow(Home(tmp_path), "http://a:b", thorough=False).status == "problem"
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert "something answers" in probes.mlflow(Home(tmp_path), uri, thorough=False).detail


def test_a_ray_cluster_that_is_down_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    check = probes.ray(thorough=True)
    assert (check.status, os.environ["RAY_ADDRESS"] in check.remedy) == ("problem", True)
