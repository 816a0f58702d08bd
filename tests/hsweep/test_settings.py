"""The small values that a sweep is made of: budget, recipe, seeds, resources, search, question."""

import math
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_sweep

from hsweep import (
    Budget,
    Lean,
    Recipe,
    Resources,
    UserError,
    epochs,
    grid_search,
    lean,
    optuna_search,
    random_search,
    steps,
)
from hsweep.seeding import Seeds, derived_seed, replicate_seeds

CLAIM = settings(deadline=None, derandomize=True, max_examples=100)


class TestBudget:
    @CLAIM
    @given(st.integers(1, 500), st.integers(1, 600))
    def test_reports_come_at_multiples_of_the_interval_and_at_the_end(
        self, amount: int, every: int
    ) -> None:
        units = Budget(amount, "epochs", every).report_units()
        assert units[-1] == amount
        assert units == sorted(set(units))
        assert all(unit % every == 0 for unit in units[:-1])
        assert len(units) == math.ceil(amount / every)

    def test_a_ladder_ends_with_the_budget_and_its_rungs_are_plain_budgets(self) -> None:
        ladder = epochs(150, report_every=5, ladder=[38, 75])
        assert ladder == epochs(150, report_every=5, ladder=(38, 75, 150))
        assert ladder.rungs == tuple(epochs(each, report_every=5) for each in (38, 75, 150))
        assert (str(ladder), str(epochs(3))) == ("38, 75 and 150 epochs", "3 epochs")
        assert epochs(3, ladder=[3]) == epochs(3)
        # The trunk of the shortest needs a report.
        assert steps(400, ladder=[50, 200]).report_every == 50

    def test_short_step_budgets_report_once(self) -> None:
        assert steps(40).report_units() == [40]
        assert steps(250).report_units() == [100, 200, 250]
        assert epochs(3).report_units() == [1, 2, 3]

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: epochs(0), "amount must be .* not 0"),
            (lambda: steps(0), "amount must be .* not 0"),
            (lambda: epochs(1.5), "amount must be .* not 1.5"),
            (lambda: epochs(True), "amount must be .* not True"),
            (lambda: epochs(5, report_every=0), "report_every must be .* not 0"),
            (lambda: Budget(5, "weeks"), "'epochs', 'steps' or 'seconds', not 'weeks'"),
            (lambda: epochs(9, ladder=[3, 12]), "ascends .* to the budget's 9 epochs.* got .3, 12"),
            (lambda: epochs(9, ladder=[4, 4]), "ladder ascends .* got .4, 4"),
            (lambda: epochs(9, ladder=[0]), "ladder ascends from at least 1 .* got .0"),
            (lambda: epochs(9, ladder=[2.5]), "whole numbers; got .2.5"),
            (lambda: steps(9, ladder="38"), "whole numbers; got '38'"),
            (lambda: Budget(9, "seconds", ladder=(3,)), "ladder counts epochs or steps"),
        ],
    )
    def test_an_impossible_budget_says_why(self, build: Callable[[], Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            build()


class TestLearningRate:
    def test_warm_up_rises_linearly_to_the_peak(self) -> None:
        recipe = Recipe(lr=1.0, warmup_fraction=0.1, warmup_lr=0.2)
        rates = [recipe.lr_at(step, 100) for step in range(10)]
        assert rates == pytest.approx([0.2 + 0.08 * (step + 1) for step in range(10)])
        assert recipe.lr_at(10, 100) == 1.0

    @pytest.mark.parametrize(
        ("schedule", "middle", "end"),
        [
            ("cosine", 0.55, 0.1),
            ("linear", 0.55, 0.1),
            ("constant", 1.0, 1.0),
            ("wsd", 1.0, 0.1),
        ],
    )
    def test_the_schedule_falls_from_the_peak_towards_its_end(
        self, schedule: Literal["cosine", "linear", "constant", "wsd"], middle: float, end: float
    ) -> None:
        recipe = Recipe(lr=1.0, min_lr=0.1, schedule=schedule)
        assert recipe.lr_at(0, 100) == 1.0
        assert recipe.lr_at(50, 100) == pytest.approx(middle)
        assert recipe.lr_at(100, 100) == pytest.approx(end)

    @pytest.mark.parametrize("schedule", ["cosine", "linear", "constant", "wsd"])
    @pytest.mark.parametrize("warmup", [0.0, 0.25])
    def test_a_share_of_the_budget_has_the_rate_of_the_step_there(
        self, schedule: Literal["cosine", "linear", "constant", "wsd"], warmup: float
    ) -> None:
        recipe = Recipe(lr=1.0, warmup_fraction=warmup, warmup_lr=0.2, schedule=schedule)
        for step in range(int(1000 * warmup) + 1, 1000, 37):
            assert recipe.lr_at_share(step / 1000) == pytest.approx(recipe.lr_at(step, 1000))
        assert recipe.lr_at_share(0.0) == (0.2 if warmup else 1.0)
        assert recipe.lr_at_share(warmup / 2) == pytest.approx(0.6 if warmup else 1.0)

    def test_a_cosine_is_at_a_quarter_of_its_way_where_the_cosine_is(self) -> None:
        assert Recipe(lr=1.0).lr_at(25, 100) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))

    def test_a_decay_is_at_half_its_way_after_a_quarter_of_its_steps(self) -> None:
        recipe = Recipe(lr=1.0, min_lr=0.2, schedule="wsd", decay_fraction=0.4, warmup_steps=10)
        rates = [recipe.lr_at(step, 100) for step in range(100)]
        assert rates[9:61] == [1.0] * 52
        assert rates[70] == pytest.approx(0.6)
        assert recipe.lr_at(100, 100) == pytest.approx(0.2)

    @CLAIM
    @given(
        st.integers(1, 60),
        st.integers(1, 60),
        st.integers(1, 30),
        st.integers(0, 50),
        st.floats(0.01, 0.99),
    )
    def test_trainings_share_the_rates_of_what_they_have_in_common(
        self, units: int, more: int, steps_a_unit: int, warmup: int, decay: float
    ) -> None:
        recipe = Recipe(lr=1.0, schedule="wsd", decay_fraction=decay, warmup_steps=warmup)
        short, long = units * steps_a_unit, (units + more) * steps_a_unit
        in_common = recipe.shared(units) * steps_a_unit
        # All of the trunk, to the unit.
        assert units * (1 - decay) - in_common / steps_a_unit < 1
        assert [recipe.lr_at(step, short) for step in range(in_common)] == [
            recipe.lr_at(step, long) for step in range(in_common)
        ]

    @pytest.mark.parametrize(("units", "trunk"), [(5, 4), (38, 30), (75, 60), (150, 120)])
    def test_a_fifth_of_a_budget_that_is_whole_units_is_that_many(
        self, units: int, trunk: int
    ) -> None:
        assert Recipe(schedule="wsd").shared(units) == trunk

    @CLAIM
    @given(
        st.integers(1, 400),
        st.floats(0, 0.79),
        st.sampled_from(["cosine", "linear", "constant", "wsd"]),
        st.floats(1e-6, 1.0),
    )
    def test_every_rate_lies_between_the_ends_and_falls_after_the_warm_up(
        self, num_steps: int, warmup: float, schedule: Any, lr: float
    ) -> None:
        recipe = Recipe(lr=lr, warmup_fraction=warmup, schedule=schedule, min_lr=lr / 100)
        rates = [recipe.lr_at(step, num_steps) for step in range(num_steps)]
        assert all(0 < rate <= lr * (1 + 1e-12) for rate in rates)
        after = rates[round(warmup * num_steps) :]
        assert after == sorted(after, reverse=True)
        assert rates == [recipe.lr_at(step, num_steps) for step in range(num_steps)]


