"""The runner that needs nothing but this process."""

from pathlib import Path

import pytest
from runner_contract import RunnerContract, expected
from tiny_runs import History

from hsweep.coordination.runner import InlineRunner

__all__ = ["expected"]


class TestInlineRunner(RunnerContract):
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
