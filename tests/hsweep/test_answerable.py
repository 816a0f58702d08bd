"""Which questions a plan can never answer, or only weakly, and what would help."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import Result
from tiny import METRICS, TinyModel, TinyTask, tiny_sweep
from tiny_studies import new_study

from hsweep import (
    Asha,
    Point,
    Recipe,
    Run,
    SizeBand,
    Sweep,
    Transition,
    UserError,
    epochs,
    grid,
    int_range,
    lean,
    log_uniform,
    optuna_search,
    random_search,
    tuned,
)
from hsweep.design.question import Concern
from hsweep.paths import Home
from hsweep.planning.answerable import analysable, fixed_rate, notes
from hsweep.planning.plan import make_plan
from tasks.base import Metric

Invoke = Callable[..., Result]
ROOMY: Final[dict[str, Any]] = {
    "space": grid(width=[1, 2, 3, 4, 5, 6], seq_len=[8, 16]),
    "task": lambda point: TinyTask(num_train=4 * point.seq_len),
    "question": Transition("width", "seq_len"),
}
"""A sweep with room for its answer."""


def concerns(limits: dict[str, int | None] | None = None, **changes: Any) -> list[Concern]:
    sweep = tiny_sweep(**{"replicates": 3, **changes})
    return analysable(make_plan(sweep, preset="quick", study_seed=0, limits=limits))


def only(found: list[Concern]) -> tuple[str, str, str]:
    (concern,) = found
    return concern.kind, concern.text, concern.remedy


def own_training(point: Point, run: Run) -> None:
    run.report(1, nmse=0.5)


@dataclass(frozen=True)
class Accurate(TinyTask):
    """Its first metric is called ``nmse`` and is an accuracy."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return Metric("nmse", "max", "accuracy", "share of right answers"), METRICS[1]


@dataclass(frozen=True)
class Scored(TinyTask):
    """Its first metric has the chance that is given."""

    chance: float | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return replace(METRICS[0], chance=self.chance), METRICS[1]


class TestAnyQuestion:
    def test_a_sweep_with_room_for_its_answer_has_no_concern(self) -> None:
        assert concerns(**ROOMY) == []
        assert concerns(question=lean({"width": 3}, margin=0.1)) == []
        assert concerns(question=None, replicates=1) == []

    def test_a_goal_that_contradicts_the_metric(self) -> None:
        kind, text, remedy = only(concerns(goal="max"))
        assert kind == "impossible"
        assert text == "the sweep's goal is 'max', and the task declares 'min' for 'nmse'"
        assert remedy == "leave goal out, or set goal='min'"

    @pytest.mark.parametrize(
        ("said", "decided"),
        [
            ({"metric": "", "goal": None}, ("nmse", "min", "error")),
            ({"metric": "fit", "goal": None}, ("fit", "max", "accuracy")),
            ({"metric": "", "goal": "min"}, ("nmse", "min", "error")),
            ({"metric": "fit", "goal": "max"}, ("fit", "max", "accuracy")),
        ],
    )
    @pytest.mark.parametrize("question", [Transition("width"), lean({"width": 3}, 0.1)])
    def test_what_is_left_out_is_as_the_task_declares_its_metric(
        self, question: Any, said: dict[str, Any], decided: tuple[str, str, str]
    ) -> None:
        sweep = tiny_sweep(space=grid(width=[1, 2, 3, 4, 5, 6]), question=question, **said)
        plan = make_plan(replace(sweep, replicates=3), preset="quick", study_seed=0)
        asked = plan.sweep.question
        assert asked is not None
        assert (plan.sweep.metric, plan.sweep.goal, asked.scale) == decided
        assert {(trial.metric, trial.goal) for trial in plan.trials} == {decided[:2]}
        assert not [each for each in analysable(plan) if each.kind == "impossible"]

    def test_the_name_of_a_metric_of_ones_own_training_tells_its_goal(self) -> None:
        asked: dict[str, Any] = {"space": grid(width=[1, 2, 3, 4]), "train": own_training}
        for name, decided in (
            ("nmse", ("min", "error")),
            ("val_loss", ("min", "loss")),
            ("top1", ("max", "accuracy")),
        ):
            sweep = Sweep(
                "own", budget=epochs(1), metric=name, question=Transition("width"), **asked
            )
            planned = make_plan(sweep, preset="quick", study_seed=0).sweep
            assert planned.question is not None
            assert (planned.goal, planned.question.scale) == decided
        with pytest.raises(UserError, match=r"larger values of 'reward' .* give goal=.min"):
            Sweep("own", budget=epochs(1), metric="reward", **asked)
        with pytest.raises(UserError, match="needs the name of the metric that decides"):
            Sweep("own", budget=epochs(1), **asked)

    @pytest.mark.parametrize(
        "question",
        [Transition("width", scale="error"), lean({"width": 3}, 0.1, scale="error")],
    )
    def test_a_logarithm_of_accuracies(self, question: Any) -> None:
        found = concerns(
            space=grid(width=[1, 2, 3, 4, 5, 6]), task=Accurate(), goal="max", question=question
        )
        assert only(found)[0] == "impossible"
        assert "scale is 'error', and the task declares 'accuracy' for 'nmse'" in found[0].text
        assert found[0].remedy == "leave the question's scale out, or set it to 'accuracy'"

    @pytest.mark.parametrize("question", [Transition("width", None), lean({"width": 3}, 0.1)])
    def test_one_seed_establishes_nothing(self, question: Any) -> None:
        space = grid(width=[1, 2, 3, 4, 5, 6])
        kind, text, remedy = only(concerns(space=space, question=question, replicates=1))
        assert (kind, remedy) == ("weak", "--set replicates=3")
        assert text.startswith("with one seed the noise between seeds is not measured")


