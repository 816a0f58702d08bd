"""MLflow's pages: where a study is found in them, and the server that shows a local store.

MLflow 3.17 lists the saved views of an experiment in the menu "Views" and opens the one that an
address names. It keeps each in a tag of the experiment; its Python API does not know them.
"""

import http.client
import json
import os
import socket
import urllib.error
import urllib.request
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from hsweep.errors import UserError
from hsweep.record.manifest import Manifest
from hsweep.serving import announce, guarded, listen, run_server, server_of, token_for
from hsweep.tracking.contents import STUDY_ID, safe_names, study_tags
from hsweep.tracking.target import StoreState, TrackingTarget

LOCAL_UI: Final = "http://127.0.0.1:5000"
"""Where ``hsweep ui`` serves the pages of a local store."""
VIEW_TAG: Final = "mlflow.sharedViewState."
"""How the tags of an experiment that hold views begin."""

_TRAINING: Final = {"workflowType": "machine_learning"}
"""Lets the pages show training runs, where they would begin with traces of language models."""
EXPERIMENTS: Final = f"#/experiments?{urlencode(_TRAINING)}"
"""The part of an address, behind the server's, that lists the experiments."""

_SECTION: Final = "hsweep"
_MAX_RUNS: Final = 100
_MAX_AXES: Final = 8
_COST: Final = "num_params"
_ANSWER_SECONDS: Final = 2.0


def view_of(study: Manifest, axes: Sequence[str]) -> str:
    """Return the value of the tag that saves a view of a study: trials side by side, with charts of
    the main metric over the ``axes`` in which they differ."""
    metric = safe_names([study.metric])[study.metric]
    names = safe_names(axes)
    params = [names[axis] for axis in axes][:_MAX_AXES]
    line = {
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "scaleType": "log" if (study.question or {}).get("scale") == "error" else "linear",
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
    parallel = {"selectedParams": params, "selectedMetrics": [metric], "showAllRuns": True}
    yaxis = {"key": metric, "type": "METRIC"}
    scatters = [
        _chart("SCATTER", xaxis={"key": name, "type": "PARAM"}, yaxis=yaxis)
        for name in dict.fromkeys([*params[:1], _COST])
    ]
    # Of three in a row, which is usual, titles and axes are cut.
    section = {"uuid": _SECTION, "name": study.name, "columns": 2, "display": True}
    state = {
        # Runs nest, and show nothing of the trials, unless they are filtered or sorted.
        "searchFilter": f"tags.`{STUDY_ID}` = '{study_tags(study)[STUDY_ID]}' "
        "AND tags.`hsweep.trial` != ''",
        "orderByKey": f"metrics.`{metric}`",
        "orderByAsc": study.goal == "min",
        "selectedColumns": [
            "attributes.`Duration`",
            f"metrics.`{metric}`",
            *(f"params.`{name}`" for name in [*params, _COST]),
        ],
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "compareRunSections": [
            {**section, "isReordered": False, "deleted": False, "isGenerated": False}
        ],
        "compareRunCharts": [_chart("LINE", **line), *scatters, _chart("PARALLEL", **parallel)],
    }
    moment = int(study.created * 1000)
    view = {"name": study.name, "createdAt": moment, "updatedAt": moment}
    return json.dumps({**view, "state": json.dumps(state)})


def _chart(kind: str, **settings: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"{kind}-{settings.get('xaxis', {}).get('key', '')}",
        "metricSectionId": _SECTION,
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": _MAX_RUNS,
        **settings,
    }


def view_address(experiment: str, study_id: str) -> str:
    """Return the part of an address, behind the server's, that opens the charts of a study."""
    query = {"compareRunsMode": "CHART", "viewStateShareKey": study_id, **_TRAINING}
    return f"#/experiments/{experiment}/runs?{urlencode(query)}"


def run_address(experiment: str, run_id: str) -> str:
    """Return the part of an address, behind the server's, that opens a run."""
    return f"#/experiments/{experiment}/runs/{run_id}?{urlencode(_TRAINING)}"


def charts_page(journal_path: Path, target: TrackingTarget, manifest: Manifest) -> str:
    """Return the part of an address, behind the server's, that opens a study's charts; the list of
    experiments where the store has not got the study yet."""
    state = StoreState.of(journal_path, target)
    if not state.experiment or not state.view:
        return EXPERIMENTS
    return view_address(state.experiment, study_tags(manifest)[STUDY_ID])


def reachable_run_urls(journal_path: Path, target: TrackingTarget) -> dict[str, str]:
    """Return the address of each trial's page, by trial key, on a server or, for a local store,
    where ``hsweep ui`` serves them; none where MLflow does not answer there or has other runs,
    since an address that leads nowhere is no help."""
    state = StoreState.of(journal_path, target)
    server = target.page if target.is_server else LOCAL_UI
    run_id = next(iter(state.trial_runs.values()), None)
    if run_id is None:
        return {}
    try:
        # Only ever http and https, see `tracking_target`.
        url = f"{server}/api/2.0/mlflow/runs/get?run_id={run_id}"
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        # It answers, and shows the run to who logs in.
        if error.code not in (401, 403):
            return {}
    except (OSError, http.client.HTTPException):
        return {}
    return {
        key: f"{server}/{run_address(state.experiment, run_id)}"
        for key, run_id in state.trial_runs.items()
    }


def serve_ui(
    target: TrackingTarget, first_page: str, *, host: str = "127.0.0.1", port: int = 5000
) -> None:
    """Serve MLflow's pages of a local store until this process is asked to end.

    Args:
        first_page: what the plain address opens: a part of an address, as above.

    Raises:
        UserError: the target is a server already, or nothing can listen at that address.
    """
    if target.is_server:
        raise UserError(
            f"the store is a server already: open {target.page}/{first_page} in a browser"
        )
    if_taken = f"; if that is MLflow already, open http://{host}:{port}/{first_page}"
    token = token_for(host)
    with listen(host, port, if_taken=if_taken) as bound:
        announce("MLflow UI", host, port, token=token)
        _serve(target, bound, first_page, token)


def _serve(target: TrackingTarget, bound: socket.socket, first_page: str, token: str) -> None:
    """Run MLflow's server in this process, so that none outlives it.

    ``mlflow server`` serves from a second process, which it ends at SIGINT and SIGTERM alone.
    """
    if token:
        # Without it MLflow answers only names that it takes for this machine's: here the token
        # says who may ask.
        os.environ.setdefault("MLFLOW_SERVER_ALLOWED_HOSTS", "*")
        os.environ.setdefault("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", "*")
    from hsweep.tracking.store import connect  # isort: skip  # prepares the import of MLflow

    from mlflow.server import constants
    from starlette.responses import RedirectResponse
    from starlette.types import Receive, Scope, Send

    with warnings.catch_warnings(action="ignore"):
        # MLflow uses what Starlette advises against.
        from mlflow.server.fastapi_app import app

    async def redirect_first(scope: Scope, receive: Receive, send: Send) -> None:
        is_plain = scope["type"] == "http" and scope["path"] == "/" and not scope["query_string"]
        # What follows "#" is not sent: without a query the browser would be sent here for ever.
        await (RedirectResponse(f"/?first{first_page}") if is_plain else app)(scope, receive, send)

    connect(target)
    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = target.client_uri
    # Otherwise experiments made in the pages keep files in ./mlartifacts of the caller.
    os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = target.artifact_location or ""
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
    # Serves language-model evaluation jobs, in a process of its own.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    run_server(server_of(guarded(redirect_first, token)), bound)
