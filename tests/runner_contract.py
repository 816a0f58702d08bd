"""What every runner does with whatever a coordinator hands out."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny import TinyModel, TinyTask, tiny_sweep
from tiny_runs import History, coordinating, histories, status_log, statuses, values
from torch import nn

from hsweep import Asha, Recipe, Sweep, epochs, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner, Runner
from hsweep.design.trial import Report, Trial, TrialStatus
from hsweep.record.journal import JournalReader

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


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, History]:
    """The histories of ``SWEEP``, trained one after another without an interruption."""
    folder = tmp_path_factory.mktemp("expected")
    with coordinating(SWEEP, folder) as coordinator:
        InlineRunner().run(coordinator)
    return histories(folder)


class RunnerContract:
    """Subclass it and give it a ``runner`` fixture.

    Attributes:
        num_reports: after which the stop is requested.
        fates: the widths that are trained, each of which has a fate of its own.
    """

    num_reports = 4
    fates: tuple[int, ...] = (1, 2, 3, 4, 5, 6)

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

    def test_each_trial_has_its_own_fate(self, runner: Runner, tmp_path: Path) -> None:
        """One fails once, one always, one diverges, one cannot be built, two are well."""
        for name in ("once", "always"):
            (tmp_path / name).mkdir()
        tasks = {
            2: TinyTask(raises_at=10, raises=1, folder=str(tmp_path / "once")),
            3: TinyTask(raises_at=6, raises=99, folder=str(tmp_path / "always")),
            4: TinyTask(diverges_at=7),
        }
        widths = grid(width=list(self.fates))
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
        with JournalReader(tmp_path / "study" / "journal.db") as journal:
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
        assert {width: (row.status, row.unit, row.attempt) for width, row in rows.items()} == {
            width: expected[width] for width in self.fates
        }
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
        for reason in reasons[2] + reasons.get(3, []):
            assert said.match(reason)
            assert "before_update" in reason
            assert "\x1b" not in reason
        if 3 in self.fates:
            raised = sorted(each.name for each in (tmp_path / "always").iterdir())
            assert raised == ["raised-1", "raised-2"], (raised, rows[3].reason)
        if 5 in self.fates:
            assert "OSError: no such weights" in rows[5].reason

        reported = histories(tmp_path / "study")
        undisturbed_reports = dict(
            zip(self.fates, histories(tmp_path / "calm").values(), strict=True)
        )
        for width, (status, unit, _) in expected.items():
            if width in self.fates and (status == "finished" or width == 3):
                assert reported[rows[width].key] == undisturbed_reports[width][:unit]

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

    def test_a_stop_request_loses_nothing_and_the_study_goes_on_from_there(
        self, runner: Runner, tmp_path: Path, expected: dict[str, History]
    ) -> None:
        stopped = self.run(SWEEP, tmp_path, runner, observer=StopAt(self.num_reports))
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
        self.run(SWEEP, tmp_path, InlineRunner())  # whatever runs what is left
        assert histories(tmp_path) == expected
        assert set(statuses(tmp_path).values()) == {FINISHED}
        assert all(value is not None for value in values(tmp_path).values())

    def test_a_record_that_breaks_ends_the_run_with_a_reason_and_keeps_the_trials_work(
        self, runner: Runner, tmp_path: Path, expected: dict[str, History]
    ) -> None:
        with coordinating(SWEEP, tmp_path) as coordinator:
            record, left = coordinator.journal.record, iter(range(3))

            def breaking(*arguments: Any) -> bool:
                if next(left, None) is None:
                    raise OSError("no space left on device")
                return record(*arguments)

            coordinator.journal.record = breaking  # type: ignore[method-assign]
            runner.run(coordinator)
            assert "no space left on device" in (coordinator.stop_reason or "")
        self.run(SWEEP, tmp_path, InlineRunner())
        assert histories(tmp_path) == expected
