"""What is measured within one process that trains: ``python -m benchmarks.process_sides WHAT``.

Each prints one line of JSON. Trials are trained as a worker trains them.
"""

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.baselines import plain_loop
from benchmarks.pairs import in_turn
from hsweep import Point, Recipe, Sweep, grid
from hsweep.design.budget import epochs, steps
from hsweep.design.trial import Assignment, Trial
from hsweep.planning.plan import make_plan
from hsweep.training import train as training
from hsweep.training.checkpoints import BackgroundWriter, CheckpointStore
from hsweep.training.optimizers import build_optimizer
from hsweep.training.train import TrialSession
from models.retrieval import RetrievalTransformer
from models.vit import ViT
from tasks.language.stories import Stories
from tasks.synthetic.retrieval import Retrieval
from tasks.vision.images import Images

CPU = torch.device("cpu")
RETRIEVAL = Retrieval(seq_len=8, num_validation=64)


def retrieval_model(point: Point) -> RetrievalTransformer:
    """Return the model of a point with a number of ``heads``."""
    return RetrievalTransformer(heads=point.heads, head_dim=8, seq_len=8, input_dim=4)


def trials(heads: Sequence[int], budget: Any, **recipe: Any) -> tuple[Trial, ...]:
    """Return trials of the retrieval task with eight vectors in a sequence."""
    sweep = Sweep(
        name="process",
        space=grid(heads=list(heads)),
        task=RETRIEVAL,
        model=retrieval_model,
        metric="nmse",
        goal="min",
        budget=budget,
        recipe=Recipe(lr=1e-2, batch_size=256, **recipe),
    )
    return make_plan(sweep, preset="quick", study_seed=0).trials


def run(trial: Trial, folder: Path) -> list[Any]:
    """Train a trial as a worker does, and return its reports."""
    session = TrialSession(Assignment(trial, 1, 0, str(folder), 1e9))
    reports = []
    while events := session.next_events():
        reports += [report for _, report in events]
    session.close()
    return reports


def step(num_steps: int, pairs: int, clip_norm: float | None) -> dict[str, Any]:
    """Time a step of our loop and of one with nothing taken out, model and data the same.

    In processor time, since what a loop costs of its own is less than a busy machine takes away.
    """
    vars(training)["time"] = _ProcessorTime()
    budget = steps(num_steps, report_every=num_steps)
    (trial,) = trials([1], budget, clip_norm=clip_norm)

    def ours() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return float(run(trial, Path(folder))[-1].train_seconds) / num_steps

    def theirs() -> float:
        data = RETRIEVAL.open(data_seed=0, sampling_seed=0, batch_size=256, device=CPU)
        return plain_loop.seconds_a_step(
            trial.built[1].build(),
            data.batches(0),
            data.loss,
            lr=1e-2,
            clip_norm=clip_norm,
            steps=num_steps,
            clock=time.thread_time,
        )

    ours(), theirs()
    return {"pairs": in_turn(ours, theirs, pairs)}


class _ProcessorTime:
    def perf_counter(self) -> float:
        return time.thread_time()


def checkpoint(embed_dim: int, pairs: int) -> dict[str, Any]:
    """Time how long a checkpoint holds training up, written beside it and by it."""
    model = ViT(
        embed_dim=embed_dim, depth=6, heads=8, mlp_ratio=4.0,
        image_size=32, patch_size=4, in_chans=3, num_classes=10,
    ).build()  # fmt: skip
    optimizer = build_optimizer(model, Recipe())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "history": []}
    with tempfile.TemporaryDirectory() as folder:
        writer = BackgroundWriter(CheckpointStore(folder, "trial", 1))

        def beside() -> float:
            started = time.perf_counter()
            writer.save(1, state, beside=True)
            held = time.perf_counter() - started
            writer.wait()
            return held

        def here() -> float:
            started = time.perf_counter()
            writer.save(1, state, beside=False)
            return time.perf_counter() - started

        beside(), here()
        found = in_turn(beside, here, pairs)
    return {"pairs": found, "parameters": sum(p.numel() for p in model.parameters())}


def opening() -> dict[str, Any]:
    """Time how long a task's data take to be opened, at first and again, under another seed."""
    tasks: dict[str, Any] = {
        "retrieval, T = 128": replace(RETRIEVAL, seq_len=128, num_validation=2000),
        "digits, 32 x 32": Images(image_size=32),
        "docstrings, tokenised": Stories(max_documents=300),
    }
    # What is read or made once a node is there.
    torch.zeros(1)
    found = {}
    for name, task in tasks.items():
        seconds = []
        for number in range(2):
            started = time.perf_counter()
            task.open(data_seed=1, sampling_seed=number, batch_size=8, device=CPU)
            seconds.append(time.perf_counter() - started)
        found[name] = seconds[::-1]
    return found


def growth(num_trials: int) -> dict[str, Any]:
    """Return how much memory a process gains from its tenth trial to its last, in MiB."""
    planned = trials(range(1, 6), epochs(2))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num_trials):
            run(planned[number % 5], Path(folder) / str(number))
            if number == 9:
                gc.collect()
                before = _resident()
    gc.collect()
    return {"mib": (_resident() - before) / 2**20}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


SIDES: dict[str, Callable[..., dict[str, Any]]] = {
    "step": step,
    "checkpoint": checkpoint,
    "opening": opening,
    "growth": growth,
}


def main(what: str, settings: str) -> None:
    """Measure one thing and print what was found."""
    torch.set_num_threads(1)
    print(json.dumps(SIDES[what](**json.loads(settings))))


if __name__ == "__main__":
    main(*sys.argv[1:])
