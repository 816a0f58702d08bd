"""Compiled updates on the CPU beside the same as they are, of the cheapest shipped sweeps."""

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from benchmarks.pairs import Pairing, Quantity, conclude, environment, in_turn, measured, show

if TYPE_CHECKING:
    from torch import nn

    from hsweep.design.trial import Trial

SWEEPS: Final[Mapping[str, tuple[str, tuple[tuple[str, list[Any]], ...]]]] = {
    "retrieval": ("retrieval_heads", ()),
    "nearest neighbour": ("nearest_neighbor_rank", ()),
    "ViT, digits": ("vit_lean", ()),
    "GPT-2, docstrings": ("gpt2_tinystories", ()),
    "Nyströmformer, digits": ("lra_nystromformer", (("task", ["digits"]),)),
}
"""Name of a sweep, and what is set."""
UPDATES: Final = 40
FIRST_UPDATES: Final = 3
"""The first compiles, and the next ones still find out what changes and what does not."""


@click.command("compiled")
@measured(pairs=5)
@click.option("--only", multiple=True, type=click.Choice(tuple(SWEEPS)), help="All by default.")
def command(pairs: int, quick: bool, strict: bool, only: tuple[str, ...]) -> None:
    """Time an update of each sweep's largest shape, compiled and not, in processor time.

    Also by the clock how long the first updates take where nothing is compiled yet, and how many
    updates of that shape would make up for it.
    """
    where = environment()
    names = only or (("retrieval",) if quick else tuple(SWEEPS))
    pairings, quantities = [], []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HSWEEP_CACHE"] = cache
        _import_compiler()
        for name in names:
            trial = _largest(name)
            times, first = measure(trial, 1 if quick else pairs, 3 if quick else UPDATES)
            pairing = Pairing(name, "compiled", "as it is", "ms an update", "less", times)
            pairings.append(pairing)
            quantities.append(Quantity(f"{name}: first updates, compiling", first, "s"))
            ours, theirs = (sum(each) / len(times) for each in zip(*times, strict=True))
            made_up = first * 1e3 / (theirs - ours) if theirs > ours else float("inf")
            quantities.append(Quantity(f"{name}: updates that make up for it", made_up, ""))
    conclude(show("compiled", pairings, where, quantities=quantities), strict=strict)


def _import_compiler() -> None:
    """Compile something small, so that no sweep's first updates have the imports in them."""
    import torch

    torch.set_num_threads(1)
    torch.compile(torch.nn.Linear(2, 2))(torch.zeros(1, 2))


def _largest(name: str) -> "Trial":
    from hsweep.planning.options import SweepOptions
    from hsweep.planning.prepare import prepare

    sweep, chosen = SWEEPS[name]
    file = Path(__file__).parents[1] / "sweeps" / f"{sweep}.py"
    prepared = prepare(file, SweepOptions(settings=chosen))
    return max(prepared.plan.trials, key=lambda trial: trial.forward_flops)


def measure(
    trial: "Trial", pairs: int, updates: int
) -> tuple[tuple[tuple[float, float], ...], float]:
    """Return milliseconds of an update, compiled and not, of each pair; and the seconds of the
    first compiled updates."""
    import torch

    from hsweep.training.compiled import compiled

    device = torch.device("cpu")
    task, model = trial.built
    seeds, recipe = trial.seeds, replace(trial.recipe, compile="on")
    data: Any = task.open(
        data_seed=seeds.data,
        sampling_seed=seeds.sampling,
        batch_size=recipe.batch_size,
        device=device,
    )
    network = model.build().train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    batches = data.batches(0)
    made = compiled(network, recipe, device)

    def update(forward: "nn.Module") -> None:
        optimizer.zero_grad(set_to_none=True)
        data.loss(forward, next(batches)).backward()
        optimizer.step()

    def milliseconds(forward: "nn.Module") -> float:
        began = time.process_time()
        for _ in range(updates):
            update(forward)
        return (time.process_time() - began) / updates * 1e3

    began = time.perf_counter()
    for _ in range(FIRST_UPDATES):
        update(made)
    first = time.perf_counter() - began
    for forward in (made, network):
        milliseconds(forward)
    return in_turn(lambda: milliseconds(made), lambda: milliseconds(network), pairs), first
