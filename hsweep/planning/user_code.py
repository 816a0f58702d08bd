"""Calls a sweep's functions and objects, which may fail in any way, be of a wrong type, or ask for
what task, model, device or libraries do not have."""

import contextlib
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hsweep.design.budget import Budget
from hsweep.design.function_model import FunctionModel, check_function, is_module, note_as_new
from hsweep.design.metric_names import scale_of
from hsweep.design.point import Point
from hsweep.design.recipe import BETAS_ARE, Recipe
from hsweep.design.scales import Goal, Scale
from hsweep.design.sweep import RESERVED_AXES, Sweep, resolve
from hsweep.design.trial import Resources
from hsweep.design.user_training import Cost
from hsweep.errors import UserError, check_choice, format_error, shown, unknown_name, user_frame
from hsweep.planning.identity import content_hash
from models.base import AnyModelConfig, Counts, ModelConfig, TraceableConfig
from models.conditioning import is_probed
from models.counts import counts_of
from tasks.base import DataError, Exemplary, Learnable, Task

if TYPE_CHECKING:
    from torch import nn

_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "task": ((Task,), "a task (see tasks.base.Task)"),
    "model": (
        (ModelConfig, TraceableConfig),
        "an nn.Module, or a model configuration: a frozen dataclass with build(), and counts() or "
        "example_input() (see models.base)",
    ),
    "recipe": ((Recipe,), "a Recipe"),
    "resources": ((Resources,), "a Resources"),
}
_VALUES: Final = {"goal": ("min", "max"), "scale": ("error", "accuracy", "loss", "count")}
"""What a metric may declare."""

_OF_TASKS: Final = ("label_smoothing", "mixup", "cutmix")
"""Fields of a recipe that are settings of the task."""

Result = TypeVar("Result")


class ImpossiblePointError(Exception):
    """A point cannot be trained: a sweep's function declared it so, or its shape cannot be built.

    Attributes:
        failure: what to say where no point can be built, so that the mistake is no shape's; empty
            where the function declared its point impossible.
    """

    def __init__(self, reason: str, failure: str = "") -> None:
        super().__init__(reason)
        self.failure = failure


def evaluated(part: str, value: Any, point: Point) -> Any:
    """Evaluate a sweep's function at a point.

    Raises:
        ImpossiblePointError: the function raised ValueError; or it builds a shape, and raised any
            error.
        UserError: the function failed in another way.
    """
    failure = f"the sweep's {part} function failed at {dict(point)}"
    builds = part in ("model", "describe")
    return _attempted(
        lambda: resolve(value, point), failure, impossible=Exception if builds else ValueError
    )


def call_user_code(part: str, function: Callable[[], Result]) -> Result:
    """Call a function that uses a sweep's own objects.

    Raises:
        DataError: raised by a task.
        UserError: the objects failed in another way.
    """
    return _attempted(function, f"the sweep's {part} cannot be used")


def count_model(count: Callable[[Any], Result], model: Any) -> Result:
    """Call a function that builds or counts a model.

    Raises:
        ImpossiblePointError: the model raised an error.
        UserError: the model ended the program.
    """
    failure = f"the model {shown(model)} cannot be built or counted"
    advice = (
        ". If its shape is impossible, leave it out by .where(lambda point: ...), or let the "
        "sweep's model function raise ValueError: the plan then skips the point and says why"
    )
    return _attempted(lambda: count(model), failure, advice, impossible=Exception)


def _attempted(
    function: Callable[[], Result],
    failure: str,
    advice: str = "",
    *,
    impossible: type[Exception] | None = None,
) -> Result:
    try:
        return function()
    except UserError:
        raise
    except DataError as error:
        if impossible is None:
            raise
        raise UserError(f"the task's data cannot be used: {error}") from error
    except (Exception, SystemExit, GeneratorExit) as error:
        failed = f"{failure}: {format_error(error)}{advice}"
        if impossible is not None and isinstance(error, ValueError):
            raise ImpossiblePointError(str(error)) from error
        if impossible is not None and isinstance(error, impossible):
            place = f" at {where}" if (where := user_frame(error)) else ""
            reason = (
                f"{format_error(error)}{place}; .where(lambda point: ...) leaves such points out"
            )
            raise ImpossiblePointError(reason, failed) from error
        raise UserError(failed) from error


def check_kinds(**values: Any) -> None:
    """Refuse values of a wrong type from a sweep's functions, with a UserError that names the right
    one."""
    for part, value in values.items():
        kinds, is_a = _KINDS[part]
        if isinstance(value, type) or not isinstance(value, kinds):
            raise UserError(
                f"the sweep's {part} must be {is_a}, or a function of the point that returns one; "
                f"got {shown(value)}"
            )


