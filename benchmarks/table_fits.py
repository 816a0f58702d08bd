"""The fits of the kinds of question, put to plain tables."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import pandas as pd

from analysis.questions.conditioning import fit as conditioning
from analysis.questions.lean import fit as lean
from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.questions.transition import fit as transition
from analysis.questions.transition.result import TransitionResult
from analysis.questions.transition.table import canonical
from analysis.runs.columns import RunColumns
from analysis.runs.grouped import grouped
from analysis.runs.table import Runs

Result = TypeVar("Result")
_CELLS: Final[dict[str, Any]] = {"x": "heads", "by": "seq_len", "goal": "min", "scale": "error"}
_FIT: Final = ("layers", "settings", "note")


def of_tables(fit: Callable[..., Result]) -> Callable[..., Result]:
    """Return a fit that takes a table, its metric and the columns of its runs as well."""

    @wraps(fit)
    def fit_table(table: pd.DataFrame | Runs, *, metric: str = "", **options: Any) -> Result:
        if isinstance(table, pd.DataFrame):
            names = RunColumns.__annotations__.keys() & options.keys()
            columns: Any = {name: options.pop(name) for name in names}
            table = Runs(table, metric, columns)
        return fit(table, **options)

    return fit_table


@of_tables
def fit_transition(runs: Runs, **options: Any) -> TransitionResult:
    """Fit the transition of runs, with the options of `canonical` and of the fit."""
    choices = {name: options.pop(name) for name in _FIT if name in options}
    return transition.fit(canonical(runs, **{**_CELLS, **options}), **choices)


@of_tables
def fit_pareto(
    runs: Runs,
    config: list[str],
    nuisance: tuple[str, ...] = (),
    settings: ParetoSettings = ParetoSettings(),
    **options: Any,
) -> ParetoResult:
    """Return the front of runs, with the options of `grouped`."""
    usual: dict[str, Any] = {"goal": "max", "costs": ("num_params",)}
    return pareto.fit(grouped(runs, config, nuisance, **{**usual, **options}), settings)


fit_conditioning = of_tables(conditioning.fit)
fit_lean = of_tables(lean.fit)
