"""What is served, and to whom: the machine itself, unless somebody asks for more."""

import contextlib
import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hsweep.errors import ROOT
from hsweep.ray_tune.environment import prepare_ray

HERE = Path(__file__).resolve().parent


def is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("has_dashboard", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_local_ray_its_dashboard_and_its_workers_listen_on_loopback_alone(
    tmp_path: Path, has_dashboard: bool
) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, str(HERE / "ray_listeners.py"), str(tmp_path), str(has_dashboard)],
        env={**own, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    names = {name for name, _ in found["listening"]}
    assert {"gcs_server", "raylet"} <= names
    assert [place for place in found["listening"] if not is_loopback(place[1])] == []
    if has_dashboard:
        assert found["dashboard"].startswith("http://127.0.0.1:")
    else:
        assert not found["dashboard"]


def test_a_driver_that_joins_a_cluster_can_be_reached_by_its_nodes() -> None:
    alone: dict[str, str] = {}
    joining: dict[str, str] = {}
    prepare_ray(alone)
    prepare_ray(joining, joins_cluster=True)
    (only,) = alone.keys() - joining.keys()
    assert only == "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    # How long a lost head is waited for differs as well, and lets nobody in.
    differing = {name for name in joining if joining[name] != alone[name]}
    assert differing <= {"RAY_gcs_rpc_server_reconnect_timeout_s"}


@pytest.mark.parametrize(
    ("host", "is_open"),
    [
        *((host, True) for host in ("0.0.0.0", "::", "192.0.2.7", "example.org", "")),
        *((host, False) for host in (None, "localhost", "::1")),
    ],
)
def test_only_pages_served_to_others_have_a_token(
    hsweep: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, host: str | None, is_open: bool
) -> None:
    served: list[str] = []
    monkeypatch.setattr("hsweep.tracking.ui.run_server", lambda *_: None)
    monkeypatch.setattr("hsweep.tracking.ui.listen", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr("hsweep.tracking.ui.guarded", lambda _, token: served.append(token))
    for _ in range(2):
        result = hsweep("ui", *(() if host is None else ("--host", host)))
        assert result.exit_code == 0, result.output
        assert ("?token=" in result.output) == is_open
    assert [bool(token) for token in served] == [is_open, is_open]
    assert (served[0] != served[1]) == is_open, "each start has a new one"
