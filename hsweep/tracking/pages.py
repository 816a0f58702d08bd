"""MLflow's pages: where runs are found, and the server that shows a local store."""

import http.client
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from hsweep.errors import UserError
from hsweep.listening import listening
from hsweep.record.manifest import Manifest
from hsweep.tracking.environment import prepare_environment
from hsweep.tracking.names import STUDY_ID
from hsweep.tracking.state import StoreState
from hsweep.tracking.store import initialise_database
from hsweep.tracking.study import study_tags
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.views import FIRST_PAGE, run_address, view_address

LOCAL_UI: Final = "http://127.0.0.1:5000"
"""Where ``hsweep ui`` serves the pages of a local store."""
_PATIENCE: Final = 2.0
"""Seconds that MLflow's pages have to answer."""


def run_urls(journal_path: Path, target: TrackingTarget) -> dict[str, str]:
    """Return the address of each trial's page, by trial key.

    The pages of a local store are there while ``hsweep ui`` serves them.
    """
    state = StoreState(journal_path, target)
    server = target.page if target.is_server else LOCAL_UI
    return {
        key: f"{server}/{run_address(state.experiment, run_id)}"
        for key, run_id in state.trial_runs.items()
    }


def charts_url(journal_path: Path, target: TrackingTarget, manifest: Manifest) -> str | None:
    """Return the address of a study's charts (see ``views``); None where the store has not got the
    study yet.

    The pages of a local store are there while ``hsweep ui`` serves them.
    """
    state = StoreState(journal_path, target)
    if not state.experiment or not state.view:
        return None
    server = target.page if target.is_server else LOCAL_UI
    return f"{server}/{view_address(state.experiment, study_tags(manifest)[STUDY_ID])}"


def reachable_run_urls(journal_path: Path, target: TrackingTarget) -> dict[str, str]:
    """Return the same, or nothing where MLflow does not answer there or has other runs: an address
    that leads nowhere is no help."""
    state = StoreState(journal_path, target)
    server = target.page if target.is_server else LOCAL_UI
    run_id = next(iter(state.trial_runs.values()), None)
    if run_id is None:
        return {}
    try:
        # Only ever http and https, see `tracking_target`.
        asked = f"{server}/api/2.0/mlflow/runs/get?run_id={run_id}"
        with urllib.request.urlopen(asked, timeout=_PATIENCE):
            pass
    except urllib.error.HTTPError as error:
        # It answers, and shows the run to who logs in.
        if error.code not in (401, 403):
            return {}
    except (OSError, http.client.HTTPException):
        return {}
    return run_urls(journal_path, target)


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


def serve_ui(target: TrackingTarget, *, host: str = "127.0.0.1", port: int = 5000) -> None:
    """Become MLflow's server for a local store; returns only if that fails.

    Raises:
        UserError: the target is a server already, or nothing can listen at that address.
    """
    command = ui_command(target, host=host, port=port)
    if_taken = f"; if that is MLflow already, open http://{host}:{port}"
    listening(host, port, if_taken=if_taken).close()
    prepare_environment()
    # Serves language-model evaluation jobs, in a process of its own.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    os.environ["MLFLOW_BACKEND_STORE_URI"] = target.uri
    initialise_database(target)
    sys.stdout.write(f"MLflow UI at http://{host}:{port}/{FIRST_PAGE}; end it with Ctrl-C\n")
    sys.stdout.flush()
    os.execv(command[0], command)
