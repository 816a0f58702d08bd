"""A trial of the user's own training without a study: its reports and checkpoints on disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsweep import Point
from hsweep.design.budget import BudgetUnit
from hsweep.seeding import Seeds, replicate_seeds
from hsweep.training.own.run import StopTrial
from models.torchvision_compat import make_torchvision_importable

if TYPE_CHECKING:
    import torch

TESTS = Path(__file__).resolve().parent
EXAMPLES = TESTS.parent / "examples"
POINT = Point({"heads": 2, "depth": 1, "width": 16, "lr": 0.003})


class RunOnDisk:
    """What a training function is given, kept in a folder so that another process can go on.

    Args:
        home: the folder.
        budget, unit: of the trial.
        stops_at: the unit whose report ends the trial.
        dies_at: the unit that is trained, but whose report finds the process killed.
    """

    def __init__(
        self,
        home: Path,
        budget: int,
        unit: BudgetUnit = "epochs",
        *,
        stops_at: int | None = None,
        dies_at: int | None = None,
    ) -> None:
        self.budget, self.budget_unit = budget, unit
        self.rank, self.world_size = 0, 1
        self.folder = home / "trial"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._record, self._kept = home / "reports.jsonl", home / "checkpoints"
        self._kept.mkdir(exist_ok=True)
        self._stops_at, self._dies_at = stops_at, dies_at

    @property
    def seeds(self) -> Seeds:
        return replicate_seeds(0, 0)

    @property
    def device(self) -> "torch.device":
        import torch

        return torch.device("cpu")

    @property
    def reports(self) -> list[dict[str, Any]]:
        """What all attempts have reported."""
        lines = self._record.read_text().splitlines() if self._record.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def checkpoint(self) -> Path | None:
        return self._kept / str(self.reports[-1]["unit"]) if self.reports else None

    def report(
        self, unit: int, checkpoint: Path | str | None = None, **metrics: float | None
    ) -> None:
        if unit == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        done = [report["unit"] for report in self.reports]
        assert unit > max(done, default=0), f"{unit} after {done}"
        assert checkpoint is not None
        shutil.copytree(checkpoint, self._kept / str(unit))
        with self._record.open("a") as record:
            record.write(json.dumps({"unit": unit, **metrics}) + "\n")
        if self._stops_at is not None and unit >= self._stops_at:
            raise StopTrial


def example(name: str) -> Any:
    """Return an example as a module, imported as a sweep file is."""
    make_torchvision_importable()
    spec = spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(name: str, home: Path, options: Mapping[str, Any]) -> RunOnDisk:
    """Train a trial of an example, with these options of ``RunOnDisk``."""
    run = RunOnDisk(home, **options)
    example(name).train(POINT, run)
    return run


def train_in_a_process(name: str, home: Path, options: Mapping[str, Any]) -> int:
    """Do the same in a process of its own, and return its exit status."""
    program = (
        "import sys, torch, hsweep\n"
        f"sys.path.append({str(TESTS)!r})\n"
        "torch.set_num_threads(1)\n"
        "import own_runs\n"
        f"own_runs.train({name!r}, own_runs.Path({str(home)!r}), {dict(options)!r})\n"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=TESTS.parent, check=False).returncode
