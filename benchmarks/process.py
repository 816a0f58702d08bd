"""What a process that trains does besides its kernels, and what trials leave in it for the next."""

import json
from typing import Any

import click

from benchmarks.pairs import Pairing, Quantity, conclude, environment, in_process, measured, show

_MODULE = "benchmarks.process_sides"
_MOST_GROWTH = 8.0
"""MiB in forty trials; a leaked model of this size with its optimizer would be 0.03 each, a data
set 2."""


@click.command("process")
@measured(pairs=9)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure the loop around a step, checkpoints, data opened again, and what trials leave."""
    found_in = environment()
    num_steps, width, num_trials = (20, 64, 12) if quick else (300, 384, 50)
    pairs = 1 if quick else pairs
    rows = [
        Pairing(
            name=f"step of the smallest retrieval model, {named}",
            ours="our loop",
            theirs="as everybody writes it",
            unit="s of processor time",
            is_better="less",
            pairs=_pairs("step", num_steps=num_steps, pairs=pairs, clip_norm=clip_norm),
        )
        for named, clip_norm in (("no clipping", None), ("clipped", 1.0))
    ]
    held = _asked("checkpoint", embed_dim=width, pairs=pairs)
    rows.append(
        Pairing(
            name="training held up by a checkpoint",
            ours="written beside",
            theirs="written here",
            unit="s",
            is_better="less",
            pairs=_as_pairs(held["pairs"]),
            facts={"parameters": held["parameters"]},
        )
    )
    opened = [_asked("opening") for _ in range(1 if quick else 3)]
    rows += [
        Pairing(
            name=f"opening data, {name}",
            ours="again",
            theirs="at first",
            unit="s",
            is_better="less",
            pairs=_as_pairs([each[name] for each in opened]),
        )
        for name in opened[0]
    ]
    growth = Quantity(
        name=f"memory gained from trial 10 to {num_trials} of a process",
        value=_asked("growth", num_trials=num_trials)["mib"],
        unit="MiB",
        bar=_MOST_GROWTH,
    )
    conclude(show("process", rows, found_in, quantities=[growth]), strict=strict)


def _asked(what: str, **settings: Any) -> dict[str, Any]:
    ended = in_process(
        ["-m", _MODULE, what, json.dumps(settings)], variables={"OMP_NUM_THREADS": "1"}
    )
    return ended.result


def _pairs(what: str, **settings: Any) -> tuple[tuple[float, float], ...]:
    return _as_pairs(_asked(what, **settings)["pairs"])


def _as_pairs(found: list[list[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((ours, theirs) for ours, theirs in found)