class TestWhatARecipeRefuses:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("lr", 0.0),
            ("lr", math.inf),
            ("lr", math.nan),
            ("batch_size", 0),
            ("batch_size", 2.5),
            ("optimizer", 3),
            ("betas", (0.9, 1.0)),
            ("betas", (-0.1, 0.9)),
            ("weight_decay", -0.1),
            ("weight_decay", math.nan),
            ("warmup_fraction", 1.0),
            ("warmup_steps", -1),
            ("warmup_steps", 2.5),
            ("decay_fraction", 0.0),
            ("decay_fraction", 1.0),
            ("warmup_lr", -1.0),
            ("schedule", "step"),
            ("min_lr", -1.0),
            ("clip_norm", 0.0),
            ("precision", "float8"),
        ],
    )
    def test_a_value_out_of_range_is_named(self, field: str, value: object) -> None:
        with pytest.raises(UserError) as refused:
            Recipe(**{field: value})  # type: ignore[arg-type]
        assert field in str(refused.value)
        assert repr(value) in str(refused.value)


class TestSeeds:
    def test_they_are_what_they_were_when_studies_were_recorded(self) -> None:
        # Other values would make every recorded study another one.
        assert replicate_seeds(0, 0) == Seeds(
            2_635_072_618_980_576_772, 5_674_686_527_938_357_681, 4_240_988_225_342_195_449, 0
        )
        assert replicate_seeds(7, 3) == Seeds(
            4_775_507_545_189_199_834, 5_432_562_961_112_088_440, 7_497_344_561_439_099_852, 70_003
        )
        assert derived_seed(1, 2) == 6_306_526_848_564_946_091

    @CLAIM
    @given(st.integers(0, 2**64), st.integers(0, 2**64))
    def test_streams_replicates_and_studies_never_share_a_seed(self, one: int, other: int) -> None:
        drawn = [
            seed
            for study in {one, other}
            for replicate in range(5)
            for seed in _streams(replicate_seeds(study, replicate))
        ]
        assert len(set(drawn)) == len(drawn)
        assert all(0 <= seed < 2**63 for seed in drawn)

    @CLAIM
    @given(st.lists(st.integers(0, 2**63), min_size=2, max_size=3, unique=True))
    def test_derived_seeds_depend_on_every_part_and_on_their_order(self, parts: list[int]) -> None:
        assert derived_seed(*parts) == derived_seed(*parts)
        assert derived_seed(*parts) != derived_seed(*reversed(parts))
        assert derived_seed(*parts) != derived_seed(*parts, 1)


