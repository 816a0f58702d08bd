"""Planning: the sweeps that come with the tool, many points, and a plan beside building models."""

import functools
import json
import os
import resource
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import (
    Pairing,
    Quantity,
    conclude,
    environment,
    in_process,
    in_turn,
    measured,
    show,
)

ROOT: Final = Path(__file__).resolve().parents[1]
SWEEP: Final = ROOT / "benchmarks" / "plan_sweep.py"
PRESET: Final = "paper"
MOST_SECONDS: Final = 20.0
"""For one sweep's preset."""

MANY: Final = 10_000
MOST_SECONDS_FOR_MANY: Final = 60.0
THOUSANDS: Final = 20
MOST_GROWTH: Final = 1.2
"""How much longer a point may take at the end of a plan than at its start."""

Axes = Mapping[str, Sequence[float]]


def axes_of(thousands: int) -> Axes:
    """Return a grid of so many thousands of different shapes."""
    return {
        "heads": range(1, 11),
        "head_dim": range(8, 88, 8),
        "depth": range(1, 11),
        "mlp_ratio": [0.5 * number for number in range(1, thousands + 1)],
    }


TINY: Final[Axes] = {"heads": [1, 2], "head_dim": [8], "depth": [1, 2], "mlp_ratio": [1.0, 2.0]}


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process took.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: of processor time, which other programs lengthen less.
        load: load average before.
    """

    seconds: float
    cpu_seconds: float
    load: float


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def planned(sweep: Path, *options: str) -> tuple[Taken, dict[str, Any]]:
    """Return what ``hsweep plan`` takes, and what it says.

    Data are looked for in an empty folder, so that none are read: that takes what reading takes.
    """
    load, before = round(os.getloadavg()[0], 2), _cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="hsweep-plan-") as folder:
        ended = in_process(
            [
                *("-m", "hsweep", "plan", str(sweep), *options),
                *("--json", "--home", folder, "--data-root", folder),
            ],
            folder=ROOT,
            variables={"PYTHONPATH": str(ROOT)},
        )
    return Taken(ended.seconds, _cpu_seconds() - before, load), json.loads(ended.output)


def points_planned(axes: Axes) -> tuple[Taken, list[int]]:
    """Return what the plan of a grid takes, and the parameters of its shapes."""
    settings = (f"{axis}={','.join(map(str, values))}" for axis, values in axes.items())
    taken, plan = planned(SWEEP, *(word for each in settings for word in ("--set", each)))
    return taken, [trial["num_params"] for trial in plan["trials"]]


def points_built(axes: Axes) -> tuple[Taken, list[int]]:
    """Return what it takes to build a grid's models without memory, and their parameters."""
    load, before = round(os.getloadavg()[0], 2), _cpu_seconds()
    ended = in_process(
        [
            *("-m", "benchmarks.baselines.plan_meta"),
            *(
                word
                for axis, values in axes.items()
                for word in (f"--{axis.replace('_', '-')}", *map(str, values))
            ),
        ],
        folder=ROOT,
        variables={"PYTHONPATH": str(ROOT)},
    )
    taken = Taken(ended.seconds, _cpu_seconds() - before, load)
    return taken, ended.result["num_params"]


def preset_rows(sweeps: Sequence[Path], preset: str) -> list[Quantity]:
    """Return the time of every sweep's preset, and of all together."""
    rows = []
    for sweep in sweeps:
        taken, plan = planned(sweep, "--preset", preset)
        points, trials = plan["totals"]["points"], plan["totals"]["trials"]
        data = "" if not plan["data_problems"] else ", data not there"
        name = f"{sweep.stem}: {points} points, {trials} trials{data}"
        facts = {"data_problems": plan["data_problems"]}
        rows.append(_quantity(name, taken, MOST_SECONDS, facts))
    total = sum(row.value for row in rows)
    return [*rows, Quantity(f"all {len(rows)} sweeps, one after another", total, "s")]


def _quantity(
    name: str, taken: Taken, bar: float | None, facts: Mapping[str, Any] | None = None
) -> Quantity:
    in_words = f"{name} ({taken.cpu_seconds:.1f} s of CPU at load {taken.load:g})"
    return Quantity(in_words, taken.seconds, "s", bar, facts={**asdict(taken), **(facts or {})})


def many_rows() -> list[Quantity]:
    """Return the time of a plan of many points, and how the time of a point grows with them."""
    taken, _ = points_planned(axes_of(MANY // 1000))
    return [
        _quantity(f"a plan of {MANY:,} shapes", taken, MOST_SECONDS_FOR_MANY),
        growth(points_in_chunks(THOUSANDS)),
    ]


def points_in_chunks(thousands: int) -> list[float]:
    """Return the CPU seconds of each thousand points of a plan, in one process."""
    ended = in_process(
        ["-m", "benchmarks.plan_chunks", "--thousands", str(thousands)],
        folder=ROOT,
        variables={"PYTHONPATH": str(ROOT)},
    )
    found: list[float] = ended.result["cpu_seconds"]
    return found


def growth(chunks: Sequence[float]) -> Quantity:
    """Compare what a thousand points take in the last quarter of a plan with the first.

    The first thousand are left out: there models are built to prove their counts.
    """
    quarter = max(1, (len(chunks) - 1) // 4)
    first = statistics.median(chunks[1 : 1 + quarter])
    last = statistics.median(chunks[-quarter:])
    name = (
        f"CPU seconds of a thousand points in the last quarter of {len(chunks)},000 ({last:.3f}) "
        f"over the first ({first:.3f})"
    )
    return Quantity(name, last / first, "", MOST_GROWTH, facts={"cpu_seconds": list(chunks)})


def pairing(axes: Axes, pairs: int) -> Pairing:
    """Measure the plan of a grid beside building its models.

    Raises:
        RuntimeError: the two disagree on a shape's parameters.
    """
    counts: dict[str, list[int]] = {}
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}

    def timed(side: str, measure: Callable[[Axes], tuple[Taken, list[int]]]) -> float:
        taken, found = measure(axes)
        runs[side].append(asdict(taken))
        # Ours has the last axis in the order of the grid as well: the sizes are held one by one.
        if counts.setdefault(side, found) != found or len({*map(tuple, counts.values())}) > 1:
            raise RuntimeError("the plan and the built models differ in their parameters")
        return taken.seconds

    values = in_turn(
        functools.partial(timed, "ours", points_planned),
        functools.partial(timed, "theirs", points_built),
        pairs,
    )
    return Pairing(
        f"parameters of {len(counts['ours']):,} shapes",
        "hsweep plan (with FLOPs, memory, keys and checks)",
        "timm's models built on the meta device",
        "s",
        "less",
        values,
        facts=runs,
    )


@click.command("plan")
@click.option("--points", type=click.IntRange(1), multiple=True, default=(1, 5),
              show_default=True, help="Thousands of shapes in the comparison.")  # fmt: skip
@measured(pairs=3)
def command(points: tuple[int, ...], pairs: int, quick: bool, strict: bool) -> None:
    """Measure how long plans take, before anything trains."""
    found = environment()
    if quick:
        one = [ROOT / "sweeps" / "retrieval_heads.py"]
        rows, compared = preset_rows(one, "smoke"), [pairing(TINY, 1)]
    else:
        sweeps = sorted(path for path in (ROOT / "sweeps").glob("*.py") if path.stem != "__init__")
        rows = preset_rows(sweeps, PRESET) + many_rows()
        compared = [pairing(axes_of(thousands), pairs) for thousands in points]
    conclude(show("plan", compared, found, quantities=rows), strict=strict)
