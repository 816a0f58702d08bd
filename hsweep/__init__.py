"""How many heads, how deep, how wide does my transformer need? Sweeps with evidence.

A sweep file needs nothing but the names below, a task from ``tasks`` and a model from ``models``.
"""

from hsweep.workspace import pin_imports

# Before anything else: the packages imported next must be this installation's, even in a folder
# that has its own `models` or `tasks`.
pin_imports()

from hsweep.design.budget import Budget, epochs, seconds, steps  # noqa: E402
from hsweep.design.early_stopping import Asha, SizeBand  # noqa: E402
from hsweep.design.question import Lean, Transition, lean  # noqa: E402
from hsweep.design.recipe import Recipe  # noqa: E402
from hsweep.design.search import grid_search, optuna_search, random_search  # noqa: E402
from hsweep.design.space import (  # noqa: E402
    Point,
    Space,
    choice,
    grid,
    int_range,
    log_uniform,
    uniform,
    zipped,
)
from hsweep.design.sweep import Preset, Sweep, preset  # noqa: E402
from hsweep.design.trial import Resources  # noqa: E402
from hsweep.errors import UserError  # noqa: E402

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
