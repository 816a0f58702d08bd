"""The runner that needs nothing but this process."""

from pathlib import Path

import pytest
from runner_contract import SWEEP, RunnerContract, expected
from tiny_runs import coordinating, statuses

from hsweep.journal import Journal
from hsweep.runner import InlineRunner
from hsweep.trial import TrialStatus

__all__ = ["expected"]


class TestInlineRunner(RunnerContract):
    @pytest.fixture
    def runner(self) -> InlineRunner:
        return InlineRunner()


def test_a_record_that_breaks_ends_the_run_and_keeps_the_trials_work(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db", create=True) as journal:
        pass
    with coordinating(SWEEP, tmp_path) as coordinator:
        record, left = coordinator.journal.record, iter(range(5))

        def breaking(*arguments: object) -> bool:
            if next(left) == 4:
                journal = coordinator.journal
                journal.close()
            return record(*arguments)  # type: ignore[arg-type]

        coordinator.journal.record = breaking  # type: ignore[method-assign,assignment]
        InlineRunner().run(coordinator)
        assert "record cannot be written" in (coordinator.stop_reason or "")
    assert TrialStatus.RUNNING in statuses(tmp_path).values()
    with coordinating(SWEEP, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}
