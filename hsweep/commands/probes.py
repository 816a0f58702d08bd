"""Does each large library work here? Each is tried in a process of its own, under a timeout.

A library can hang, abort the process or print at will. A probe answers with one line of JSON, the
last of its standard output.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import psutil
from packaging.requirements import Requirement

from hsweep.errors import ROOT
from hsweep.paths import Home
from hsweep.quiet import no_calls_home
from hsweep.redaction import redact

_GIB: Final = 2**30
_REINSTALL: Final = "install hsweep again, with the same pip command"

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
class Check:
    """One thing that was looked at, and what to do about it.

    A ``problem`` keeps studies from running, a ``warning`` may spoil or slow them.
    """

    name: str
    status: Literal["ok", "warning", "problem"]
    detail: str
    remedy: str = ""


class ProbeError(Exception):
    """A library does not work; says why."""


def run(*arguments: str, timeout: float = 120, variables: Mapping[str, str] | None = None) -> Any:
    """Start Python with these arguments in an empty folder and return its answer.

    After ``timeout`` seconds it is killed, and what it has started.

    Raises:
        ProbeError: it gives no answer.
    """
    environment = {**os.environ, **(variables or {})}
    no_calls_home(environment)
    # The packages that this process runs, whatever the current folder has under their names.
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory(prefix="hsweep-probe-") as folder:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
        )
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            started = psutil.Process(process.pid)
            for each in (*started.children(recursive=True), started):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            process.communicate()
            raise ProbeError(f"no answer within {timeout:g} s") from error
    if process.returncode != 0:
        raised = re.findall(r"^[A-Za-z_][\w.]*: .+", errors, re.MULTILINE)
        last = _last_line("\n".join(raised) or errors)
        raise ProbeError(last or f"exit status {process.returncode}")
    try:
        return json.loads(_last_line(output))
    except ValueError as error:
        raise ProbeError(f"no answer, but {_last_line(output)!r}") from error


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def torch() -> Check:
    try:
        facts = run("-c", _TORCH)
    except ProbeError as error:
        return Check("torch", "problem", str(error), _REINSTALL)
    return judge_torch(facts, has_nvidia_driver=shutil.which("nvidia-smi") is not None)


def judge_torch(facts: Mapping[str, Any], *, has_nvidia_driver: bool) -> Check:
    """Say where trials will train, given what torch's probe answered."""
    from hsweep.record.provenance import usable_cores

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
    name = "model families"
    try:
        facts = run("-c", _FAMILIES)
    except ProbeError as error:
        return Check(name, "problem", str(error), _REINSTALL)
    detail = f"timm {facts['timm']}, transformers {facts['transformers']}"
    if facts["healed"]:
        detail += "; torchvision is built for another torch and works in part, which is enough"
    return Check(name, "ok", detail)


def packages() -> Check:
    """Look whether all that hsweep needs is installed, in the versions it is meant for; of what
    comes with extras, whether what is installed has such a version."""
    wrong: dict[str, None] = {}
    for text in requires("hsweep") or ():
        needed = Requirement(text)
        is_core = needed.marker is None or needed.marker.evaluate({"extra": ""})
        found = _installed(needed.name)
        fits = bool(found) and needed.specifier.contains(found, prereleases=True)
        if not fits and (found or is_core):
            wrong[f"{needed.name}{needed.specifier} ({found or 'none'} is installed)"] = None
    if wrong:
        return Check("packages", "problem", f"needed: {', '.join(wrong)}", _REINSTALL)
    return Check("packages", "ok", "all that hsweep needs, in versions it is meant for")


def _installed(package: str) -> str:
    """Return the version of an installed package; empty where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def ray(*, thorough: bool) -> Check:
    """Look whether something answers at ``RAY_ADDRESS``; ``thorough``: join it, or start Ray with
    its dashboard, and run one task."""
    from hsweep.ray_tune.environment import LOOPBACK_ONLY

    address = os.environ.get("RAY_ADDRESS", "")
    try:
        _reach(address)
        if not thorough:
            where = f"{address} answers; " if address else ""
            detail = f"ray {_installed('ray')}: {where}--thorough runs a task"
            return Check("ray", "ok", detail)
        facts = run("-m", "hsweep.ray_tune.probe", variables={} if address else LOOPBACK_ONLY)
    except ProbeError as error:
        remedy = (
            f"see that the cluster at RAY_ADDRESS={address} is up and of the same Ray version, "
            "and set RAY_AUTH_MODE=token if it asks for one; or unset RAY_ADDRESS"
            if address
            else f"look into /tmp/ray/session_latest/logs; {_REINSTALL}"
        )
        return Check("ray", "problem", str(error), remedy)
    where = "starts here and runs a task"
    if address:
        size = f"{facts['nodes']} nodes, {facts['cpus']} CPUs, {facts['gpus']} GPUs"
        where = f"joined {address}: {size}"
    detail = f"ray {facts['version']} {where}"
    if not facts["dashboard"]:
        remedy = 'for the dashboard: pip install "ray[default]"'
        return Check("ray", "warning", f"{detail}, without dashboard", remedy)
    return Check("ray", "ok", f"{detail}, with dashboard")


def _reach(address: str) -> None:
    """Raise ``ProbeError`` if nothing listens at ``host:port``, which takes Ray itself minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in address:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=3).close()
        except OSError as error:
            raise ProbeError(f"nothing answers at {address}: {error}") from error


def mlflow(home: Home, tracking_uri: str | None = None, *, thorough: bool) -> Check:
    """Look whether the MLflow store is there and readable: ``tracking_uri``, else the home's own.

    ``thorough`` opens it with MLflow; in place of an SQLite file that does not exist yet, one in a
    temporary folder.
    """
    uri = tracking_uri or home.default_tracking_uri
    shown = redact(uri)
    file = uri.removeprefix("sqlite:///")
    is_new = file != uri and not Path(file).exists()
    # One attempt: by itself the client asks an unreachable server for minutes.
    patience = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    try:
        if not thorough:
            state = "made by the first run" if is_new else _seen(uri)
            detail = f"mlflow {_installed('mlflow')}, {shown}: {state}; --thorough opens it"
            return Check("mlflow", "ok", detail)
        facts = run("-c", _MLFLOW, "sqlite:///new.db" if is_new else uri, variables=patience)
    except ProbeError as error:
        remedy = (
            f"see that the store {shown} is up and reachable, or leave --tracking-uri out"
            if tracking_uri
            else f"move {home.mlflow_database} away; the studies' own records are elsewhere"
        )
        return Check("mlflow", "problem", f"{shown}: {redact(str(error))}", remedy)
    state = "made by the first run" if is_new else f"{facts['experiments']} experiments"
    return Check("mlflow", "ok", f"mlflow {facts['version']}, {shown}: {state}")


def _seen(uri: str) -> str:
    """Return what can be seen of a store without MLflow; raise ``ProbeError`` if it is of no use.

    Of a database server nothing is.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as error:
        raise ProbeError(str(error)) from error
    if parts.scheme in ("http", "https"):
        _reach(f"{parts.hostname}:{port}")
        return "something answers"
    if parts.scheme != "sqlite":
        return "not looked at"
    file = uri.removeprefix("sqlite:///")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True)) as store:
            ((number,),) = store.execute("SELECT COUNT(*) FROM experiments")
    except sqlite3.Error as error:
        raise ProbeError(str(error)) from error
    return f"{number} experiments"
