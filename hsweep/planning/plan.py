"""Every trial before any trains: keys, counts, memory, what is impossible and what is double."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from inspect import getattr_static
from typing import Any, Final, TypeVar

from hsweep.design.domain import AxisValue
from hsweep.design.early_stopping import PROTECTED
from hsweep.design.question import Lean
from hsweep.design.recipe import Recipe
from hsweep.design.space import Point
from hsweep.design.sweep import RESERVED_AXES, Sweep, resolve
from hsweep.design.trial import Resources, Trial
from hsweep.errors import UserError, shown, told, unknown_name
from hsweep.planning.identity import content_hash, describe, key_parts, trial_key
from hsweep.seeding import replicate_seeds
from models.base import AnyModelConfig, Counts, ModelConfig, TraceableConfig
from models.conditioning import is_probed
from models.counts import checked_build, counts_of, train_memory_bytes
from tasks.base import DataError, Task

_MAX_CHECKED_BUILDS: Final = 300
UNREAD_DATA: Final = "unread"
_MAX_LOOKED_AT: Final = 1_000_000
MAX_TRIALS: Final = 100_000
"""More could not be run, shown or told apart; a slip of the keyboard asks for them."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a planned trial may cost; None does not bound.

    Attributes:
        max_params, min_params: parameters.
        max_memory: estimated peak training memory, bytes.
        max_flops: forward operations for one example.
    """

    max_params: int | None = None
    min_params: int | None = None
    max_memory: int | None = None
    max_flops: int | None = None

    def violation(self, counts: Counts, memory: int) -> str | None:
        """Return why a trial is out of bounds, None if it is not."""
        checks = (
            ("num_params", counts.num_params, self.min_params, self.max_params, "params"),
            ("train_memory_bytes", memory, None, self.max_memory, "memory"),
            ("flops_per_example", counts.forward_flops, None, self.max_flops, "flops"),
        )
        for name, value, low, high, option in checks:
            if high is not None and value > high:
                return f"{name} {value:,} is above --max-{option} {high:,}"
            if low is not None and value < low:
                return f"{name} {value:,} is below --min-{option} {low:,}"
        return None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A point that is not run, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a study will run.

    Attributes:
        trials: in the order of the space, replicates of a point together.
        skipped: impossible points and those outside the limits.
        merged: trials that were another one again and were dropped.
        data_problems: why data could not be read; a study cannot start while there are any.
        is_adaptive: the points are proposed during the run; ``trials`` are random draws for
            orientation.
    """

    sweep: Sweep
    preset: str
    study_seed: int
    trials: tuple[Trial, ...]
    skipped: tuple[Skipped, ...]
    merged: int
    data_problems: tuple[str, ...] = ()
    is_adaptive: bool = False

    def totals(self) -> dict[str, int | float]:
        """Return sums and extremes over the trials."""
        params = [trial.counts.num_params for trial in self.trials]
        memory = [trial.train_memory_bytes for trial in self.trials]
        return {
            "trials": len(self.trials),
            "points": len({content_hash(dict(trial.point)) for trial in self.trials}),
            "skipped": len(self.skipped),
            "merged": self.merged,
            "min_params": min(params, default=0),
            "max_params": max(params, default=0),
            "max_train_memory_bytes": max(memory, default=0),
            "budget": self.sweep.budget.amount * len(self.trials),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON content."""
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
                    **cost_columns(trial),
                }
                for trial in self.trials
            ],
            "skipped": [{"point": dict(s.point), "reason": s.reason} for s in self.skipped],
            "merged": self.merged,
            "data_problems": list(self.data_problems),
            "totals": self.totals(),
        }


def cost_columns(trial: Trial) -> dict[str, int]:
    """Return a trial's costs under the names that tables and trackers use."""
    return {
        "num_params": trial.counts.num_params,
        "flops_per_example": trial.counts.forward_flops,
        "train_flops_per_example": trial.counts.train_flops,
        "train_memory_bytes": trial.train_memory_bytes,
    }


@dataclass(slots=True)
class Planner:
    """Turns points into trials, counting each distinct model and reading each data set once."""

    sweep: Sweep
    study_seed: int
    limits: Limits = field(default_factory=Limits)
    skipped: list[Skipped] = field(default_factory=list)
    merged: int = 0
    data_problems: dict[str, None] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)
    _counts: dict[str, Counts] = field(default_factory=dict)
    _fingerprints: dict[str, str] = field(default_factory=dict)
    _num_planned: int = 0

    @classmethod
    def following(cls, plan: "Plan", limits: Limits) -> "Planner":
        """Return a planner that goes on after ``plan`` and never plans one of its trials again."""
        planner = cls(plan.sweep, plan.study_seed, limits)
        planner._keys.update(trial.key for trial in plan.trials)
        planner._num_planned = 1 + max((trial.ordinal for trial in plan.trials), default=-1)
        return planner

    def plan_point(self, point: Point, replicates: Iterable[int] | None = None) -> list[Trial]:
        """Return the trials of one point, one a replicate; none if it is skipped or a double.

        Args:
            point: the axis values.
            replicates: their numbers; None for those of the sweep.

        Raises:
            UserError: the sweep's own functions cannot be used.
        """
        try:
            task = _build("task", self.sweep.task, point)
            model = _build("model", self.sweep.model, point)
            recipe = _build("recipe", self.sweep.recipe, point)
            resources = _build("resources", self.sweep.resources, point)
        except _ImpossiblePointError as impossible:
            self.skipped.append(Skipped(point, str(impossible)))
            return []
        _check_kinds(task, model, recipe, resources)
        try:
            counts = self._counts_of(model)
        except _ImpossiblePointError as impossible:
            self.skipped.append(Skipped(point, str(impossible)))
            return []
        self._check_metrics(task)
        memory = train_memory_bytes(
            counts,
            batch_size=recipe.batch_size,
            optimizer=recipe.optimizer,
            precision=recipe.precision,
        )
        violation = self.limits.violation(counts, memory)
        if violation is not None:
            self.skipped.append(Skipped(point, violation))
            return []
        stopping = self.sweep.early_stopping
        stratum = (
            _asked_of("early stopping", lambda: stopping.stratum(point, counts.num_params))
            if stopping
            else ""
        )
        if stopping and self._is_baseline(point):
            stratum = PROTECTED
        trials = []
        for replicate in range(self.sweep.replicates) if replicates is None else replicates:
            seeds = replicate_seeds(self.study_seed, replicate)
            identity: dict[str, Any] = {
                "model": model,
                "task": task,
                "fingerprint": self._fingerprint_of(task),
                "recipe": recipe,
                "budget": self.sweep.budget,
                "seeds": seeds,
            }
            key = _asked_of("model, task or recipe", lambda: trial_key(**identity))  # noqa: B023
            if key in self._keys:
                self.merged += 1
                continue
            self._keys.add(key)
            trials.append(
                Trial(
                    key=key,
                    ordinal=self._num_planned,
                    point=point,
                    replicate=replicate,
                    stratum=stratum,
                    task=task,
                    model=model,
                    recipe=recipe,
                    budget=self.sweep.budget,
                    seeds=seeds,
                    resources=resources,
                    metric=self.sweep.metric,
                    goal=self.sweep.goal,
                    counts=counts,
                    train_memory_bytes=memory,
                    parts=key_parts(**identity),
                )
            )
            self._num_planned += 1
            if self._num_planned > MAX_TRIALS:
                raise _too_many()
        return trials

    def _check_metrics(self, task: Task) -> None:
        try:
            names = _asked_of("task", lambda: [str(metric.name) for metric in task.metrics])
        except DataError as error:  # what is measured depends on the data, which are not there
            self.data_problems[str(error)] = None
            return
        if self.sweep.metric not in names:
            raise unknown_name(f"metric of task {task.name!r}", self.sweep.metric, names)
        for name in names:
            if name in self.sweep.space.axes:
                raise UserError(
                    f"axis {name!r} is also a metric of task {task.name!r}; call the axis otherwise"
                )
            if name in RESERVED_AXES | {"time"}:
                raise UserError(
                    f"metric {name!r} of task {task.name!r} is the name of a column that every "
                    "table has; call the metric otherwise"
                )
            if self.sweep.probe is not None and is_probed(name):
                raise UserError(
                    f"metric {name!r} of task {task.name!r} is also what the sweep's probe "
                    "measures; call the metric otherwise, or leave the probe out"
                )

    def _is_baseline(self, point: Point) -> bool:
        """Whether everything will be compared with this point."""
        question = self.sweep.question
        return isinstance(question, Lean) and all(
            point.get(axis) == value for axis, value in question.baseline
        )

    def _counts_of(self, model: AnyModelConfig) -> Counts:
        identity = content_hash(model)
        if identity not in self._counts:
            if isinstance(model, ModelConfig) and len(self._counts) < _MAX_CHECKED_BUILDS:
                # Counts come from structure; building without memory proves them. A large plan
                # proves its first few hundred, since the rest differ in their numbers alone.
                _told(checked_build, model)
            self._counts[identity] = _told(counts_of, model)
        return self._counts[identity]

    def _fingerprint_of(self, task: Task) -> str:
        identity = content_hash(task)
        if identity not in self._fingerprints:
            try:
                self._fingerprints[identity] = _asked_of("task", task.fingerprint)
            except DataError as error:
                self.data_problems[str(error)] = None
                self._fingerprints[identity] = UNREAD_DATA
        return self._fingerprints[identity]