class TestTransitions:
    @pytest.mark.parametrize(
        ("widths", "kind", "text", "remedy"),
        [
            ([3], "weak", "width has one value (3)", "--set width=3,4,5,6,7,8"),
            ([1, 4], "weak", "width has 2 values (1 and 4)", "--set width=1,2,3,4,5,6"),
            ([1, 2, 3], "weak", "tells a drop from dimin", "--set width=1,2,3,4,5,6"),
            ([1, 2, 3, 4], "weak", "established at width = 3 or 4, not at 2", "width=1,2,3,4,5,6"),
            ([1, 4, 16], "weak", "has 3 values (1, 4 and 16)", "give width 6 values or more"),
        ],
    )
    def test_too_few_values_to_look_for_a_drop(
        self, widths: list[int], kind: str, text: str, remedy: str
    ) -> None:
        found = only(concerns(space=grid(width=widths), question=Transition("width", None)))
        assert (found[0], text in found[1], remedy in found[2]) == (kind, True, True)

    def test_values_that_limits_leave_count(self) -> None:
        question = Transition("width", None)
        space = grid(width=[1, 2, 3, 4, 5, 6])
        found = concerns({"max_params": 6}, space=space, question=question)
        assert only(found)[1].startswith("width has one value (1), and a test that tells")

    def test_one_length_says_nothing_of_growth(self) -> None:
        space = grid(width=[1, 2, 3, 4, 5, 6], seq_len=[8])
        kind, text, _ = only(concerns(space=space, question=Transition("width", "seq_len")))
        assert (kind, text) == (
            "weak",
            "seq_len has one value, 8, so growth with seq_len cannot be judged",
        )

    def test_an_axis_of_words_has_no_order(self) -> None:
        space = grid(width=[1, 2, 3, 4, 5, 6], kind=["a", "b"])
        kind, text, _ = only(concerns(space=space, question=Transition("width", "kind")))
        assert (kind, "kind must be numbers" in text) == ("impossible", True)

    def test_growth_is_by_the_logarithm_of_the_length(self) -> None:
        space = grid(width=[1, 2, 3, 4, 5, 6], dropout=[0.0, 0.1, 0.2])
        kind, text, _ = only(concerns(space=space, question=Transition("width", "dropout")))
        assert (kind, "dropout holds 0.0" in text) == ("impossible", True)

    @pytest.mark.parametrize(
        ("strata", "kind", "lost"),
        [
            ((), "impossible", "width"),
            (("seq_len",), "impossible", "width"),
            (SizeBand(100.0), "impossible", "width"),
            (("width",), "weak", "seq_len"),
            (("width", "seq_len"), None, ""),
        ],
    )
    def test_early_stopping_between_the_cells_of_a_transition(
        self, strata: Any, kind: str | None, lost: str
    ) -> None:
        found = concerns(
            **ROOMY,
            early_stopping=Asha(grace=1, strata=strata),
            budget=epochs(9),
        )
        if kind is None:
            assert found == []
        else:
            assert only(found)[0] == kind
            assert f"trials of different {lost} compete" in found[0].text
            assert found[0].remedy == "give Asha strata=('width', 'seq_len')"

    def test_early_stopping_that_stops_nobody_is_no_concern(self) -> None:
        space, question = grid(width=[1, 2, 3, 4, 5, 6]), Transition("width", None)
        for asha in (Asha(grace=3), Asha(grace=1, min_survivors=18)):
            assert concerns(space=space, question=question, early_stopping=asha) == []


