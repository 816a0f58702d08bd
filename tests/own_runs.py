"""A trial of the user's own training without a study: its reports and checkpoints on disk."""

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsweep.design.budget import BudgetUnit
from hsweep.seeding import Seeds, replicate_seeds
from hsweep.training.run import StopTrial

if TYPE_CHECKING:
    import torch


class RunOnDisk:
    """What a training function is given, kept in a folder so that another one can go on.

    Args:
        home: the folder.
        budget, unit: of the trial.
        stops_at: the unit whose report ends the trial.
        notice_at: the question for ``should_checkpoint`` from which on the trial has to end.
    """

    def __init__(
        self,
        home: Path,
        budget: int,
        unit: BudgetUnit = "epochs",
        *,
        stops_at: int | None = None,
        notice_at: float = math.inf,
    ) -> None:
        self.budget, self.budget_unit = budget, unit
        self.rank, self.world_size = 0, 1
        self.folder = home / "trial"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._record, self._kept = home / "reports.jsonl", home / "checkpoints"
        self._kept.mkdir(exist_ok=True)
        self._stops_at, self._notice_at, self.num_questions = stops_at, notice_at, 0

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
        kept = [*self._kept.iterdir()]
        return max(kept, key=lambda folder: float(folder.name), default=None)

    @property
    def should_checkpoint(self) -> bool:
        self.num_questions += 1
        return self.num_questions >= self._notice_at

    def save(self, checkpoint: Path | str) -> None:
        if self.num_questions >= self._notice_at:
            within = max((report["unit"] for report in self.reports), default=0) + 0.5
            shutil.copytree(checkpoint, self._kept / str(within))
            raise StopTrial

    def report(
        self, unit: int, checkpoint: Path | str | None = None, **metrics: float | None
    ) -> None:
        done = [report["unit"] for report in self.reports]
        assert unit > max(done, default=0), f"{unit} after {done}"
        assert checkpoint is not None
        shutil.copytree(checkpoint, self._kept / str(unit))
        with self._record.open("a") as record:
            record.write(json.dumps({"unit": unit, **metrics}) + "\n")
        if self._stops_at is not None and unit >= self._stops_at:
            raise StopTrial
