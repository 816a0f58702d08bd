"""What a search for a transition trains, and how often it is right, beside other ways.

Simulated studies of 5, 16 and 64 head counts, whose runs are drawn when they are asked for, each
the same whoever asks. Other ways train runs of the same studies and are answered by the analysis
(`analysis.questions.transition`):

- ``grid``: every head count at every length with every seed;
- ``smaller``: as many runs as the search, at the two ends of the lengths with two seeds, on head
  counts that are spread out;
- ``random``: as many runs as the search, drawn from the grid;
- ``tpe``: as many runs as the search, each proposed by Optuna's tree-structured Parzen estimator,
  which minimises the error.

``bisection`` halves the head counts, two runs each, towards the half that falls further, and claims
the step that is left where it falls by what counts as a transition.
"""

import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from typing import Final

import click
import numpy as np
import optuna
import pandas as pd

from analysis.questions.transition.design import Located, Run, locate
from analysis.questions.transition.limits import searched_length
from analysis.questions.transition.result import TransitionSettings
from analysis.rounds.design import Design as Rounds
from analysis.rounds.design import play
from analysis.runs.scale import THRESHOLDS
from benchmarks.sweeps import LENGTHS, Design, Floats, Shape, collapse, decline, paper_shape
from benchmarks.table_fits import fit_transition
from hsweep.errors import UserError

SEEDS: Final = {5: 5, 16: 3, 64: 3}
"""Seeds a cell of the grid, by its number of head counts."""
JUMPS: Final = (
    *("paper_D4", "paper_E32", "paper_D3", "sharp", "sharp_small", "plain", "post_trend"),
    *("hurts", "second", "noisy", "heavy", "stuck"),
)
THRESHOLD_LIKE: Final = ("gradual", "power_drop", "paper_two_layers")
NULLS: Final = (
    *("null_flat", "null_power", "null_exp", "null_exp_floor", "null_fade"),
    *("null_above", "null_stuck"),
)
FAMILIES: Final = (*JUMPS, *THRESHOLD_LIKE, *NULLS)
ACCURACIES: Final = ("ceiling", "climb")
"""Errors of accuracies that fall in up to three steps to their ceiling, h* the last."""
DISTURBANCES: Final = (
    *("uneven4", "uneven8", "rising", "heavy", "stuck", "loud", "units"),
    *("scatter15", "scatter30"),
)
"""What may disturb a family, written behind it as ``sharp+rising``: a scale of its own for each
cell (log sd 0.4 or 0.8), noise that is ten times as large from h* or the middle on, heavy tails,
runs that stay far behind, runs of a small error that scatter by half a decade, an error in another
unit, and head counts that scatter by 0.15 or 0.3 decades."""
HARD_JUMPS: Final = (
    *(f"sharp+{name}" for name in DISTURBANCES if name not in ("loud", "scatter15", "scatter30")),
    "two",
)
HARD_NULLS: Final = tuple(
    f"{null}+{name}" for null in ("null_flat", "null_power") for name in DISTURBANCES
)
FAILING: Final = ("sharp+failing", "null_power+failing")
"""Every run of the head count at h*, or of the middle one, fails."""
EVERY_FAMILY: Final = (*FAMILIES, *ACCURACIES, *HARD_JUMPS, *HARD_NULLS, *FAILING)
_JUMP: Final = {"sharp": (0.7, 2.0), "sharp_small": (0.35, 0.8), "noisy": (0.6, 1.6)}
_FEW_DRAWS: Final = TransitionSettings(B=200, n_mc=299)
_AFTER: Final = {"post_trend": -0.15, "hurts": 0.15}


