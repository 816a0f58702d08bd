"""Does retrieval need as many heads as it has maxima, also in sequences of 128?

Question. The study that the tool's speed is measured with: heads 1 to 5 at three lengths, two
seeds, twenty epochs with a report after each, everything else as in `sweeps/retrieval_heads.py`.
No trial is stopped early, so that every program that is measured does the same steps.

Expectation. Twenty epochs are too few for the collapse that hundreds show; the error falls with
every head.

Cost. Thirty trials of 620 updates, about a minute on two cores.

    hsweep run benchmarks/head_count.py
"""

from dataclasses import replace

from hsweep import Point, epochs, grid
from sweeps.retrieval_heads import SWEEP as RETRIEVAL_HEADS
from tasks.synthetic.retrieval import Retrieval

HEADS = [1, 2, 3, 4, 5]
LENGTHS = [8, 32, 128]


def task(point: Point) -> Retrieval:
    """The sum of four maxima over ``seq_len`` vectors; ``sequences`` to train on."""
    return Retrieval(
        seq_len=point.seq_len,
        dim=point.dim,
        num_train=point.sequences,
        num_validation=point.sequences // 4,
    )


SWEEP = replace(
    RETRIEVAL_HEADS,
    name="head_count",
    space=grid(heads=HEADS, seq_len=LENGTHS)
    * grid(sequences=8000)
    * grid(dim=4, depth=1, head_dim=8, lr=1e-2),
    task=task,
    budget=epochs(20),
    replicates=2,
    early_stopping=None,
    presets={},
    description=__doc__.strip(),
)
