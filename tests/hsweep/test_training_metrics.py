"""Metrics of training examples: when they are measured, and what stands for them meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from stepped_trial import to_the_end
from tiny import METRICS, TinyData, TinyTask, tiny_sweep
from tiny_runs import assignment_of, content, planned
from tiny_studies import new_study
from torch import Tensor, nn

from hsweep import Recipe, UserError, epochs, grid
from hsweep.design.trial import Assignment, Report, Trial, TrialStatus
from hsweep.paths import Home
from hsweep.record.study import StudyFolder
from hsweep.running.reuse import Reuse
from hsweep.training.evaluation import MetricsError
from tasks.base import Metric

CPU = torch.device("cpu")
OF_TRAINING = Metric("train_nmse", "min", "error", "the same of training", of_training=True)


@dataclass(frozen=True)
class Measured(TinyTask):
    """As tiny, with a metric of training examples.

    Attributes:
        returns: what that evaluation returns besides.
        is_forgotten: whether the data has no such evaluation.
    """

    returns: tuple[str, ...] = ()
    is_forgotten: bool = False

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (*METRICS, OF_TRAINING)

    def open(self, **how: Any) -> TinyData:
        kind = TinyData if self.is_forgotten else MeasuredData
        return kind(self, *how.values())


class MeasuredData(TinyData):
    losses: list[float] = []  # noqa: RUF012 - of the last trial of this process

    def loss(self, model: nn.Module, batch: tuple[int, Tensor, Tensor]) -> Tensor:
        loss = super().loss(model, batch)
        if torch.is_grad_enabled():
            self.losses.append(loss.item())
        return loss

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        inputs, outputs = self._train
        error = (model(inputs) - outputs).square().mean() / outputs.square().mean()
        assert isinstance(self._task, Measured)
        return {"train_nmse": float(error), **dict.fromkeys(self._task.returns, 0.0)}


def one_trial(task: TinyTask | None = None, **changes: Any) -> Trial:
    changes = {"space": grid(width=[2]), "budget": epochs(4), **changes}
    return planned(tiny_sweep(task=task or Measured(), **changes))[0]


def reported(assignment: Assignment) -> list[Report]:
    return to_the_end(assignment)


def measured_at(reports: list[Report]) -> list[int]:
    return [report.unit for report in reports if "train_nmse" in report.metrics]


def test_they_are_measured_at_the_last_report_as_they_would_be_at_every_one(tmp_path: Path) -> None:
    last = reported(assignment_of(one_trial(), tmp_path / "last"))
    asked = replace(assignment_of(one_trial(), tmp_path / "always"), measures_training=True)
    always = reported(asked)
    decided = reported(assignment_of(one_trial(metric="train_nmse"), tmp_path / "decides"))
    assert measured_at(last) == [4]
    assert measured_at(always) == measured_at(decided) == [1, 2, 3, 4]
    assert content(last[-1]) == content(always[-1]) == content(decided[-1])
    for one, other in zip(last, always, strict=True):
        assert one.metrics.items() <= other.metrics.items()


def test_every_report_has_the_mean_loss_of_the_updates_since_the_last_one(tmp_path: Path) -> None:
    MeasuredData.losses.clear()
    trial = one_trial(budget=epochs(3), recipe=Recipe(lr=0.05, batch_size=8, accumulate=1))
    reports = reported(assignment_of(trial, tmp_path))
    steps = [0, *(report.step for report in reports)]
    for report, first, end in zip(reports, steps, steps[1:], strict=False):
        assert report.running_loss == pytest.approx(fmean(MeasuredData.losses[first:end]), rel=1e-6)
    assert reports[0].running_loss != reports[-1].running_loss


def test_a_loss_that_is_not_finite_is_no_mean(tmp_path: Path) -> None:
    (report,) = reported(assignment_of(one_trial(Measured(diverges_at=2)), tmp_path))
    assert report.diverged_at == 2
    assert report.running_loss is None


def test_a_longer_training_that_goes_on_from_a_shorter_one_reports_as_if_it_had_not(
    tmp_path: Path,
) -> None:
    steady = Recipe(lr=0.05, batch_size=8, schedule="constant")
    short, long = (one_trial(budget=epochs(n), recipe=steady) for n in (2, 4))
    straight = reported(assignment_of(long, tmp_path / "straight"))
    assert measured_at(reported(assignment_of(short, tmp_path / "both"))) == [2]
    going_on = replace(assignment_of(long, tmp_path / "both"), continues=short.key, shared=2)
    assert [content(each) for each in reported(going_on)] == [content(each) for each in straight]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Measured(returns=("more",)), "returns 'more', which it does not declare"),
        (Measured(is_forgotten=True), "lacks 'train_nmse'"),
    ],
)
def test_an_evaluation_of_training_that_is_not_as_declared_is_refused(
    tmp_path: Path, task: Measured, message: str
) -> None:
    with pytest.raises(MetricsError, match=message):
        reported(assignment_of(one_trial(task), tmp_path))


def test_when_they_are_measured_is_a_setting_and_no_part_of_a_key() -> None:
    sweep = tiny_sweep(task=Measured())
    often = sweep.with_settings([("train_metrics", ["always"])])
    assert often.train_metrics == "always"
    assert [trial.key for trial in planned(often)] == [trial.key for trial in planned(sweep)]
    with pytest.raises(UserError, match="train_metrics must be 'last' or 'always', not 'often'"):
        sweep.with_settings([("train_metrics", ["often"])])


@pytest.mark.parametrize(
    ("there", "asked", "units"),
    [
        ({}, {}, [3]),
        ({"train_metrics": "always"}, {}, [3]),
        ({"train_metrics": "always"}, {"train_metrics": "always"}, [1, 2, 3]),
        ({"train_metrics": "always"}, {"metric": "train_nmse"}, [1, 2, 3]),
        ({}, {"train_metrics": "always"}, []),
        ({}, {"metric": "train_nmse"}, []),
    ],
)
def test_a_trial_is_taken_from_a_study_that_has_measured_what_is_asked_for(
    home: Home, there: dict[str, str], asked: dict[str, str], units: list[int]
) -> None:
    finish(new_study(home, "before", tiny_sweep(task=Measured(), **there)), there)
    sweep = tiny_sweep(task=Measured(), **asked)
    study = new_study(home, "mine", sweep)
    with study.writer() as journal:
        taken = Reuse(journal, study, None)(planned(sweep))
    assert len(taken) == (3 if units else 0)
    for key in taken:
        with study.journal() as journal:
            found = list(journal.reports([key]))
        assert [row.unit for row in found if "train_nmse" in row.payload["metrics"]] == units


def finish(study: StudyFolder, how: dict[str, str]) -> None:
    """Record every trial as if it had trained."""
    trials = planned(tiny_sweep(task=Measured()))
    with study.writer() as journal:
        for trial in trials:
            attempt = journal.begin_attempt(trial.key, trial.origin)
            for unit in (1, 2, 3):
                metrics: dict[str, float | None] = {"nmse": 1 / unit, "fit": 0.5}
                if how or unit == 3:
                    metrics["train_nmse"] = 0.1
                status = TrialStatus.FINISHED if unit == 3 else TrialStatus.RUNNING
                report = Report(unit, 4 * unit, metrics, 1.0, unit == 3)
                journal.record(trial.key, attempt, report, status)
