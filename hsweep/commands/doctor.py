"""``hsweep doctor``: problems of this machine that would keep a study from running, with remedies.

The checks write to temporary folders, leave no file behind and make no home. A library can hang,
abort the process or print anything, so each is checked in its own process, under a timeout; the
last line of that process's standard output is the result, as JSON.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import click

from hsweep.commands.options import home_option, json_option, tracking_option
from hsweep.commands.output import EXIT_NOTHING_USABLE, console_for, exit_with, print_json
from hsweep.errors import ROOT, UserError
from hsweep.paths import Home, node_folder
from hsweep.secrets import redact
from hsweep.telemetry import disable_telemetry
from hsweep.tracking.target import tracking_target

_GIB: Final = 2**30
_NEEDED_GIB: Final = 0.5
_ENOUGH_GIB: Final = 5
_REINSTALL: Final = "install hsweep again, with the same pip command"
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}
_TORCH: Final = """
import json, torch
module = torch.get_device_module()
number = torch.accelerator.device_count() if hasattr(module, "get_device_properties") else 0
devices = [module.get_device_properties(i) for i in range(number)]
for place in [*(torch.device(i) for i in range(number)), "cpu"]:
    square = torch.ones(64, 64, device=place)
    assert (square @ square)[0, 0].item() == 64, place
