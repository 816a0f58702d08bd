"""Rules that decide at each report: the median, and one of the user's own."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_sweep
from tiny_runs import planned

from hsweep import Asha, Median, Transition, UserError, epochs, grid, lean
from hsweep.coordination.gate import RuleGate
from hsweep.design.early_stopping import PROTECTED
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

Invoke = Callable[..., Result]
PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
(RULE,) = re.findall(r'```python title="my_rule\.py"\n(.*?)```', PAGE, re.S)
CURVES = st.lists(
    st.lists(st.floats(-9, 9).map(lambda value: round(value, 1)), min_size=5, max_size=5),
    min_size=2,
    max_size=7,
)


TRIALS = planned(tiny_sweep(space=grid(width=[1]), budget=epochs(5), replicates=7))
"""Rivals, without a question."""


class TestMedian:
    @given(CURVES, st.integers(1, 4), st.randoms(use_true_random=False))
    def test_it_is_the_rule_whatever_order_the_reports_came_in(
        self, curves: list[list[float]], unit: int, shuffled: Random
    ) -> None:
        """Against the definition, written anew."""
        rule = Median(min_rivals=1)
        entered = TRIALS[: len(curves)]
        reports = [(k, at) for k in range(len(curves)) for at in range(1, unit + 1)]
        shuffled.shuffle(reports)
        gate = RuleGate(rule, epochs(5), "min")
        for trial in entered:
            gate.enter(trial)
        for k, at in reports:
            gate.record(entered[k], at, curves[k][at - 1])
        for k, trial in enumerate(entered):
            means = [fmean(curve[:unit]) for j, curve in enumerate(curves) if j != k]
            expected = min(curves[k][:unit]) > median(means)
            assert gate.verdict(trial, unit).stop == expected

    def test_a_larger_value_is_better_where_the_goal_says_so(self) -> None:
        entered = TRIALS[:4]
        gate = RuleGate(Median(), epochs(5), "max")
        for k, trial in enumerate(entered):
            gate.enter(trial)
            gate.record(trial, 1, float(k))
        assert [gate.verdict(trial, 1).stop for trial in entered] == [True, True, False, False]

    def test_nothing_is_stopped_in_the_grace_period_by_few_rivals_or_without_a_value(self) -> None:
        entered = TRIALS[:4]
        gate = RuleGate(Median(grace=2), epochs(5), "min")
        for k, trial in enumerate(entered):
            gate.enter(trial)
            gate.record(trial, 1, float(k))
            if k:
                gate.record(trial, 2, float(k))
        assert not any(gate.verdict(trial, 1).stop for trial in entered)
        assert not any(gate.verdict(trial, 2).stop for trial in entered)
        gate.record(entered[0], 2, float("nan"))
        assert not gate.verdict(entered[0], 2).stop
        assert gate.milestones(entered[1]) == {2, 3, 4}

    def test_rivals_are_those_of_the_same_cell_and_the_baseline_is_left_alone(self) -> None:
        space = grid(width=[1, 2], lr=[0.1, 0.2])
        asked = {"space": space, "budget": epochs(5), "early_stopping": Median()}
        cells = planned(tiny_sweep(question=Transition("width", nuisance=("lr",)), **asked))
        assert {trial.stratum for trial in cells} == {"width=1", "width=2"}
        shapes = planned(tiny_sweep(question=lean({"width": 2}, 0.1, nuisance=("lr",)), **asked))
        assert {trial.stratum for trial in shapes} == {"width=1", PROTECTED}
        everyone = planned(tiny_sweep(question=None, **asked))
        assert {trial.stratum for trial in everyone} == {""}

    @pytest.mark.parametrize(
        ("changes", "rule"),
        [
            ({"question": Transition("width")}, "these differ in their seed alone"),
            ({"budget": epochs(3, ladder=(1, 3))}, "the ladder has"),
        ],
    )
    def test_a_sweep_that_it_does_not_fit_is_refused(
        self, changes: Mapping[str, Any], rule: str
    ) -> None:
        with pytest.raises(UserError, match=rule):
            tiny_sweep(space=grid(width=[1, 2]), early_stopping=Median(), **changes)

    def test_strata_of_ones_own_are_axes_of_the_space(self) -> None:
        with pytest.raises(UserError, match="write"):
            Median(strata="width")  # type: ignore[arg-type]
        sweep = tiny_sweep(space=grid(width=[1, 2]), early_stopping=Median(strata=("heads",)))
        with pytest.raises(UserError, match="axis in early_stopping strata"):
            planned(sweep)


def statuses(home: Home) -> dict[float, tuple[str, int, str]]:
    with StudyFolder.open(home, "my_rule-quick").journal() as journal:
        return {
            row.point["lr"]: (str(row.status), row.unit, row.reason) for row in journal.trials()
        }


def test_a_rule_of_the_users_own_stops_what_it_names(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    file = tmp_path / "my_rule.py"
    file.write_text(RULE)
    asked = RULE[RULE.index("@dataclass") : RULE.index("def train")]
    assert len(asked.splitlines()) < 60
    ran = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ran.exit_code == 0, ran.output
    ends = statuses(home)
    best = [ends.pop(min(ends, key=lambda lr: abs(lr - 0.1)))]
    assert best[0][0] == "finished"
    stopped = [end for end in ends.values() if end[0] == "stopped_early"]
    assert len(stopped) >= 2
    assert all("times as bad as the best so far" in reason for _, _, reason in stopped)
    assert all(unit >= 2 for _, unit, _ in stopped)


def test_a_rule_that_fails_ends_the_run_and_loses_nothing(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    file = tmp_path / "my_rule.py"
    file.write_text(RULE.replace("best = min(", "best = max(undefined, "))
    ran = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ran.exit_code != 0
    assert "early stopping fails: NameError: name 'undefined' is not defined at " in ran.output
    assert "Traceback" not in ran.output
    file.write_text(RULE)
    again = hsweep("run", file, "--runner", "inline", "--no-check")
    assert again.exit_code == 0, again.output
    assert "planned" not in {status for status, _, _ in statuses(home).values()}


def test_asha_is_no_rule_of_reports() -> None:
    with pytest.raises(UserError, match="needs rungs"):
        tiny_sweep(early_stopping=Asha())