class _ImpossiblePointError(Exception):
    """A sweep's function declared its point impossible."""


def _build(what: str, value: Any, point: Point) -> Any:
    """Evaluate one of a sweep's functions; ValueError means an impossible point."""
    try:
        return resolve(value, point)
    except UserError:
        raise
    except DataError as error:
        raise UserError(str(error)) from error
    except ValueError as error:
        raise _ImpossiblePointError(str(error)) from error
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the sweep's {what} function failed at {dict(point)}: {told(error)}"
        ) from error


def _too_many() -> UserError:
    return UserError(
        f"a study has at most {MAX_TRIALS:,} trials; restrict its space, its replicates or the "
        "number of points it draws"
    )


def _asked_of(what: str, ask: Callable[[], Result]) -> Result:
    """Ask something of a sweep's own objects, which may fail in any way."""
    try:
        return ask()
    except (UserError, DataError):
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"the sweep's {what} cannot be used: {told(error)}") from error


def _told(count: Callable[[Any], Result], model: AnyModelConfig) -> Result:
    try:
        return count(model)
    except ValueError as error:
        raise _ImpossiblePointError(str(error)) from error
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the model {shown(model)} cannot be built or counted: {told(error)}. If "
            "its shape is impossible, let the sweep's model function raise ValueError: the plan "
            "then skips the point and says why"
        ) from error


