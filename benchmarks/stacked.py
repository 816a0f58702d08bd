"""Replicates trained as one program beside the same replicates trained one after another."""

import itertools
import math
import multiprocessing
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import click

from benchmarks.pairs import Pairing, Quantity, conclude, environment, in_turn, measured, show

if TYPE_CHECKING:
    from hsweep.design.trial import Trial

SIZES: Final = (1, 4, 16, 64)
LENGTHS: Final = (8, 128)
CPU_SECONDS: Final = 3.0
"""About how long the separate side of a pair takes, so that many replicates take few updates."""
LEAST_UPDATES, MOST_UPDATES = 3, 100
MOST_APART: Final = 1e-3
"""How far two NMSE may be apart after so few updates, as a share: rounding alone."""

Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Replicates of a shape of the head-count study.

    Attributes:
        seq_len: tokens of an example.
        replicates: how many seeds.
        updates: of each.
        on_gpu: train on CUDA.
    """

    seq_len: int
    replicates: int
    updates: int
    on_gpu: bool = False


@click.command("stacked")
@measured(pairs=5)
@click.option("--gpu", is_flag=True, help="Train on the first GPU.")
@click.option("--length", "lengths", type=click.Choice(list(map(str, LENGTHS))), multiple=True,
              help="Length of the sequences; all by default.")  # fmt: skip
@click.option("--replicates", "sizes", type=click.IntRange(1), multiple=True,
              help=f"How many seeds; by default {', '.join(map(str, SIZES))}.")  # fmt: skip
def command(
    pairs: int,
    quick: bool,
    strict: bool,
    gpu: bool,
    lengths: tuple[str, ...],
    sizes: tuple[int, ...],
) -> None:
    """Time an update of K replicates as one program, and one after another.

    On the CPU what is measured is processor time, which others on the machine take no part of; on a
    GPU the time by the clock.
    """
    sizes = sizes or ((4,) if quick else SIZES)
    lengths = lengths or (("8",) if quick else tuple(map(str, LENGTHS)))
    where = environment()
    pairings, quantities = [], []
    # Each side keeps its process, so that no process starts within a pair.
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as ours, context.Pool(1) as theirs:
        for length, size in itertools.product(map(int, lengths), sizes):
            probe: Found = theirs.apply(train, (Case(length, size, LEAST_UPDATES, gpu), False))
            ours.apply(train, (Case(length, size, LEAST_UPDATES, gpu), True))
            updates = round(CPU_SECONDS / probe["seconds"] * LEAST_UPDATES)
            updates = min(MOST_UPDATES, max(LEAST_UPDATES, updates)) if not quick else LEAST_UPDATES
            case = Case(length, size, updates, gpu)
            kept: dict[bool, Found] = {}

            def side(is_stacked: bool, case: Case = case, kept: dict[bool, Found] = kept) -> float:
                found: Found = (ours if is_stacked else theirs).apply(train, (case, is_stacked))
                kept[is_stacked] = found
                return 1e3 * float(found["seconds"]) / case.updates / case.replicates

            name = f"T={length}, K={size}"
            pairings.append(
                Pairing(
                    name,
                    "stacked",
                    "one after another",
                    "ms a replicate's update",
                    "less",
                    in_turn(lambda: side(True), lambda: side(False), 1 if quick else pairs),
                    facts={"updates": updates, "reason": kept[True]["reason"]},
                )
            )
            apart = _apart(kept[True]["nmse"], kept[False]["nmse"])
            quantities.append(Quantity(f"{name}: NMSE apart", apart, "of itself", MOST_APART))
    holds = show("stacked", pairings, where, quantities=quantities)
    conclude(holds, strict=strict)


def train(case: Case, is_stacked: bool) -> Found:
    """Train the replicates of a case in this process; return the time of their updates alone."""
    from hsweep.design.trial import Assignment, Report
    from hsweep.training.stacked.session import StackedSession
    from hsweep.training.train import TrialSession

    if not case.on_gpu:
        processor_time()
    seconds: float = 0.0
    nmse: dict[int, float] = {}
    reason = ""
    with tempfile.TemporaryDirectory() as folder:
        given = [Assignment(trial, 1, 0, folder, math.inf) for trial in trials_of(case)]
        for group in [given] if is_stacked else [[each] for each in given]:
            stacked = StackedSession(group, always=True) if is_stacked else None
            session = stacked or TrialSession(group[0])
            while events := session.next_events():
                for assignment, report in events:
                    assert isinstance(report, Report), report
                    seconds += report.train_seconds
                    nmse[assignment.trial.replicate] = report.metrics["nmse"] or math.nan
            session.close()
            reason = stacked.reason if stacked is not None else ""
    return {"seconds": seconds, "nmse": nmse, "reason": reason}


def processor_time() -> None:
    """Let trials of this process be timed by the processor time that they take."""
    from hsweep.training import train
    from hsweep.training.stacked import replicate, session

    clock = SimpleNamespace(perf_counter=time.process_time)
    for module in (train, replicate, session):
        setattr(module, "time", clock)  # noqa: B010  the type of a module is not that of a clock


def trials_of(case: Case) -> "tuple[Trial, ...]":
    """Return the replicates, of which each reports once."""
    from hsweep import Recipe, Resources, Sweep, grid, steps
    from hsweep.planning.plan import make_plan
    from models.retrieval import RetrievalTransformer
    from tasks.synthetic.retrieval import Retrieval

    sweep = Sweep(
        name="stacked",
        space=grid(heads=[4]),
        task=Retrieval(seq_len=case.seq_len, num_train=1024, num_validation=256),
        model=lambda point: RetrievalTransformer(
            heads=point.heads, head_dim=8, seq_len=case.seq_len, input_dim=4
        ),
        recipe=Recipe(lr=1e-3, batch_size=256),
        metric="nmse",
        goal="min",
        budget=steps(case.updates, report_every=case.updates),
        replicates=case.replicates,
        resources=Resources(cpus=1, gpus=1 if case.on_gpu else 0),
    )
    return make_plan(sweep, preset="quick", study_seed=0).trials


def _apart(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """Return the largest difference between two NMSE of a replicate, as a share of them."""
    return max(abs(ours[each] - theirs[each]) / abs(theirs[each]) for each in theirs)
