"""What the planner found, as frozen values: the power of designs, and what was assumed."""

from dataclasses import dataclass

from analysis.questions.settings import check_fields
from analysis.statistics.values import Interval
from analysis.values import Jsonable, Number


@dataclass(frozen=True, slots=True)
class PowerSettings(Jsonable):
    """Every choice the power table makes.

    Attributes:
        n_mc: draws of the null of the abruptness test in each fit.
        target: the power a recommended design has to reach.
    """

    sweeps: int = 40
    n_mc: int = 199
    target: float = 0.8
    rng_seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, "be at least 1", lambda value: value >= 1, "sweeps", "n_mc")
        check_fields(self, "lie between 0 and 1", lambda value: 0 < value < 1, "target")


@dataclass(frozen=True, slots=True)
class Noise(Jsonable):
    """What makes sweeps of one truth differ, in units of y (decades, or nats of a loss).

    Attributes:
        seed_sd: between the seeds of a cell.
        cell_sd: of whole cells about the line in log10 T that their head count follows.
        head_sd: of whole head counts about a smooth decline.
    """

    seed_sd: float
    cell_sd: float
    head_sd: float
    source: str


@dataclass(frozen=True, slots=True)
class SettingChoice(Jsonable):
    """How the settings of nuisance axes are chosen.

    Attributes:
        settings: that compete for a cell or shape.
        scouts: seeds that choose and are not counted; 0 where each seed's setting is chosen by the
            other seeds.
    """

    settings: int = 1
    scouts: int = 0

    @property
    def crossed(self) -> int:
        """Settings of which each seed's is chosen by the other seeds; 1 where scouts choose."""
        return 1 if self.scouts else self.settings

    def trials(self, cells: int, seeds: int) -> int:
        """Return how many trials start, of whose seeds so many count."""
        return cells * (seeds * self.crossed + self.scouts * self.settings)

    @property
    def words(self) -> str:
        """A sentence on it; empty without a choice."""
        if self.settings == 1:
            return ""
        method = "by the other seeds, all settings taken to be equally good"
        if self.scouts:
            seeds = f"{self.scouts} seed{'' if self.scouts == 1 else 's'}"
            method = f"by {seeds} each, which the seeds here do not include"
        return f" Of {self.settings} settings one is chosen {method}."


@dataclass(frozen=True, slots=True)
class Collapse(Jsonable):
    """The truth that is simulated beside the jump, in units of y.

    Attributes:
        decline: how far y falls from one value of the searched axis to the next before the jump,
            on average over the grid.
        slope: growth of y per tenfold T before the jump; it is gone from there on.
    """

    decline: float
    slope: float
    h_star: Number


@dataclass(frozen=True, slots=True)
class Design(Jsonable):
    """A sweep to be planned.

    Attributes:
        heads: values of the searched axis, ascending.
        lengths: values of the modulating axis, ascending; one None where there is none.
        seeds: runs of every cell.
    """

    heads: tuple[Number, ...]
    lengths: tuple[Number | None, ...]
    seeds: int
    is_own: bool = False

    @property
    def trials(self) -> int:
        return len(self.heads) * len(self.lengths) * self.seeds


@dataclass(frozen=True, slots=True)
class PowerRow(Jsonable):
    """The power of one design at one jump.

    Attributes:
        jump: what y falls at the jump beyond the decline before it.
        power: share of sweeps with the verdict collapse, and its 95 % interval.
        verdicts: share of each verdict.
    """

    design: Design
    trials: int
    jump: float
    power: Interval
    verdicts: dict[str, float]


@dataclass(frozen=True, slots=True)
class PowerResult(Jsonable):
    """The power table of a transition sweep.

    Attributes:
        recommended: by jump, the index in ``table`` of the smallest design that reaches the
            target; -1 where none does.
    """

    x: str
    by: str | None
    unit: str
    noise: Noise
    collapse: Collapse
    table: tuple[PowerRow, ...]
    recommended: dict[float, int]
    settings: PowerSettings
    warnings: tuple[str, ...] = ()
    choice: SettingChoice = SettingChoice()


@dataclass(frozen=True, slots=True)
class LeanPowerResult(Jsonable):
    """The chance to establish one exactly equal shape, by margin and number of seeds.

    Attributes:
        margin: as the sweep states it, in the metric's unit.
        sd: the seed standard deviation seen so far; None when there is none, and the table then
            shows several ratios of margin to it.
        candidates: cheaper shapes that are tested; those besides the equal one are taken to be
            hopeless, the hardest case for Holm's procedure.
        alpha: the family-wise error rate that the candidates share.
        own_seeds: the sweep's own number of seeds.
        power: by margin over sd, the power at each number of seeds.
        enough: by margin over sd, the fewest seeds that reach the target; None where over 200
            would be needed.
        source: where the sd comes from.
    """

    margin: float
    sd: float | None
    candidates: int
    alpha: float
    own_seeds: int
    power: dict[float, dict[int, float]]
    enough: dict[float, int | None]
    target: float
    source: str
    choice: SettingChoice = SettingChoice()
