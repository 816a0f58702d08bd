"""Plans every trial before any trains: keys, counts, memory, impossible points, duplicates."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

from hsweep.design.early_stopping import PROTECTED
from hsweep.design.function_model import FunctionModel
from hsweep.design.point import Point
from hsweep.design.recipe import Recipe
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Resources, Trial, cost_columns
from hsweep.design.user_training import TRAINING_PARTS, Command, UserTraining
from hsweep.errors import UserError, format_error
from hsweep.planning.code import code_of, code_of_script, named_code, training_code
from hsweep.planning.commands import check_commands
from hsweep.planning.identity import Accepted, content_hash, describe, key_of, parts_of
from hsweep.planning.options import Limits, violation
from hsweep.planning.user_code import (
    ImpossiblePointError,
    call_user_code,
    check_kinds,
    check_metrics,
    check_recipe,
    count_model,
    described_cost,
    evaluated,
    model_at,
    too_few_tokens,
    with_deciding_metric,
    with_task_settings,
)
from hsweep.seeding import Seeds, replicate_seeds
from models.base import AnyModelConfig, Counts, ModelConfig
from models.counts import checked_build, counts_of, train_memory_bytes
from models.meta_build import build_on_meta
from tasks.base import DataError, Learnable, Metric

_MAX_CHECKED_BUILDS: Final = 300
_MAX_HASHES: Final = 256
_BUILT: Final = ("model", "task")
_UNREAD: Final = "unread"
_MAX_LOOKED_AT: Final = 1_000_000
"""Trials of all points, of which doubles and limits may leave few."""
MAX_TRIALS: Final = 100_000
"""The most trials of a study; a plan with more comes from a typing error."""

T = TypeVar("T")
_Setup: TypeAlias = tuple[
    Learnable, AnyModelConfig | None, Recipe, Resources, Counts | None, int | None
]
"""The task, model, recipe and resources of a point's trials, and their costs: counts and bytes of
memory."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The trials that a study will run.

    Attributes:
        trials: in the order of the space, replicates of a point together, the shorter budgets of
            each before the longer ones.
        skipped: impossible points and those outside the limits, each with the reason.
        merged: number of trials dropped as duplicates of others.
        data_problems: why data could not be read; a study cannot start while there are any.
        sweep_module: name of the imported sweep file; empty for a sweep that is in none.
        accepted: code that is taken for other code in keys.
        limits: bounds on what a trial may cost.
    """

    sweep: Sweep
    preset: str
    study_seed: int
    trials: tuple[Trial, ...] = ()
    skipped: Mapping[Point, str] = field(default_factory=dict)
    merged: int = 0
    data_problems: tuple[str, ...] = ()
    sweep_module: str = ""
    accepted: Accepted = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)

    @property
    def is_adaptive(self) -> bool:
        """Whether points are proposed during the run; then ``trials`` are random draws for
        orientation."""
        return self.sweep.search.method == "optuna"

    @property
    def declared_metrics(self) -> tuple[Metric, ...]:
        """The metrics that the task, or a user's training, declares; none where that depends on
        data that are not there."""
        if self.sweep.train is not None:  # The scale of an undeclared metric is a guess.
            return tuple(self.sweep.metrics)
        try:
            return tuple(self.trials[0].task.metrics)
        except DataError:
            return ()

    def totals(self) -> dict[str, int | None]:
        params = [trial.counts.num_params for trial in self.trials if trial.counts is not None]
        memory = [t.train_memory_bytes for t in self.trials if t.train_memory_bytes is not None]
        # The replicates of a point share it.
        points = {id(trial.point): trial.point for trial in self.trials}.values()
        return {
            "trials": len(self.trials),
            "points": len({content_hash(dict(point)) for point in points}),
            "skipped": len(self.skipped),
            "merged": self.merged,
            "min_params": min(params, default=None),
            "max_params": max(params, default=None),
            "max_train_memory_bytes": max(memory, default=None),
            "budget": sum(trial.units_to_train for trial in self.trials),
        }

    @property
    def why_not_shared(self) -> str:
        """Why a budget of the ladder does not go on from the shorter one; empty if all do."""
        for trial in self.trials:
            if trial.previous and not trial.shared:
                interval = f"reports every {trial.budget.report_every} {trial.budget.unit}"
                return trial.length_dependence or (
                    f"{interval} leave none before a shorter budget's decay"
                )
        return ""

    def accepting(self, code: Accepted) -> "Plan":
        """Return the plan with further code taken for other code in its trials' keys."""
        accepted = {**self.accepted, **code}
        keys = {trial.key: key_of(trial.parts, accepted) for trial in self.trials}
        trials: dict[str, Trial] = {}
        for trial in self.trials:
            key, previous = keys[trial.key], keys.get(trial.previous, trial.previous)
            trials.setdefault(key, replace(trial, key=key, previous=previous, ordinal=len(trials)))
        merged = self.merged + len(self.trials) - len(trials)
        return replace(self, trials=tuple(trials.values()), merged=merged, accepted=accepted)

    def to_json(self) -> dict[str, Any]:
        return {
            "sweep": self.sweep.name,
            "preset": self.preset,
            "study_seed": self.study_seed,
            "budget": describe(self.sweep.budget),
            "is_adaptive": self.is_adaptive,
            "trials": [
                {
                    "key": trial.key,
                    "point": dict(trial.point),
                    "seed": trial.replicate,
                    "stratum": trial.stratum,
                    "budget": trial.budget.amount,
                    **cost_columns(trial),
                }
                for trial in self.trials
            ],
            "skipped": [{"point": dict(at), "reason": why} for at, why in self.skipped.items()],
            "merged": self.merged,
            "data_problems": list(self.data_problems),
            "totals": self.totals(),
            "why_not_shared": self.why_not_shared,
        }


