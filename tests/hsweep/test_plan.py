"""A plan says every trial, cost, double and impossibility before anything trains."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tiny import TinyModel, TinyTask, tiny_model, tiny_sweep
from torch import nn

from hsweep import (
    Asha,
    Point,
    Recipe,
    Resources,
    SizeBand,
    Sweep,
    UserError,
    grid,
    lean,
    optuna_search,
    random_search,
)
from hsweep.planning.code import code_of, training_code
from hsweep.planning.identity import content_hash, key_of
from hsweep.planning.plan import Plan, make_plan
from hsweep.seeding import replicate_seeds
from models.base import Counts
from models.counts import train_memory_bytes
from tasks.base import DataError, Metric


def plan(sweep: Sweep | None = None, seed: int = 0, **limits: int | None) -> Plan:
    return make_plan(sweep or tiny_sweep(), preset="quick", study_seed=seed, limits=limits)


def impossible_from_two(point: Point) -> TinyModel:
    return tiny_model(Point({**point, "heads": 2}))


class TestTrials:
    def test_each_point_and_replicate_is_a_trial_in_the_order_of_the_space(self) -> None:
        trials = plan(tiny_sweep(replicates=2)).trials
        assert [(t.ordinal, t.point["width"], t.replicate) for t in trials] == [
            (0, 1, 0), (1, 1, 1), (2, 2, 0), (3, 2, 1), (4, 3, 0), (5, 3, 1),
        ]  # fmt: skip
        assert len({trial.key for trial in trials}) == 6

    def test_replicates_are_paired_over_the_points(self) -> None:
        trials = plan(tiny_sweep(replicates=2), seed=5).trials
        assert all(trial.seeds == replicate_seeds(5, trial.replicate) for trial in trials)

    def test_fields_that_depend_on_the_point_are_evaluated_at_each(self) -> None:
        sweep = tiny_sweep(
            space=grid(width=[4, 8], dim=[2, 3]),
            task=lambda p: TinyTask(dim=p.dim),
            model=lambda p: TinyModel(p.width, dim=p.dim),
            recipe=lambda p: Recipe(batch_size=p.width),
            resources=lambda p: Resources(cpus=p.dim),
        )
        for trial in plan(sweep).trials:
            width, dim = trial.point["width"], trial.point["dim"]
            assert trial.task == TinyTask(dim=dim)
            assert trial.model == TinyModel(width, dim=dim)
            assert trial.recipe == Recipe(batch_size=width)
            assert trial.resources == Resources(cpus=dim)
            assert trial.counts.num_params == 2 * width * dim

    def test_another_study_seed_plans_other_trials(self) -> None:
        assert {t.key for t in plan(seed=0).trials}.isdisjoint(t.key for t in plan(seed=1).trials)

    def test_points_that_train_the_same_are_one_trial_and_counted(self) -> None:
        sweep = tiny_sweep(space=grid(width=[1, 2], unused=[True, False]), replicates=2)
        planned = plan(sweep)
        assert len(planned.trials) == 4
        assert planned.merged == 4
        assert all(trial.point["unused"] is True for trial in planned.trials)

    def test_a_stratum_comes_from_the_point_or_the_size(self) -> None:
        by_axis = tiny_sweep(early_stopping=Asha(grace=1, strata=("width",)))
        assert [t.stratum for t in plan(by_axis).trials] == ["width=1", "width=2", "width=3"]
        by_size = tiny_sweep(early_stopping=Asha(grace=1, strata=SizeBand(2.0)))
        assert [t.stratum for t in plan(by_size).trials] == [
            "num_params=4..8", "num_params=8..16", "num_params=16..32",
        ]  # fmt: skip
        assert [t.stratum for t in plan().trials] == ["", "", ""]

    def test_the_baseline_of_a_lean_question_competes_with_nobody(self) -> None:
        asha = Asha(grace=1, strata=SizeBand(100.0))
        sweep = tiny_sweep(question=lean({"width": 2}, margin=0.1), early_stopping=asha)
        small, baseline, large = plan(sweep).trials
        assert small.stratum == large.stratum != baseline.stratum

    def test_a_baseline_is_protected_at_every_value_of_a_nuisance_axis(self) -> None:
        sweep = tiny_sweep(
            space=grid(width=[2, 3], dropout=[0.0, 0.1]),
            question=lean({"width": 3}, margin=0.1, nuisance=("dropout",)),
            early_stopping=Asha(grace=1, strata=SizeBand(100.0), compete="points"),
        )
        assert [trial.stratum == "baseline" for trial in plan(sweep).trials] == [
            *(False, False),
            *(True, True),
        ]

    def test_an_unknown_stratum_axis_is_an_error(self) -> None:
        with pytest.raises(UserError, match="unknown axis in early_stopping strata 'widht'"):
            plan(tiny_sweep(early_stopping=Asha(grace=1, strata=("widht",))))

    def test_random_points_are_seeded_and_a_small_space_gives_all_it_has(self) -> None:
        sweep = tiny_sweep(space=grid(width=list(range(1, 9))), search=random_search(3))
        first, again, other = plan(sweep), plan(sweep), plan(sweep, seed=3)
        assert [t.point for t in first.trials] == [t.point for t in again.trials]
        assert [t.point for t in first.trials] != [t.point for t in other.trials]
        assert len(plan(tiny_sweep(search=random_search(50))).trials) == 3

    def test_an_adaptive_plan_says_so(self) -> None:
        assert plan(tiny_sweep(search=optuna_search(2))).is_adaptive
        assert not plan().is_adaptive


@dataclass(frozen=True)
class TokenTask(TinyTask):
    vocab_size: int = 8


@dataclass(frozen=True)
class TokenModel(TinyModel):
    vocab_size: int = 8


class TestWhatIsSkipped:
    def test_a_model_with_fewer_tokens_than_its_task(self) -> None:
        sweep = tiny_sweep(
            space=grid(width=[2], vocab_size=[7, 8, 9]),
            task=TokenTask(),
            model=lambda p: TokenModel(p.width, vocab_size=p.vocab_size),
        )
        planned = plan(sweep)
        assert [trial.point.vocab_size for trial in planned.trials] == [8, 9]
        assert next(iter(planned.skipped.values())) == (
            "the model's vocab_size 7 is below the 8 tokens of task 'tiny', whose largest id is 7; "
            "raise it to at least 8"
        )

    def test_impossible_shapes_are_skipped_with_their_reason(self) -> None:
        planned = plan(tiny_sweep(model=impossible_from_two))
        assert [trial.point["width"] for trial in planned.trials] == [2]
        assert [(point["width"], why) for point, why in planned.skipped.items()] == [
            (1, "width must be a positive multiple of heads; got width=1, heads=2"),
            (3, "width must be a positive multiple of heads; got width=3, heads=2"),
        ]

    @pytest.mark.parametrize(
        ("limits", "widths", "reason"),
        [
            ({"max_params": 12}, [1, 2], "num_params 18 is above --max-params 12"),
            ({"min_params": 12}, [2, 3], "num_params 6 is below --min-params 12"),
            ({"max_flops": 35}, [1, 2], "flops_per_example 36 is above --max-flops 35"),
            ({"max_memory": 400}, [1, 2], "train_memory_bytes 480 is above --max-memory 400"),
        ],
    )
    def test_limits_skip_and_say_which(
        self, limits: dict[str, int], widths: list[int], reason: str
    ) -> None:
        planned = plan(**limits)
        assert [trial.point["width"] for trial in planned.trials] == widths
        assert list(planned.skipped.values()) == [reason]

    def test_a_limit_itself_is_allowed(self) -> None:
        assert len(plan(max_params=18, min_params=6).trials) == 3

    def test_a_plan_of_nothing_is_an_error_with_an_example(self) -> None:
        with pytest.raises(UserError) as refused:
            plan(tiny_sweep(model=lambda p: TinyModel(-p.width)))
        assert str(refused.value) == (
            "the plan of 'tiny' has no trial: 3 points were skipped; for example {'width': 1}: "
            "width must be a positive multiple of heads; got width=-1, heads=1"
        )
        with pytest.raises(UserError, match="no trial: 0 points"):
            plan(tiny_sweep(space=grid(width=[1]).where(lambda p: False)))


@dataclass(frozen=True)
class Miscounted(TinyModel):
    def counts(self) -> Counts:
        return TinyModel(self.width + 1, self.dim).counts()


@dataclass(frozen=True)
class Uncounted:
    width: int

    def build(self) -> nn.Module:
        return nn.Linear(3, self.width)


@dataclass(frozen=True)
class Unbuildable(Uncounted):
    def build(self) -> nn.Module:
        raise KeyError("weights")

    def example_input(self) -> torch.Tensor:
        return torch.zeros(1, 3)


@dataclass(frozen=True)
class Traced(Uncounted):
    def example_input(self) -> torch.Tensor:
        return torch.zeros(1, 3)


@dataclass(frozen=True)
class MetricsFromData(TinyTask):
    @property
    def metrics(self) -> tuple[Metric, ...]:
        raise DataError("no labels to count")


@dataclass(frozen=True)
class SeedMetric(TinyTask):
    @property
    def metrics(self) -> Any:
        from dataclasses import replace

        return (*TinyTask().metrics, replace(TinyTask().metrics[0], name="seed"))


@dataclass(frozen=True)
class Asked(TinyTask):
    """Says each time that it is asked for something."""

    def fingerprint(self) -> str:
        ASKED.append(f"fingerprint {self.dim}")
        return super().fingerprint()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        ASKED.append(f"metrics {self.dim}")
        return super().metrics


@dataclass(frozen=True)
class Counting(TinyModel):
    """Says each time that it is counted."""

    def counts(self) -> Counts:
        ASKED.append(f"counts {self.width}")
        return super().counts()


ASKED: list[str] = []


class TestWhatPointsShare:
    """Many points have a model, a task or a recipe in common, as one object or as equal ones."""

    SPACE = grid(width=[1, 2], dim=[2, 3], lr=[1e-3, 1.0], batch_size=[4, 8])

    @pytest.fixture(params=["values", "functions"])
    def sweep(self, request: pytest.FixtureRequest) -> Sweep:
        ASKED.clear()
        if request.param == "values":
            return tiny_sweep(
                space=grid(width=[1, 2, 3]),
                task=Asked(),
                model=lambda p: Counting(p.width),
                recipe=Recipe(lr=1.0, batch_size=4),
                replicates=3,
            )
        return tiny_sweep(
            space=self.SPACE,
            task=lambda p: Asked(dim=p.dim),
            model=lambda p: Counting(p.width, dim=p.dim),
            recipe=lambda p: Recipe(lr=p.lr, batch_size=p.batch_size),
            replicates=3,
        )

    def test_keys_counts_and_memory_are_those_of_each_trial_looked_at_alone(
        self, sweep: Sweep
    ) -> None:
        trials = plan(sweep, seed=4).trials
        assert len(trials) == len({trial.key for trial in trials}) > 3
        for trial in trials:
            identity = {
                "model": trial.model,
                "task": trial.task,
                "recipe": trial.recipe,
                "budget": trial.budget,
                "seeds": replicate_seeds(4, trial.replicate),
            }
            code = {
                "model_code": code_of(trial.model).digest,
                "task_code": code_of(trial.task).digest,
                "training_code": training_code().digest,
            }
            data = trial.task.fingerprint()
            parts = {name: content_hash(value, for_key=True) for name, value in identity.items()}
            assert trial.parts == {**parts, "data": data, **code}
            assert trial.key == key_of(trial.parts)
            assert trial.counts == trial.model.counts()  # type: ignore[union-attr]
            assert trial.train_memory_bytes == train_memory_bytes(
                trial.counts,
                batch_size=trial.recipe.batch_size,
                optimizer=trial.recipe.optimizer,
                precision=trial.recipe.precision,
            )

    def test_accepting_code_afterwards_gives_the_plan_that_accepts_it(self, sweep: Sweep) -> None:
        whole = plan(sweep)
        code = {whole.trials[0].parts[part]: "another" for part in ("model_code", "training_code")}
        accepting = make_plan(sweep, preset="quick", study_seed=0, accepted=code)
        assert whole.accepting(code) == accepting
        assert {trial.key for trial in accepting.trials}.isdisjoint(t.key for t in whole.trials)

    def test_equal_ones_are_asked_once(self, sweep: Sweep) -> None:
        trials = plan(sweep).trials
        asked = Counter(ASKED)
        tasks = {trial.task.dim for trial in trials}  # type: ignore[attr-defined]
        models = {trial.parts["model"] for trial in trials}
        for dim in tasks:
            assert (asked[f"fingerprint {dim}"], asked[f"metrics {dim}"]) == (1, 1)
        # Once for the plan, once to hold the counts against the built model.
        assert sum(n for what, n in asked.items() if what.startswith("counts")) == 2 * len(models)

    def test_many_objects_alive_at_once_are_not_taken_for_one_another(self) -> None:
        sweep = tiny_sweep(
            space=grid(width=[1], batch_size=list(range(1, 1001))),
            recipe=lambda p: Recipe(batch_size=p.batch_size),
        )
        trials = plan(sweep).trials
        assert len({trial.parts["recipe"] for trial in trials}) == 1000
        hashes = [content_hash(trial.recipe, for_key=True) for trial in trials]
        assert [trial.parts["recipe"] for trial in trials] == hashes


def fails(point: Point) -> Any:
    return 1 / 0


class TestWhatIsAnError:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"metric": "nmsee"}, r"unknown metric of task 'tiny' 'nmsee'; .* Did you mean 'nmse'"),
            ({"model": fails}, r"model function failed at \{'width': 1\}: ZeroDivisionError"),
            ({"task": fails}, "task function failed"),
            ({"recipe": fails}, "recipe function failed"),
            ({"resources": fails}, "resources function failed"),
            ({"model": lambda p: None}, "model must be an nn.Module, or a model .* got None"),
            ({"model": lambda p: p.heads}, "unknown axis 'heads'"),
            ({"task": lambda p: "images"}, "task must be a task .* got 'images'"),
            ({"recipe": lambda p: {"lr": 1}}, "recipe must be a Recipe, .* got {'lr': 1}"),
            ({"resources": lambda p: 4}, "resources must be a Resources, .* got 4"),
            ({"recipe": lambda p: Recipe(lr=-1.0)}, "lr must be a positive number, not -1.0"),
            ({"model": lambda p: Miscounted(p.width)}, "counts 12 parameters, but builds 6"),
            ({"model": lambda p: Unbuildable(p.width)}, "cannot be built.*KeyError: 'weights'"),
            ({"space": grid(width=[10**25])}, "cannot be built"),
            ({"space": grid(width=["two"])}, "model function failed .* TypeError"),
            (
                {"space": grid(width=[1, 2]).where(lambda p: p.width > "a")},
                r"a where\(...\) function .* at \{'width': 1\}: TypeError",
            ),
            (
                {"space": grid(width=[1], nmse=[1, 2])},
                "metric 'nmse' of task 'tiny' has the name of an axis",
            ),
            ({"task": SeedMetric()}, "metric 'seed' of task 'tiny' .* column"),
            ({"task": TinyTask(num_train=float("inf"))}, "finite"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_with_a_sweeps_functions_is_said(
        self, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(UserError, match=message):
            plan(tiny_sweep(**changes))

    def test_a_data_error_in_a_function_is_the_users_to_read(self) -> None:
        def reads(point: Point) -> TinyModel:
            raise DataError("no data at /nowhere")

        with pytest.raises(UserError, match="no data at /nowhere"):
            plan(tiny_sweep(model=reads))

    @pytest.mark.parametrize(
        ("task", "problems"),
        [(TinyTask, ()), (MetricsFromData, ("no labels to count",))],
    )
    def test_unreadable_data_do_not_hinder_planning_but_are_told_once(
        self, task: Any, problems: tuple[str, ...]
    ) -> None:
        planned = plan(tiny_sweep(task=task(unreadable=True)))
        assert len(planned.trials) == 3
        unread = "the tiny data set at /nowhere cannot be read"
        assert planned.data_problems == (*problems, unread)

    def test_a_model_without_counts_is_traced(self) -> None:
        trials = plan(tiny_sweep(model=lambda p: Traced(p.width))).trials
        assert [trial.counts.num_params for trial in trials] == [4, 8, 12]


class TestJson:
    def test_it_has_the_documented_shape(self) -> None:
        content = plan(
            tiny_sweep(space=grid(width=[1, 2, 3], unused=[0, 1]), model=impossible_from_two)
        ).to_json()
        [trial] = content["trials"]
        assert {name: trial[name] for name in trial if name != "key"} == {
            "point": {"width": 2, "unused": 0},
            "seed": 0,
            "stratum": "",
            "budget": 3,
            "num_params": 12,
            "flops_per_example": 24,
            "train_flops_per_example": 72,
            "train_memory_bytes": 12 * 4 * 4 + 8 * 5 * 4,
        }
        assert content["skipped"][0] == {
            "point": {"width": 1, "unused": 0},
            "reason": "width must be a positive multiple of heads; got width=1, heads=2",
        }
        assert (content["sweep"], content["preset"], content["merged"]) == ("tiny", "quick", 1)
        assert content["totals"] == {
            "trials": 1,
            "points": 1,
            "skipped": 4,
            "merged": 1,
            "min_params": 12,
            "max_params": 12,
            "max_train_memory_bytes": 352,
            "budget": 3,
        }

    def test_it_survives_the_trip_through_text(self) -> None:
        content = plan(tiny_sweep(space=grid(width=[1], betas=[(0.9, 0.99)], x=[None]))).to_json()
        text = json.dumps(content, allow_nan=False)
        assert json.loads(text)["trials"][0]["point"] == {
            "width": 1,
            "betas": [0.9, 0.99],
            "x": None,
        }
