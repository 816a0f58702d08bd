"""Does each large library work here? Every one is tried in a process of its own, under a timeout.

A library can hang, abort the process or print at will; whoever asks must survive all three. A
probe answers with one line of JSON, the last of its standard output.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from hsweep.errors import ROOT
from hsweep.paths import Home
from hsweep.quiet import no_calls_home
from hsweep.ray_tune.environment import LOOPBACK_ONLY
from hsweep.record.provenance import usable_cores
from hsweep.redaction import redact
from hsweep.commands.checks import Check

_GIB: Final = 2**30
_REINSTALL: Final = "install again: pip install -c constraints.txt -e ."

_TORCH: Final = """
import json, torch
devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
for place in [*(f"cuda:{i}" for i in range(len(devices))), "cpu"]:
    square = torch.ones(64, 64, device=place)
    assert (square @ square)[0, 0].item() == 64, place
print(json.dumps({
    "version": torch.__version__,
    "threads": torch.get_num_threads(),
    "gpus": [{"name": device.name, "bytes": device.total_memory} for device in devices],
}))
"""
_FAMILIES: Final = """
import json
from models.torchvision_compat import make_torchvision_importable
healed = make_torchvision_importable()
import timm, transformers
from transformers import BertModel
timm.create_model("vit_tiny_patch16_224", depth=1)
print(json.dumps({
    "timm": timm.__version__, "transformers": transformers.__version__, "healed": healed,
}))
"""
_MLFLOW: Final = """
import json, sys, mlflow
found = mlflow.MlflowClient(tracking_uri=sys.argv[1]).search_experiments(max_results=1000)
print(json.dumps({"version": mlflow.__version__, "experiments": len(found)}))
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """A process to start.

    Attributes:
        arguments: what follows the name of the Python program.
        timeout: seconds after which it, and whatever it started, is killed.
        environment: variables added to this process's own.
    """

    arguments: tuple[str, ...]
    timeout: float = 120.0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a probe: facts, or else (when there are none) why not."""

    facts: Mapping[str, Any] | None
    failure: str = ""


def run(probe: Probe) -> Finding:
    """Start a probe in an empty folder and wait for its answer, at most until its timeout."""
    environment = {**os.environ, **probe.environment}
    no_calls_home(environment)
    # The packages that this process runs, whatever the current folder has under their names.
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with tempfile.TemporaryDirectory(prefix="hsweep-probe-") as folder:
        process = subprocess.Popen(
            [sys.executable, *probe.arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            output, errors = process.communicate(timeout=probe.timeout)
        except subprocess.TimeoutExpired:
            _kill_with_children(process)
            return Finding(None, f"no answer within {probe.timeout:g} s")
    if process.returncode != 0:
        return Finding(None, _raised(errors) or f"exit status {process.returncode}")
    try:
        return Finding(json.loads(_last_line(output)))
    except ValueError:
        return Finding(None, f"no answer, but {_last_line(output)!r}")


def _kill_with_children(process: subprocess.Popen[str]) -> None:
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in family:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    process.communicate()
    psutil.wait_procs(family, timeout=5)


def _raised(errors: str) -> str:
    """Return the line that names the exception, else the last one."""
    named = re.findall(r"^[A-Za-z_][\w.]*: .+", errors, re.MULTILINE)
    return _last_line("\n".join(named) or errors)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def torch() -> Check:
    """Import torch and multiply on every device it sees."""
    finding = run(Probe(("-c", _TORCH)))
    if finding.facts is None:
        return Check("torch", "problem", finding.failure, _REINSTALL)
    return judge_torch(finding.facts, has_nvidia_driver=shutil.which("nvidia-smi") is not None)


def judge_torch(facts: Mapping[str, Any], *, has_nvidia_driver: bool) -> Check:
    """Say where trials will train, given what torch's probe answered."""
    version = f"torch {facts['version']}"
    if facts["gpus"]:
        gpus = ", ".join(f"{gpu['name']} ({gpu['bytes'] / _GIB:.0f} GiB)" for gpu in facts["gpus"])
        return Check("torch", "ok", f"{version} on {gpus}")
    detail = f"{version} on the CPU: {usable_cores()} cores, {facts['threads']} threads"
    if has_nvidia_driver:
        remedy = "install a torch built for the driver's CUDA version, or train on the CPU"
        return Check("torch", "warning", f"{detail}; it cannot use the GPU that is here", remedy)
    return Check("torch", "ok", detail)


def families() -> Check:
    """Import timm and transformers, the way the models do."""
    finding = run(Probe(("-c", _FAMILIES)))
    if finding.facts is None:
        return Check("model families", "problem", finding.failure, _REINSTALL)
    facts = finding.facts
    detail = f"timm {facts['timm']}, transformers {facts['transformers']}"
    if facts["healed"]:
        detail += "; torchvision is built for another torch and works in part, which is enough"
    return Check("model families", "ok", detail)


def ray() -> Check:
    """Start Ray with its dashboard, or join ``RAY_ADDRESS``, and run one task."""
    address = os.environ.get("RAY_ADDRESS", "")
    finding = _unreachable(address) or run(
        Probe(("-m", "hsweep.ray_tune.probe"), environment={} if address else LOOPBACK_ONLY)
    )
    if finding.facts is None:
        remedy = (
            f"see that the cluster at RAY_ADDRESS={address} is up and of the same Ray version, "
            "and set RAY_AUTH_MODE=token if it asks for one; or unset RAY_ADDRESS"
            if address
            else f"look into /tmp/ray/session_latest/logs; {_REINSTALL}"
        )
        return Check("ray", "problem", finding.failure, remedy)
    facts = finding.facts
    where = (
        f"joined {address}: {facts['nodes']} nodes, {facts['cpus']} CPUs, {facts['gpus']} GPUs"
        if address
        else "starts here and runs a task"
    )
    detail = f"ray {facts['version']} {where}"
    if not facts["dashboard"]:
        remedy = 'for the dashboard: pip install "ray[default]"'
        return Check("ray", "warning", f"{detail}, without dashboard", remedy)
    return Check("ray", "ok", f"{detail}, with dashboard")


def _unreachable(address: str) -> Finding | None:
    """Look whether anything listens at ``host:port``, which Ray itself takes minutes to give up."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "://" in address:
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        return Finding(None, f"nothing answers at {address}: {error}")
    return None


def mlflow(home: Home, tracking_uri: str | None = None) -> Check:
    """Open the MLflow store: ``tracking_uri``, else the home's own.

    In place of an SQLite file that does not exist yet, one in a temporary folder is tried.
    """
    uri = tracking_uri or home.default_tracking_uri
    shown = redact(uri)
    file = uri.removeprefix("sqlite:///")
    is_new = file != uri and not Path(file).exists()
    # One attempt: by itself the client asks an unreachable server for minutes.
    patience = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    finding = run(
        Probe(("-c", _MLFLOW, "sqlite:///new.db" if is_new else uri), environment=patience)
    )
    if finding.facts is None:
        remedy = (
            f"see that the store {shown} is up and reachable, or leave --tracking-uri out"
            if tracking_uri
            else f"move {home.mlflow_database} away; the studies' own records are elsewhere"
        )
        return Check("mlflow", "problem", f"{shown}: {redact(finding.failure)}", remedy)
    state = "made by the first run" if is_new else f"{finding.facts['experiments']} experiments"
    return Check("mlflow", "ok", f"mlflow {finding.facts['version']}, {shown}: {state}")
