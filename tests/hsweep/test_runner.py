"""The runner that needs nothing but this process."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from runner_contract import SWEEP, RunnerContract, expected
from tiny import TinyModel, TinyTask, tiny_sweep
from tiny_runs import History, coordinating, histories, status_log
from torch import nn

from hsweep import Asha, epochs, grid
from hsweep.coordination.runner import InlineRunner, Runner
from hsweep.design.trial import TrialStatus
from hsweep.record.journal import JournalReader

__all__ = ["expected"]


@dataclass(frozen=True)
class UnbuildableModel(TinyModel):
    """Builds where it costs nothing, as the plan does, and nowhere else."""

    def build(self) -> nn.Module:
        import torch

        if torch.empty(0).device.type != "meta":
            raise OSError("no such weights")
        return super().build()


class TestInlineRunner(RunnerContract):
    @pytest.fixture
    def runner(self) -> InlineRunner:
        return InlineRunner()

    def test_every_trial_finishes_once_with_the_same_results_as_anywhere(
        self, runner: Runner, tmp_path: Path, expected: dict[str, History]
    ) -> None:
        coordinator = self.run(SWEEP, tmp_path, runner)
        assert coordinator.stop_reason is None
        assert histories(tmp_path) == expected
        for key in expected:
            assert status_log(tmp_path, key) == ["running", "finished"]

    def test_each_trial_has_its_own_fate(self, runner: Runner, tmp_path: Path) -> None:
        """One fails once, one always, one diverges, one cannot be built, two are well."""
        for name in ("once", "always"):
            (tmp_path / name).mkdir()
        tasks = {
            2: TinyTask(raises_at=10, raises=1, folder=str(tmp_path / "once")),
            3: TinyTask(raises_at=6, raises=99, folder=str(tmp_path / "always")),
            4: TinyTask(diverges_at=7),
        }
        widths = grid(width=[1, 2, 3, 4, 5, 6])
        sweep = tiny_sweep(
            space=widths,
            task=lambda point: tasks.get(point.width, TinyTask()),
            model=lambda point: (UnbuildableModel if point.width == 5 else TinyModel)(point.width),
            budget=epochs(4),
            max_failures=1,
            checkpoint_seconds=0.0,
        )
        coordinator = self.run(sweep, tmp_path / "study", runner)
        calm = tiny_sweep(space=widths, budget=epochs(4))
        with coordinating(calm, tmp_path / "calm") as undisturbed:
            InlineRunner().run(undisturbed)

        assert coordinator.stop_reason is None
        with JournalReader(tmp_path / "study" / "journal") as journal:
            rows = {row.point["width"]: row for row in journal.trials()}
            entries = [each for each in journal.log_after(0, 10_000) if each.kind == "status"]
        expected = {
            1: ("finished", 4, 1),
            2: ("finished", 4, 2),
            3: ("failed", 1, 2),
            4: ("diverged", 2, 1),
            5: ("failed", 0, 2),
            6: ("finished", 4, 1),
        }
        assert {w: (row.status, row.unit, row.attempt) for w, row in rows.items()} == expected
        assert "step 7" in rows[4].reason
        reasons = {
            width: [
                entry.payload["reason"]
                for entry in entries
                if entry.key == row.key and "failures" in entry.payload
            ]
            for width, row in rows.items()
        }
        said = re.compile(r"RuntimeError: raised on purpose before update \d+ at .*/tiny\.py:\d+\n")
        for reason in reasons[2] + reasons[3]:
            assert said.match(reason)
            assert "before_update" in reason
        raised = sorted(each.name for each in (tmp_path / "always").iterdir())
        assert raised == ["raised-1", "raised-2"], (raised, rows[3].reason)
        assert "OSError: no such weights" in rows[5].reason

        reported = histories(tmp_path / "study")
        calm_reports = dict(zip(expected, histories(tmp_path / "calm").values(), strict=True))
        for width in (1, 2, 3, 6):
            assert reported[rows[width].key] == calm_reports[width][: expected[width][1]]

    def test_trials_stopped_early_end_where_they_were_stopped(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        sweep = tiny_sweep(
            space=grid(width=[1, 2, 3, 4, 5, 6]),
            budget=epochs(9),
            early_stopping=Asha(grace=2, reduction_factor=2, min_survivors=1),
        )
        self.run(sweep, tmp_path, runner)
        with coordinating(sweep, tmp_path) as coordinator:
            rows = coordinator.journal.trials()
        assert {row.status for row in rows} == {TrialStatus.FINISHED, TrialStatus.STOPPED_EARLY}
        for row in rows:
            reported = [unit for unit, _, _ in histories(tmp_path)[row.key]]
            assert reported == list(range(1, row.unit + 1))
            if row.status is TrialStatus.STOPPED_EARLY:
                assert row.unit in (2, 4, 8)
                assert f"rung {row.unit}" in row.reason

    @pytest.mark.parametrize("num_reports", [1, 2, 6, 11, 23])
    def test_a_stop_request_at_any_report_loses_nothing(
        self, tmp_path: Path, num_reports: int, expected: dict[str, History]
    ) -> None:
        self.num_reports = num_reports
        self.test_a_stop_request_loses_nothing_and_the_study_goes_on_from_there(
            InlineRunner(), tmp_path, expected
        )
