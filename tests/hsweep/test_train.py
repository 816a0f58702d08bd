"""What a trial reports, wherever it was interrupted."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_trial import to_the_end, train_stepwise
from tiny import TinyData, TinyTask, tiny_sweep
from tiny_clock import CLOCK, TimedTask
from tiny_runs import (
    assert_equal_to_the_bit,
    assignment_of,
    content,
    planned,
    saved,
    trained_with_stops,
)
from torch import nn

from hsweep import Recipe, epochs, grid, seconds, steps
from hsweep.design.trial import Assignment, Report, Trial
from hsweep.training import evaluation
from hsweep.training import trial_run as timed
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.evaluation import MetricsError
from tasks.base import Metric

CPU = torch.device("cpu")


def one_trial(**changes: Any) -> Trial:
    space = changes.pop("space", grid(width=[2]))
    return planned(tiny_sweep(space=space, **changes))[0]


def run(assignment: Assignment) -> list[Report]:
    return to_the_end(assignment)


def interrupt_after(assignment: Assignment, num_reports: int) -> list[Report]:
    """Train up to a report and close the generator there."""
    generator = train_stepwise(assignment)
    reports = [next(generator) for _ in range(num_reports)]
    generator.close()
    return reports


def final_state(assignment: Assignment) -> dict[str, Any]:
    """The weights and optimizer state after the last report, as its checkpoint has them."""
    generator = train_stepwise(assignment)
    for report in generator:
        if report.is_last:
            generator.close()
    return saved(Path(assignment.checkpoints), assignment.trial)


WITH_DROPOUT = one_trial(
    space=grid(width=[6], dropout=[0.4]),
    budget=epochs(6),
    recipe=Recipe(lr=0.03, batch_size=8, warmup_fraction=0.2, weight_decay=0.1, clip_norm=1.0),
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], dict[str, Any]]:
    root = tmp_path_factory.mktemp("uninterrupted")
    reports = [content(report) for report in run(assignment_of(WITH_DROPOUT, root / "reports"))]
    return reports, final_state(assignment_of(WITH_DROPOUT, root / "state"))


def test_dropout_is_really_on(
    uninterrupted: tuple[list[Any], dict[str, Any]], tmp_path: Path
) -> None:
    without = replace(WITH_DROPOUT, model=replace(WITH_DROPOUT.model, dropout=0.0))
    reports, _ = uninterrupted
    assert [content(report) for report in run(assignment_of(without, tmp_path))] != reports


@settings(max_examples=60, deadline=None)
@given(
    stops=st.lists(st.integers(1, 6), max_size=3),
    checkpoint_seconds=st.sampled_from([0.0, 1e9]),
    lost=st.booleans(),
)
def test_a_trial_interrupted_anywhere_ends_the_same_to_the_bit(
    uninterrupted: tuple[list[Any], dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    stops: list[int],
    checkpoint_seconds: float,
    lost: bool,
) -> None:
    root = tmp_path_factory.mktemp("interrupted")
    heard = trained_with_stops(WITH_DROPOUT, root, stops, checkpoint_seconds, lost=lost)
    reports, state = uninterrupted
    assert [content(report) for report in heard] == reports
    final = saved(root, WITH_DROPOUT)
    for part in ("model", "optimizer"):
        assert_equal_to_the_bit(final[part], state[part])


def test_reports_that_the_record_lacks_are_sent_again_and_no_others(tmp_path: Path) -> None:
    trial = one_trial(budget=epochs(5))
    first = interrupt_after(assignment_of(trial, tmp_path), 4)
    resumed = run(assignment_of(trial, tmp_path, attempt=2, recorded_through=2))
    assert [report.unit for report in resumed] == [3, 4, 5]
    assert resumed[:2] == first[2:]


def test_a_trial_whose_checkpoint_lags_behind_the_record_reports_those_units_again(
    tmp_path: Path,
) -> None:
    trial = one_trial(budget=epochs(4))
    interrupt_after(assignment_of(trial, tmp_path), 1)
    resumed = run(assignment_of(trial, tmp_path, attempt=2, recorded_through=3))
    assert [report.unit for report in resumed] == [2, 3, 4]


def test_only_the_last_report_is_flagged(tmp_path: Path) -> None:
    trial = one_trial(budget=epochs(7, report_every=3))
    reports = run(assignment_of(trial, tmp_path))
    assert [(report.unit, report.is_last) for report in reports] == [
        (3, False), (6, False), (7, True),
    ]  # fmt: skip


def test_a_budget_in_steps_counts_updates_and_one_in_epochs_passes(tmp_path: Path) -> None:
    in_steps = run(assignment_of(one_trial(budget=steps(10, report_every=4)), tmp_path))
    assert [(report.unit, report.step) for report in in_steps] == [(4, 4), (8, 8), (10, 10)]
    in_epochs = run(assignment_of(one_trial(budget=epochs(2)), tmp_path))
    assert [(report.unit, report.step) for report in in_epochs] == [(1, 4), (2, 8)]


@pytest.mark.parametrize("diverges_at", [1, 4, 5, 7])
def test_a_loss_that_is_not_finite_ends_the_trial_and_says_at_which_update(
    tmp_path: Path, diverges_at: int
) -> None:
    trial = one_trial(task=TinyTask(diverges_at=diverges_at), budget=epochs(6))
    reports = run(assignment_of(trial, tmp_path))
    # Four updates an epoch; the report after the bad update is the last.
    assert [report.unit for report in reports] == list(range(1, (diverges_at - 1) // 4 + 2))
    assert [report.diverged_at for report in reports[:-1]] == [None] * (len(reports) - 1)
    assert reports[-1].diverged_at == diverges_at
    assert reports[-1].metrics == {"nmse": None, "fit": None}
    for report in reports[:-1]:
        assert all(value is not None for value in report.metrics.values())


def test_a_divergence_that_was_not_recorded_is_told_again_and_nothing_is_trained(
    tmp_path: Path,
) -> None:
    trial = one_trial(task=TinyTask(diverges_at=6), budget=epochs(6))
    first = interrupt_after(assignment_of(trial, tmp_path), 2)
    assert first[-1].diverged_at == 6
    assert run(assignment_of(trial, tmp_path, attempt=2, recorded_through=1)) == first[1:]


@dataclass(frozen=True)
class InfiniteMetric(TinyTask):
    """A finite loss whose second metric overflows from the third evaluation on."""

    def open(self, **settings: Any) -> TinyData:
        data = super().open(**settings)
        evaluate, count = data.evaluate, iter(range(100))

        def overflowing(model: nn.Module) -> dict[str, float]:
            metrics = dict(evaluate(model))
            return metrics | {"fit": math.inf} if next(count) >= 2 else metrics

        data.evaluate = overflowing  # type: ignore[method-assign]
        return data


def test_a_metric_that_is_not_finite_ends_the_trial_where_it_decides(tmp_path: Path) -> None:
    trial = one_trial(task=InfiniteMetric(), budget=epochs(6))
    aside = run(assignment_of(trial, tmp_path / "aside"))
    assert [report.diverged_at for report in aside] == [None] * 6
    assert [report.metrics["fit"] is None for report in aside] == [False] * 2 + [True] * 4
    decides = replace(trial, metric="fit", goal="max")
    reports = run(assignment_of(decides, tmp_path / "decides"))
    assert [report.diverged_at for report in reports] == [None, None, 12]
    assert reports[-1].metrics["fit"] is None
    assert reports[-1].metrics["nmse"] is not None


class FurtherData(TinyData):
    """Sums the weights when a trial is at its end."""

    def evaluate_further(self, model: nn.Module, *, is_last: bool) -> dict[str, float]:
        if not is_last:
            return {}
        assert torch.is_grad_enabled()
        assert not model.training
        return {"sum": sum(float(p.detach().sum()) for p in model.parameters())}


@dataclass(frozen=True)
class FurtherTask(TinyTask):
    """A task with a metric that is measured when a trial is at its end."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (*super().metrics, Metric("sum", "max", "count", "sum of the weights"))

    def open(self, **settings: Any) -> TinyData:
        self._read()
        return FurtherData(self, *settings.values())