def with_deciding_metric(sweep: Sweep, task: Learnable) -> Sweep:
    """Return the sweep with the task's main metric where it names none, and with the goal and the
    question's scale that the metric has where it gives none.

    Raises:
        UserError: the sweep leaves a setting to the task's data, and these cannot be read.
    """
    question = sweep.question
    if sweep.metric and sweep.goal and (question is None or question.scale is not None):
        return sweep
    try:
        metrics = call_user_code("task", lambda: tuple(task.metrics))
    except DataError as error:
        raise UserError(
            f"which metrics task {task.name!r} has depends on its data, and these cannot be read: "
            f"{error}"
        ) from error
    if not metrics:
        raise UserError(f"task {task.name!r} has no metrics; it declares them, the main one first")
    name = sweep.metric or metrics[0].name
    # A name that the task does not have is refused where all of its metrics are checked.
    metric = next((metric for metric in metrics if metric.name == name), metrics[0])
    goal: Goal = sweep.goal or metric.goal
    if question is not None and question.scale is None:
        scale: Scale = scale_of(name, goal) if metric.scale == "count" else metric.scale
        question = question.with_fields(scale=scale)
    return replace(sweep, metric=name, goal=goal, question=question)


def check_metrics(task: Learnable, sweep: Sweep) -> None:
    """Refuse a task that does not measure what the sweep decides by, or whose metrics have the name
    of an axis, of a column or of what the probe measures.

    Raises:
        DataError: what is measured depends on data that cannot be read.
        UserError: with what is wrong.
    """
    metrics = call_user_code(
        "task",
        lambda: {
            str(metric.name): {"goal": metric.goal, "scale": metric.scale}
            for metric in task.metrics
        },
    )
    if sweep.metric not in metrics:
        raise unknown_name(f"metric of task {task.name!r}", sweep.metric, metrics)
    for name, declared in metrics.items():
        metric = f"metric {name!r} of task {task.name!r}"
        for field, value in declared.items():
            check_choice(f"the {field} of {metric}", value, _VALUES[field])
        for is_taken, what in (
            (name in sweep.space.axes, "an axis"),
            (name in RESERVED_AXES | {"time"}, "a column that every table has"),
            (sweep.probe is not None and is_probed(name), "what the sweep's probe measures"),
        ):
            if is_taken:
                raise UserError(f"{metric} has the name of {what}; call one of them otherwise")


def described_cost(description: Any) -> tuple[Counts, int | None]:
    """Return the counts and the training memory (bytes; None: not known) that a sweep's
    ``describe`` returned; UserError if it returned something else."""
    if isinstance(description, Counts):
        return description, None
    if isinstance(description, (ModelConfig, TraceableConfig)):
        return counts_of(description), None
    if hasattr(description, "parameters") and not isinstance(description, type):
        description = sum(weights.numel() for weights in description.parameters())
    if hasattr(description, "__index__"):
        description = Cost(description)
    if isinstance(description, Cost):
        flops = description.flops_per_example or 0
        return Counts({"all": description.num_params}, flops, 0), description.train_memory_bytes
    raise UserError(
        "describe must return a number of parameters, a Cost, a model configuration, an nn.Module "
        f"or models.base.Counts; got {shown(description)}"
    )


def too_few_tokens(task: Task, model: AnyModelConfig) -> str:
    """Return the error of a model with too few tokens for a task; empty for any other."""
    needed, size = getattr(task, "vocab_size", None), getattr(model, "vocab_size", None)
    if type(needed) is not int or type(size) is not int or size >= needed:
        return ""
    return (
        f"the model's vocab_size {size:,} is below the {needed:,} tokens of task {task.name!r}, "
        f"whose largest id is {needed - 1:,}; raise it to at least {needed:,}"
    )


def with_task_settings(task: Task, recipe: Recipe) -> tuple[Task, Recipe]:
    """Move the recipe's settings of the task from the recipe to the task; return both.

    So a setting given in the recipe or in the task makes the same trial.

    Raises:
        UserError: the task has no such setting.
        ValueError: the task refuses the value.
    """
    settings = ((name, getattr(recipe, name)) for name in _OF_TASKS)
    values = {name: value for name, value in settings if value is not None}
    if not values:
        return task, recipe
    has: list[str] = [field.name for field in fields(task)] if is_dataclass(task) else []
    for name, value in values.items():
        if name not in has:
            raise UserError(
                f"the recipe says {name}={value:g}, and the task {task.name!r} has no such "
                f"setting; leave it out, or give the task's class a field {name!r} that it trains "
                "by"
            )
    result: Any = replace(task, **values)  # type: ignore[type-var]
    return result, replace(recipe, label_smoothing=None, mixup=None, cutmix=None)


