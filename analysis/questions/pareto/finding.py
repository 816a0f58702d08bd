"""A front as a finding: its sentence, tables and charts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.base import Finding, Section, ranked
from analysis.questions.pareto.charts import front_charts
from analysis.questions.pareto.result import ParetoResult, ParetoRow
from analysis.questions.pareto.text import (
    pareto_badge,
    pareto_sentence,
    pareto_table,
    plain_front,
)
from analysis.text.numbers import Tone
from analysis.text.tables import MAX_ROWS, TERMINAL_ROWS


def likeliest_first(front: ParetoResult, most: int = MAX_ROWS) -> ParetoResult:
    """Return a front of more than ``most`` rows with those first that are likeliest on it."""

    def place(row: ParetoRow) -> float:
        untested = 0.0 if row.class_ == "untested_on" else 1.0
        return -row.p_front if math.isfinite(row.p_front) else untested

    return replace(front, table=ranked(front.table, place, most))


@dataclass(frozen=True)
class ParetoFinding(Finding):
    """A front; ``not_compared`` tells why a lean question beside it could not be answered."""

    result: ParetoResult
    not_compared: str = ""

    kind: ClassVar[str] = "pareto"
    title: ClassVar[str] = "Shapes that no other beats"
    answers: ClassVar[bool] = True

    @property
    def numbers(self) -> dict[str, float]:
        return {"front_size": float(self.result.front_size)}

    @property
    def sentences(self) -> list[str]:
        lacking = f" No lean equivalent can be named: {self.not_compared}."
        return [f"{pareto_sentence(self.result)}{lacking if self.not_compared else ''}"]

    @property
    def plain(self) -> list[str]:
        lacking = (
            f"No cheaper equal can be named: {self.not_compared}." if self.not_compared else ""
        )
        return [*filter(None, [*plain_front(self.result), lacking])]

    @property
    def badge(self) -> tuple[str, Tone]:
        return pareto_badge(self.result)

    @property
    def problem(self) -> str | None:
        return self.not_compared or None

    def page_tables(self, *, beside: bool) -> list[Section]:
        return [Section("Shapes", pareto_table(likeliest_first(self.result)))]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        return [Section("shapes", pareto_table(likeliest_first(self.result, TERMINAL_ROWS)))]

    def charts(self, trials: pd.DataFrame) -> list[Chart]:
        return front_charts(self.result, trials)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"front": self.result.settings}
