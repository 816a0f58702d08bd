"""The names that a sweep file uses, for which ``hsweep`` is the place to look."""

from hsweep.design.budget import Budget, epochs, seconds, steps
from hsweep.design.early_stopping import Asha, SizeBand
from hsweep.design.question import Lean, Transition, lean
from hsweep.design.recipe import Recipe
from hsweep.design.search import grid_search, optuna_search, random_search
from hsweep.design.space import (
    Point,
    Space,
    choice,
    grid,
    int_range,
    log_uniform,
    uniform,
    zipped,
)
from hsweep.design.sweep import Preset, Sweep, preset
from hsweep.design.trial import Resources
from hsweep.errors import UserError

__all__ = [
    "Asha",
    "Budget",
    "Lean",
    "Point",
    "Preset",
    "Recipe",
    "Resources",
    "SizeBand",
    "Space",
    "Sweep",
    "Transition",
    "UserError",
    "choice",
    "epochs",
    "grid",
    "grid_search",
    "int_range",
    "lean",
    "log_uniform",
    "optuna_search",
    "preset",
    "random_search",
    "seconds",
    "steps",
    "uniform",
    "zipped",
]
