import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import psutil
import pytest
from click.testing import Result
from mlflow_stores import free_port

from hsweep.commands import doctor
from hsweep.commands.doctor import Check, ProbeError
from hsweep.paths import Home

PROBE = doctor.probe
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


def test_a_healthy_machine_has_no_problems_and_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    home, store = Home(tmp_path / "home"), f"sqlite:///{tmp_path / 'mlflow.db'}"
    found = by_name(doctor.diagnose(home, thorough=True, tracking_uri=store))
    assert {name: check.detail for name, check in found.items() if check.status == "problem"} == {}
    assert {"python", "torch", "ray", "mlflow", "home", "disk"} == set(found)
    assert list(tmp_path.iterdir()) == []


def test_whatever_is_not_ok_says_what_to_do(blocked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")

    def probe(*arguments: str, **named: Any) -> Any:
        # Ray waits long for a cluster that is not there.
        timeout = 3 if "hsweep.ray_tune.probe" in arguments else 60
        return PROBE(*arguments, timeout=timeout, **named)

    monkeypatch.setattr(doctor, "probe", probe)
    uri = f"http://127.0.0.1:{free_port()}"
    found = by_name(doctor.diagnose(Home(blocked), thorough=True, tracking_uri=uri))
    problems = {name for name, check in found.items() if check.status == "problem"}
    assert {"ray", "mlflow", "home"} <= problems
    assert str(blocked) in found["home"].detail
    assert "--tracking-uri" in found["mlflow"].remedy
    assert os.environ["RAY_ADDRESS"] in found["ray"].remedy
    assert [
        name for name, check in found.items() if check.status != "ok" and not check.remedy
    ] == []


@pytest.mark.parametrize(("free", "status"), [(10, "ok"), (3, "warning"), (0.1, "problem")])
def test_the_disk_is_judged_by_what_is_free(
    free: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=100 * 2**30, free=int(free * 2**30))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check = doctor.disk(tmp_path / "not" / "yet")
    assert check.status == status


def test_a_probe_answers_with_its_last_line() -> None:
    assert doctor.probe("-c", "print('noise'); print('{\"version\": 1}')") == {"version": 1}


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
        doctor.probe("-c", code)
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
    with pytest.raises(ProbeError, match="no answer within 5 s"):
        doctor.probe("-c", code, timeout=5)
    family = [int(pid) for pid in pids.read_text().split()]
    assert len(family) == 2
    # A kill takes a moment; what outlives it meets the deadline of the test.
    while any(map(is_running, family)):
        time.sleep(0.01)


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
    facts = doctor.probe("-c", code)
    assert Path(facts["file"]).parents[1] == Path(doctor.__file__).parents[2]


@pytest.mark.parametrize(
    ("gpus", "driver", "status", "detail"),
    [
        (["H200 (139 GiB)"], "/bin/nvidia-smi", "ok", "torch 2.13.0 on H200 (139 GiB)"),
        ([], "/bin/nvidia-smi", "warning", "it cannot use the GPU that is here"),
        ([], None, "ok", "torch 2.13.0 on the CPU: "),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_warned_of(
    gpus: list[str], driver: str | None, status: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "probe", lambda *_: {"version": "2.13.0", "gpus": gpus})
    monkeypatch.setattr(shutil, "which", lambda _: driver)
    check = doctor.torch()
    assert (check.status, detail in check.detail) == (status, True)


def test_a_problem_is_printed_and_the_exit_code(
    hsweep: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[tuple[Literal["warning", "problem"], int]] = [("warning", 0), ("problem", 1)]
    for status, code in statuses:
        check = Check("disk", status, "0.1 of 9 GiB free", "free at least 0.5 GiB there")
        monkeypatch.setattr(doctor, "diagnose", lambda *_, found=check, **__: [found])
        result = hsweep("doctor", "--json")
        assert (result.exit_code, json.loads(result.stdout)) == (code, [asdict(check)])
        assert "free at least 0.5 GiB there" in hsweep("doctor").stdout


def test_an_mlflow_store_that_is_damaged_is_a_problem(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    home.mlflow_database.write_text("this is no database, and too long to be an empty one")
    check = doctor.mlflow(home)
    assert (check.status, str(home.mlflow_database) in check.remedy) == ("problem", True)
