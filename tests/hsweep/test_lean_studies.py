"""What a study records of its tasks decides what a lean question may claim, and what it lacks is
run within its record."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import Result
from tiny import TinyModel, TinyTask, tiny_sweep
from tiny_studies import finish, new_study, recording

from analysis.answer import Answer
from analysis.ask import answer_study
from analysis.compare.fit import compare_studies
from analysis.questions.groups import Groups
from analysis.questions.lean.result import LeanResult
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.report.build import build_report, report_input
from analysis.runs.chance import study_chance
from hsweep import Recipe, Sweep, grid, lean
from hsweep.design.trial import TrialStatus
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

Invoke = Callable[..., Result]

STOPPED = '''"""Which width is as good as the widest?"""
from dataclasses import dataclass, replace

from hsweep import Asha, epochs, grid, lean
from tiny import TinyModel, TinyTask, tiny_sweep


@dataclass(frozen=True)
class Known(TinyTask):
    @property
    def metrics(self):
        error, fit = super().metrics
        return (replace(error, chance=1.0 + self.dim / 100), fit)


SWEEP = tiny_sweep(
    name="stopped",
    space=grid(dim=[3, 4]) * grid(width=[1, 4]),
    task=lambda p: Known(dim=p.dim),
    model=lambda p: TinyModel(p.width, dim=p.dim),
    budget=epochs(4),
    replicates=2,
    early_stopping=Asha(grace=1, strata=("dim",), min_survivors=1),
    question=lean({"width": 4}, margin=0.05, scale="error", within="dim"),
)
'''


def test_shapes_that_were_stopped_early_are_run_to_their_end_on_request(
    hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "question.py"
    path.write_text(STOPPED)
    run = ("run", path, "--study", "mine", "--runner", "inline")
    first = hsweep(*run)
    assert "not compared, being stopped early" in first.output, first.output
    study = StudyFolder.open(home, "mine")
    data = study.manifest.provenance["data"]
    assert [(entry["chance"], entry["at"]) for entry in data] == [
        ({"nmse": 1.03}, {"dim": 3}),
        ({"nmse": 1.04}, {"dim": 4}),
    ]
    assert study_chance(data, "nmse", {"dim": 4}) == 1.04
    assert study_chance(data, "nmse") is None
    assert study_chance(data, "fit", {"dim": 4}) is None

    result = hsweep(*run, "--only-missing")
    assert result.exit_code == 0, result.output
    assert "stopped early, now run to the end (stopped early, so not compared)" in result.output
    assert "not compared, being stopped early" not in result.output.split("runs will be trained")[1]
    with study.journal() as journal:
        ended = {row.status for row in journal.trials()}
    assert ended == {TrialStatus.FINISHED}


def family_study(home: Home, name: str = "mine", **data: dict[str, float]) -> StudyFolder:
    """Two families, the lean shape of each as good as its original; what is recorded of the tasks
    is what a constant predictor scores in them."""
    sweep = tiny_sweep(
        space=grid(family=["even", "odd"], variant=["original", "lean"]),
        model=lambda p: TinyModel({"original": 8, "lean": 3}[p.variant] + (p.family == "odd")),
        metric="fit",
        goal="max",
        replicates=3,
        question=lean(baseline={"variant": "original"}, margin=0.05, within="family"),
    )
    study = new_study(home, name, sweep)
    recorded = [
        {"task": {}, "fingerprint": family, "chance": chance, "at": {"family": family}}
        for family, chance in data.items()
    ]
    study = StudyFolder(
        study.paths, dataclasses.replace(study.manifest, provenance={"data": recorded})
    )
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            finish(journal, trial, 0.2 + 0.001 * trial.replicate)
    return study


def test_a_family_that_learned_nothing_answers_nothing_and_the_others_do(tmp_path: Path) -> None:
    study = family_study(Home(tmp_path / "home"), even={"fit": 0.1}, odd={"fit": 0.8})
    answer = answer_study(study)
    groups = groups_of(answer)
    verdicts = {name: found.verdict for name, found in groups.found.items()}
    assert verdicts == {"even": "found", "odd": "untrained"}
    assert answer.text.startswith("Leaner equivalent found with family = even; ")
    said = "no answer: the baseline is no better than a constant predictor (fit 0.799, "
    assert f"{said}chance 0.8)" in answer.text


def groups_of(answer: Answer) -> Groups:
    groups = answer.result(Groups)
    assert groups is not None
    return groups


def rates_sweep() -> Sweep:
    return tiny_sweep(
        space=grid(width=[2, 8]) * grid(lr=[0.1, 0.01, 0.001]),
        recipe=lambda p: Recipe(lr=p.lr, batch_size=8),
        replicates=4,
        question=dataclasses.replace(
            lean({"width": 8}, margin=0.05, scale="error"), nuisance=("lr",)
        ),
    )


def test_a_study_compares_shapes_each_at_its_best_rate(tmp_path: Path) -> None:
    home, sweep = Home(tmp_path / "home"), rates_sweep()
    worse = {2: {0.1: 0.4, 0.01: 0.0, 0.001: 0.3}, 8: {0.1: 0.3, 0.01: 0.2, 0.001: 0.0}}
    studies = []
    for name in ("one", "two"):
        study = new_study(home, name, sweep)
        with recording(study, sweep) as (journal, trials):
            for trial in trials:
                noise = np.random.default_rng([trial.replicate, trial.point.width]).normal()
                lost = worse[trial.point.width][trial.point.lr]
                finish(journal, trial, 0.2 + lost + 0.002 * noise)
        studies.append(study)
    answer = answer_study(studies[0])
    lean, front = answer.result(LeanResult), answer.result(ParetoResult)
    assert lean is not None
    assert lean.chosen is not None
    assert lean.chosen.config == {"width": 2}
    (row,) = lean.table
    assert row.setting is not None
    assert (row.setting.values, row.setting.at_edge) == ({"lr": 0.01}, ())
    assert "(lr = 0.001 for the baseline)" in answer.text
    assert front is not None
    assert [shape.setting.values["lr"] for shape in front.table if shape.setting] == [0.01, 0.001]
    assert json.loads(json.dumps(answer.to_json(), allow_nan=False))["nuisance"] == ["lr"]
    assert answer.confirm_command is None or "lr=0.01" in answer.confirm_command
    with studies[0].reading() as tables:
        page = build_report(report_input(studies[0], answer, {}, tables))
    assert "<td>lr=0.01 (of 3)</td>" in page
    assert ">lr=0.001 (of 3, lr at the edge)</td>" in page
    both = compare_studies(studies, settings=ParetoSettings(draws=50))
    assert both.front is not None
    assert len(both.front.table) == 4


def test_every_later_look_halves_the_error_rate(tmp_path: Path) -> None:
    study = family_study(Home(tmp_path / "home"))
    added = {"time": 0, "command": "", "provenance": {}}
    extensions = [
        {**added, "trials": [{"key": "a", "how": "with a new seed"}]},
        {**added, "trials": [{"key": "b", "how": "failed, tried again"}]},
    ]
    study = StudyFolder(study.paths, dataclasses.replace(study.manifest, extensions=extensions))
    answer = answer_study(study)
    groups = groups_of(answer)
    for found in groups.found.values():
        assert (found.settings.looks, found.settings.level) == (2, 0.05 / 2 / 2)
        assert any(
            "seeds were added after an earlier look" in warning for warning in found.warnings
        )


def test_a_task_that_says_no_chance_records_none(tmp_path: Path) -> None:
    assert all(metric.chance is None for metric in TinyTask().metrics)
    study = family_study(Home(tmp_path / "home"), even={}, odd={})
    answer = answer_study(study)
    groups = groups_of(answer)
    assert [found.settings.chance for found in groups.found.values()] == [None, None]
