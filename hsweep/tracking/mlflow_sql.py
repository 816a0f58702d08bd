"""What SQLite stores need of MLflow besides ``mlflow_api``: another half second of imports."""

# First, so that a thread that imports this module holds no part of MLflow while another does.
import hsweep.tracking.mlflow_api  # noqa: F401  # isort: skip

from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

__all__ = ["SqlAlchemyStore"]
