"""MLflow's server in this process, so that none outlives it.

``mlflow server`` serves from a second process, which it ends at SIGINT and SIGTERM alone.
"""

import os
import socket
import warnings
from typing import Final

# First, so that a thread that imports this module holds no part of MLflow while another does.
import hsweep.tracking.mlflow_api  # noqa: F401  # isort: skip

import uvicorn
from mlflow.server import constants
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

from hsweep.tracking.target import TrackingTarget

with warnings.catch_warnings():
    # MLflow uses what Starlette advises against.
    warnings.simplefilter("ignore")
    from mlflow.server.fastapi_app import app

_CLOSING_SECONDS: Final = 2


def serve(target: TrackingTarget, bound: socket.socket, first_page: str) -> None:
    """Serve the pages of a local store; its plain address leads to ``first_page``."""

    async def opened(scope: Scope, receive: Receive, send: Send) -> None:
        is_plain = scope["type"] == "http" and scope["path"] == "/" and not scope["query_string"]
        # What follows "#" is not sent: without a query the browser would be sent here for ever.
        await (RedirectResponse(f"/?first{first_page}") if is_plain else app)(scope, receive, send)

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = target.uri
    # Otherwise experiments made in the pages keep files in ./mlartifacts of the caller.
    os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = target.artifact_location or ""
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
    # Serves language-model evaluation jobs, in a process of its own.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    config = uvicorn.Config(
        opened, log_level="warning", access_log=False, timeout_graceful_shutdown=_CLOSING_SECONDS
    )
    uvicorn.Server(config).run(sockets=[bound])
