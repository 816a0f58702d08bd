"""What every runner does with whatever a coordinator hands out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny import TinyModel, TinyTask, tiny_sweep
from tiny_runs import History, coordinating, histories, status_log, statuses, values
from torch import nn

from hsweep import Asha, Point, Recipe, Sweep, epochs, grid
from hsweep.coordinator import Coordinator
from hsweep.runner import InlineRunner, Runner
from hsweep.trial import Report, Trial, TrialStatus

FINISHED = TrialStatus.FINISHED

SWEEP = tiny_sweep(
    space=grid(width=[1, 2, 4], dropout=[0.2]),
    recipe=Recipe(lr=0.05, batch_size=8, weight_decay=0.01),
    budget=epochs(4),
    replicates=2,
)


@dataclass(frozen=True)
class UnbuildableModel(TinyModel):
    """Builds where it costs nothing, as the plan does, and nowhere else."""

    def build(self) -> nn.Module:
        import torch

        if torch.empty(0).device.type != "meta":
            raise OSError("no such weights")
        return super().build()


class StopAt:
    """An observer that asks for the stop once so many reports are in."""

    def __init__(self, num_reports: int) -> None:
        self.coordinator: Coordinator | None = None
        self._left = num_reports

    def started(self, trial: Trial, attempt: int) -> None:
        pass

    def reported(self, trial: Trial, report: Report) -> None:
        self._left -= 1
        if self._left == 0:
            assert self.coordinator is not None
            self.coordinator.request_stop("enough for today")

    def ended(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        pass


def by_width(sweep: Sweep, changes: dict[int, Any]) -> Callable[[Point], Any]:
    """A task function: ``changes`` where the width is that, the sweep's own task elsewhere."""
    return lambda point: changes.get(point.width, sweep.task)


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, History]:
    """The histories of ``SWEEP``, trained one after another without an interruption."""
    folder = tmp_path_factory.mktemp("expected")
    with coordinating(SWEEP, folder) as coordinator:
        InlineRunner().run(coordinator)
    return histories(folder)


