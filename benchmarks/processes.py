"""A trial trained by two processes of one thread beside one process of two threads.

Both train the same trials of a study on Ray, with the same batches, evaluations and reports, on two
cores. The second trial is timed, from the end of the first, when the processes are there and warm.
"""

from pathlib import Path
from typing import Final, NamedTuple

import click

from benchmarks.pairs import (
    Pairing,
    Quantity,
    conclude,
    environment,
    in_turn,
    measured,
    show,
)
from benchmarks.studies import ends_in, log_of, reports_in

SWEEP: Final = Path(__file__).with_name("processes_sweep.py")
MODELS: Final = ("vit", "gpt2")
TRIAL_SECONDS: Final = 10.0
PROBED: Final = 40
MOST_APART: Final = 1e-2
"""How far the losses may be apart, as a share: rounding, grown over all updates."""


class _Trial(NamedTuple):
    seconds: float
    loss: float


@click.command("processes")
@measured(pairs=3)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Time a trial of about ten seconds trained by two processes, and by one of two threads."""
    about = environment()
    found = [_compared(model, pairs, quick=quick) for model in (MODELS[:1] if quick else MODELS)]
    pairings = [pairing for pairing, _ in found]
    quantities = [quantity for _, quantity in found]
    conclude(show("processes", pairings, about, quantities=quantities), strict=strict)


def _compared(model: str, pairs: int, *, quick: bool) -> tuple[Pairing, Quantity]:
    updates = 4
    if not quick:
        updates = max(4, round(PROBED * TRIAL_SECONDS / _trained(model, PROBED, 1).seconds))
    losses: dict[int, float] = {}

    def side(processes: int) -> float:
        seconds, losses[processes] = _trained(model, updates, processes)
        return seconds

    pairing = Pairing(
        name=f"a trial of {model}",
        ours="two processes of one thread",
        theirs="one process of two threads",
        unit="s",
        is_better="less",
        pairs=in_turn(lambda: side(2), lambda: side(1), pairs),
        facts={"updates": updates},
    )
    apart = Quantity(
        name=f"{model}: how far the last losses are apart, as a share",
        value=abs(losses[2] - losses[1]) / abs(losses[1]),
        unit="",
        bar=MOST_APART,
        is_better="less",
    )
    return pairing, apart


def _trained(model: str, updates: int, processes: int) -> _Trial:
    """Run the study in a process of its own, one trial at a time."""
    settings = (
        *(f"model={model}", f"steps={updates}", f"report_every={updates}"),
        *(f"processes={processes}", f"cpus={2 // processes}"),
    )
    log = log_of(SWEEP, settings, ("--no-check", "--max-concurrent", "1"))
    first, second = ends_in(log)
    return _Trial(second - first, reports_in(log)[-1].payload["metrics"]["train_loss"])
