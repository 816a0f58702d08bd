"""The recipes of a study's trials on record, each once, by its part of their keys."""

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

from hsweep.design.recipe import BETAS_ARE, Recipe
from hsweep.design.trial import Trial
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import TrialRow

_META: Final = "recipe:"
_PART: Final = "recipe"


def recipe_metas(trials: Iterable[Trial]) -> dict[str, str]:
    """Return the metas that record the recipes of trials; a user's own training has none."""
    recipes = {trial.parts[_PART]: trial.recipe for trial in trials if _PART in trial.parts}
    return {f"{_META}{name}": json.dumps(in_force(recipe)) for name, recipe in recipes.items()}


def recorded_recipe(journal: JournalReader, trial: TrialRow) -> dict[str, Any]:
    """Return the fields in force of a trial's recipe; empty where it follows none."""
    text = journal.meta(f"{_META}{trial.parts[_PART]}") if _PART in trial.parts else None
    recipe: dict[str, Any] = json.loads(text) if text is not None else {}
    return recipe


def in_force(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe that have an effect, given its other fields, by name."""
    idle = {
        "betas": recipe.optimizer not in BETAS_ARE,
        "decay_fraction": recipe.schedule != "wsd",
        "warmup_lr": not (recipe.warmup_steps or recipe.warmup_fraction),
        "optimizer_args": not recipe.optimizer_args,
    }
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    return {
        name: value for name, value in values.items() if value is not None and not idle.get(name)
    }