@dataclass(slots=True)
class Planner:
    """Adds the trials of points to a plan; counts each distinct model and reads each data set once.

    Attributes:
        trials: those of the plan, and what was added, by key.
        skipped: points without a trial, each with the reason.
        excess: by how much those of them that the search's constraint excludes exceed it.
        merged: number of trials that would repeat others.
        failure: of the first point whose shape failed to be built; empty without one.
    """

    _plan: Plan
    trials: dict[str, Trial] = field(init=False)
    skipped: dict[Point, str] = field(default_factory=dict)
    excess: dict[Point, float] = field(default_factory=dict)
    merged: int = 0
    failure: str = ""
    _data_problems: dict[str, None] = field(init=False)
    _results: dict[Hashable, Any] = field(default_factory=dict)
    _hashes: dict[tuple[int, bool], tuple[Any, str]] = field(default_factory=dict)
    _num_builds: int = 0

    def __post_init__(self) -> None:
        self.trials = {trial.key: trial for trial in self._plan.trials}
        self._data_problems = dict.fromkeys(self._plan.data_problems)

    @property
    def sweep(self) -> Sweep:
        """The sweep, with the metric that its task decides by once a point was planned."""
        return self._plan.sweep

    def whole_plan(self) -> Plan:
        """Return the plan with what was added."""
        trials, problems = tuple(self.trials.values()), tuple(self._data_problems)
        return replace(self._plan, trials=trials, data_problems=problems)

    def plan_point(
        self,
        point: Point,
        replicates: Iterable[int] | None = None,
        amounts: Iterable[int] | None = None,
    ) -> list[Trial]:
        """Add and return the trials of one point, one for each replicate and each budget (the
        sweep's by default) and without duplicates; an empty list if the point is skipped. UserError
        if the sweep's own functions cannot be used."""
        try:
            first = self._any_trial(point)
        except ImpossiblePointError as impossible:
            self.skipped[point] = str(impossible)
            self.failure = self.failure or impossible.failure
            return []
        trials: list[Trial] = []
        budget = self.sweep.budget
        rungs = budget.rungs if amounts is None else [*map(budget.of, sorted(amounts))]
        for replicate in range(self.sweep.replicates) if replicates is None else replicates:
            seeds, hashed_seeds = _seeds_of(self._plan.study_seed, replicate)
            shorter = None
            for rung in rungs:
                parts = {**first.parts, "budget": _hash_of_budget(rung), "seeds": hashed_seeds}
                trial = replace(
                    first,
                    key=key_of(parts, self._plan.accepted),
                    ordinal=len(self.trials),
                    replicate=replicate,
                    budget=rung,
                    seeds=seeds,
                    parts=parts,
                )
                if shorter is not None:
                    shared = trial.shared_with(shorter.budget.amount)
                    trial = replace(trial, previous=shorter.key, shared=shared)
                shorter = trial
                if trial.key in self.trials:
                    self.merged += 1
                    continue
                self.trials[trial.key] = trial
                trials.append(trial)
                if len(self.trials) > MAX_TRIALS:
                    raise _too_many()
        return trials

    def _any_trial(self, point: Point) -> Trial:
        """Return a trial of a point without key, budget and seeds of its own; ImpossiblePointError
        if it cannot be trained, or is outside the limits."""
        is_users = self.sweep.train is not None
        setup = self._trained_by_user(point) if is_users else self._trained_by_loop(point)
        task, model, recipe, resources, counts, memory = setup
        sweep = with_deciding_metric(self.sweep, task)
        self._plan = replace(self._plan, sweep=sweep)
        check = partial(check_metrics, task, sweep)
        self._compute_once(("metrics", self._hash_of(task)), lambda: self._with_data(check, None))
        parts, origin = call_user_code(
            "model, task, recipe or training", lambda: self._parts(point, task, model, recipe)
        )
        trial = Trial(
            key="",
            ordinal=0,
            point=point,
            replicate=0,
            stratum=self._stratum(point, counts),
            task=task,
            model=model,
            recipe=recipe,
            budget=sweep.budget,
            seeds=_seeds_of(self._plan.study_seed, 0)[0],
            resources=resources,
            metric=sweep.metric,
            goal=sweep.direction,
            counts=counts,
            train_memory_bytes=memory,
            parts=parts,
            origin=origin,
        )
        costs = cost_columns(trial)
        if reason := violation(self._plan.limits, costs):
            raise ImpossiblePointError(reason)
        constraint = sweep.search.constraint
        if constraint is not None and (excess := sweep.search.excess(costs)) > 0:
            self.excess[point] = excess
            name, sign, bound = constraint
            raise ImpossiblePointError(
                f"{name} {costs[name]:,} is beyond the search's constraint, {sign} {bound:,.0f}"
            )
        return trial

    def _with_data(self, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of ``work``; ``otherwise``, with the reason in the plan, where the data
        that it depends on cannot be read."""
        try:
            return work()
        except DataError as error:
            self._data_problems[str(error)] = None
            return otherwise

    def _trained_by_loop(self, point: Point) -> _Setup:
        """Return the setup of a point that this project's loop trains."""
        sweep = self.sweep
        task = evaluated("task", sweep.task, point)
        model = evaluated("model", partial(model_at, sweep.model, task=task), point)
        recipe = evaluated("recipe", sweep.recipe, point)
        resources = evaluated("resources", sweep.resources, point)
        check_kinds(task=task, model=model, recipe=recipe, resources=resources)
        task, recipe = call_user_code("recipe", lambda: with_task_settings(task, recipe))
        call_user_code(
            "recipe",
            lambda: check_recipe(recipe, model, resources, sweep.budget, self._compute_once),
        )
        counts = self._compute_once(
            ("counts", self._hash_of(model)), lambda: self._counts_of(model)
        )
        if sweep.keep != "none":
            # A file of weights cannot hold a state that is no tensor.
            from hsweep.training.batches import plain_tensors

            self._compute_once(
                ("weights", type(model)),
                lambda: count_model(
                    lambda it: plain_tensors(build_on_meta(it).state_dict()), model
                ),
            )
        if too_few := call_user_code("task", lambda: too_few_tokens(task, model)):
            raise ImpossiblePointError(too_few)
        memory = None
        # Most of the memory depends on the activations, which may be unknown.
        if not isinstance(model, FunctionModel) or model.cost.activation_elements:
            memory = train_memory_bytes(
                counts,
                batch_size=recipe.at_once or recipe.batch_size,
                optimizer=recipe.optimizer,
                precision=recipe.precision,
                averaged=recipe.ema is not None,
                processes=resources.processes,
            )
        return task, model, recipe, resources, counts, memory

    def _trained_by_user(self, point: Point) -> _Setup:
        """Return the setup of a point that a user's function or command trains."""
        sweep = self.sweep
        resources = evaluated("resources", sweep.resources, point)
        training: UserTraining = self._compute_once("user training", sweep.user_training)
        counts, memory = None, None
        if (describe := sweep.describe) is not None:
            counts, memory = evaluated("describe", lambda at: described_cost(describe(at)), point)
        check_kinds(resources=resources)
        if isinstance(training.train, Command) and resources.spread:
            raise UserError(
                "a command starts on one node, with all that its processes occupy; spread=True is "
                "for a training function, or the training of a task"
            )
        return training, None, Recipe(), resources, counts, memory

    def _stratum(self, point: Point, counts: Counts | None) -> str:
        """Return the group in which trials of a point compete."""
        stopping, question = self.sweep.early_stopping, self.sweep.question
        if stopping is None:
            return ""
        num_params = counts.num_params if counts is not None else None
        stratum = call_user_code(
            "early stopping", lambda: stopping.stratum(point, num_params, question)
        )
        is_protected = question is not None and question.protects(point)
        return PROTECTED if stopping.scouts is None and is_protected else stratum

    def _parts(
        self, point: Point, task: Learnable, model: AnyModelConfig | None, recipe: Recipe
    ) -> tuple[dict[str, str], str]:
        """Return the parts of the key of a point's trials, and their origin (see ``parts_of``)."""
        content: dict[str, Any]
        if isinstance(task, UserTraining):
            content = {"point": dict(point), task.part: task}
            if isinstance(task.train, Command):
                folder = Path(task.folder, task.train.folder)
                # They can depend on the point.
                named = named_code(task.train, folder, point)
                own = self._compute_once(("script", named), lambda: code_of_script(named, folder))
            else:
                own = code_of(task.train, self._plan.sweep_module)
            code = {TRAINING_PARTS[task.part]: own, "training_code": training_code(of_user=True)}
        else:
            content = {"model": model, "task": task, "recipe": recipe}
            code = {
                f"{name}_code": code_of(content[name], self._plan.sweep_module) for name in _BUILT
            }
            code["training_code"] = training_code()
        hashed = partial(self._hash_of, for_key=True)
        data = ("data", self._hash_of(task))
        read = partial(call_user_code, "task", task.fingerprint)
        fingerprint = self._compute_once(data, lambda: self._with_data(read, _UNREAD))
        return parts_of(content, code, fingerprint, hashed)

    def _counts_of(self, model: AnyModelConfig) -> Counts:
        is_checked = isinstance(model, ModelConfig) and not isinstance(model, FunctionModel)
        if is_checked and self._num_builds < _MAX_CHECKED_BUILDS:
            # Counts come from structure; building without memory proves them. A large plan
            # proves its first few hundred, since the rest differ only in their numbers.
            self._num_builds += 1
            count_model(checked_build, model)
        return count_model(counts_of, model)

    def _compute_once(self, name: Hashable, work: Callable[[], T]) -> T:
        """Return the result of ``work``, computed once for each ``name`` and then remembered."""
        if name not in self._results:
            self._results[name] = work()
        return cast(T, self._results[name])

    def _hash_of(self, value: Any, *, for_key: bool = False) -> str:
        """Return the content hash of a value, computed once for a value that points share."""
        entry = self._hashes.get((id(value), for_key))
        if entry is None:
            if len(self._hashes) >= _MAX_HASHES:
                self._hashes.clear()
            # Holding the value keeps its id from going to another value.
            entry = (value, content_hash(value, for_key=for_key))
            self._hashes[id(value), for_key] = entry
        return entry[1]


_hash_of_budget: Final = cache(content_hash)


@cache
def _seeds_of(study_seed: int, replicate: int) -> tuple[Seeds, str]:
    seeds = replicate_seeds(study_seed, replicate)
    return seeds, content_hash(seeds)


def _too_many() -> UserError:
    return UserError(
        f"a study has at most {MAX_TRIALS:,} trials; restrict its space, its replicates or the "
        "number of points it draws"
    )


def make_plan(
    sweep: Sweep,
    *,
    preset: str,
    study_seed: int,
    limits: Limits | None = None,
    sweep_module: str = "",
    accepted: Accepted | None = None,
) -> Plan:
    """Plan every trial of a sweep's variant; UserError if the space or the sweep's functions cannot
    be used, or no trial is left."""
    sweep = sweep.with_tuned_axes()
    if sweep.search.method == "optuna":
        sweep.search.check_sampler(sweep.space)
    draft = Plan(
        sweep,
        preset,
        study_seed,
        sweep_module=sweep_module,
        accepted=accepted or {},
        limits=limits or {},
    )
    planner = Planner(draft)
    points = _points(sweep, study_seed)
    # Refused at once where no doubles and no limits could bring so many down to what is allowed.
    is_sequential = sweep.search.is_sequential
    number = sweep.seeds + (sweep.num_scouts if is_sequential else 0)
    per_point = number * len(sweep.budget.rungs)
    if per_point > MAX_TRIALS or len(points) * per_point > _MAX_LOOKED_AT:
        raise _too_many()
    for point in points:
        if len(planner.trials) < (sweep.search.num_points or len(points)) * per_point:
            planner.plan_point(point, range(number))
    if is_sequential and sweep.question is not None:
        again, more = sweep.question.further_runs(list(planner.trials.values()))
        for point in again:
            planner.plan_point(point, range(number, number + more))
    if not planner.trials:
        if planner.failure:
            raise UserError(planner.failure)
        first = next(iter(planner.skipped.items()), None)
        why = f"; for example {dict(first[0])}: {first[1]}" if first else ""
        raise UserError(
            f"the plan of {sweep.name!r} has no trial: {len(planner.skipped)} points were skipped"
            f"{why}"
        )
    plan = replace(planner.whole_plan(), skipped=planner.skipped, merged=planner.merged)
    check_commands(plan.trials)
    return plan


def _points(sweep: Sweep, study_seed: int) -> Sequence[Point]:
    try:
        if sweep.search.lists_points:
            return list(sweep.space.points())
        assert sweep.search.num_points is not None
        num_points = min(sweep.search.num_points, MAX_TRIALS + 1)
        if num_points > MAX_TRIALS and not sweep.space.is_finite:
            raise _too_many()
        first = [] if sweep.question is None else sweep.question.proposals(sweep.space)
        drawn = sweep.space.sample(num_points, study_seed)
        return list(dict.fromkeys([*first, *drawn]))[:num_points]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the sweep's space cannot be listed: {format_error(error)}") from error
