"""The names that a sweep file uses, for which ``hsweep`` is the place to look."""

from hsweep.design.budget import Budget, epochs, seconds, steps
from hsweep.design.domain import tuned
from hsweep.design.early_stopping import Asha, SizeBand
from hsweep.design.question import Lean, Transition, lean
from hsweep.design.recipe import Recipe
from hsweep.design.search import grid_search, optuna_search, random_search
from hsweep.design.sources import (
    csv_file,
    json_lines,
    reports,
    stdout,
    tensorboard,
    trainer_state,
)
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
from hsweep.design.user_training import Command, Cost, command
from hsweep.errors import UserError
from hsweep.training.run import Run, StopTrial
from tasks.base import Metric

__all__ = [
    "Asha",
    "Budget",
    "Command",
    "Cost",
    "Lean",
    "Metric",
    "Point",
    "Preset",
    "Recipe",
    "Resources",
    "Run",
    "SizeBand",
    "Space",
    "StopTrial",
    "Sweep",
    "Transition",
    "UserError",
    "choice",
    "command",
    "csv_file",
    "epochs",
    "grid",
    "grid_search",
    "int_range",
    "json_lines",
    "lean",
    "log_uniform",
    "optuna_search",
    "preset",
    "random_search",
    "reports",
    "seconds",
    "stdout",
    "steps",
    "tensorboard",
    "trainer_state",
    "tuned",
    "uniform",
    "zipped",
]
