"""A trial trained by two processes of one thread beside one process of two threads.

Both train the same trial, with the same batches, evaluations and reports, on two cores. Beside the
time by the clock stands the processor time that all of them take, of which others on the machine
take no part.
"""

import itertools
import math
import multiprocessing
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from benchmarks.pairs import Pairing, Quantity, conclude, environment, in_turn, measured, show

if TYPE_CHECKING:
    from hsweep.design.trial import Trial
    from hsweep.training.world import World

MODELS: Final = ("vit", "gpt2")
TRIAL_SECONDS: Final = 10.0
PROBED, MOST_UPDATES = 5, 2000
MOST_APART: Final = 1e-2
"""How far the metrics may be apart after so many updates, as a share of them: rounding alone."""

Found = Mapping[str, Any]

_world: "World | None" = None


@click.command("processes")
@measured(pairs=5)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Time a trial of about ten seconds trained by two processes, and by one of two threads."""
    where = environment()
    pairings, quantities = [], []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        with (
            context.Pool(1, _join, (folder, 0, 1)) as alone,
            context.Pool(1, _join, (folder, 0, 2)) as first,
            context.Pool(1, _join, (folder, 1, 2)) as second,
        ):
            for model in MODELS:

                def side(
                    updates: int, kept: dict[int, Found], of_two: bool, model: str = model
                ) -> float:
                    arguments = (model, updates, f"{folder}/{next(numbers)}")
                    beside = second.apply_async(train, arguments) if of_two else None
                    found = dict((first if of_two else alone).apply(train, arguments))
                    if beside is not None:
                        found["processor"] += beside.get()["processor"]
                    kept[2 if of_two else 1] = found
                    return float(found["seconds"])

                kept: dict[int, Found] = {}
                side(PROBED, kept, True)
                update = side(PROBED, kept, False) / PROBED
                updates = PROBED if quick else min(MOST_UPDATES, math.ceil(TRIAL_SECONDS / update))
                measured_pairs = in_turn(
                    lambda: side(updates, kept, True),  # noqa: B023  called here alone
                    lambda: side(updates, kept, False),  # noqa: B023
                    1 if quick else pairs,
                )
                pairings.append(
                    Pairing(
                        *(model, "two processes", "one of two threads", "s", "less"),
                        measured_pairs,
                        facts={"updates": updates},
                    )
                )
                spent = kept[2]["processor"] / kept[1]["processor"]
                quantities.append(Quantity(f"{model}: processor time", spent, "of one process's"))
                apart = abs(kept[2]["loss"] - kept[1]["loss"]) / kept[1]["loss"]
                quantities.append(Quantity(f"{model}: loss apart", apart, "of itself", MOST_APART))
    holds = show("processes", pairings, where, quantities=quantities)
    conclude(holds, strict=strict)


def _join(folder: str, rank: int, size: int) -> None:
    """Make this process one of ``size``."""
    from torch import distributed

    from hsweep.training.world import ALONE, World

    global _world
    if size == 1:
        _world = ALONE
        return
    file = Path(folder) / "store"
    distributed.init_process_group("gloo", init_method=file.as_uri(), rank=rank, world_size=size)
    _world = World(rank, size, distributed.new_group(backend="gloo"))


def train(model: str, updates: int, folder: str) -> Found:
    """Train in this process, alone or as one of two; return time, processor time and loss."""
    import torch

    from hsweep.design.trial import Assignment
    from hsweep.training.train import train as train_trial

    assert _world is not None
    torch.set_num_threads(2 // _world.size)
    assignment = Assignment(trial_of(model, updates), 1, 0, folder, math.inf)
    started, spent = time.perf_counter(), time.process_time()
    reports = list(train_trial(assignment, torch.device("cpu"), _world))
    loss = reports[-1].metrics["train_loss"] if reports else None  # type: ignore[union-attr]
    return {
        "seconds": time.perf_counter() - started,
        "processor": time.process_time() - spent,
        "loss": loss,
    }


def trial_of(model: str, updates: int) -> "Trial":
    """Return a trial that reports four times."""
    from hsweep import Recipe, Sweep, grid, steps
    from hsweep.planning.plan import make_plan
    from models.decoder import gpt2_tiny_stories
    from models.vit import ViT
    from tasks.language.stories import Stories
    from tasks.vision.images import Images

    learned: dict[str, Any]
    if model == "vit":
        vit = ViT(
            embed_dim=128,
            depth=4,
            heads=4,
            patch_size=4,
            image_size=32,
            in_chans=1,
            num_classes=10,
        )
        learned = {"task": Images("digits", image_size=32), "model": lambda point: vit}  # noqa: ARG005
    else:
        task = Stories(seq_len=64, vocab_size=1024, max_validation=64)
        # Without dropout, which draws other masks in every process.
        gpt2 = gpt2_tiny_stories(depth=2, heads=4, seq_len=64, vocab_size=1024, dropout=0.0)
        learned = {"task": task, "model": lambda point: gpt2}  # noqa: ARG005
    sweep = Sweep(
        name="processes",
        space=grid(heads=[4]),
        **learned,
        recipe=Recipe(lr=3e-4, batch_size=32),
        metric="validation_loss",
        goal="min",
        budget=steps(updates, report_every=max(1, updates // 4)),
    )
    return make_plan(sweep, preset="quick", study_seed=0).trials[0]
