"""A sweep refuses what does not go together, and its variants replace what they say."""

import contextlib
import dataclasses
import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TinyTask, tiny_sweep

from hsweep import (
    Asha,
    Recipe,
    Resources,
    Sweep,
    Transition,
    UserError,
    command,
    epochs,
    grid,
    lean,
    log_uniform,
    optuna_search,
    preset,
    random_search,
    steps,
)
from hsweep.design.space import parse_values
from hsweep.design.sweep import RESERVED_AXES, resolve
from hsweep.planning.identity import describe
from hsweep.planning.options import SweepOptions
from hsweep.planning.plan import make_plan
from hsweep.planning.prepare import variant
from hsweep.record.rows import FIGURES
from hsweep.record.tables import reports_schema, trials_schema


class TestWhatItRefuses:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"name": "../tiny"}, r"starts with a letter or digit.*got '\.\./tiny'"),
            ({"name": ""}, "starts with a letter or digit"),
            ({"space": {"width": [1]}}, "space must be built with grid"),
            ({"space": grid(seed=[1, 2])}, "'seed' has a meaning of its own"),
            ({"space": grid(epochs=[1, 2])}, "'epochs' has a meaning of its own"),
            ({"goal": "minimise"}, "'min' or 'max', not 'minimise'"),
            ({"replicates": 0}, "replicates must be .* at least 1, not 0"),
            ({"replicates": 1.5}, "replicates must be .* at least 1, not 1.5"),
            ({"max_failures": -1}, "max_failures must be a whole number of at least 0, not -1"),
            ({"space": log_uniform(width=(1, 2))}, "'width' has infinitely many values"),
            ({"question": Transition(x="head")}, "unknown axis in the sweep's question 'head'"),
            ({"question": Transition(by="depth")}, "unknown axis in the sweep's question 'heads'"),
            (
                {"question": lean({"widht": 1}, margin=0.1)},
                "unknown axis in the lean question's baseline 'widht'.* Did you mean 'width'",
            ),
            (
                {
                    "search": optuna_search(3, also=(("num_params", "min"),)),
                    "early_stopping": Asha(grace=1),
                },
                "several objectives cannot stop trials early",
            ),
            ({"presets": {"long": {"budget": epochs(9)}}}, r"preset 'long'.*preset\(\.\.\.\)"),
        ],
    )  # fmt: skip
    def test_fields_that_do_not_go_together(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            tiny_sweep(**changes)

    def test_every_fixed_column_of_the_tables_is_reserved(self) -> None:
        tables: tuple[pa.Schema, ...] = (trials_schema({}, ()), reports_schema(()))
        columns = {name for schema in tables for name in schema.names} - {"time", *FIGURES}
        assert columns <= RESERVED_AXES

    def test_every_setting_of_the_command_line_is_reserved(self) -> None:
        for name in ("epochs", "steps", "report_every", "replicates", "cpus", "gpus", "num_points"):
            with pytest.raises(UserError, match=name):
                tiny_sweep(space=grid(**{name: [1]}))


class TestPresets:
    SWEEP = tiny_sweep(
        presets={
            "long": preset("an hour", budget=epochs(90), replicates=5),
            "wide": preset(space=grid(width=[64])),
            "wrong": preset(goal="most"),
        }
    )

    def test_a_preset_replaces_its_fields_and_keeps_the_rest(self) -> None:
        long = self.SWEEP.with_preset("long")
        changed = {
            field.name
            for field in dataclasses.fields(Sweep)
            if getattr(long, field.name) != getattr(self.SWEEP, field.name)
        }
        assert changed == {"budget", "replicates"}
        assert (long.budget, long.replicates) == (epochs(90), 5)
        assert self.SWEEP.presets["long"].note == "an hour"

    def test_the_sweep_as_it_stands_is_quick_unless_there_is_a_preset_of_that_name(self) -> None:
        assert self.SWEEP.with_preset(None) is self.SWEEP
        assert self.SWEEP.with_preset("quick") is self.SWEEP
        own = tiny_sweep(presets={"quick": preset(budget=epochs(1))})
        assert own.with_preset(None).budget == own.with_preset("quick").budget == epochs(1)

    def test_an_unknown_preset_lists_the_known_ones(self) -> None:
        with pytest.raises(UserError) as refused:
            self.SWEEP.with_preset("lang")
        assert str(refused.value) == (
            "unknown preset 'lang'; known: long, quick, wide, wrong. Did you mean 'long'?"
        )

    def test_a_preset_cannot_make_what_a_sweep_cannot_be(self) -> None:
        with pytest.raises(UserError, match="not 'most'"):
            self.SWEEP.with_preset("wrong")

    @pytest.mark.parametrize("name", ["budgets", "name", "presets"])
    def test_it_replaces_only_fields_that_a_sweep_has(self, name: str) -> None:
        with pytest.raises(UserError, match=f"unknown sweep field in a preset '{name}'"):
            preset(**{name: 1})


class TestSettings:
    def test_an_axis_takes_a_list(self) -> None:
        changed = tiny_sweep().with_settings([("width", [4, 5])])
        assert [point.width for point in changed.space.points()] == [4, 5]

    def test_the_budget_goes_by_its_own_unit(self) -> None:
        assert tiny_sweep().with_settings([("epochs", [7])]).budget == epochs(7)
        assert tiny_sweep(budget=steps(500)).with_settings([("steps", [50])]).budget == steps(50)
        with pytest.raises(UserError, match=r"unknown setting 'steps'; known: .*epochs"):
            tiny_sweep().with_settings([("steps", [50])])

    def test_a_shorter_budget_reports_at_its_end(self) -> None:
        short = tiny_sweep(budget=epochs(100, report_every=20)).with_settings([("epochs", [5])])
        assert short.budget.report_units() == [5]

    def test_reports_replicates_and_resources_can_be_set(self) -> None:
        sweep = tiny_sweep()
        assert sweep.with_settings([("report_every", [2])]).budget == epochs(3, report_every=2)
        assert sweep.with_settings([("replicates", [4])]).replicates == 4
        [point, *_] = sweep.space.points()
        set_ = sweep.with_settings([("cpus", [0.5])]).with_settings([("gpus", [1])])
        assert resolve(set_.resources, point) == Resources(cpus=0.5, gpus=1)

    def test_resources_that_depend_on_the_point_can_be_set_too(self) -> None:
        sweep = tiny_sweep(resources=lambda p: Resources(cpus=p.width)).with_settings(
            [("gpus", [1])]
        )
        resources = [resolve(sweep.resources, point) for point in sweep.space.points()]
        assert resources == [Resources(cpus=width, gpus=1) for width in (1, 2, 3)]

    def test_the_number_of_points_can_be_set_where_points_are_drawn(self) -> None:
        drawn = tiny_sweep(search=random_search(2)).with_settings([("num_points", [3])])
        assert drawn.search == random_search(3)
        with pytest.raises(UserError, match="unknown setting 'num_points'"):
            tiny_sweep().with_settings([("num_points", [3])])

    @pytest.mark.parametrize(
        ("name", "values", "message"),
        [
            ("widht", [1], "unknown setting 'widht'; known: .* Did you mean 'width'"),
            ("epochs", [1, 2.5], r"epochs takes whole numbers, not \[1, 2.5\]"),
            ("epochs", ["ten"], r"epochs takes whole numbers, not \['ten'\]"),
            ("epochs", [True], "epochs takes whole numbers"),
            ("epochs", [1.5], r"epochs takes whole numbers, not \[1.5\]"),
            ("epochs", [0], "budget amount must be .* not 0"),
            ("report_every", [0], "budget report_every must be .* not 0"),
            ("replicates", [0], "replicates must be .* at least 1, not 0"),
            ("cpus", [-1], "neither negative"),
            ("gpus", [float("inf")], "nor infinite"),
            ("width", [1, 1], "1 is listed twice"),
        ],
    )
    def test_what_cannot_be_set_says_why(self, name: str, values: list[Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            tiny_sweep().with_settings([(name, values)])

    def test_presets_come_first_and_settings_in_their_order(self) -> None:
        sweep = tiny_sweep(presets={"long": preset(budget=epochs(90))})
        chosen = variant(
            sweep, SweepOptions(preset="long", settings=[("epochs", [50]), ("epochs", [40])])
        )
        assert chosen.budget == epochs(40)

    def test_fields_of_recipe_and_question_are_replaced_together_at_every_point(self) -> None:
        sweep = tiny_sweep(
            space=grid(width=[1, 2], depth=[1, 2]),
            recipe=lambda p: Recipe(
                lr=0.1 * p.width, warmup_fraction=0.1, optimizer_args={"eps": 1e-6}
            ),
            question=Transition("width", "depth"),
        )
        # One by one, none of the first two pairs would go through what can be.
        changed = sweep.with_settings(
            [
                ("recipe.warmup_steps", [5]),
                ("recipe.warmup_fraction", [0]),
                ("x", ["depth"]),
                ("by", ["width"]),
                ("recipe.betas", [0.8, 0.9]),
                ("recipe.optimizer_args.amsgrad", [True]),
                ("recipe.batch_size", [8]),
                ("recipe.batch_size", [16]),
            ]
        )
        for point in changed.space.points():
            assert resolve(changed.recipe, point) == Recipe(
                lr=0.1 * point.width, warmup_steps=5, betas=(0.8, 0.9),
                optimizer_args={"eps": 1e-6, "amsgrad": True}, batch_size=16,
            )  # fmt: skip
        assert changed.question == Transition("depth", "width")
        asked = tiny_sweep(question=lean({"width": 3}, margin=0.1)).with_settings(
            [("margin", [0.01]), ("baseline.width", [2]), ("costs", ["flops_per_example"])]
        )
        assert asked.question == lean({"width": 2}, margin=0.01, costs=("flops_per_example",))

    def test_an_axis_called_like_a_field_of_the_question_is_the_axis(self) -> None:
        sweep = tiny_sweep(space=grid(x=[1, 2]), question=Transition("x", None))
        changed = sweep.with_settings([("x", [3, 4])])
        assert (changed.question, len(list(changed.space.points()))) == (sweep.question, 2)

    @pytest.mark.parametrize(
        ("name", "values", "message"),
        [
            ("lr", [1], "unknown setting 'lr'; known: .* Did you mean 'recipe.lr'"),
            ("recipe.lrr", [1], "unknown field of the recipe .* Did you mean 'recipe.lr'"),
            ("recipe.optimizer_args", [1], "mean 'recipe.optimizer_args.NAME'"),
            ("margn", [1], "known: baseline.NAME, batch_size, .* Did you mean 'margin'"),
            ("baseline.widht", [1], "the lean question's baseline 'widht'.* mean 'width'"),
            ("by", ["width"], "unknown setting 'by'"),
            ("recipe.width", [1], "unknown field of the recipe"),
            ("recipe.batch_size", [8], "set the axis, --set batch_size="),
            ("recipe.lr", ["fast"], "lr must be a positive number, not 'fast'"),
            ("recipe.lr", [0.1, 0.2], r"takes one value, not \[0.1, 0.2\]; .* an axis"),
            ("recipe.betas", [0.9], r"betas must be two numbers in .* not \(0.9,\)"),
            ("margin", [True], "margin must be positive, not True"),
        ],
    )
    def test_what_cannot_be_set_of_recipe_and_question_says_why(
        self, name: str, values: list[Any], message: str
    ) -> None:
        sweep = tiny_sweep(
            space=grid(width=[1, 2, 3], batch_size=[4, 8]),
            question=lean({"width": 3}, margin=0.1),
        )
        with pytest.raises(UserError, match=message):
            sweep.with_settings([(name, values)])

    def test_training_of_ones_own_has_no_recipe_to_set(self) -> None:
        sweep = Sweep("own", grid(width=[1]), epochs(1), "loss", train=command("true {width}"))
        for name in ("recipe.lr", "lr"):
            with pytest.raises(UserError, match="unknown setting") as refused:
                sweep.with_settings([(name, [0.1])])
            assert "recipe." not in str(refused.value).partition("known:")[2]

    NAMES = (
        *("width", "epochs", "report_every", "replicates", "cpus", "gpus", "num_points", "nope"),
        *("margin", "costs", "nuisance", "baseline.width"),
        *("recipe.lr", "recipe.betas", "recipe.schedule", "recipe.accumulate", "recipe.clip_norm"),
    )

    @settings(deadline=None, derandomize=True, max_examples=60)
    @given(
        st.sampled_from(NAMES),
        st.text(max_size=12)
        | st.text("0123456789.,()[]{}'\"-+eE_j", min_size=1, max_size=8)
        | st.sampled_from(
            ["1e999", "nan", "(1,(2,1e999))", "-0", "1j", "...", "b'x'", "{1}", "99999999999999"]
        ),
    )
    def test_any_text_is_refused_clearly_or_gives_a_sweep_that_can_be_planned(
        self, name: str, text: str
    ) -> None:
        asked = lean({"width": 3}, margin=0.1)
        sweep = tiny_sweep(search=random_search(3), question=asked)
        with contextlib.suppress(UserError):
            changed = sweep.with_settings([(name, parse_values(text))])
            # Each replicate is a trial: keep their number, and nothing else, small.
            assert make_plan(replace(changed, replicates=1), preset="quick", study_seed=0).trials


class TestResolve:
    def test_values_stand_for_themselves_and_functions_are_called(self) -> None:
        [point, *_] = tiny_sweep().space.points()
        recipe, task = Recipe(), TinyTask()
        assert resolve(recipe, point) is recipe
        assert resolve(lambda p: p.width, point) == 1
        assert resolve(task, point) is task


def test_a_sweep_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny_sweep().name = "other"  # type: ignore[misc]


def test_numbers_of_numpy_are_those_of_python() -> None:
    """As settings, in a question and as arguments of a function alike."""

    def sweep_of(whole: Any, real: Any) -> Sweep:
        return Sweep(
            name="numbers",
            space=grid(heads=[1, whole(2)]),
            train=partial(lambda point, run, rate: None, rate=real(0.5)),
            metric="loss",
            goal="min",
            budget=epochs(whole(4)),
            replicates=whole(3),
            early_stopping=Asha(grace=whole(2)),
            question=lean({"heads": whole(2)}, margin=real(0.25), costs=("heads",)),
        )

    numpys, own = sweep_of(np.int64, np.float32), sweep_of(int, float)
    assert numpys.budget == own.budget
    assert describe(numpys.question) == describe(own.question)
    assert json.dumps(describe(numpys.early_stopping)) == json.dumps(describe(own.early_stopping))
    assert [type(numpys.replicates), type(numpys.question.margin)] == [int, float]  # type: ignore[union-attr]
    bound = (each.train.keywords for each in (numpys, own))  # type: ignore[union-attr]
    assert len({json.dumps(describe(each)) for each in bound}) == 1