def _check_kinds(task: Any, model: Any, recipe: Any, resources: Any) -> None:
    for what, value, kinds, is_a in (
        ("task", task, (Task,), "a task (see tasks.base.Task)"),
        (
            "model",
            model,
            (ModelConfig, TraceableConfig),
            "a model configuration: a frozen dataclass with build(), and counts() or "
            "example_input() (see models.base)",
        ),
        ("recipe", recipe, (Recipe,), "a Recipe"),
        ("resources", resources, (Resources,), "a Resources"),
    ):
        if not any(_is_a(value, kind) for kind in kinds):
            raise UserError(
                f"the sweep's {what} must be {is_a}, or a function of the point that returns one; "
                f"got {shown(value)}"
            )


def _is_a(value: Any, kind: type) -> bool:
    """Whether ``value`` is of the class ``kind``, or has every attribute of the protocol ``kind``.

    Unlike isinstance with a protocol it evaluates no property: a task's metrics may need its data.
    """
    if not getattr(kind, "_is_protocol", False):
        return isinstance(value, kind)
    if isinstance(value, type):
        return False
    missing = object()
    return all(
        getattr_static(value, name, missing) is not missing
        for name in dir(kind)
        if not name.startswith("_")
    )


def make_plan(sweep: Sweep, *, preset: str, study_seed: int, limits: Limits | None = None) -> Plan:
    """Plan every trial of a sweep.

    Raises:
        UserError: the space or the sweep's functions cannot be used, or no trial is left.
    """
    planner = Planner(sweep, study_seed, limits or Limits())
    points = list(_points(sweep, study_seed))
    # Said at once where no doubles and no limits could bring so many down to what is allowed.
    if sweep.replicates > MAX_TRIALS or len(points) * sweep.replicates > _MAX_LOOKED_AT:
        raise _too_many()
    trials = [trial for point in points for trial in planner.plan_point(point)]
    if not trials:
        first = planner.skipped[0] if planner.skipped else None
        why = f"; for example {dict(first.point)}: {first.reason}" if first else ""
        raise UserError(
            f"the plan of {sweep.name!r} has no trial: {len(planner.skipped)} points were skipped"
            f"{why}"
        )
    return Plan(
        sweep=sweep,
        preset=preset,
        study_seed=study_seed,
        trials=tuple(trials),
        skipped=tuple(planner.skipped),
        merged=planner.merged,
        data_problems=tuple(planner.data_problems),
        is_adaptive=sweep.search.method == "optuna",
    )


def _points(sweep: Sweep, study_seed: int) -> Iterable[Point]:
    def listed(produce: Callable[[], Iterable[Point]]) -> Sequence[Point]:
        try:
            return list(produce())
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"the sweep's space cannot be listed: {told(error)}") from error

    if sweep.search.method == "grid":
        return listed(sweep.space.points)
    assert sweep.search.num_points is not None
    num_points = min(sweep.search.num_points, MAX_TRIALS + 1)
    return listed(lambda: sweep.space.sample(num_points, study_seed))


def apply_settings(
    sweep: Sweep, preset_name: str | None, settings: Sequence[tuple[str, Sequence[AxisValue]]]
) -> Sweep:
    """Return the sweep's variant with single axes or budgets replaced."""
    chosen = sweep.with_preset(preset_name)
    for name, values in settings:
        chosen = chosen.with_setting(name, values)
    return chosen