def _streams(seeds: Seeds) -> tuple[int, int, int]:
    return seeds.init, seeds.data, seeds.sampling


class TestResources:
    def test_threads_follow_the_whole_cores(self) -> None:
        assert [Resources(cpus=cpus, gpus=1).num_threads for cpus in (0, 0.5, 1, 3.7)] == [
            1, 1, 1, 3,
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("cpus", "gpus"),
        [(0, 0), (-1, 1), (1, -1), (math.inf, 0), (1, math.inf), (math.nan, 0), (1, math.nan)],
    )
    def test_an_amount_no_machine_has_is_refused(self, cpus: float, gpus: float) -> None:
        with pytest.raises(UserError, match="a trial needs cpus or gpus"):
            Resources(cpus=cpus, gpus=gpus)

    def test_a_trial_takes_a_share_of_a_device_or_whole_ones(self) -> None:
        assert [Resources(gpus=gpus).processes for gpus in (0.25, 1, 8)] == [1, 1, 8]
        with pytest.raises(UserError, match=r"or several whole ones, not 1\.5"):
            tiny_sweep().with_settings([("gpus", [1.5])])


class TestSearch:
    def test_a_grid_needs_no_number_of_points_and_the_others_do(self) -> None:
        assert grid_search().num_points is None
        for search in (random_search, optuna_search):
            assert search(3).num_points == 3
            with pytest.raises(UserError, match=r"num_points of a .* at least 1, not 0"):
                search(0)

    def test_only_optuna_takes_further_objectives(self) -> None:
        from hsweep.design.search import Search

        assert optuna_search(3, also=(("num_params", "min"),)).also == (("num_params", "min"),)
        with pytest.raises(UserError, match="need an optuna search"):
            Search("random", 3, also=(("num_params", "min"),))
        with pytest.raises(UserError, match="not 'bayes'"):
            Search("bayes", 3)  # type: ignore[arg-type]


class TestQuestion:
    def test_a_baseline_may_be_given_in_any_order(self) -> None:
        one = lean({"heads": 12, "depth": 12}, margin=0.01)
        assert one == lean({"depth": 12, "heads": 12}, margin=0.01)
        assert isinstance(one, Lean)
        assert dict(one.baseline) == {"heads": 12, "depth": 12}

    def test_a_baseline_is_axis_values_as_a_point_has_them(self) -> None:
        one = Lean({"stages": [2, 2], "heads": 3}, margin=0.01)  # type: ignore[arg-type]
        assert one.baseline == (("heads", 3), ("stages", (2, 2)))
        assert one.is_baseline({"stages": (2, 2), "heads": 3})
        assert hash(one)
        for odd in ([("heads", 3)], {3: "heads"}):
            with pytest.raises(UserError, match="baseline must be axes with values"):
                Lean(odd, margin=0.01)  # type: ignore[arg-type]
