"""Studies side by side: fronts in one frame, places of the collapse, and what is not the same."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from analysis.compare.fit import compare_studies
from analysis.compare.page import build_comparison_page
from analysis.compare.result import Comparison
from analysis.compare.text import comparison_sentences, comparison_tables
from analysis.questions.pareto.fit import FrontDraws, volume_interval
from analysis.questions.pareto.result import ParetoSettings
from analysis.runs.grouped import grouped
from analysis.runs.table import Runs
from analysis.text.numbers import NONE
from benchmarks.shapes import SHAPE_OPTIONS, shapes_sweep
from hsweep import Sweep, Transition, grid, lean
from hsweep.cli import main
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

QUICK = ParetoSettings(draws=300)


def transition_sweep(**changes: Any) -> Sweep:
    return tiny_sweep(
        space=grid(width=[1, 2, 3, 4, 5]),
        replicates=3,
        question=Transition(x="width", by=None),
        **changes,
    )


def lean_sweep(**changes: Any) -> Sweep:
    settings: dict[str, Any] = {
        "space": grid(width=[2, 4, 6, 8]),
        "replicates": 4,
        "question": lean({"width": 8}, margin=0.05, scale="error"),
    }
    return tiny_sweep(**(settings | changes))


def collapse(width: int, replicate: int, star: int, seed: int = 0) -> float:
    noise = np.random.default_rng([seed, width, replicate]).standard_normal()
    return float(10 ** (-0.4 * width - 2.0 * (width >= star) + 0.08 * noise))


def finished(home: Home, name: str, sweep: Sweep, values: Any) -> StudyFolder:
    study = new_study(home, name, sweep)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            finish(journal, trial, values(trial.point, trial.replicate))
    return study


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


@pytest.fixture
def collapses(home: Home) -> list[StudyFolder]:
    sweep = transition_sweep()
    return [
        finished(home, name, sweep, lambda p, r, star=star: collapse(p.width, r, star))
        for name, star in (("early", 3), ("late", 4))
    ]


def error_of(width: int, replicate: int, gain: float, seed: int) -> float:
    noise = np.random.default_rng([seed, width, replicate]).standard_normal()
    return 0.5 - 0.05 * width - gain + 0.004 * float(noise)


def lean_studies(home: Home, gains: Sequence[float]) -> list[StudyFolder]:
    return [
        finished(
            home,
            f"lean{at}",
            lean_sweep(),
            lambda p, r, gain=gain, at=at: error_of(p.width, r, gain, at),
        )
        for at, gain in enumerate(gains)
    ]


def places_of(result: Comparison) -> list[Any]:
    return [pair.common_set for pair in result.pairs if pair.common_set is not None]


def volumes_of(result: Comparison) -> list[Any]:
    return [pair for pair in result.pairs if pair.volume is not None]


class TestTransitions:
    def test_different_places_are_told_apart(self, collapses: list[StudyFolder]) -> None:
        result = compare_studies(collapses, settings=QUICK)
        assert [s.transition.h_star for s in result.studies if s.transition] == [3, 4]
        assert places_of(result) == [()]
        assert (
            "width = 3 and 4; by their 95% sets these are not the same place"
            in (comparison_sentences(result)[0])
        )

    def test_a_study_agrees_with_itself_under_another_name(
        self, home: Home, collapses: list[StudyFolder]
    ) -> None:
        again = finished(
            home, "again", transition_sweep(), lambda p, r: collapse(p.width, r, 3, seed=1)
        )
        assert places_of(compare_studies([collapses[0], again], settings=QUICK)) == [(3,)]

    def test_a_suggested_collapse_is_compared_with_none(
        self, home: Home, collapses: list[StudyFolder]
    ) -> None:
        sweep = dataclasses.replace(transition_sweep(), replicates=1)
        single = finished(home, "single", sweep, lambda p, r: collapse(p.width, r, 4))
        result = compare_studies([collapses[1], single], settings=QUICK)
        assert places_of(result) == []
        assert "suggested, not tested" in result.studies[1].answer[0]
        (table,) = [s.table for s in comparison_tables(result) if s.title == "Transitions"]
        assert dict(zip(table.header, table.rows[1], strict=True))["verdict"] == "open"


class TestFronts:
    def test_a_better_front_has_a_larger_volume(self, home: Home) -> None:
        result = compare_studies(lean_studies(home, (0.0, 0.04)), settings=QUICK)
        (pair,) = volumes_of(result)
        assert pair.volume.high < 0
        assert result.front is not None
        assert result.front.costs == ("num_params",)
        assert {row.config["study"] for row in result.front.table} == {"lean0", "lean1"}
        assert "the front of lean1 is the better one" in " ".join(comparison_sentences(result))

    def test_the_same_runs_cancel_exactly(self, home: Home, tmp_path: Path) -> None:
        elsewhere = Home(tmp_path / "other").create()
        values = lambda p, r: error_of(p.width, r, 0.0, 0)  # noqa: E731
        both = [finished(where, "same", lean_sweep(), values) for where in (home, elsewhere)]
        result = compare_studies(both, settings=QUICK)
        labels = [side.label for side in result.studies]
        assert labels == [f"same ({study.paths.root})" for study in both]
        (pair,) = volumes_of(result)
        assert pair.volume == (0.0, 0.0, 0.0)
        assert pair.same == 16

    def test_a_cost_may_be_named_for_studies_with_any_question(
        self, collapses: list[StudyFolder]
    ) -> None:
        assert compare_studies(collapses, settings=QUICK).front is None
        result = compare_studies(collapses, costs=("num_params", "wall_seconds"), settings=QUICK)
        assert result.front is not None
        assert result.front.costs == ("num_params", "wall_seconds")
        assert len(volumes_of(result)) == 1

    def test_different_metrics_are_not_laid_over_each_other(self, home: Home) -> None:
        one = lean_studies(home, (0.0,))[0]
        other = finished(
            home,
            "fit",
            lean_sweep(metric="fit", goal="max"),
            lambda p, r: error_of(p.width, r, 0.0, 0),
        )
        result = compare_studies([one, other], settings=QUICK)
        assert result.front is None
        assert "different metrics (fit, nmse)" in result.front_note

    def test_every_study_without_a_front_says_why(self, home: Home) -> None:
        empty = [new_study(home, name, lean_sweep()) for name in ("first", "second")]
        studies = [*lean_studies(home, (0.0,)), *empty]
        result = compare_studies(studies, costs=("num_params",), settings=QUICK)
        assert result.front is None
        assert "first has no front: " in result.front_note
        assert "; second has no front: " in result.front_note

    def test_single_runs_give_no_interval(self, home: Home) -> None:
        studies = [
            finished(
                home,
                f"single{at}",
                lean_sweep(replicates=1),
                lambda p, r, at=at: error_of(p.width, r, 0.03 * at, at),
            )
            for at in range(2)
        ]
        (pair,) = volumes_of(compare_studies(studies, settings=QUICK))
        assert np.isnan(pair.volume.low)


def learning(study: StudyFolder, **task: Any) -> StudyFolder:
    """The study with a task and the fingerprint of its data on record."""
    fingerprint = str(sorted(task.items()))
    data = [{"task": {"type": "TinyTask", **task}, "fingerprint": fingerprint}]
    return StudyFolder(study.paths, dataclasses.replace(study.manifest, provenance={"data": data}))


class TestOtherData:
    def test_fronts_are_shown_and_none_is_called_better(self, home: Home) -> None:
        one, other = lean_studies(home, (0.0, 0.04))
        result = compare_studies([learning(one, dim=3), learning(other, dim=4)], settings=QUICK)
        (sentence,) = comparison_sentences(result)
        assert sentence.startswith("The studies do not learn the same task from the same data")
        assert "lean0: dim=3; lean1: dim=4" in sentence
        assert (result.front, [side.hv for side in result.studies]) == (None, [None, None])
        titles = [section.title for section in comparison_tables(result)]
        assert titles[0] == "What differs"
        assert "Lean choices" in titles
        page = build_comparison_page(result)
        assert "better one" not in page
        assert 'data-figure="front-num_params"' not in page

    def test_a_tasks_own_fields_may_be_called_like_those_of_the_record(self, home: Home) -> None:
        one, other = lean_studies(home, (0.0, 0.04))
        apart = [learning(one, data="digits", settings=1), learning(other, data="photos")]
        (sentence,) = comparison_sentences(compare_studies(apart, settings=QUICK))
        assert "lean0: data=digits, settings=1; lean1: data=photos" in sentence

    def test_places_of_a_collapse_are_not_tested_against_each_other(
        self, collapses: list[StudyFolder]
    ) -> None:
        apart = [learning(study, dim=3 + at) for at, study in enumerate(collapses)]
        result = compare_studies(apart, settings=QUICK)
        assert places_of(result) == []
        assert [s.transition.h_star for s in result.studies if s.transition] == [3, 4]
        assert result.differences["task"] == ("dim=3", "dim=4")

    def test_the_same_data_are_compared_whatever_else_differs(self, home: Home) -> None:
        studies = [learning(study, dim=3) for study in lean_studies(home, (0.0, 0.04))]
        result = compare_studies(studies, settings=QUICK)
        assert result.apart == ""
        assert len(volumes_of(result)) == 1


def test_the_difference_of_volumes_covers_the_true_one() -> None:
    """Two independent studies of the same shapes: no difference, which the interval holds."""
    inside = []
    for seed in range(40):
        frame = shapes_sweep("homo", seed, seeds=4)
        noise = 0.006 * np.random.default_rng([5, seed]).standard_normal(len(frame))
        both = pd.concat(
            [frame.assign(study="one"), frame.assign(study="two", top1=frame["true"] + noise)]
        )
        by, costs = ["study", *SHAPE_OPTIONS["config"]], SHAPE_OPTIONS["costs"]
        shapes = grouped(Runs(both, "top1"), by, goal="max", costs=costs)
        own = np.array([shape.config["study"] for shape in shapes.comparable])
        drawn = FrontDraws.of(shapes, ParetoSettings(draws=400))
        (one, two), _ = drawn.volumes([own == "one", own == "two"])
        difference = volume_interval(one - two, 0.95, low=-np.inf)
        inside.append(difference.low <= 0 <= difference.high)
    assert np.mean(inside) >= 0.88


class TestWhatDiffers:
    def test_settings_seed_and_preset_are_listed_and_equal_things_are_not(self, home: Home) -> None:
        sweep = transition_sweep()
        values = lambda p, r: collapse(p.width, r, 3)  # noqa: E731
        one = finished(home, "one", sweep, values)
        other = finished(home, "other", sweep, values)
        changed = dataclasses.replace(
            other.manifest, seed=7, preset="paper", settings=[("replicates", [3])]
        )
        other.manifest = changed
        rows = compare_studies([one, other], settings=QUICK).differences
        assert rows["seed"] == ("0", "7")
        assert rows["preset"] == ("quick", "paper")
        assert rows["--set replicates"] == (NONE, "3")
        assert "metric" not in rows


def test_unfinished_studies_are_compared_as_far_as_they_are(home: Home) -> None:
    studies = [new_study(home, name, transition_sweep()) for name in ("a", "b")]
    result = compare_studies(studies, settings=QUICK)
    assert places_of(result) == []
    assert "a: no trial has run to its full budget yet" in result.warnings
    assert "can be set against each other" in comparison_sentences(result)[0]
    assert "No curves or fronts are drawn together" in build_comparison_page(result)


@pytest.mark.parametrize("number", [0, 1])
def test_one_study_cannot_be_compared(home: Home, number: int) -> None:
    studies = [new_study(home, str(at), transition_sweep()) for at in range(number)]
    with pytest.raises(UserError, match="two studies or more"):
        compare_studies(studies)


def test_a_study_with_itself_is_a_slip(home: Home) -> None:
    study = new_study(home, "a", transition_sweep())
    with pytest.raises(UserError, match="was given twice"):
        compare_studies([study, study])


def test_same_studies_same_comparison_on_a_page_that_fetches_nothing(home: Home) -> None:
    studies = lean_studies(home, (0.0, 0.02))
    result = compare_studies(studies, settings=QUICK)
    assert compare_studies(studies, settings=QUICK).to_json() == result.to_json()
    page = build_comparison_page(result)
    for title, _, _ in comparison_tables(result):
        assert f">{title}</h2>" in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert 'data-figure="front-num_params"' in page
    assert "src=" not in page.split("<script")[0]


class TestCommand:
    def run(self, home: Home, *arguments: object) -> Any:
        words = ["compare", *map(str, arguments), "--home", str(home.root)]
        return CliRunner().invoke(main, words)

    def test_names_and_folders_may_be_mixed(self, home: Home, tmp_path: Path) -> None:
        one, other = lean_studies(home, (0.0, 0.02))
        page = tmp_path / "both.html"
        result = self.run(home, one.name, other.paths.root, "--report", page)
        assert result.exit_code == 0, result.output
        assert "the front of lean1 is the better one" in result.output
        assert page.read_text().startswith("<!DOCTYPE html>")
        # JSON is alone on standard output.
        content = json.loads(self.run(home, "lean0", "lean1", "--json").stdout)
        assert [side["label"] for side in content["studies"]] == ["lean0", "lean1"]
        assert content["pairs"][0]["volume"][2] < 0

    @pytest.mark.parametrize(
        ("names", "message"),
        [(["lean0"], "two studies or more"), (["lean0", "nowhere"], "no study called 'nowhere'")],
    )
    def test_what_cannot_be_compared_says_why(
        self, home: Home, names: list[str], message: str
    ) -> None:
        lean_studies(home, (0.0,))
        result = self.run(home, *names)
        assert result.exit_code == 2
        assert message in result.stderr

    def test_a_folder_without_a_study_is_named(self, home: Home, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        result = self.run(home, tmp_path / "empty", tmp_path / "empty")
        assert "holds no study" in result.stderr
