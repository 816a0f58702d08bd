"""What the Pareto analysis found, as frozen values."""

from dataclasses import dataclass
from typing import Any, Literal

from analysis.questions.settings import check_fields
from analysis.rounds.design import SearchFilm
from analysis.runs.losses import NONE_LOST, Losses
from analysis.runs.tuned import TunedSetting
from analysis.statistics.values import Interval
from analysis.values import Config, Jsonable
from hsweep.design.scales import ALPHA, Goal

FrontClass = Literal["on", "off", "undecided", "untested_on", "untested_off"]
"""Where a shape stands: tested by its seeds, or as measured where these tell nothing."""


@dataclass(frozen=True, slots=True)
class ParetoSettings(Jsonable):
    """Every choice the Pareto analysis makes.

    Attributes:
        alpha: a configuration is called off the front up to this P_front, on it from 1 - alpha on.
    """

    draws: int = 2000
    rng_seed: int = 0
    alpha: float = ALPHA
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check_fields(self, "be from 0 to below 0.5", lambda value: 0 <= value < 0.5, "alpha")
        check_fields(self, "lie between 0 and 1", lambda value: 0 < value < 1, "confidence")
        check_fields(self, "be at least 1", lambda value: value >= 1, "draws")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRow:
    """A configuration and its runs.

    Attributes:
        label: the same in words, unique within the result.
        mean: mean metric over screened full-budget runs, in the metric's unit.
        values: the metric of each of these runs.
        costs: each cost's mean over the runs.
        crash_share: screened, failed, diverged and too large runs among all that ended.
        lost: its runs that are in no mean; it is that of those left.
        setting: its best setting of the nuisance axes; None without such axes.
    """

    config: Config
    label: str
    mean: float
    n: int
    values: tuple[float, ...]
    costs: dict[str, float]
    crash_share: float
    lost: Losses = NONE_LOST
    setting: TunedSetting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoRow(ShapeRow):
    """One configuration on or off the front.

    Attributes:
        p_front: share of draws in which nothing dominates it.
        class_: on, off or undecided; where seeds tell nothing, untested_on for what nothing that
            was measured dominates, else untested_off.
        is_dominated: whether the means of another dominate its own.
    """

    ci: Interval
    p_front: float
    class_: FrontClass
    is_dominated: bool


@dataclass(frozen=True, slots=True)
class ParetoResult(Jsonable):
    """The front of metric against costs, with what the seeds can and cannot tell.

    Attributes:
        hv: hypervolume of the front of seed means, with the interval over draws; each objective is
            scaled to [0, 1] over the configurations' means.
        hv_note: how it was computed, or why it was not.
        prior_sd: empirical-Bayes prior seed sd s0, or None when no variance could be estimated.
        prior_df: its degrees of freedom d0 (null in JSON when infinite).
        noise_gap: why the seeds tell nothing, so that the front is shown and not tested; empty
            where they do.
        nuisance: axes of whose settings every shape stands at its best.
        fixed_rate: the one learning rate of all runs, which was not tuned; None where the rate was
            tuned, or is not known, or where another finding says it.
        film: of a study that searched for its front; its classes are those of the last look.
    """

    table: tuple[ParetoRow, ...]
    hv: Interval | None
    hv_note: str
    metric: str
    goal: Goal
    costs: tuple[str, ...]
    prior_sd: float | None
    prior_df: float | None
    settings: ParetoSettings
    warnings: tuple[str, ...]
    nuisance: tuple[str, ...] = ()
    noise_gap: str = ""
    fixed_rate: float | None = None
    film: SearchFilm | None = None

    @property
    def front_size(self) -> int:
        """How many configurations are called on the front."""
        return sum(row.class_ == "on" for row in self.table)

    @property
    def front(self) -> tuple[str, ...]:
        """Labels of the configurations on the front, tested or not, cheapest first."""
        return tuple(row.label for row in self.table if row.class_ in ("on", "untested_on"))

    def to_json(self) -> dict[str, Any]:
        return Jsonable.to_json(self) | {"front": list(self.front)}
