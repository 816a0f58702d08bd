"""How long a training step of every model family takes, beside the library's own module.

Equal shape, data, loss, precision, optimizer and number of threads on both sides, each in a
process of its own. A step is forward, loss, backward and the optimizer's update.
"""

import contextlib
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
THREADED = ("retrieval, T = 128", "ViT, small", "GPT-2, larger")
QUICK = ("retrieval, T = 8", "Crammed BERT, small")
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
    found_in = environment()
    if quick:
        if only is None:
            cases = tuple(case for case in cases if case.name in QUICK)
        rows = measure(cases, 1, seconds=0.01)
        rows += measure_threads(QUICK[:1], 1, seconds=0.01)
    else:
        rows = measure(cases, pairs)
        rows += measure_threads([case.name for case in cases if case.name in THREADED], pairs)
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
    cases: "Sequence[Case]", pairs: int, *, seconds: float = BURST_SECONDS
) -> tuple[Pairing, ...]:
    """Measure our step beside the library's, one thread each, in turn.

    Args:
        cases: what to measure.
        pairs: how often both sides take steps.
        seconds: for how long each time.
    """
    found = []
    with Side(threads=1) as ours, Side(threads=1) as theirs:
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
        return burst.seconds * 1e3

    taken = in_turn(lambda: milliseconds(ours), lambda: milliseconds(theirs), pairs)
    cpu = [
        their.cpu_seconds / our.cpu_seconds
        for our, their in zip(bursts[ours], bursts[theirs], strict=True)
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
            "cpu_time_ratios": [round(ratio, 3) for ratio in cpu],
        },
    )


def measure_threads(
    names: Sequence[str], pairs: int, *, cores: int = 2, seconds: float = WINDOW_SECONDS
) -> tuple[Pairing, ...]:
    """Measure as many trials as cores of one thread each beside one trial on all cores, in turn.

    Args:
        names: of the cases.
        pairs: how often both are measured.
        cores: how many threads there are in all.
        seconds: for how long each time.
    """
    if not names:
        return ()
    found = []
    with contextlib.ExitStack() as stack:
        each = [stack.enter_context(Side(threads=1)) for _ in range(cores)]
        whole = stack.enter_context(Side(threads=cores))
        for name in names:
            for side in (*each, whole):
                side.build(_MODULE, name, "ours")
                side.measure(min(seconds, SETTLING_SECONDS))

            def steps_a_second(sides: Sequence[Side]) -> float:
                for side in sides:
                    side.start_measuring(seconds)
                return sum(burst.number / burst.elapsed for burst in [s.measured() for s in sides])

            found.append(
                Pairing(
                    name=f"threads: {name}",
                    ours=f"{cores} trials of 1 thread",
                    theirs=f"1 trial of {cores} threads",
                    unit="steps/s",
                    is_better="more",
                    pairs=in_turn(
                        lambda: steps_a_second(each), lambda: steps_a_second([whole]), pairs
                    ),
                    bar=1.0,
                )
            )
    return tuple(found)