@dataclass
class Simulated:
    """A study whose runs are drawn when they are asked for.

    Attributes:
        truth: index of h*; None where there is no transition.
        drawn: values of the runs so far.
    """

    family: str
    number: int
    shape: Shape
    design: Design
    rng: np.random.Generator
    drawn: dict[Run, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape, lengths = self.shape, self.design.lengths
        self.truth = None if shape.h_star is None else shape.at
        heads = len(shape.heads)
        self._level = shape.level + self.design.wobble * self.rng.standard_normal(heads)
        self._jitter = self.design.jitter * self.rng.standard_normal((heads, len(lengths)))
        log_length = np.log10(lengths)
        self._x: Floats = log_length - log_length.mean()
        kind, _, disturbance = self.family.partition("+")
        is_stuck = kind == "null_stuck" or (self.truth is None and disturbance == "stuck")
        self._worse = float(self.rng.uniform(0.1, 0.25)) if is_stuck else 0.0
        self._scale = np.ones((heads, len(lengths)))
        middle = heads // 2 if self.truth is None else self.truth
        if disturbance.startswith("uneven"):
            log_sd = int(disturbance[-1]) / 10
            self._scale = np.exp(log_sd * self.rng.standard_normal(self._scale.shape))
        elif disturbance == "rising":
            self._scale[middle:] = 10.0
        self._failing = middle if disturbance == "failing" else -1
        # Examples that an accuracy counts.
        self._examples = int(self.rng.choice([1000, 4000, 10_000])) if kind in ACCURACIES else 0

    def value(self, run: Run) -> float | None:
        """Return the log10 error of a run; None for one that failed."""
        if run.head == self._failing:
            return None
        if run not in self.drawn:
            name = zlib.crc32(self.family.encode())
            rng = np.random.default_rng([name, len(self.shape.heads), self.number, *run])
            design, at = self.design, run.head
            noise = 2 * rng.standard_t(3) if design.heavy else rng.standard_normal()
            if self.truth is not None and at >= self.truth and rng.random() < design.stuck:
                at = self.truth - 1
            y = self._level[at] + self.shape.slope[at] * self._x[run.length]
            y += self._jitter[run.head, run.length]
            y += design.seed_sd * self._scale[run.head, run.length] * noise
            if rng.random() < self._worse:
                y += rng.uniform(0.3, 1.0)
            if self._examples:
                missed = rng.binomial(self._examples, min(1.0, 10**y))
                y = np.log10(max(missed, 0.5) / self._examples)
            self.drawn[run] = float(y)
        return self.drawn[run]

    def search(self) -> Rounds[Run, Located]:
        """Return the adaptive design of the study."""
        heads, lengths = self.shape.heads, self.design.lengths
        return locate(heads, lengths, searched_length(len(lengths)), THRESHOLDS["error"])

    def grid(self) -> list[Run]:
        """Return the runs of the full grid."""
        heads, lengths = range(len(self.shape.heads)), range(len(self.design.lengths))
        return [Run(*at) for at in product(heads, lengths, range(self.design.seeds))]

    def table(self, runs: Iterable[Run]) -> pd.DataFrame:
        """Return runs as a table."""
        heads, lengths = self.shape.heads, self.design.lengths
        rows = []
        for run in runs:
            y, at = self.value(run), (heads[run.head], lengths[run.length], run.seed)
            rows.append((*at, *((np.nan, "failed") if y is None else (10**y, "finished"))))
        return pd.DataFrame(rows, columns=["heads", "seq_len", "seed", "nmse", "status"])


def simulated(name: str, heads: int, number: int, lengths: int = 5) -> Simulated:
    """Return study ``number`` of a family with so many head counts, at five lengths or at two."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), heads, number])
    counts = tuple(range(1, heads + 1))
    design = Design(LENGTHS, SEEDS[heads]) if lengths == 5 else Design((8, 64), 3)
    family, _, disturbance = name.partition("+")
    if family.startswith("paper_"):
        shape = _longer(paper_shape(family.removeprefix("paper_")), heads)
    elif family in JUMPS:
        shape = collapse(
            rng,
            heads=counts,
            h_star=counts[1] if family == "second" else None,
            jump=_JUMP.get(family, (1.0, 2.2)),
            after=_AFTER.get(family, -0.05) * min(1.0, 5 / heads),
        )
        if family in ("sharp", "second"):
            slope = shape.slope.copy()
            slope[shape.at :] = rng.uniform(-0.2, 0.0)
            shape = replace(shape, slope=slope)
        design = replace(
            design,
            seed_sd=0.3 if family == "noisy" else design.seed_sd,
            heavy=family == "heavy",
            stuck=float(rng.uniform(0.1, 0.35)) if family == "stuck" else 0.0,
        )
    elif family == "two":
        shape = collapse(rng, heads=counts, h_star=counts[heads // 2])
        later = min(heads - 1, shape.at + max(2, heads // 4))
        level = shape.level - rng.uniform(1.0, 2.0) * (np.arange(heads) >= later)
        # h* ends the larger fall.
        shape = replace(shape, level=level, h_star=counts[int(np.argmin(np.diff(level))) + 1])
    elif family in ACCURACIES:
        shape = _accuracy(rng, counts, is_climb=family == "climb")
        design = replace(design, seed_sd=0.05, jitter=0.03, wobble=0.02)
    elif family == "gradual":
        shape = _gradual(rng, counts)
        design = replace(design, seed_sd=0.05, jitter=0.03, wobble=0.02)
    elif family == "power_drop":
        h, at = np.array(counts, float), int(rng.choice(counts[2:-1]))
        level = -1.0 - rng.uniform(0.5, 2.0) * np.log10(h) - 0.6 * (h >= at)
        shape = Shape(counts, level, np.full(heads, rng.uniform(0.0, 0.3)), at)
        design = replace(design, wobble=0.02)
    else:
        shape = decline(family, rng, counts)
        design = replace(design, wobble=0.08 if family == "null_above" else 0.0)
    match disturbance:
        case "heavy":
            design = replace(design, heavy=True)
        case "stuck":
            design = replace(design, stuck=float(rng.uniform(0.1, 0.35)))
        case "loud":
            design = replace(design, seed_sd=0.5)
            shape = replace(shape, level=shape.level - 3)
        case "units":
            shape = replace(shape, level=shape.level - 6)
        case "scatter15" | "scatter30":
            design = replace(design, wobble=int(disturbance[-2:]) / 100)
    return Simulated(name, number, shape, design, rng)


def _longer(shape: Shape, heads: int) -> Shape:
    """Return a published shape with more head counts, which gain next to nothing."""
    more = heads - len(shape.heads)
    return Shape(
        tuple(range(1, heads + 1)),
        np.concatenate([shape.level, shape.level[-1] - 0.02 * np.arange(1, more + 1)]),
        np.concatenate([shape.slope, np.full(more, shape.slope[-1])]),
        shape.h_star,
    )


def _gradual(rng: np.random.Generator, heads: tuple[int, ...]) -> Shape:
    """Three large steps after a decline; h* ends the last."""
    number = len(heads)
    at = int(rng.integers(3, number - 1))
    per_head = rng.uniform(0.12, 0.25) * min(1.0, 5 / at)
    index = np.arange(number)
    level = -0.5 - per_head * np.minimum(index, at)
    for step in range(3):
        level[at - step :] -= rng.uniform(0.25, 0.45)
    return Shape(heads, level, np.where(index < at, 0.25, 0.05), heads[at])


def _accuracy(rng: np.random.Generator, heads: tuple[int, ...], *, is_climb: bool) -> Shape:
    """The error of an accuracy near its ceiling, which two or three steps reach; a climb is ever
    faster before it."""
    number = len(heads)
    at, index = int(rng.integers(3, number - 1)), np.arange(number)
    fall = np.zeros(number)
    # The last step may be so small that the head count before it is about as good.
    fall[at], fall[at - 1] = rng.uniform(0.2, 0.5), rng.uniform(0.5, 0.8)
    fall[at - 2] = rng.uniform(0.0, 0.5)
    if is_climb:
        fall[1 : at + 1] += 0.2 * 0.6 ** np.arange(at)[::-1]
    level = rng.uniform(-2.5, -1.5) + fall.sum() - np.cumsum(fall)
    return Shape(heads, np.minimum(level, -0.15), np.where(index < at, 0.25, 0.05), heads[at])


@dataclass(frozen=True)
class Found:
    """What a way of running a study trained and said.

    Attributes:
        trials: that it trained.
        rounds: that it waited for; 1 for a grid.
        place: where it put h*, as steps from the truth; None without either.
        holds: whether its set of places holds the truth.
    """

    family: str
    heads: int
    trials: int
    rounds: int
    verdict: str
    place: int | None
    holds: bool = True

    @property
    def exact(self) -> bool:
        """Whether h* was found where it is."""
        return self.verdict == "collapse" and self.place == 0


def searched(family: str, heads: int, number: int, lengths: int = 5) -> Found:
    """Run the adaptive design on a simulated study."""
    study = simulated(family, heads, number, lengths)
    played = play(study.search(), study.value, lambda _run: True)
    answer = played.answer
    assert isinstance(answer, Located)
    trials = len({run for asked in played.rounds for run in asked.runs})
    place = None if None in (answer.star, study.truth) else answer.star - study.truth  # type: ignore[operator]
    return Found(
        family,
        heads,
        trials,
        len(played.rounds),
        answer.verdict,
        place,
        study.truth in answer.places,
    )


def answered(study: Simulated, runs: Sequence[Run]) -> Found:
    """Answer some runs of a study by the analysis."""
    family, heads = study.family, len(study.shape.heads)
    place = None
    try:
        result = fit_transition(study.table(runs), metric="nmse", settings=_FEW_DRAWS)
    except UserError:
        return Found(family, heads, len(runs), 1, "no answer", None)
    holds = study.shape.h_star in result.h_set
    if result.h_star is not None and study.truth is not None:
        place = study.shape.heads.index(int(result.h_star)) - study.truth
    return Found(family, heads, len(runs), 1, result.verdict, place, holds)


def gridded(family: str, heads: int, number: int, lengths: int = 5) -> Found:
    """Answer the full grid of a study."""
    study = simulated(family, heads, number, lengths)
    return answered(study, study.grid())


def smaller(family: str, heads: int, number: int, lengths: int = 5) -> Found:
    """Answer a smaller grid, of as many runs as the search trains."""
    study, budget = (
        simulated(family, heads, number, lengths),
        searched(family, heads, number, lengths).trials,
    )
    ends = (0, len(study.design.lengths) - 1)
    some = np.linspace(0, heads - 1, min(heads, max(3, budget // 4)), dtype=int).tolist()
    return answered(study, [Run(*at) for at in product(some, ends, range(2))])


def drawn(family: str, heads: int, number: int, lengths: int = 5) -> Found:
    """Answer as many runs as the search trains, drawn from the grid."""
    study, budget = (
        simulated(family, heads, number, lengths),
        searched(family, heads, number, lengths).trials,
    )
    rng, runs = np.random.default_rng(number), study.grid()
    return answered(study, [runs[k] for k in rng.permutation(len(runs))[:budget]])


def proposed(family: str, heads: int, number: int, lengths: int = 5) -> Found:
    """Answer as many runs as the search trains, proposed by Optuna."""
    study, budget = (
        simulated(family, heads, number, lengths),
        searched(family, heads, number, lengths).trials,
    )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=number)
    tree, seeds = optuna.create_study(sampler=sampler), Counter[tuple[int, int]]()
    runs = []
    for _ in range(budget):
        trial = tree.ask()
        cell = (trial.suggest_int("head", 0, heads - 1),
                trial.suggest_int("length", 0, len(study.design.lengths) - 1))  # fmt: skip
        runs.append(Run(*cell, seeds[cell]))
        seeds[cell] += 1
        tree.tell(trial, study.value(runs[-1]))
    return answered(study, runs)


def bisected(family: str, heads: int, number: int, lengths: int = 5) -> Found:
    """Halve the head counts towards the half that falls further."""
    study, at = simulated(family, heads, number, lengths), searched_length(lengths)
    levels: dict[int, float] = {}

    def level(head: int) -> float:
        return levels.setdefault(
            head, float(np.mean([study.value(Run(head, at, seed)) for seed in range(2)]))
        )

    low, high = 0, heads - 1
    while high - low > 1:
        middle = (low + high) // 2
        falls_first = level(low) - level(middle) > level(middle) - level(high)
        low, high = (low, middle) if falls_first else (middle, high)
    is_jump = level(low) - level(high) >= THRESHOLDS["error"].min_drop
    place = None if study.truth is None else high - study.truth
    verdict = "collapse" if is_jump else "none"
    return Found(family, heads, 2 * len(levels), len(levels), verdict, place)


WAYS: Final = {
    "search": searched,
    "grid": gridded,
    "smaller": smaller,
    "random": drawn,
    "tpe": proposed,
    "bisection": bisected,
}


@dataclass(frozen=True)
class Rates:
    """The rates of a family, or of several."""

    name: str
    heads: int
    studies: int
    trials: float
    median: float
    tenth: float
    most: int
    found: float
    exact: float
    none: float
    placed: float
    held: float

    @classmethod
    def of(cls, name: str, outcomes: Sequence[Found]) -> "Rates":
        """Return the rates of these outcomes."""
        trials = [outcome.trials for outcome in outcomes]

        def share(holds: Callable[[Found], bool]) -> float:
            return sum(map(holds, outcomes)) / len(outcomes)

        median, tenth = map(float, np.quantile(trials, (0.5, 0.9)))
        found = [outcome for outcome in outcomes if outcome.verdict == "collapse"]
        return cls(
            name,
            outcomes[0].heads,
            len(outcomes),
            float(np.mean(trials)),
            median,
            tenth,
            max(trials),
            share(lambda outcome: outcome.verdict == "collapse"),
            share(lambda outcome: outcome.exact),
            share(lambda outcome: outcome.verdict == "none"),
            float(np.mean([outcome.exact for outcome in found])) if found else 1.0,
            float(np.mean([outcome.holds for outcome in found])) if found else 1.0,
        )

    @property
    def line(self) -> str:
        """The row of a table in Markdown."""
        return (
            f"| {self.name} | {self.heads} | {self.studies} | {self.trials:.1f} | "
            f"{self.median:.0f} | {self.tenth:.0f} | {self.most} | "
            f"{self.found:.1%} | {self.exact:.1%} | {self.none:.1%} | {self.placed:.1%} | "
            f"{self.held:.1%} |"
        )


def rates(outcomes: Iterable[Found]) -> list[Rates]:
    """Return the rates of each family and of the groups of families."""
    listed = list(outcomes)
    rows = []
    groups = {"with a jump": JUMPS, "threshold-like": THRESHOLD_LIKE, "nulls": NULLS}
    groups |= {"accuracies": ACCURACIES, "disturbed": HARD_JUMPS, "disturbed nulls": HARD_NULLS}
    groups["failing"] = FAILING
    for heads in dict.fromkeys(outcome.heads for outcome in listed):
        here = [outcome for outcome in listed if outcome.heads == heads]
        for group, families in groups.items():
            for name in (*families, group):
                members = families if name == group else (name,)
                if chosen := [outcome for outcome in here if outcome.family in members]:
                    rows.append(Rates.of(name, chosen))
    return rows


@click.command("adaptive")
@click.option("--studies", type=click.IntRange(1), default=100, show_default=True,
              help="Simulated studies of each family.")  # fmt: skip
@click.option("--first", type=click.IntRange(0), default=0, show_default=True,
              help="Number of the first study.")  # fmt: skip
@click.option("--heads", "sizes", type=click.Choice(["5", "16", "64"]), multiple=True,
              default=("5", "16", "64"), show_default=True, help="Head counts.")  # fmt: skip
@click.option("--lengths", type=click.Choice(["2", "5"]), default="5", show_default=True,
              help="Lengths; with two the grid has three seeds.")  # fmt: skip
@click.option("--families", default=",".join(EVERY_FAMILY), help="With commas between.")
@click.option("--way", type=click.Choice(list(WAYS)), default="search", show_default=True)
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(
    studies: int,
    first: int,
    sizes: tuple[str, ...],
    lengths: str,
    families: str,
    way: str,
    processes: int,
    as_json: bool,
) -> None:
    """Measure what a way to locate a transition trains, and how often it is right."""
    tasks = [
        (family, int(size), number)
        for size in sizes
        for family in families.split(",")
        for number in range(first, first + studies)
    ]
    run = partial(_run, way=way, lengths=int(lengths))
    if processes == 1:
        outcomes = list(map(run, tasks))
    else:
        with ProcessPoolExecutor(processes) as pool:
            outcomes = list(pool.map(run, tasks, chunksize=10))
    rows = rates(outcomes)
    if as_json:
        json.dump([asdict(row) for row in rows], sys.stdout, indent=1)
        click.echo()
        return
    click.echo(
        "| family | head counts | studies | trials | median | 90 % | most | found | exact | none |"
        " exact of found | set holds |"
    )
    click.echo("|" + " --- |" * 12)
    for row in rows:
        click.echo(row.line)


def _run(task: tuple[str, int, int], *, way: str, lengths: int) -> Found:
    return WAYS[way](*task, lengths)
