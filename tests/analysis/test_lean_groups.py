"""Several comparisons in one study, each with a baseline of its own."""

import io
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from tiny import TinyModel, tiny_sweep
from tiny_studies import finish, new_study, recording

from analysis.answer import Answer
from analysis.ask import answer_study
from analysis.questions.base import Finding, StudyRuns
from analysis.questions.groups import Groups
from analysis.questions.lean.kind import of_study
from analysis.report.build import build_report, report_charts, report_input
from analysis.terminal import show_answer
from hsweep import Asha, Sweep, UserError, grid, lean
from hsweep.design.early_stopping import PROTECTED
from hsweep.paths import Home
from hsweep.planning.plan import make_plan
from hsweep.record.manifest import Manifest
from hsweep.record.study import StudyFolder

AXES = ("family", "variant", "depth")
WORSE = {"equal": 0.0, "worse": 0.1}
NOISE = (0.0, 0.002, -0.001, 0.001, -0.002)


def runs(**changes: object) -> pd.DataFrame:
    """Two families, the lean shape of one as good as its original, that of the other not. The good
    family lies far below the other, which no comparison may notice."""
    rows = [
        {
            "family": family,
            "variant": variant,
            "depth": depth,
            "seed": seed,
            "status": "finished",
            "top1": (0.5 if family == "equal" else 0.9) - lost + noise,
            "num_params": depth,
        }
        for family, worse in WORSE.items()
        for variant, depth, lost in (("original", 4, 0.0), ("lean", 2, worse))
        for seed, noise in enumerate(NOISE)
    ]
    return pd.DataFrame(rows).assign(**changes)


class NoReports:
    """The tables of a study whose trials have reported once, at their end."""

    def reports_of(self, _keys: object) -> pd.DataFrame:
        return pd.DataFrame({"key": [], "top1": []})


def compare(frame: pd.DataFrame, **asked: Any) -> Groups:
    groups = finding_of(frame, **asked).result
    assert isinstance(groups, Groups)
    return groups


def finding_of(
    frame: pd.DataFrame,
    *,
    axes: Sequence[str] = AXES,
    margin: float = 0.02,
    is_listed: bool = False,
    options: dict[str, Any] | None = None,
) -> Finding:
    """Ask a study of 150 epochs with these trials."""
    blank: dict[str, Any] = {field.name: "" for field in fields(Manifest)[:19]}
    baseline = (("variant", "original"),)
    blank["question"] = {
        **{"type": "Lean", "baseline": baseline, "margin": margin, "within": "family"},
        "costs": ("num_params",),
    }
    blank |= {"axes": axes, "budget": {"amount": 150, "unit": "epochs"}, "provenance": {}}
    manifest = Manifest(**blank | {"metric": "top1", "goal": "max"})
    trials = pd.DataFrame({"budget": 150, "reason": "", "key": ""}, index=frame.index)
    trials = trials.assign(**{str(name): frame[name] for name in frame}).reset_index(drop=True)
    tables: Any = NoReports()
    study = StudyRuns(
        manifest,
        tables,
        only=trials,
        is_listed=is_listed,
        count=lambda missing: [lacking.seeds for lacking in missing],
    )
    finding = of_study(study, options, ())
    assert finding is not None
    return finding


def test_every_family_is_compared_with_its_own_original() -> None:
    groups = compare(runs())
    assert [name for name, result in groups.found.items() if result.verdict == "found"] == ["equal"]
    assert list(groups.found) == ["equal", "worse"]
    assert groups.found["worse"].baseline_mean == pytest.approx(0.9)
    (row,) = groups.found["equal"].table
    assert row.config == {"variant": "lean", "depth": 2}


def test_the_error_rate_is_shared_among_the_families() -> None:
    assert {result.settings.alpha for result in compare(runs()).found.values()} == {0.025}


