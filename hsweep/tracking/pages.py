"""MLflow's pages: where runs are found, and the server that shows a local store."""

import errno
import os
import socket
import sys
from pathlib import Path
from typing import Final

from hsweep.errors import UserError
from hsweep.tracking.environment import prepare_environment
from hsweep.tracking.state import StoreState
from hsweep.tracking.store import initialise_database
from hsweep.tracking.target import TrackingTarget

LOCAL_UI: Final = "http://127.0.0.1:5000"
"""Where ``hsweep ui`` serves the pages of a local store."""


def run_urls(journal_path: Path, target: TrackingTarget) -> dict[str, str]:
    """Return the address of each trial's page, by trial key.

    The pages of a local store are there while ``hsweep ui`` serves them.
    """
    state = StoreState(journal_path, target)
    server = target.page if target.is_server else LOCAL_UI
    base = f"{server}/#/experiments/{state.experiment}/runs"
    return {key: f"{base}/{run_id}" for key, run_id in state.trial_runs.items()}


def ui_command(target: TrackingTarget, *, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """Return the command that serves MLflow's pages for a store.

    Raises:
        UserError: the target is a server already, so its own address is the page to open.
    """
    if target.is_server:
        raise UserError(f"the store is a server already: open {target.shown_uri} in a browser")
    command = [sys.executable, "-m", "mlflow", "server"]
    # Everyone on the machine can read command lines: a password goes into the environment.
    if target.shown_uri == target.uri:
        command += ["--backend-store-uri", target.uri]
    if target.artifact_location is not None:
        # Otherwise experiments made in the pages keep files in ./mlartifacts of the caller.
        command += ["--artifacts-destination", target.artifact_location]
    return [*command, "--host", host, "--port", str(port), "--workers", "1"]


def _refuse_taken(host: str, port: int) -> None:
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            # As the server will: a port that was left a moment ago is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        remedy = (
            f"choose another with --port, or end what listens there; if that is MLflow already, "
            f"open http://{host}:{port}"
            if is_taken
            else "choose an address of this machine with --host, and a port above 1023 with --port"
        )
        raise UserError(
            f"the pages cannot be served at {host}:{port} ({error.strerror}); {remedy}"
        ) from error


def serve_ui(target: TrackingTarget, *, host: str = "127.0.0.1", port: int = 5000) -> None:
    """Become MLflow's server for a local store; returns only if that fails.

    Raises:
        UserError: the target is a server already, or nothing can listen at that address.
    """
    command = ui_command(target, host=host, port=port)
    _refuse_taken(host, port)
    prepare_environment()
    # Serves language-model evaluation jobs, in a process of its own.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    os.environ["MLFLOW_BACKEND_STORE_URI"] = target.uri
    initialise_database(target)
    sys.stdout.write(f"MLflow UI at http://{host}:{port}; end it with Ctrl-C\n")
    sys.stdout.flush()
    os.execv(command[0], command)
