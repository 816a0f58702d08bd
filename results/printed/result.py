"""A study's results beside the printed ones, as frozen values."""

from dataclasses import dataclass

from analysis.values import Jsonable
from hsweep.design.scales import Goal, Scale
from results.printed.difference import PrintedDifference
from results.printed.numbers import PrintedValue


@dataclass(frozen=True, slots=True)
class PublishedSettings(Jsonable):
    """Every choice the comparison makes.

    Attributes:
        alpha: level of each two-sided test.
        same_data: whether the user vouches that the study's data are the paper's.
    """

    alpha: float = 0.05
    same_data: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow(PrintedDifference):
    """A published value and the study's cell of the same settings.

    Attributes:
        label: the cell in the study's own axes.
        scale: error (differences in decades), accuracy or loss (in the metric's unit).
        lost: runs of the cell that were stopped early, or gave no number.
        mean: their mean; of errors the geometric one.
        seed_sd: empirical-Bayes seed sd, in decades or the metric's unit; None where no cell of the
            study has two runs.
        best_of: seeds that the printed value is taken to be the best of; 1 is a single run.
        expected: in the metric's own unit; the difference is in decades of an error.
        factor: expected over printed, for errors.
    """

    printed: PrintedValue
    label: str
    metric: str
    scale: Scale
    goal: Goal
    n: int
    values: tuple[float, ...]
    lost: int
    mean: float
    seed_sd: float | None
    df: float | None
    best_of: int
    factor: float | None
    note: str


@dataclass(frozen=True, slots=True)
class CriticalHeads:
    """Where the paper sees its transition, and where the study does.

    Attributes:
        verdict: the study's verdict; empty where it has no transition analysis.
        h_star: where the study's collapse ends, if its verdict establishes one.
        h_set: its 95 % set then.
        agrees: whether the printed number lies in that set; None where nothing is established.
    """

    printed: PrintedValue
    verdict: str
    h_star: float | None
    h_set: tuple[float, ...]
    agrees: bool | None


@dataclass(frozen=True, slots=True)
class PublishedResult(Jsonable):
    """A study beside the published results that it repeats.

    Attributes:
        comparable: whether any published value has the settings of a cell of the study.
        rows: published values that the study has run, in the paper's order.
        critical: published places of a transition.
        missing: published values that it has not.
        assumptions: what the comparison takes for granted, and what differs all the same.
    """

    setup: str
    title: str
    comparable: bool
    reason: str
    rows: tuple[PublishedRow, ...]
    critical: tuple[CriticalHeads, ...]
    missing: tuple[PrintedValue, ...]
    assumptions: tuple[str, ...]
    settings: PublishedSettings
