"""MLflow's pages: where runs are found, and the server that shows a local store."""

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from hsweep.errors import UserError
from hsweep.listening import announce, listening
from hsweep.record.manifest import Manifest
from hsweep.tracking.names import STUDY_ID
from hsweep.tracking.state import StoreState
from hsweep.tracking.store import initialise_database
from hsweep.tracking.study import study_tags
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.views import EXPERIMENTS, run_address, view_address

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


def charts_page(journal_path: Path, target: TrackingTarget, manifest: Manifest) -> str:
    """Return the part of an address, behind the server's, that opens a study's charts; the list of
    experiments where the store has not got the study yet."""
    state = StoreState(journal_path, target)
    if not state.experiment or not state.view:
        return EXPERIMENTS
    return view_address(state.experiment, study_tags(manifest)[STUDY_ID])


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


def serve_ui(
    target: TrackingTarget, first_page: str, *, host: str = "127.0.0.1", port: int = 5000
) -> None:
    """Serve MLflow's pages of a local store until this process is asked to end.

    Args:
        first_page: what the plain address opens, see ``views``.

    Raises:
        UserError: the target is a server already, or nothing can listen at that address.
    """
    if target.is_server:
        raise UserError(
            f"the store is a server already: open {target.page}/{first_page} in a browser"
        )
    if_taken = f"; if that is MLflow already, open http://{host}:{port}/{first_page}"
    with listening(host, port, if_taken=if_taken) as bound:
        # A browser that comes now waits until MLflow answers.
        bound.listen()
        announce("MLflow UI", host, port)
        from hsweep.tracking.mlflow_server import serve

        initialise_database(target)
        serve(target, bound, first_page)