class TestSettings:
    SPACE: Final = grid(width=[1, 2, 3, 4, 5, 6], lr=[0.01, 0.1])
    RECIPE: Final = staticmethod(lambda point: Recipe(lr=point.lr, batch_size=8))

    def test_an_axis_that_varies_within_cells_and_is_not_named_is_refused_with_the_fix(
        self,
    ) -> None:
        asked = {"space": self.SPACE, "recipe": self.RECIPE}
        kind, text, remedy = only(concerns(**asked, question=Transition("width", None)))
        assert kind == "impossible"
        assert text.startswith("lr varies within the cells of width, and the question does not say")
        assert "ask with nuisance=('lr',), which takes each cell at its best setting" in remedy
        assert remedy.endswith("(--set lr=...)")
        assert concerns(**asked, question=Transition("width", None, nuisance=("lr",))) == []

    def test_an_axis_that_follows_from_the_cells_is_no_setting(self) -> None:
        space = grid(width=[1, 2, 3, 4, 5, 6]).derive(twice=lambda point: 2 * point.width)
        assert concerns(space=space, question=Transition("width", None)) == []

    def test_early_stopping_of_single_runs_chooses_badly(self) -> None:
        asked = {
            "space": self.SPACE,
            "recipe": self.RECIPE,
            "question": Transition("width", None, nuisance=("lr",)),
        }
        stopping = Asha(grace=1, strata=("width",), min_survivors=1)
        early = {**asked, "budget": epochs(9), "early_stopping": stopping}
        kind, text, remedy = only(concerns(**early))
        assert (kind, remedy) == ("weak", 'give Asha compete="points"')
        assert "settings of lr lose some of their seeds" in text
        whole = Asha(grace=1, strata=("width",), min_survivors=1, compete="points")
        assert concerns(**{**early, "early_stopping": whole}) == []

    @pytest.mark.parametrize("question", [Transition("width", None), lean({"width": 6}, 0.1)])
    def test_a_tuned_axis_is_a_nuisance_axis_without_being_named(self, question: Any) -> None:
        sweep = tiny_sweep(
            space=grid(width=[1, 2, 3, 4, 5, 6], lr=tuned(1e-2, 1e-1)),
            recipe=self.RECIPE,
            replicates=4,
            question=question,
        )
        plan = make_plan(sweep, preset="quick", study_seed=0)
        asked = plan.sweep.question
        assert asked is not None
        assert asked.nuisance == ("lr",)
        assert analysable(plan) == []
        # Other values of it are tuned too; one value is none to choose from.
        fixed = make_plan(sweep.with_settings([("lr", [0.1])]), preset="quick", study_seed=0)
        assert fixed_rate(fixed) == 0.1
        (note,) = notes(fixed)
        assert note.startswith("every trial has the one learning rate 0.1, which is not tuned")
        other = sweep.with_settings([("lr", [0.1, 0.2])]).with_tuned_axes()
        assert other.question == replace(asked, scale=None)

    def test_a_tuned_axis_cannot_be_searched_as_well(self) -> None:
        sweep = tiny_sweep(
            space=grid(width=tuned(1, 100)),
            model=lambda point: TinyModel(round(point.width)),
            question=Transition("width", None),
        )
        with pytest.raises(UserError, match=r"nuisance axis 'width' is searched \(x\)"):
            make_plan(sweep, preset="quick", study_seed=0)

    def test_the_rate_of_training_of_ones_own_is_known_by_the_name_of_its_axis(self) -> None:
        own: dict[str, Any] = {"model": None, "task": None, "train": own_training}
        question = Transition("width", None)

        def plan(**axes: Any) -> Any:
            sweep = tiny_sweep(
                **own, recipe=Recipe(), space=grid(width=[1, 2, 3, 4], **axes), question=question
            )
            return make_plan(sweep, preset="quick", study_seed=0)

        assert fixed_rate(plan(learning_rate=[0.5])) == 0.5
        assert fixed_rate(plan()) is None
        assert notes(plan()) == []


