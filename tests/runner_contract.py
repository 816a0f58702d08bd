"""What every runner does with whatever a coordinator hands out."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_sweep
from tiny_runs import History, coordinating, histories, statuses, values

from hsweep import Recipe, Sweep, epochs, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner, Runner
from hsweep.design.trial import Report, Trial, TrialStatus

FINISHED = TrialStatus.FINISHED

SWEEP = tiny_sweep(
    space=grid(width=[1, 2, 4], dropout=[0.2]),
    recipe=Recipe(lr=0.05, batch_size=8, weight_decay=0.01),
    budget=epochs(4),
    replicates=2,
)


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
    """

    num_reports = 4

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

    def test_nothing_to_do_is_done_at_once(self, runner: Runner, tmp_path: Path) -> None:
        with coordinating(SWEEP, tmp_path, trials=[]) as coordinator:
            runner.run(coordinator)
        assert coordinator.stop_reason is None

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