class RunnerContract:
    """Subclass it and give it a ``runner`` fixture."""

    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        raise NotImplementedError

    def run(self, sweep: Sweep, folder: Path, runner: Runner, **parts: Any) -> Coordinator:
        opened: AbstractContextManager[Coordinator] = coordinating(sweep, folder, **parts)
        with opened as coordinator:
            if isinstance(coordinator.observer, StopAt):
                coordinator.observer.coordinator = coordinator
            runner.run(coordinator)
        return coordinator

    def test_every_trial_finishes_once_with_the_same_results_as_anywhere(
        self, runner: Runner, tmp_path: Path, expected: dict[str, History]
    ) -> None:
        coordinator = self.run(SWEEP, tmp_path, runner)
        assert coordinator.stop_reason is None
        assert histories(tmp_path) == expected
        for key in expected:
            assert status_log(tmp_path, key) == ["running", "finished"]

    def test_nothing_to_do_is_done_at_once(self, runner: Runner, tmp_path: Path) -> None:
        with coordinating(SWEEP, tmp_path, trials=[]) as coordinator:
            runner.run(coordinator)
        assert coordinator.stop_reason is None

    def test_a_trial_that_fails_once_goes_on_and_ends_as_if_it_had_not(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        folder = tmp_path / "traces"
        folder.mkdir()
        failing = TinyTask(raises_at=10, raises=1, folder=str(folder))
        task = by_width(SWEEP, {2: failing})
        sweep = tiny_sweep(task=task, budget=epochs(4), checkpoint_seconds=0.0)
        self.run(sweep, tmp_path / "study", runner)
        calm = tiny_sweep(task=TinyTask(), budget=epochs(4))
        with coordinating(calm, tmp_path / "calm") as coordinator:
            InlineRunner().run(coordinator)
        assert set(statuses(tmp_path / "study").values()) == {FINISHED}
        assert list(histories(tmp_path / "study").values()) == list(
            histories(tmp_path / "calm").values()
        )
        logs = [status_log(tmp_path / "study", key) for key in statuses(tmp_path / "study")]
        assert sorted(logs, key=len) == [
            ["running", "finished"],
            ["running", "finished"],
            ["running", "planned", "running", "finished"],
        ]

    def test_a_trial_that_always_fails_fails_alone_and_keeps_its_traceback(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        (tmp_path / "traces").mkdir()
        failing = TinyTask(raises_at=6, raises=99, folder=str(tmp_path / "traces"))
        sweep = tiny_sweep(task=by_width(SWEEP, {2: failing}), max_failures=1)
        coordinator = self.run(sweep, tmp_path, runner)
        assert coordinator.stop_reason is None
        assert sorted(statuses(tmp_path).values()) == ["failed", "finished", "finished"]
        (failed,) = [k for k, s in statuses(tmp_path).items() if s is TrialStatus.FAILED]
        assert len(list((tmp_path / "traces").iterdir())) == 2
        with coordinating(sweep, tmp_path) as again:
            (row,) = [row for row in again.journal.trials() if row.key == failed]
        assert "RuntimeError: raised on purpose before update 6" in row.reason
        assert "before_update" in row.reason
        assert [unit for unit, _, _ in histories(tmp_path)[failed]] == [1]

    def test_a_model_that_cannot_be_built_fails_alone_at_whatever_place_in_line(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        sweep = tiny_sweep(
            space=grid(width=[1, 2, 3, 4]),
            model=lambda point: (UnbuildableModel if point.width in (2, 4) else TinyModel)(
                point.width
            ),
            max_failures=1,
        )
        self.run(sweep, tmp_path, runner)
        with coordinating(sweep, tmp_path) as coordinator:
            rows = coordinator.journal.trials()
        assert [row.status for row in rows] == ["finished", "failed", "finished", "failed"]
        assert all("no such weights" in row.reason for row in rows if row.reason)
        assert [row.attempt for row in rows] == [1, 2, 1, 2]

    def test_a_diverging_trial_is_diverged_and_no_other(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        sweep = tiny_sweep(task=by_width(SWEEP, {3: TinyTask(diverges_at=7)}), budget=epochs(5))
        self.run(sweep, tmp_path, runner)
        with coordinating(sweep, tmp_path) as coordinator:
            rows = coordinator.journal.trials()
        assert [(row.status, row.unit) for row in rows] == [
            ("finished", 5), ("finished", 5), ("diverged", 2),
        ]  # fmt: skip
        assert "step 7" in rows[-1].reason
        assert rows[-1].attempt == 1

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
        assert {row.status for row in rows} == {FINISHED, TrialStatus.STOPPED_EARLY}
        for row in rows:
            reported = [unit for unit, _, _ in histories(tmp_path)[row.key]]
            assert reported == list(range(1, row.unit + 1))
            if row.status is TrialStatus.STOPPED_EARLY:
                assert row.unit in (2, 4, 8)
                assert f"rung {row.unit}" in row.reason

    @pytest.mark.parametrize("num_reports", [1, 4, 11])
    def test_a_stop_request_loses_nothing_and_the_study_goes_on_from_there(
        self, runner: Runner, tmp_path: Path, num_reports: int, expected: dict[str, History]
    ) -> None:
        stopped = self.run(SWEEP, tmp_path, runner, observer=StopAt(num_reports))
        assert stopped.stop_reason == "enough for today"
        left = statuses(tmp_path)
        assert not {TrialStatus.RUNNING, TrialStatus.FAILED} & set(left.values())
        recorded = histories(tmp_path)
        for key, history in recorded.items():
            assert history == expected[key][: len(history)]
            if history and not left[key].is_final:
                # The checkpoint is as far as the record, so no update is done twice.
                newest = max((tmp_path / "checkpoints" / key).glob("*.pt"))
                assert int(newest.name[:9]) >= history[-1][0]
        self.run(SWEEP, tmp_path, runner)
        assert histories(tmp_path) == expected
        assert set(statuses(tmp_path).values()) == {FINISHED}
        assert all(value is not None for value in values(tmp_path).values())