class TestLeanQuestions:
    def test_a_baseline_that_is_not_planned(self) -> None:
        kind, text, remedy = only(concerns(question=lean({"width": 9}, 0.1)))
        assert (kind, text) == ("impossible", "no planned trial has the baseline width=9")
        assert remedy == "add its values to the axes, or name a planned shape"

    def test_a_baseline_that_is_skipped(self) -> None:
        found = concerns({"max_params": 12}, question=lean({"width": 3}, 0.1))
        assert only(found)[0] == "impossible"
        assert "width=3 is skipped: num_params 18 is above --max-params 12" in found[0].text

    def test_a_baseline_that_fits_several_shapes(self) -> None:
        space = grid(width=[2, 4], dropout=[0.0, 0.1])
        found = concerns(space=space, question=lean({"width": 4}, 0.1))
        assert only(found)[0] == "impossible"
        assert "the baseline width=4 fits 2 shapes, for example width=4 dropout=0" in found[0].text

    def test_a_nuisance_axis_is_no_part_of_the_baselines_shape(self) -> None:
        space = grid(width=[2, 4], dropout=[0.0, 0.1])
        question = lean({"width": 4}, 0.1, nuisance=("dropout",))
        assert concerns(space=space, question=question) == []

    def test_each_comparison_has_a_baseline_of_its_own(self) -> None:
        space = grid(kind=["a"], width=[1, 3]) + grid(kind=["b"], width=[1, 2])
        question = lean({"width": 3}, 0.1, within="kind")
        model = lambda p: TinyModel(p.width, heads=1, dropout=0.1 * (p.kind == "b"))  # noqa: E731
        kind, text, _ = only(concerns(space=space, model=model, question=question))
        assert (kind, text) == ("weak", "no planned trial has the baseline width=3 at kind=b")

    def test_a_cost_that_no_trial_has(self) -> None:
        known = ("num_params", "wall_seconds", "width", "fit")
        assert concerns(question=lean({"width": 3}, 0.1, costs=known)) == []
        asked = lean({"width": 3}, 0.1, costs=("num_params", "flops"))
        kind, text, remedy = only(concerns(question=asked))
        assert (kind, text) == ("impossible", "'flops' is no cost of a trial")
        assert remedy.startswith("ask for num_params, flops_per_example, ")

    @pytest.mark.parametrize("margin", [1, 3])
    def test_a_margin_as_wide_as_the_metric(self, margin: float) -> None:
        asked: dict[str, Any] = {"metric": "fit", "goal": "max"}
        kind, text, _ = only(concerns(question=lean({"width": 3}, margin), **asked))
        assert kind == "impossible"
        assert f"a margin of {margin:g} is no smaller than the range of fit, " in text
        assert text.endswith(f"{margin:g} points are {margin / 100:g}")
        assert concerns(question=lean({"width": 3}, 0.1), **asked) == []

    def test_a_margin_of_an_error_is_held_against_a_constant_predictor_where_that_is_known(
        self,
    ) -> None:
        def told(chance: float | None, margin: float) -> list[str]:
            task = Scored(chance=chance)
            return [c.kind for c in concerns(task=task, question=lean({"width": 3}, margin))]

        assert told(2.0, 2.5) == ["impossible"]
        assert told(2.0, 1.5) == told(None, 2.5) == []

    def test_the_range_of_a_metric_of_ones_own_training_is_known_only_if_it_is_declared(
        self,
    ) -> None:
        def told(**changes: Any) -> list[str]:
            sweep = Sweep(
                name="own",
                space=grid(width=[1, 2, 3]),
                train=own_training,
                describe=lambda point: point.width,
                metric="top1",
                budget=epochs(1),
                replicates=5,
                question=lean({"width": 3}, 1.5),
                **changes,
            )
            return [c.kind for c in analysable(make_plan(sweep, preset="quick", study_seed=0))]

        assert told() == []
        assert told(metrics=(Metric("top1", "max", "accuracy", "share"),)) == ["impossible"]

    def test_a_baseline_that_is_the_cheapest(self) -> None:
        kind, text, _ = only(concerns(question=lean({"width": 1}, 0.1)))
        assert (kind, "no planned shape has a lower num_params" in text) == ("weak", True)

    def test_seeds_too_few_for_so_many_candidates(self) -> None:
        space = grid(width=list(range(1, 14)))
        question = lean({"width": 13}, 0.1)
        kind, text, remedy = only(concerns(space=space, question=question, replicates=2))
        assert (kind, remedy) == ("weak", "--set replicates=4")
        assert "with 2 seeds and 12 candidates" in text
        assert concerns(space=space, question=question, replicates=5) == []


