"""A probe in the training loop: its numbers arrive where they are due, and change nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from click.testing import CliRunner
from mlflow import MlflowClient
from stepped_trial import to_the_end, train_stepwise
from tiny import TinyData, TinyTask, tiny_sweep
from tiny_attention import attentive_sweep
from tiny_runs import assignment_of, content, coordinating, planned, saved
from tiny_studies import tables_of
from torch import nn

from hsweep import Asha, UserError, epochs, grid, preset
from hsweep.cli import main
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Assignment, Report, Trial
from hsweep.paths import Home
from hsweep.record.journal import JournalReader
from hsweep.record.study import StudyFolder
from models.conditioning import METRICS, Conditioning, is_probed, layer_metric
from tasks.base import Metric

CPU = torch.device("cpu")
PROBE = Conditioning(every=2, examples=8)
LAYERS = {layer_metric(0), layer_metric(1)}


def one_trial(**changes: Any) -> Trial:
    return planned(attentive_sweep(space=changes.pop("space", grid(heads=[2])), **changes))[0]


def reports_of(assignment: Assignment, probe: Conditioning | None = PROBE) -> list[Report]:
    return to_the_end(replace(assignment, probe=probe))


def of_the_task(report: Report) -> tuple[Any, ...]:
    """All of a report but the time it took and what the probe measured."""
    metrics = {name: value for name, value in report.metrics.items() if not is_probed(name)}
    return content(replace(report, metrics=metrics))


class TestReports:
    @pytest.mark.parametrize(
        ("every", "due"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (7, [5])]
    )
    def test_it_measures_at_every_so_many_reports_and_at_the_last(
        self, tmp_path: Path, every: int, due: list[int]
    ) -> None:
        reports = reports_of(assignment_of(one_trial(), tmp_path), Conditioning(every, 8))
        for report in reports:
            measured = set(METRICS) | LAYERS if report.unit in due else set()
            assert set(report.metrics) == {"nmse", "fit"} | measured
            assert all(value is not None for value in report.metrics.values())

    def test_it_counts_reports_and_not_budget_units(self, tmp_path: Path) -> None:
        trial = one_trial(budget=epochs(7, report_every=2))
        reports = reports_of(assignment_of(trial, tmp_path))
        measured = [report.unit for report in reports if "condition_number" in report.metrics]
        assert measured == [4, 7]

    def test_all_else_is_the_same_to_the_bit(self, tmp_path: Path) -> None:
        trial, finals, weights = one_trial(), [], []
        for name, probe in (("on", Conditioning(1, 3)), ("off", None)):
            assignment = replace(assignment_of(trial, tmp_path / name), probe=probe)
            generator = train_stepwise(assignment)
            reports = []
            for report in generator:
                reports.append(of_the_task(report))
                if report.is_last:
                    generator.close()
            finals.append(reports)
            weights.append(saved(tmp_path / name, trial)["model"])
        assert finals[0] == finals[1]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])

    @pytest.mark.parametrize("stops", [[1], [2], [3, 4], [1, 2, 3, 4, 5]])
    @pytest.mark.parametrize("lost", [False, True])
    def test_an_interrupted_trial_measures_what_an_uninterrupted_one_does(
        self, tmp_path: Path, stops: list[int], lost: bool
    ) -> None:
        trial = one_trial()
        expected = [content(r) for r in reports_of(assignment_of(trial, tmp_path / "calm"))]
        recorded: dict[int, Any] = {}
        for attempt, stop in enumerate([*stops, 5], start=1):
            through = 0 if lost else max(recorded, default=0)
            assignment = assignment_of(
                trial, tmp_path / "cut", attempt=attempt, recorded_through=through
            )
            generator = train_stepwise(replace(assignment, probe=PROBE))
            for report in generator:
                assert recorded.setdefault(report.unit, content(report)) == content(report)
                if report.unit >= stop:
                    break
            generator.close()
        assert [recorded[unit] for unit in sorted(recorded)] == expected

    def test_a_number_that_it_lacks_is_no_divergence(self, tmp_path: Path) -> None:
        trial = one_trial(space=grid(heads=[2], overflows=[True]))
        reports = reports_of(assignment_of(trial, tmp_path), Conditioning(1, 1000))
        assert [report.diverged_at for report in reports] == [None] * 5
        assert reports[-1].is_last
        for report in reports:
            assert report.metrics["condition_number"] is None
            assert report.metrics[layer_metric(0)] is None
            assert report.metrics[layer_metric(1)] is not None
            assert report.metrics["probed_layers"] == 2
            assert report.metrics["nmse"] is not None

    def test_a_model_without_attention_has_no_layer_to_show(self, tmp_path: Path) -> None:
        trial = planned(tiny_sweep())[0]
        last = reports_of(assignment_of(trial, tmp_path))[-1]
        assert {name for name in METRICS if last.metrics[name] is not None} == {"probed_layers"}
        assert last.metrics["probed_layers"] == 0
        assert last.diverged_at is None

    def test_a_diverged_trial_is_told_as_ever(self, tmp_path: Path) -> None:
        trial = one_trial(task=TinyTask(diverges_at=6))
        reports = reports_of(assignment_of(trial, tmp_path), Conditioning(1, 8))
        assert [report.diverged_at for report in reports] == [None, 6]
        assert reports[-1].metrics["nmse"] is None


class TestSweeps:
    def test_it_is_off_unless_wished_for_and_a_preset_can_wish(self) -> None:
        sweep = attentive_sweep(presets={"probed": preset(probe=PROBE)})
        assert sweep.probe is None
        assert sweep.with_preset("probed").probe == PROBE

    def test_trials_keep_their_keys(self) -> None:
        # What is trained is the same, so a result on record stays the result of its trial.
        keys = [
            [t.key for t in planned(attentive_sweep(probe=p))]
            for p in (None, PROBE, Conditioning())
        ]
        assert keys[0] == keys[1] == keys[2]

    def test_a_wish_for_something_else_is_refused(self) -> None:
        with pytest.raises(UserError, match="probe must be a Conditioning or None, not True"):
            attentive_sweep(probe=True)

    @pytest.mark.parametrize("name", ["condition_number", "condition_number_layer_07"])
    def test_an_axis_cannot_have_the_name_of_what_it_measures(self, name: str) -> None:
        space = grid(heads=[1]) * grid(**{name: [1, 2]})
        assert attentive_sweep(space=space).probe is None
        with pytest.raises(UserError, match=f"{name!r} has a meaning of its own in tables"):
            attentive_sweep(space=space, probe=PROBE)

    def test_neither_can_a_metric_of_the_task(self) -> None:
        assert planned(attentive_sweep(task=Clashing()))
        with pytest.raises(UserError, match="'effective_rank' of task 'tiny' has the name of what"):
            planned(attentive_sweep(task=Clashing(), probe=PROBE))

    @pytest.mark.parametrize("name", ["condition_number", layer_metric(0)])
    def test_no_trial_competes_on_it(self, name: str) -> None:
        with pytest.raises(UserError, match="unknown metric of task"):
            planned(attentive_sweep(metric=name, probe=PROBE))


@dataclass(frozen=True)
class Clashing(TinyTask):
    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (*super().metrics, Metric("effective_rank", "max", "count", "of something else"))

    def open(self, **settings: Any) -> TinyData:
        data = super().open(**settings)
        evaluate = data.evaluate

        def with_rank(model: nn.Module) -> Mapping[str, float]:
            return {**evaluate(model), "effective_rank": 1.0}

        data.evaluate = with_rank  # type: ignore[method-assign]
        return data


class TestStudies:
    def test_layers_become_columns_as_models_have_them(self, tmp_path: Path) -> None:
        sweep = attentive_sweep(space=grid(heads=[2], depth=[1, 3]), probe=PROBE)
        with coordinating(sweep, tmp_path) as coordinator:
            InlineRunner().run(coordinator)
        with JournalReader(tmp_path / "journal") as journal:
            trials, reports = tables_of(journal, ["nmse", "fit", *METRICS])
        columns = ["nmse", "fit", *METRICS, *map(layer_metric, range(3))]
        assert [name for name in trials.column_names if name in columns] == columns
        assert reports.column_names[-len(columns) :] == columns
        shallow, deep = sorted(trials.to_pylist(), key=lambda row: row["depth"])
        assert (shallow["probed_layers"], deep["probed_layers"]) == (1, 3)
        assert shallow[layer_metric(0)] == shallow["condition_number"]
        assert shallow[layer_metric(1)] is None
        assert deep[layer_metric(2)] > 1
        measured = [row["unit"] for row in reports.to_pylist() if row["condition_number"]]
        assert sorted(measured) == [2, 2, 4, 4, 5, 5]

    def test_a_trial_stopped_where_none_was_due_has_none(self, tmp_path: Path) -> None:
        # A number of an earlier report beside the last report's error would mislead.
        sweep = attentive_sweep(
            space=grid(heads=[1, 2, 3, 4]),
            early_stopping=Asha(grace=3, reduction_factor=2, min_survivors=1),
            probe=PROBE,
        )
        with coordinating(sweep, tmp_path) as coordinator:
            InlineRunner().run(coordinator)
        with JournalReader(tmp_path / "journal") as journal:
            trials, _ = tables_of(journal, ["nmse", *METRICS])
        ends = {(row["reached"], row["condition_number"] is None) for row in trials.to_pylist()}
        assert ends == {(3, True), (5, False)}


SWEEP_FILE = """
from hsweep import preset
from models.conditioning import Conditioning
from tiny_attention import attentive_sweep