def test_a_metric_of_the_last_report_is_the_same_wherever_the_trial_was_interrupted(
    tmp_path: Path,
) -> None:
    trial = one_trial(task=FurtherTask(), budget=epochs(4))
    whole = run(assignment_of(trial, tmp_path / "whole"))
    assert ["sum" in report.metrics for report in whole] == [False, False, False, True]
    for stop in (1, 3, 4):
        folder = tmp_path / str(stop)
        interrupt_after(assignment_of(trial, folder), stop)
        resumed = run(assignment_of(trial, folder, attempt=2, recorded_through=stop - 1))
        assert [content(report) for report in resumed] == [
            content(report) for report in whole[stop - 1 :]
        ]


class ForgetfulData(FurtherData):
    """Never returns the metric that decides."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"fit": super().evaluate(model)["fit"]}


@dataclass(frozen=True)
class ForgetfulTask(FurtherTask):
    def open(self, **settings: Any) -> TinyData:
        return ForgetfulData(self, *settings.values())


def test_a_trial_does_not_end_without_the_metric_that_decides(tmp_path: Path) -> None:
    generator = train_stepwise(
        assignment_of(one_trial(task=ForgetfulTask(), budget=epochs(2)), tmp_path)
    )
    assert sorted(next(generator).metrics) == ["fit"]  # what is measured further may be left out
    with pytest.raises(MetricsError, match="lacks 'nmse' \\('nmse' decides\\); declared"):
        next(generator)


class LateData(ForgetfulData):
    """Returns the metric that decides at the end, and then it is not finite."""

    def evaluate_further(self, model: nn.Module, *, is_last: bool) -> dict[str, float]:
        return {"nmse": math.nan} if is_last else {}


@dataclass(frozen=True)
class LateTask(FurtherTask):
    def open(self, **settings: Any) -> TinyData:
        return LateData(self, *settings.values())


def test_a_metric_that_decides_and_comes_last_ends_the_trial_where_it_is_not_finite(
    tmp_path: Path,
) -> None:
    reports = run(assignment_of(one_trial(task=LateTask(), budget=epochs(2)), tmp_path))
    assert [(report.diverged_at is None) for report in reports] == [True, False]
    assert reports[-1].metrics["nmse"] is None


class OddMetricsData(TinyData):
    """Returns what its task says instead of its metrics."""

    def evaluate(self, model: nn.Module) -> Any:
        assert isinstance(self._task, OddMetrics)
        return self._task.returned(super().evaluate(model))


@dataclass(frozen=True)
class OddMetrics(TinyTask):
    returned: Callable[[Any], Any] = dict

    def open(self, **settings: Any) -> TinyData:
        return OddMetricsData(self, *settings.values())


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            lambda found: {"nmse": found["nmse"]},
            "lacks 'fit'; declared in `metrics`: 'nmse', 'fit'",
        ),
        (lambda found: {"fit": 1.0}, r"lacks 'nmse' \('nmse' decides\)"),
        (lambda found: {**found, "lr": 1.0}, "returns 'lr', which it does not declare"),
        (lambda found: {**found, "fit": "0.5"}, "metric 'fit' .* must be one number, not '0.5'"),
        (lambda found: {**found, "fit": None}, "must be one number, not None"),
        (lambda found: {**found, "fit": torch.zeros(2)}, "must be one number, not tensor"),
        (lambda found: None, "must return its metrics as a dictionary of numbers, not None"),
    ],
)
def test_a_report_whose_metrics_are_not_the_declared_ones_fails_the_trial(
    tmp_path: Path, returned: Callable[[Any], Any], message: str
) -> None:
    trial = replace(one_trial(budget=epochs(1)), task=OddMetrics(returned=returned))
    with pytest.raises(MetricsError, match=message):
        run(assignment_of(trial, tmp_path))


def test_a_metric_may_be_a_tensor_of_one_number_and_need_not_be_finite() -> None:
    returned = {"nmse": torch.tensor(2.0), "fit": math.inf}
    found = evaluation.checked_metrics(one_trial(), returned)
    assert (found, type(found["nmse"])) == ({"nmse": 2.0, "fit": math.inf}, float)


def test_a_diverged_trial_is_not_evaluated_further(tmp_path: Path) -> None:
    trial = one_trial(task=FurtherTask(diverges_at=7), budget=epochs(2))
    reports = run(assignment_of(trial, tmp_path))
    assert [sorted(report.metrics) for report in reports] == [["fit", "nmse"]] * 2


def test_waiting_for_the_driver_and_being_interrupted_are_not_training_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", CLOCK)
    trial = one_trial(task=TimedTask(), budget=epochs(4))
    generator = train_stepwise(assignment_of(trial, tmp_path))
    measured = []
    for _ in range(2):
        measured.append(next(generator).wall_seconds)
        CLOCK.now += 500.0
    generator.close()
    CLOCK.now += 10_000.0
    for report in train_stepwise(assignment_of(trial, tmp_path, attempt=2, recorded_through=2)):
        measured.append(report.wall_seconds)
        CLOCK.now += 500.0
    assert measured == [4.0, 8.0, 12.0, 16.0]


@dataclass(frozen=True)
class WaitingTask(TimedTask):
    """A batch takes three seconds of the clock, an evaluation a hundred."""

    def open(self, **where: Any) -> "WaitingData":
        return WaitingData(super().open(**where))


class WaitingData:
    def __init__(self, data: TinyData) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def batches(self, start_step: int) -> Iterator[Any]:
        for batch in self._data.batches(start_step):
            CLOCK.now += 3.0
            yield batch

    def evaluate(self, model: nn.Module) -> Any:
        CLOCK.now += 100.0
        return self._data.evaluate(model)


def test_time_waiting_for_data_is_told_apart_from_updates_and_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", CLOCK)
    trial = one_trial(task=WaitingTask(), budget=epochs(2))
    one, two = run(assignment_of(trial, tmp_path))
    assert (one.data_seconds, one.train_seconds, one.wall_seconds) == (12.0, 16.0, 116.0)
    assert (two.data_seconds, two.train_seconds, two.wall_seconds) == (24.0, 32.0, 232.0)


def test_latency_is_measured_once_the_budget_is_used_up_and_is_no_training_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", CLOCK)
    monkeypatch.setattr(evaluation, "time", CLOCK)
    one, two = run(assignment_of(one_trial(task=TimedTask(), budget=epochs(2)), tmp_path))
    assert (one.latency_seconds, two.latency_seconds) == (None, 1.0)
    assert (two.train_seconds, two.wall_seconds) == (8.0, 8.0)


def test_measuring_latency_leaves_weights_and_random_numbers_alone() -> None:
    task, model = TinyTask(), torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    data = task.open(data_seed=0, sampling_seed=0, batch_size=8, device=CPU)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    off = torch.autocast("cpu", enabled=False)
    setup: Any = SimpleNamespace(evaluated=model, data=data, autocast=off)
    assert evaluation.latency(setup, next(data.batches(0))) > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_budget_of_seconds_counts_updates_and_their_data_and_no_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", CLOCK)
    trial = one_trial(task=WaitingTask(), budget=seconds(40, report_every=20))
    reports = run(assignment_of(trial, tmp_path))
    assert [(report.unit, report.step) for report in reports] == [(20, 5), (40, 10)]
    assert reports[-1].is_last


def test_an_interrupted_budget_of_seconds_goes_on_where_its_clock_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", CLOCK)
    trial = one_trial(task=WaitingTask(), budget=seconds(40, report_every=20))
    interrupt_after(assignment_of(trial, tmp_path), 1)
    CLOCK.now += 10_000.0
    (last,) = run(assignment_of(trial, tmp_path, attempt=2, recorded_through=20))
    assert (last.unit, last.step, last.train_seconds) == (40, 10, 40.0)


def test_an_update_longer_than_the_time_between_reports_is_reported_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", CLOCK)
    trial = one_trial(task=WaitingTask(), budget=seconds(9, report_every=1))
    reports = run(assignment_of(trial, tmp_path))
    assert [report.unit for report in reports] == list(range(1, 10))
    assert [report.step for report in reports] == [1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert reports[0].metrics == reports[3].metrics


def test_checkpoints_are_written_once_enough_work_is_at_risk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", CLOCK)
    trial = one_trial(task=TimedTask(), budget=epochs(6))
    written: list[int] = []
    monkeypatch.setattr(CheckpointStore, "_write", lambda self, unit, *_: written.append(unit))
    to_the_end(assignment_of(trial, tmp_path, checkpoint_seconds=9.0))
    # Four seconds a report: after the second and the fourth, the next would make it twelve.
    assert written == [2, 4]


def test_an_interrupt_writes_nothing_that_is_already_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    monkeypatch.setattr(CheckpointStore, "_write", lambda self, unit, *_: written.append(unit))
    interrupt_after(assignment_of(one_trial(), tmp_path, checkpoint_seconds=0.0), 2)
    assert written == [1, 2]


def test_bfloat16_is_autocast_and_the_weights_stay_float32(tmp_path: Path) -> None:
    recipe = Recipe(lr=0.05, batch_size=8, precision="bfloat16")
    trial = one_trial(recipe=recipe)
    full = one_trial()
    state = final_state(assignment_of(trial, tmp_path))
    assert {tensor.dtype for tensor in state["model"].values()} == {torch.float32}
    in_bfloat16 = [content(r) for r in run(assignment_of(trial, tmp_path / "a"))]
    assert in_bfloat16 != [content(r) for r in run(assignment_of(full, tmp_path / "b"))]


def test_reports_depend_on_the_seeds_and_not_on_what_ran_before(tmp_path: Path) -> None:
    first = [content(r) for r in run(assignment_of(WITH_DROPOUT, tmp_path / "a"))]
    torch.manual_seed(7)
    torch.rand(13)
    assert [content(r) for r in run(assignment_of(WITH_DROPOUT, tmp_path / "b"))] == first
    other = replace(WITH_DROPOUT, seeds=replace(WITH_DROPOUT.seeds, sampling=12345))
    assert [content(r) for r in run(assignment_of(other, tmp_path / "c"))] != first