class TestSearches:
    SPACE = int_range(width=(1, 40)) * grid(dropout=[0.0, 0.1], heads=1)

    def planned(self, **changes: Any) -> tuple[Sweep, list[dict[str, Any]], list[Concern]]:
        sweep = tiny_sweep(**{"space": self.SPACE, "replicates": 3, **changes})
        plan = make_plan(sweep, preset="quick", study_seed=0)
        return sweep, [dict(trial.point) for trial in plan.trials[::3]], analysable(plan)

    @pytest.mark.parametrize("search", [random_search(4), optuna_search(4)])
    def test_a_search_begins_with_the_baseline(self, search: Any) -> None:
        question = lean({"width": 40, "dropout": 0.1}, 0.1)
        sweep, points, found = self.planned(search=search, question=question)
        assert points[0] == {"width": 40, "dropout": 0.1, "heads": 1}
        assert len(points) == 4
        assert found == []
        assert sweep.question.proposals(sweep.space) == [points[0]]

    def test_a_baseline_of_some_axes_is_left_to_chance(self) -> None:
        question = lean({"width": 40}, 0.1)
        _, points, found = self.planned(search=random_search(4), question=question)
        assert all(point["width"] != 40 for point in points)
        assert only(found)[0] == "impossible"
        assert "a search begins with the baseline where it names a value" in found[0].remedy

    def test_a_baseline_outside_the_range_is_not_proposed(self) -> None:
        question = lean({"width": 41, "dropout": 0.1}, 0.1)
        sweep, _, found = self.planned(search=random_search(4), question=question)
        assert (sweep.question.proposals(sweep.space), only(found)[0]) == ([], "impossible")

    def test_every_setting_of_a_nuisance_axis_is_proposed_and_none_of_an_endless_one(self) -> None:
        question = lean({"width": 40}, 0.1, nuisance=("dropout",))
        _, points, found = self.planned(search=random_search(6), question=question)
        assert [point["dropout"] for point in points[:2]] == [0.0, 0.1]
        assert found == []
        space = grid(width=[1, 2]) * log_uniform(dropout=(0.1, 0.5))
        sweep = tiny_sweep(space=space, search=random_search(4), question=lean({"width": 2}, 0.1))
        assert sweep.question.proposals(sweep.space) == []

    def test_the_sides_of_a_union_and_families_of_shapes(self) -> None:
        space = grid(kind=["a"], width=[1, 3]) + grid(kind=["b"], width=[2, 3])
        question = lean({"width": 3}, 0.1, within="kind")
        sweep = tiny_sweep(space=space, search=random_search(3), question=question)
        found = [dict(point) for point in sweep.question.proposals(sweep.space)]
        assert found == [{"kind": "a", "width": 3}, {"kind": "b", "width": 3}]