def test_false_acceptances_over_all_families_stay_at_the_rate_of_one_study() -> None:
    rng = np.random.default_rng(0)
    studies, families, seeds, margin = 60, 5, 4, 0.1

    def study() -> pd.DataFrame:
        # Every lean shape lies exactly at the margin, so each acceptance is false.
        return pd.DataFrame(
            [
                {
                    "family": str(family),
                    "variant": variant,
                    "seed": seed,
                    "status": "finished",
                    "top1": rng.normal(-margin if variant == "lean" else 0.0, 0.05),
                    "num_params": 1 if variant == "lean" else 2,
                }
                for family in range(families)
                for variant in ("original", "lean")
                for seed in range(seeds)
            ]
        )

    axes = ("family", "variant")
    found = [compare(study(), axes=axes, margin=margin).found.values() for _ in range(studies)]
    wrong = [any(result.verdict == "found" for result in results) for results in found]
    assert np.mean(wrong) <= 0.09


def test_a_family_without_its_baseline_leaves_the_others_standing() -> None:
    frame = runs()
    groups = compare(frame[(frame["family"] == "equal") | (frame["variant"] == "lean")])
    assert list(groups.found) == ["equal"]
    assert "picks 0 shapes" in groups.problems["worse"]


@pytest.mark.parametrize("margin", [0, -1, float("nan")])
def test_a_margin_must_be_positive(margin: float) -> None:
    with pytest.raises(UserError, match="margin must be a positive number"):
        compare(runs(), options={"margin": margin, "baseline": None, "settings": ()})


def family_sweep() -> Sweep:
    return tiny_sweep(
        # As with heads that are coupled in one family only, an axis has no value for the other.
        space=grid(family=["even", "odd"], variant=["original", "lean"]).derive(
            head_dim=lambda p: 8 if p.family == "odd" else None
        ),
        model=lambda p: TinyModel({"original": 8, "lean": 3}[p.variant] + (p.family == "odd")),
        metric="fit",
        goal="max",
        replicates=3,
        question=lean(baseline={"variant": "original"}, margin=0.05, within="family"),
    )


@pytest.fixture
def answered(tmp_path: Path) -> tuple[Answer, str]:
    """The answer of a finished study of two families, and its report."""
    home, sweep = Home(tmp_path / "home"), family_sweep()
    study = new_study(home, sweep=sweep)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            is_bad = trial.point.family == "odd" and trial.point.variant == "lean"
            finish(journal, trial, (0.4 if is_bad else 0.2) + 0.001 * trial.replicate)
    answer = answer_study(study)
    with study.reading() as tables:
        return answer, build_report(report_input(study, answer, {}, tables))


def test_a_study_answers_family_by_family(answered: tuple[Answer, str]) -> None:
    answer, _ = answered
    assert answer.text.startswith(
        "Leaner equivalent found with family = even; no leaner equivalent with family = odd. "
        "family = even: lean does as well as original"
    )
    assert "family = odd: the cheaper shape tried is more than " in answer.text
    content = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert content["kind"] == "lean"
    assert content["found"]["even"]["choice"] == "lean"
    assert content["found"]["odd"]["choice"] is None
    assert content["pareto"]["table"]


def test_report_and_terminal_list_the_candidates_of_every_family(
    answered: tuple[Answer, str],
) -> None:
    answer, page = answered
    console = Console(width=200, record=True, file=io.StringIO())
    show_answer(console, answer)
    shown = console.export_text()
    for family in ("even", "odd"):
        assert f"<td>{family}</td>" in page
        assert family in shown[shown.index("Candidates") :]
    assert "leaner equivalent found in 1 of 2" in page


def test_results_of_different_tasks_are_never_on_one_front(tmp_path: Path) -> None:
    home, sweep = Home(tmp_path / "home"), family_sweep()
    study = new_study(home, sweep=sweep)
    two_tasks = {"data": [{"task": {"dim": 3}}, {"task": {"dim": 4}}]}
    study = StudyFolder(study.paths, replace(study.manifest, provenance=two_tasks))
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            is_odd = trial.point.family == "odd"
            finish(journal, trial, (0.4 if is_odd else 0.2) + 0.001 * trial.replicate)
    answer = answer_study(study)
    (finding,) = (finding for finding in answer.findings if finding.kind.name == "pareto")
    fronts = finding.result.found
    # On one front the even family, whose error is half as large, would beat every odd shape.
    assert {name: len(front.table) for name, front in fronts.items()} == {"even": 2, "odd": 2}
    assert all(max(row.p_front for row in front.table) == 1 for front in fronts.values())
    with study.reading() as tables:
        shown = report_input(study, answer, {}, tables)
    (shapes,) = (table for title, table, _ in finding.tables if title == "Shapes")
    assert [row[0] for row in shapes.rows] == ["even"] * 2 + ["odd"] * 2
    fronts_drawn = [chart for chart in finding.charts() if chart.name.startswith("front")]
    assert [dict(chart.picks[0].at)["family"] for chart in fronts_drawn] == ["even", "odd"]
    names = [chart.name for chart in report_charts(shown)]
    assert len(names) == len(set(names))
    marked = [series.name for series in fronts_drawn[0].series if series.points]
    assert {"baseline", "chosen"} <= set(marked)
    assert "Shapes" in build_report(shown)


