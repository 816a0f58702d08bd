"""What several of these tests share."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mlflow_stores import Tracked


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tiny matrices are not quicker on several threads, only slower beside other work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def local_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Ray for the tests of a module; its workers find the modules beside the tests as they
    would find those beside a sweep file."""
    from hsweep.ray_tune.environment import prepare_ray

    prepare_ray()
    from hsweep.ray_tune.runner import RayRunner

    runner = RayRunner(
        scratch=str(tmp_path_factory.mktemp("ray")),
        sweep_folder=Path(__file__).parents[1],
    )
    runner.connect()
    yield
    with warnings.catch_warnings():
        # Ray kills its processes and waits a second for each: at load some are not gone by then.
        warnings.simplefilter("ignore", ResourceWarning)
        runner.close()
        gc.collect()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store without runs, beside which a killed process had left its draft."""
    from mlflow_stores import make_database

    folder = tmp_path_factory.mktemp("mlflow")
    (folder / ".mlflow.db.1.tmp").write_text("left by a process that was killed")
    return make_database(folder)


@pytest.fixture
def tracked(empty_database: Path, tmp_path: Path) -> "Iterator[Tracked]":
    """A study's record beside an empty MLflow store on SQLite."""
    from mlflow_stores import Tracked, database

    from hsweep.tracking.target import TrackingTarget

    file = database(tmp_path / "mlflow", empty_database)
    target = TrackingTarget(f"sqlite:///{file}", (tmp_path / "artifacts").as_uri(), "heads")
    tracked = Tracked(tmp_path / "study", target)
    yield tracked
    tracked.journal.close()
