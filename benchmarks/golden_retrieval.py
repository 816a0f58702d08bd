"""A small transition with a tuned rate and a ladder, and the same drawn by Optuna.

hsweep run benchmarks/golden_retrieval.py --runner inline
"""

from hsweep import (
    Point,
    Recipe,
    Sweep,
    Transition,
    epochs,
    grid,
    int_range,
    log_uniform,
    optuna_search,
    preset,
    tuned,
)
from models.retrieval import RetrievalTransformer
from tasks.synthetic.retrieval import Retrieval


def task(point: Point) -> Retrieval:
    """The sum of two maxima over ``seq_len`` vectors."""
    return Retrieval(seq_len=point.seq_len, dim=2, num_train=2048, num_validation=512)


def model(point: Point) -> RetrievalTransformer:
    """Attention read at a class token."""
    return RetrievalTransformer(heads=point.heads, head_dim=8, seq_len=point.seq_len, input_dim=2)


def recipe(point: Point) -> Recipe:
    """A schedule whose beginning the budgets share."""
    return Recipe(lr=point.lr, batch_size=128, betas=(0.9, 0.99), schedule="wsd", warmup_steps=20)


SWEEP = Sweep(
    name="golden_retrieval",
    space=grid(heads=[1, 2, 3, 4], seq_len=[8, 16], lr=tuned(3.2e-3, 1e-1)),
    task=task,
    model=model,
    recipe=recipe,
    metric="nmse",
    goal="min",
    budget=epochs(20, ladder=[5, 10, 20], report_every=5),
    replicates=4,
    question=Transition(x="heads", by="seq_len"),
    presets={
        "optuna": preset(
            space=int_range(heads=(1, 4)) * log_uniform(lr=(1e-3, 1e-1)) * grid(seq_len=8),
            search=optuna_search(10, also=(("num_params", "min"),)),
            budget=epochs(4),
            replicates=1,
            question=None,
        ),
    },
)
