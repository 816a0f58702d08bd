"""The fronts of a study, and what belongs to each."""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analysis.pictures.attainment_figures import attainment_picture
from analysis.pictures.drawing import Picture
from analysis.pictures.front_figures import front_pictures
from analysis.pictures.rows import Comparison
from analysis.questions.pareto.result import ParetoResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Front:
    """A front of a study.

    Attributes:
        result: the front.
        comparisons: the lean comparisons over its shapes.
        trials: its trials.
        heading: which of several it is; empty for a study's only one.
    """

    result: ParetoResult
    comparisons: Sequence[Comparison]
    trials: pd.DataFrame
    heading: str = ""

    def named(self, name: str) -> str:
        """Return an identifier made this front's own."""
        own = re.sub(r"\W+", "-", self.heading).strip("-")
        return f"{name}-{own}" if own else name

    def titled(self, title: str) -> str:
        """Return a heading made this front's own."""
        return f"{title}, {self.heading}" if self.heading else title


def front_charts(fronts: Sequence[Front]) -> list[Picture]:
    """Return the charts of every front, each with names of its own."""
    found = []
    for front in fronts:
        charts = front_pictures(front.result, front.comparisons, front.trials)
        if spread := attainment_picture(front.result):
            charts.append(spread)
        found += [
            dataclasses.replace(
                chart, name=front.named(chart.name), title=front.titled(chart.title)
            )
            for chart in charts
        ]
    return found


def print_fronts(fronts: Sequence[Front]) -> "list[tuple[str, Figure]]":
    """Return the same for print, each with the name of its files."""
    from analysis.pictures.attainment_plots import attainment_figure
    from analysis.pictures.front_plots import front_figures

    found = []
    for front in fronts:
        found += front_figures(front)
        if spread := attainment_figure(front.result):
            found.append((front.named("spread-of-runs"), spread))
    return found
