"""The runner that needs nothing but this process."""

from pathlib import Path

import pytest
from runner_contract import SWEEP, RunnerContract, expected
from tiny_runs import History, coordinating, statuses

from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import TrialStatus

__all__ = ["expected"]


class TestInlineRunner(RunnerContract):
    is_interrupted = True

    @pytest.fixture
    def runner(self) -> InlineRunner:
        return InlineRunner()

    @pytest.mark.parametrize("num_reports", [1, 2, 6, 11, 23])
    def test_a_stop_request_at_any_report_loses_nothing(
        self, tmp_path: Path, num_reports: int, expected: dict[str, History]
    ) -> None:
        self.num_reports = num_reports
        self.test_a_stop_request_loses_nothing_and_the_study_goes_on_from_there(
            InlineRunner(), tmp_path, expected
        )


def test_a_record_that_breaks_ends_the_run_and_keeps_the_trials_work(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        record, left = coordinator.journal.record, iter(range(5))

        def breaking(*arguments: object) -> bool:
            if next(left) == 4:
                coordinator.journal.close()
            return record(*arguments)  # type: ignore[arg-type]

        coordinator.journal.record = breaking  # type: ignore[method-assign,assignment]
        InlineRunner().run(coordinator)
        assert "record cannot be written" in (coordinator.stop_reason or "")
    assert TrialStatus.RUNNING in statuses(tmp_path).values()
    with coordinating(SWEEP, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}
