"""How long a training step of every model family takes, beside the library's own module.

Equal shape, data, loss, precision, optimizer and number of threads on both sides, each in a
process of its own. A step is forward, loss, backward and the optimizer's update; its time is that
of the processor, which for one thread is the clock's where nothing else runs, and hardly grows
where something does. The ratio by the clock stands in the line of JSON.
"""

import contextlib
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from benchmarks.pairs import Pairing, conclude, environment, in_turn, measured, show
from benchmarks.step_sides import Side, Steps

if TYPE_CHECKING:
    from benchmarks.step_cases import Case

BURST_SECONDS = 0.2
SETTLING_SECONDS = 0.1
WINDOW_SECONDS = 1.0
QUICK_SECONDS = 0.01
THREADED: tuple[str, ...] = ("retrieval, T = 128", "ViT, small", "GPT-2, larger")
QUICK = ("retrieval, T = 8", "ranker, small")
CORES = 2
_MODULE = "benchmarks.step_cases"


@click.command("steps")
@click.option("--only", help="Beginnings of families' names, with commas between; all by default.")
@measured(pairs=11)
def command(only: str | None, pairs: int, quick: bool, strict: bool) -> None:
    """Measure a training step of every model family beside the library's own module."""
    try:
        cases = chosen(None if only is None else only.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from None
    seconds, windows, threaded = BURST_SECONDS, WINDOW_SECONDS, THREADED
    if quick:
        seconds, windows, threaded = QUICK_SECONDS, QUICK_SECONDS, QUICK[:1]
        if only is None:
            cases = tuple(case for case in cases if case.name in QUICK)
    found_in = environment()
    names = [case.name for case in cases if case.name in threaded]
    with contextlib.ExitStack() as stack:
        each = [stack.enter_context(Side(threads=1)) for _ in range(CORES)]
        rows = measure(cases, each[0], each[1], pairs, seconds)
        if names:
            whole = stack.enter_context(Side(threads=CORES))
            rows += measure_threads(names, each, whole, pairs, windows)
    conclude(show("steps", rows, found_in), strict=strict)


def chosen(families: Iterable[str] | None) -> "tuple[Case, ...]":
    """Return the cases whose name begins with one of these, all of them for None.

    Raises:
        ValueError: a name that no case begins with.
    """
    from benchmarks.step_cases import CASES

    if families is None:
        return CASES
    found: dict[str, Case] = {}
    for family in families:
        of_family = {c.name: c for c in CASES if c.name.lower().startswith(family.lower())}
        if not of_family:
            names = ", ".join(dict.fromkeys(case.name.split(",")[0] for case in CASES))
            raise ValueError(f"no model family begins with {family!r}; there are {names}")
        found |= of_family
    return tuple(found.values())


def measure(
    cases: "Sequence[Case]", ours: Side, theirs: Side, pairs: int, seconds: float
) -> tuple[Pairing, ...]:
    """Measure our step beside the library's, in turn.

    Args:
        cases: what to measure.
        ours: the process for our models.
        theirs: the process for the libraries' models, of as many threads.
        pairs: how often both sides take steps.
        seconds: for how long each time.
    """
    found = []
    for case in cases:
        params = [
            ours.build(_MODULE, case.name, "ours"),
            theirs.build(_MODULE, case.name, "theirs"),
        ]
        for side in (ours, theirs):
            side.measure(min(seconds, SETTLING_SECONDS))
        found.append(_pairing(case, ours, theirs, params, pairs, seconds))
    return tuple(found)


def _pairing(
    case: "Case", ours: Side, theirs: Side, params: Sequence[int], pairs: int, seconds: float
) -> Pairing:
    bursts: dict[Side, list[Steps]] = {ours: [], theirs: []}

    def milliseconds(side: Side) -> float:
        burst = side.measure(seconds)
        bursts[side].append(burst)
        return burst.cpu_seconds * 1e3

    taken = in_turn(lambda: milliseconds(ours), lambda: milliseconds(theirs), pairs)
    by_clock = [
        their.seconds / our.seconds for our, their in zip(bursts[ours], bursts[theirs], strict=True)
    ]
    return Pairing(
        name=case.name,
        ours="hsweep",
        theirs=case.library,
        unit="ms",
        is_better="less",
        pairs=taken,
        bar=case.bar,
        facts={
            "batch": case.batch,
            "config": repr(case.config),
            "params": {"ours": params[0], "theirs": params[1]},
            "ratio_by_clock": statistics.median(by_clock),
        },
    )


def measure_threads(
    names: Sequence[str], each: Sequence[Side], whole: Side, pairs: int, seconds: float
) -> tuple[Pairing, ...]:
    """Measure as many trials as cores, of one thread each, beside one trial on all cores, in turn.

    Args:
        names: of the cases.
        each: one process of one thread for each core.
        whole: a process of as many threads.
        pairs: how often both are measured.
        seconds: for how long each time.
    """

    def steps_a_second(sides: Sequence[Side]) -> float:
        for side in sides:
            side.start_measuring(seconds)
        return sum(burst.number / burst.elapsed for burst in [side.measured() for side in sides])

    found = []
    for name in names:
        for side in (*each, whole):
            side.build(_MODULE, name, "ours")
            side.measure(min(seconds, SETTLING_SECONDS))
        taken = in_turn(lambda: steps_a_second(each), lambda: steps_a_second([whole]), pairs)
        found.append(
            Pairing(
                name=f"threads: {name}",
                ours=f"{len(each)} trials of 1 thread",
                theirs=f"1 trial of {len(each)} threads",
                unit="steps/s",
                is_better="more",
                pairs=taken,
                bar=1.0,
            )
        )
    return tuple(found)
