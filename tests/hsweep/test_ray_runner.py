"""The runner on Ray: the contract of every runner, and what only other processes can do."""

from pathlib import Path

import pytest
from runner_contract import RunnerContract, expected

from hsweep.ray_environment import prepare_ray

prepare_ray()

from hsweep.ray_runner import RayRunner  # noqa: E402

__all__ = ["expected"]


@pytest.fixture
def runner(local_ray: None, tmp_path: Path) -> RayRunner:
    return RayRunner(scratch=str(tmp_path / "ray"))


class TestRayRunner(RunnerContract):
    @pytest.fixture
    def runner(self, runner: RayRunner) -> RayRunner:
        return runner
