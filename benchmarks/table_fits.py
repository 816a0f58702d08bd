"""The fits of the kinds of question, put to plain tables."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import pandas as pd

from analysis.questions.conditioning import fit as conditioning
from analysis.questions.lean import fit as lean
from analysis.questions.pareto import fit as pareto
from analysis.questions.transition import fit as transition
from analysis.runs.columns import RunColumns
from analysis.runs.table import Runs

Result = TypeVar("Result")


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


fit_conditioning = of_tables(conditioning.fit)
fit_lean = of_tables(lean.fit)
fit_pareto = of_tables(pareto.fit)
fit_transition = of_tables(transition.fit)
