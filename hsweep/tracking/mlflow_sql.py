"""What SQLite stores need of MLflow besides ``mlflow_api``: another half second of imports."""

# First, so that whoever imports this module holds no part of MLflow while another thread does.
import hsweep.tracking.mlflow_api  # noqa: F401  # isort: skip

from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

__all__ = ["SqlAlchemyStore"]