gpus = [f"{device.name} ({device.total_memory / 2**30:.0f} GiB)" for device in devices]
print(json.dumps({"version": torch.__version__, "gpus": gpus}))
"""
_MLFLOW: Final = """
import json, sys, mlflow
experiments = mlflow.MlflowClient(tracking_uri=sys.argv[1]).search_experiments(max_results=1000)
print(json.dumps({"version": mlflow.__version__, "experiments": len(experiments)}))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, and the remedy.

    A ``problem`` keeps studies from running, a ``warning`` may spoil or slow them.
    """

    name: str
    status: Literal["ok", "warning", "problem"]
    detail: str
    remedy: str = ""


class ProbeError(Exception):
    """A library does not work, with the reason."""


@click.command()
@click.option(
    "--thorough",
    is_flag=True,
    help="Also start Ray and open the MLflow store, as studies do (half a minute).",
)
@home_option
@tracking_option
@json_option
def doctor(thorough: bool, home: Home, tracking_uri: str | None, as_json: bool) -> None:
    """Check this machine in a few seconds, and say what to do about each problem."""
    checks = diagnose(home, thorough=thorough, tracking_uri=tracking_uri)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        from rich.text import Text

        from hsweep.terminal import table_of

        table = table_of("check", "", "found", "what to do", overflow="fold")
        for check in checks:
            status = Text(check.status, _STYLES[check.status])
            table.add_row(check.name, status, check.detail, check.remedy)
        console_for(as_json=False).print(table)
    if any(check.status == "problem" for check in checks):
        exit_with(EXIT_NOTHING_USABLE)


def diagnose(home: Home, *, thorough: bool = False, tracking_uri: str | None = None) -> list[Check]:
    """Check everything that a study needs; problems are returned, not raised, and it never hangs.

    ``thorough`` also starts Ray or joins its cluster, and opens the MLflow store.
    """
    libraries: list[Callable[[], Check]] = [torch]
    if thorough:
        libraries += [ray, partial(mlflow, home, tracking_uri)]
    with ThreadPoolExecutor() as pool:
        checks = [pool.submit(check) for check in libraries]
    return [
        Check("python", "ok", f"Python {platform.python_version()} at {sys.executable}"),
        *(check.result() for check in checks),
        record(home.root),
        disk(home.root),
    ]


def torch() -> Check:
    """Check torch, and name the device that trials will train on."""
    from hsweep.record.provenance import usable_cores

    try:
        facts = probe("-c", _TORCH)
    except ProbeError as error:
        return Check("torch", "problem", str(error), _REINSTALL)
    if facts["gpus"]:
        return Check("torch", "ok", f"torch {facts['version']} on {', '.join(facts['gpus'])}")
    detail = f"torch {facts['version']} on the CPU: {usable_cores()} cores"
    if shutil.which("nvidia-smi") is None:
        return Check("torch", "ok", detail)
    remedy = "install a torch built for the driver's CUDA version, or train on the CPU"
    return Check("torch", "warning", f"{detail}; it cannot use the GPU that is here", remedy)


def ray() -> Check:
    """Join the cluster at ``RAY_ADDRESS``, or start Ray, and run one task."""
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        facts = probe("-m", "hsweep.ray_tune.probe")
    except ProbeError as error:
        remedy = (
            f"see that the cluster at RAY_ADDRESS={address} is up and of the same Ray version, "
            "and set RAY_AUTH_MODE=token if it asks for one; or unset RAY_ADDRESS"
            if address
            else f"look into /tmp/ray/session_latest/logs; {_REINSTALL}"
        )
        return Check("ray", "problem", str(error), remedy)
    size = f"{facts['nodes']} nodes, {facts['cpus']} CPUs, {facts['gpus']} GPUs"
    where = f"joined {address}: {size}" if address else "starts here and runs a task"
    return Check("ray", "ok", f"ray {facts['version']} {where}")


def mlflow(home: Home, tracking_uri: str | None = None) -> Check:
    """Open the MLflow store of new studies; where its SQLite file is not there yet, open a new one
    in a temporary folder."""
    try:
        target = tracking_target(tracking_uri or None, home, "doctor")
    except UserError as error:
        return Check("mlflow", "problem", str(error), "give another")
    shown_uri = target.shown_uri
    is_new = target.sqlite_file is not None and not target.sqlite_file.exists()
    # One attempt: by itself the client asks an unreachable server for minutes.
    patience = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    try:
        facts = probe(
            "-c", _MLFLOW, "sqlite:///new.db" if is_new else target.client_uri, variables=patience
        )
    except ProbeError as error:
        remedy = (
            f"see that the store {shown_uri} is up and reachable, or name another (--tracking-uri)"
            if tracking_uri or target.sqlite_file != home.mlflow_database
            else f"move {home.mlflow_database} away; the studies' own records are elsewhere"
        )
        return Check("mlflow", "problem", f"{shown_uri}: {redact(str(error))}", remedy)
    state = "made by the first run" if is_new else f"{facts['experiments']} experiments"
    return Check("mlflow", "ok", f"mlflow {facts['version']}, {shown_uri}: {state}")


def record(home: Path) -> Check:
    """Check that the home takes files and hard links, by which a process takes a study, and that
    SQLite can use write-ahead mode in the folder of this machine's own files, as indices need."""
    folder = _nearest_existing(home)
    missing = "" if folder == home.expanduser().absolute() else f" (to be made in {folder})"
    try:
        with (
            tempfile.TemporaryDirectory(dir=folder, prefix=".hsweep-doctor-") as scratch,
            tempfile.TemporaryDirectory(dir=node_folder(), prefix="doctor-") as local,
            contextlib.closing(sqlite3.connect(Path(local) / "index.db")) as database,
        ):
            (Path(scratch) / "segment").touch()
            (Path(scratch) / "link").hardlink_to(Path(scratch) / "segment")
            (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
            database.execute("CREATE TABLE probe (value INTEGER)")
    except OSError as error:
        remedy = "give another home with --home or HSWEEP_HOME"
        return Check("home", "problem", f"{home} cannot be written to: {error.strerror}", remedy)
    except sqlite3.Error as error:
        mode = str(error)
    if mode != "wal":
        detail = f"SQLite does not write ahead in {node_folder()}: {mode}"
        return Check("home", "problem", detail, "name a folder on a local disk by HSWEEP_NODE_DIR")
    return Check("home", "ok", f"{home}{missing}")


def disk(folder: Path) -> Check:
    """Check the free space on the disk of a folder."""
    usage = shutil.disk_usage(_nearest_existing(folder))
    detail = f"{usage.free / _GIB:.1f} of {usage.total / _GIB:.1f} GiB free at {folder}"
    if usage.free >= _ENOUGH_GIB * _GIB:
        return Check("disk", "ok", detail)
    remedy = f"free {_ENOUGH_GIB:g} GiB, or choose another disk"
    is_full = usage.free < _NEEDED_GIB * _GIB
    return Check("disk", "problem" if is_full else "warning", detail, remedy)


def _nearest_existing(path: Path) -> Path:
    path = path.expanduser().absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def probe(*arguments: str, timeout: float = 120, variables: Mapping[str, str] | None = None) -> Any:
    """Start Python with these arguments in an empty folder and return its answer; ProbeError if it
    gives none. After ``timeout`` seconds the process and its children are killed."""
    import psutil

    environment = {**os.environ, **(variables or {})}
    disable_telemetry(environment)
    # The packages that this process runs, whatever the current folder has under their names.
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with (
        tempfile.TemporaryDirectory(prefix="hsweep-probe-") as folder,
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            process_tree = psutil.Process(process.pid)
            for member in (*process_tree.children(recursive=True), process_tree):
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
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