def check_recipe(
    recipe: Recipe,
    model: AnyModelConfig,
    resources: Resources,
    budget: Budget,
    once: Callable[[Hashable, Callable[[], None]], None],
) -> None:
    """Refuse a recipe that cannot be followed; torch is imported where that has to be tried.

    Args:
        once: runs work unless it has run under the same name before.

    Raises:
        UserError: with what is missing.
    """
    if recipe.warmup_steps and budget.unit == "seconds":
        raise UserError(
            f"warmup_steps={recipe.warmup_steps} counts steps, and how many a budget of "
            f"{budget} holds is not known beforehand: give warmup_fraction, or a budget in "
            "epochs or steps"
        )
    if budget.unit == "steps" and recipe.warmup_steps >= budget.rungs[0].amount:
        raise UserError(
            f"warmup_steps={recipe.warmup_steps} leave nothing of a budget of "
            f"{budget.rungs[0]}: give fewer"
        )
    if recipe.precision == "tf32" and not resources.gpus:
        raise UserError(
            "precision='tf32' is how CUDA devices multiply, and the trial trains on the CPU, "
            "where it would be float32: set gpus=1, or precision='float32'"
        )
    if recipe.optimizer not in BETAS_ARE or recipe.optimizer_args:
        optimizer = ("optimizer", recipe.optimizer, content_hash(recipe.optimizer_args))
        from hsweep.training.optimizers import check_optimizer

        once(optimizer, lambda: check_optimizer(recipe))
    if recipe.layer_decay is not None:
        once(("layers", content_hash(model)), lambda: _check_layers(model))


def _check_layers(model: AnyModelConfig) -> None:
    from hsweep.training.optimizers import layers_of
    from models.meta_build import without_numbers

    with without_numbers():
        layers_of(model.build())


def model_at(value: Any, point: Point, task: Any) -> Any:
    """Return a sweep's ``model`` at a point; a module that its function builds as a
    ``FunctionModel``, with the cost of a forward pass over what ``task`` gives as
    ``example_input``.

    The module is built on torch's meta device where that works, without memory for its weights.

    Raises:
        UserError: a module in place of a function, or a function whose code cannot be found.
    """
    if is_module(value):
        name = type(value).__name__
        raise UserError(
            f"the sweep's model is a {name} that is built already, and every trial needs a new "
            f"one; give a function of the point that builds it, as in model=lambda p: {name}(...)"
        )
    if not callable(value) or hasattr(value, "__dataclass_fields__"):
        return value
    module, read = _built_without_numbers(value, point)
    if not is_module(module):
        return module
    check_function(value)
    note_as_new(module)
    from models.tracing import structure_of

    return FunctionModel(
        value, point, read, structure_of(module), type(module).__name__, _module_cost(module, task)
    )


def _built_without_numbers(function: Callable[[Point], Any], point: Point) -> tuple[Any, Any]:
    import torch

    from models.meta_build import without_numbers

    with torch.random.fork_rng(devices=[]):
        # What needs values cannot be built without; what fails otherwise fails again, and says why.
        with contextlib.suppress(Exception), without_numbers():
            return _read_by(function, point)
        return _read_by(function, point)


def _module_cost(module: "nn.Module", task: Any) -> Counts:
    """Return a module's number of parameters and, if it can be traced, the cost of a forward
    pass."""
    import torch

    from models.tracing import mapped_tensors, module_counts, params_of

    params = params_of(module)
    counts = Counts(params, 0, 0)
    if not isinstance(task, Exemplary):
        return counts
    device = next((weights.device for weights in module.parameters()), torch.device("cpu"))
    try:
        # Two examples, since a batch norm has no variance of one.
        example = mapped_tensors(
            task.example_input(), lambda tensor: torch.cat((tensor, tensor)).to(device)
        )
        with torch.random.fork_rng(devices=[]):
            return module_counts(module.train(), example, examples=2)
    except Exception:  # what it computes may need values; and the data may not be there
        return counts


def _read_by(function: Callable[[Point], Any], point: Point) -> tuple[Any, dict[str, Any]]:
    """Return the value of a function at a point, and the axes that it reads, with their values: all
    axes where the value holds the point, which may be read later."""
    values = _WatchedValues(dict(point))
    read, holder = values.read, weakref.ref(values)
    watched = Point({})
    object.__setattr__(watched, "_values", values)
    del values
    built = function(watched)
    del watched
    axes = set(point) if holder() is not None else read
    return built, {axis: point[axis] for axis in point if axis in axes}


class _WatchedValues(Mapping[str, Any]):
    """The axis values of a point; records which of them are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self.read: set[str] = set()

    def __getitem__(self, axis: str) -> Any:
        self.read.add(axis)
        return self._values[axis]

    def __iter__(self) -> Iterator[str]:
        self.read.update(self._values)
        return iter(self._values)

    def __len__(self) -> int:
        self.read.update(self._values)
        return len(self._values)
