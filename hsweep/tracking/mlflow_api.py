"""The one place that imports MLflow: everything the project uses of it, ready for use.

Two threads that import parts of one package at once can wait for each other, and Python then lets
one of them see modules that are only half imported. Everything that needs MLflow imports this
module, so the import system makes a second thread wait until the first is done.
"""

import logging
from typing import Final

from hsweep.tracking.environment import prepare_environment

# Before the import: MLflow reads its settings there.
prepare_environment()

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import (  # noqa: E402
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModel,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Param,
    Run,
    RunTag,
)
from mlflow.exceptions import MlflowException  # noqa: E402

__all__ = [
    "Dataset",
    "DatasetInput",
    "InputTag",
    "LoggedModel",
    "LoggedModelOutput",
    "LoggedModelStatus",
    "Metric",
    "MlflowClient",
    "MlflowException",
    "Param",
    "Run",
    "RunTag",
]

# What would be announced on the terminal at each attempt, while the tracker keeps the last error.
_LOUD: Final = ("urllib3.connectionpool", "mlflow.store.db.utils")

# After the import, which sets levels of its own.
for _name in _LOUD:
    logging.getLogger(_name).setLevel(logging.CRITICAL)