class TestCommands:
    def test_the_sweep_of_the_readme_can_be_answered(self, hsweep: Invoke, tmp_path: Path) -> None:
        readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
        path = tmp_path / "my_heads.py"
        path.write_text(readme.partition("```python\n")[2].partition("```")[0])
        planned = json.loads(hsweep("plan", path, "--check", "--json").stdout)
        assert (len(planned["trials"]), planned["concerns"]) == (20, [])
        assert planned["checked"]["unchecked"] == []

    @pytest.fixture
    def impossible(self, tmp_path: Path) -> Path:
        path = tmp_path / "question.py"
        path.write_text(
            "from hsweep import lean\nfrom tiny import tiny_sweep\n"
            "SWEEP = tiny_sweep(question=lean({'width': 9}, 0.1), replicates=3)\n"
        )
        return path

    def test_plan_shows_and_run_refuses_what_cannot_be_answered(
        self, hsweep: Invoke, impossible: Path, home: Home
    ) -> None:
        line = "the question cannot be answered: no planned trial has the baseline width=9; add its"
        planned = hsweep("plan", impossible)
        assert (planned.exit_code, line in planned.stdout) == (0, True)
        (shown,) = json.loads(hsweep("plan", impossible, "--json").stdout)["concerns"]
        assert (shown["kind"], shown["text"]) == (
            "impossible",
            "no planned trial has the baseline width=9",
        )
        refused = hsweep("run", impossible, "--runner", "inline")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert line in refused.stderr
        assert not home.root.exists()

    def test_a_preset_or_a_setting_can_make_it_answerable(
        self, hsweep: Invoke, impossible: Path
    ) -> None:
        planned = hsweep("plan", impossible, "--set", "width=1,2,9", "--json")
        assert json.loads(planned.stdout)["concerns"] == []

    def test_an_edit_does_not_make_a_question_impossible(
        self, hsweep: Invoke, impossible: Path, home: Home
    ) -> None:
        study = new_study(home)
        before = study.paths.manifest.read_bytes()
        result = hsweep("run", impossible, "--study", "mine", "--runner", "inline")
        assert result.exit_code == 2
        assert "no planned trial has the baseline width=9" in result.stderr
        assert study.paths.manifest.read_bytes() == before

    def test_a_weak_question_runs_and_says_so_first(self, hsweep: Invoke, tmp_path: Path) -> None:
        path = tmp_path / "question.py"
        path.write_text(
            "from hsweep import Transition, grid\nfrom tiny import tiny_sweep\n"
            "SWEEP = tiny_sweep(space=grid(width=[1, 2]), replicates=2,\n"
            "                   question=Transition('width', None))\n"
        )
        # A storage that cannot be used ends it before anything trains.
        result = hsweep("run", path, "--storage", "nothing://such")
        assert result.exit_code == 2
        line = "the question can be answered only weakly: width has 2 values (1 and 2)"
        assert line in result.stdout
        (concern,) = json.loads(hsweep("plan", path, "--json").stdout)["concerns"]
        assert (concern["kind"], concern["remedy"]) == ("weak", "--set width=1,2,3,4,5,6")
