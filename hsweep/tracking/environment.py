"""What MLflow reads from the environment when it is imported; does not import it."""

import os
from typing import Final

from hsweep.quiet import no_calls_home

_ENVIRONMENT: Final = {
    # The tracker tries again by itself. MLflow's client would also send again what creates a run,
    # and a server that had only been slow would then hold it twice.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Far above the slowest answer worth waiting for: only a background thread waits.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "120",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


def prepare_environment() -> None:
    no_calls_home()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
