"""Checks that task, model, device and libraries have what a recipe asks for."""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from hsweep.design.budget import Budget
from hsweep.design.recipe import Recipe
from hsweep.design.trial import Resources
from hsweep.errors import UserError
from hsweep.planning.identity import content_hash
from models.base import AnyModelConfig
from tasks.base import Task

_OF_TASKS: Final = ("label_smoothing", "mixup", "cutmix")
"""Fields of a recipe that are settings of the task."""
_BUILT_IN: Final = ("adamw", "sgd")


def with_task_settings(task: Task, recipe: Recipe) -> tuple[Task, Recipe]:
    """Move the recipe's settings of the task from the recipe to the task; return both.

    So a setting given in the recipe or in the task makes the same trial.

    Raises:
        UserError: the task has no such setting.
        ValueError: the task refuses the value.
    """
    values = {name: getattr(recipe, name) for name in _OF_TASKS}
    values = {name: value for name, value in values.items() if value is not None}
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
    if recipe.optimizer not in _BUILT_IN or recipe.optimizer_args:
        optimizer = ("optimizer", recipe.optimizer, content_hash(recipe.optimizer_args))
        once(optimizer, lambda: _check_optimizer(recipe))
    if recipe.layer_decay is not None:
        once(("layers", content_hash(model)), lambda: _check_layers(model))


def _check_optimizer(recipe: Recipe) -> None:
    from hsweep.training.optimizer_check import check_optimizer

    check_optimizer(recipe)


def _check_layers(model: AnyModelConfig) -> None:
    from hsweep.training.layers import layers_of
    from models.meta_build import without_numbers

    with without_numbers():
        layers_of(model.build())