SWEEP = attentive_sweep(presets={"probed": preset(probe=Conditioning(every=2, examples=8))})
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The home of a study with a probe, run by the command line."""
    folder = tmp_path_factory.mktemp("probed")
    (folder / "question.py").write_text(SWEEP_FILE)
    arguments = ["run", str(folder / "question.py"), "--preset", "probed", "--runner", "inline"]
    home = Home(folder / "home")
    result = CliRunner().invoke(main, [*arguments, "--home", str(home.root), "--study", "probed"])
    assert result.exit_code == 0, result.output
    return home


class TestTheCommandLine:
    def test_the_studys_tables_have_it(self, home: Home) -> None:
        study = StudyFolder.open(home, "probed")
        assert study.manifest.metrics == ["nmse", "fit", *METRICS]
        for path in (study.paths.trials_table, study.paths.reports_table):
            assert {*METRICS, *LAYERS} <= set(pyarrow.parquet.read_table(path).column_names)

    def test_mlflow_gets_it_where_it_was_measured(self, home: Home) -> None:
        store = MlflowClient(tracking_uri=home.default_tracking_uri)
        (experiment,) = [e for e in store.search_experiments() if e.name == "tiny"]
        runs = store.search_runs([experiment.experiment_id], "tags.`hsweep.trial` != ''")
        assert len(runs) == 2
        for run in runs:
            for name in ("condition_number", layer_metric(1)):
                found = store.get_metric_history(run.info.run_id, name)
                assert sorted(point.step for point in found) == [2, 4, 5]
                assert math.isfinite(run.data.metrics[name])