def test_every_original_is_kept_from_early_stopping() -> None:
    sweep = replace(family_sweep(), early_stopping=Asha(grace=1, strata=("family",)))
    trials = make_plan(sweep, preset="quick", study_seed=0).trials
    protected = {
        (trial.point.family, trial.point.variant) for trial in trials if trial.stratum == PROTECTED
    }
    assert protected == {("even", "original"), ("odd", "original")}


def test_the_axis_must_exist() -> None:
    with pytest.raises(UserError, match="unknown axis in the lean question 'familly'"):
        tiny_sweep(question=lean(baseline={"width": 3}, margin=0.1, within="familly"))


def ladders(**left: float) -> pd.DataFrame:
    """Return the families' runs at two budgets: ``left`` is how much better the original of a
    family still is after the last doubling."""
    parts = []
    for budget in (75, 150):
        frame = runs(budget=budget)
        short = (frame["variant"] == "original") & (budget == 75)
        frame["top1"] -= frame["family"].map(left).fillna(0.0).where(short, 0.0)
        parts.append(frame)
    return pd.concat(parts)


def test_every_comparison_says_whether_more_training_would_change_it() -> None:
    frame = ladders(equal=0.2)
    groups = compare(frame)
    verdicts = {
        name: result.sensitivity and result.sensitivity.verdict
        for name, result in groups.found.items()
    }
    assert verdicts == {"equal": "moving", "worse": "settled"}
    finding = finding_of(frame)
    head, *parts = finding.sentences
    assert head == (
        "Leaner equivalent found, still moving with family = equal; "
        "no leaner equivalent, settled with family = worse."
    )
    assert "Still moving: at 300 epochs the answer would change" in parts[0]
    assert "Settled: the answer stays with up to 100 times the training" in parts[1]
    assert finding.missing == ()
    extended = finding_of(frame, is_listed=True)
    assert [(runs.at["family"], runs.at["variant"], runs.budget) for runs in extended.missing] == [
        ("equal", "original", 300), ("equal", "lean", 300)
    ]  # fmt: skip
    assert "--only-missing trains 10 runs of 300 epochs" in extended.sentences[1]
    assert finding.badge == ("leaner equivalent found, still moving in 1 of 2", "partial")
    (budgets,) = (table for title, table, _ in finding.tables if title == "Answer at each budget")
    assert {row[0] for row in budgets.rows} == {"equal", "worse"}


def test_a_comparison_that_was_trained_longer_than_others_asks_for_no_more() -> None:
    frame = ladders(equal=0.2)
    last = frame.query("family == 'equal' and budget == 150").assign(budget=300)
    last["top1"] -= 0.05 * (last["variant"] == "lean")
    finding = finding_of(pd.concat([frame, last]), is_listed=True)
    assert "Still moving: at 300 epochs the answer would change" in finding.sentences[1]
    assert finding.missing == ()


def test_comparisons_settled_together_say_so_and_one_budget_is_no_ladder() -> None:
    frame = ladders()
    assert finding_of(frame).sentences[0].count(", settled with family = ") == 2
    # A family that was trained to one budget alone does not speak for the others.
    some = finding_of(frame.query("family != 'equal' or budget == 150"))
    assert some.sentences[0].count(", settled with family = ") == 1
    alone = finding_of(frame.query("budget == 150"))
    assert "settled" not in alone.sentences[0]
    assert "all runs have one budget" in alone.sentences[1]
