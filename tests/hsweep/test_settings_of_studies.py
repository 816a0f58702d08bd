"""A study's answer says at which settings its shapes were compared: each at its best, or all at the
one learning rate that they had."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from tiny import TinyModel, tiny_sweep
from tiny_studies import finish, new_study, recording

from analysis.ask import answer_study
from analysis.questions.transition.result import TransitionResult
from analysis.report.build import build_report, report_input
from hsweep import Recipe, Sweep, Transition, grid, lean
from hsweep.paths import Home
from hsweep.planning.identity import describe
from hsweep.record.study import StudyFolder

Invoke = Callable[..., Result]
WIDTHS = [1, 2, 3, 4, 5, 6]
ERRORS = {0.001: 3.0, 0.01: 1.0, 0.1: 2.0}
"""How much worse the error is at each learning rate."""


def rates_sweep(question: Any) -> Sweep:
    return tiny_sweep(
        space=grid(width=WIDTHS, lr=list(ERRORS)),
        recipe=lambda point: Recipe(lr=point.lr, batch_size=8),
        replicates=3,
        question=question,
    )


def recorded(home: Home, sweep: Sweep, **changes: Any) -> StudyFolder:
    """Record a collapse at a width of four, whose largest rate learns nothing from there on."""
    data = [{"task": {}, "chance": {"nmse": 1.0}}]
    study = new_study(home, "mine", sweep, provenance={"data": data}, **changes)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            width, lr = trial.point.width, trial.point.get("lr", 0.01)
            noise = np.random.default_rng([trial.ordinal]).normal()
            log_error = -0.3 * min(width, 4) - 1.5 * (width >= 4) + 0.03 * noise
            error = 10**log_error * ERRORS[lr] / 4
            finish(journal, trial, 1.0 + 0.001 * noise if width >= 4 and lr == 0.1 else error)
    return study


@pytest.mark.parametrize("nuisance", [("lr",), ()])
def test_cells_stand_at_their_best_rate_named_or_not(home: Home, nuisance: tuple[str]) -> None:
    sweep = rates_sweep(Transition("width", None, nuisance=("lr",)))
    asked = describe(Transition("width", scale="error", nuisance=nuisance))
    study = recorded(home, sweep, question=asked)
    answer = answer_study(study)
    found = answer.result(TransitionResult)
    assert found is not None
    assert (found.verdict, found.h_star) == ("collapse", 4)
    assert "Each cell is taken at its best lr." in answer.text
    unnamed = "question does not name lr, which varies within the cells"
    assert any(unnamed in text for text in answer.sentences) == (not nuisance)
    for cell in found.counts:
        assert cell.setting is not None
        assert cell.setting.values == {"lr": 0.01}
        learned = cell.x < 4
        assert (cell.started, cell.count("at_chance"), cell.read) == (9, 0 if learned else 3, 3)
    assert json.loads(json.dumps(answer.to_json(), allow_nan=False))["nuisance"] == ["lr"]
    with study.reading() as tables:
        page = build_report(report_input(study, answer, {}, tables))
    assert "<b>9</b><span>at chance</span>" in page
    assert "<b>45</b><span>finished</span>" in page
    assert '<th scope="col">of these at chance</th>' in page
    assert ">lr=0.01 (of 3)</td>" in page
    # No part of the record says so.
    with study.journal() as journal:
        assert {str(row.status) for row in journal.trials()} == {"finished"}


def test_an_answer_from_one_rate_says_so_as_long_as_there_is_only_one(home: Home) -> None:
    sweep = tiny_sweep(space=grid(width=WIDTHS), replicates=3, question=Transition("width", None))
    study = recorded(home, sweep, fixed_rate=0.01)
    clause = "All runs had the one learning rate 0.01, which was not tuned."
    assert clause in answer_study(study).text
    unknown = StudyFolder(study.paths, dataclasses.replace(study.manifest, fixed_rate=None))
    assert "learning rate" not in answer_study(unknown).text
    compared = describe(lean({"width": 6}, margin=0.01, scale="error"))
    other = StudyFolder(study.paths, dataclasses.replace(study.manifest, question=compared))
    sentence = answer_study(other).text
    assert clause in sentence


def test_comparisons_say_their_one_rate_once(home: Home) -> None:
    sweep = tiny_sweep(
        space=grid(family=["even", "odd"], width=[3, 8]),
        model=lambda point: TinyModel(point.width + (point.family == "odd")),
        replicates=3,
        question=lean({"width": 8}, margin=0.01, scale="error", within="family"),
    )
    study = recorded(home, sweep, fixed_rate=0.05)
    sentence = answer_study(study).text
    assert sentence.count("All runs had the one learning rate 0.05, which was not tuned.") == 1


SWEEP_FILE = '''"""Which width is enough?"""
from hsweep import Recipe, Transition, grid, tuned
from tiny import tiny_sweep

SWEEP = tiny_sweep(
    name="rates",
    space=grid(width=[1, 2], lr=tuned(0.01, 0.1)),
    recipe=lambda point: Recipe(lr=point.lr, batch_size=8),
    replicates=2,
    question=Transition("width", None),
)
'''


def test_what_is_tuned_is_on_record_and_what_is_not_is_refused_before_training(
    hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "question.py"
    path.write_text(SWEEP_FILE)
    run = ("run", path, "--runner", "inline")
    first = hsweep(*run, "--study", "tuned")
    assert first.exit_code == 0, first.output
    manifest = StudyFolder.open(home, "tuned").manifest
    assert manifest.question is not None
    assert (manifest.question["nuisance"], manifest.fixed_rate) == (["lr"], None)
    fixed = hsweep(*run, "--study", "fixed", "--set", "lr=0.1")
    assert fixed.exit_code == 0, fixed.output
    assert StudyFolder.open(home, "fixed").manifest.fixed_rate == 0.1
    one = hsweep("plan", path, "--set", "lr=0.1", "--json")
    assert json.loads(one.stdout)["notes"][0].startswith("every trial has the one learning rate")
    path.write_text(SWEEP_FILE.replace("tuned(0.01, 0.1)", "[0.01, 0.1]"))
    refused = hsweep(*run, "--study", "listed")
    assert refused.exit_code == 2
    assert "ask with nuisance=('lr',)" in refused.output
    assert not (home.root / "studies" / "listed").exists()
