"""Does retrieval need as many heads as it has maxima, also in sequences of 128?

Question. The study that the tool's speed is measured with: heads 1 to 5 at three lengths, two
seeds, twenty epochs with a report after each, AdamW at one rate, which the other programs have.
No trial is stopped early, so that every program that is measured does the same steps.

Expectation. Twenty epochs are too few for the collapse that hundreds show; the error falls with
every head.

Cost. Thirty trials of 620 updates, about a minute on two cores.

    hsweep run benchmarks/head_count.py
"""

from hsweep import Point, Recipe, Sweep, Transition, epochs, grid
from models.retrieval import RetrievalTransformer
from tasks.synthetic.retrieval import Retrieval

DIM = 4


def task(point: Point) -> Retrieval:
    """The sum of four maxima over ``seq_len`` vectors; ``sequences`` to train on."""
    return Retrieval(
        seq_len=point.seq_len,
        dim=DIM,
        num_train=point.sequences,
        num_validation=point.sequences // 4,
    )


def model(point: Point) -> RetrievalTransformer:
    """Attention read at a class token, the width of a head fixed."""
    return RetrievalTransformer(
        heads=point.heads, head_dim=8, seq_len=point.seq_len, input_dim=task(point).token_dim
    )


SWEEP = Sweep(
    name="head_count",
    space=grid(heads=[1, 2, 3, 4, 5], seq_len=[8, 32, 128]) * grid(sequences=8000),
    task=task,
    model=model,
    recipe=Recipe(lr=1e-2, batch_size=256, betas=(0.9, 0.99), warmup_fraction=0.05),
    metric="nmse",
    goal="min",
    budget=epochs(20),
    replicates=2,
    question=Transition(x="heads", by="seq_len"),
)
