"""How many heads does retrieval need?

Question. A sequence of T vectors has to be summarised by the sum of D maxima, one along each of D
directions. "The Effect of Attention Head Count on Transformer Approximation" says that the task's
intrinsic dimension D is the number of heads needed: with fewer the error stays large and grows
with T, and at D heads it collapses.

Expectation. With D = 4, the validation NMSE falls slowly up to 3 heads, by more than two orders of
magnitude from 3 to 4, and hardly further at 5, at every length.

Seen. `quick` puts the drop at 4 heads (95 % set {4}), but what error is left there (2e-5 to 9e-5)
still grows from T = 8 to T = 16, also after 600 epochs, where it is six times smaller: the
verdict is a jump, not the paper's full transition, whose errors no longer grow with T.

Cost. `quick`: two lengths, two seeds, two minutes on two cores. `paper`: five lengths, five seeds,
1,000 epochs.

    hsweep run sweeps/retrieval_heads.py
    hsweep plan sweeps/retrieval_heads.py --preset paper
"""

from hsweep import Asha, Point, Recipe, Sweep, Transition, epochs, grid, preset
from models.retrieval import RetrievalTransformer
from tasks.synthetic.retrieval import Retrieval

HEADS = [1, 2, 3, 4, 5]
PAPER_LENGTHS = [8, 16, 32, 64, 128]


def task(point: Point) -> Retrieval:
    """The sum of ``dim`` maxima over ``seq_len`` vectors of the same dimension, or a variant."""
    return Retrieval(
        seq_len=point.seq_len,
        dim=point.dim,
        outer=point.get("outer", "sum"),
        sets=point.get("sets", "all"),
        samples=point.get("samples", "fixed"),
    )


def model(point: Point) -> RetrievalTransformer:
    """Attention read at a class token, the width of a head fixed unless ``embed_dim`` is given."""
    return RetrievalTransformer(
        heads=point.heads,
        head_dim=point.head_dim,
        seq_len=point.seq_len,
        input_dim=task(point).token_dim,
        depth=point.depth,
        embed_dim=point.get("embed_dim"),
        residual=point.get("residual", False),
    )


def recipe(point: Point) -> Recipe:
    """AdamW with a short warm-up and a cosine to zero: 1e-5 is reached only at the very end."""
    return Recipe(lr=point.lr, batch_size=256, betas=(0.9, 0.99), warmup_fraction=0.05)


SETTING = grid(dim=4, depth=1, head_dim=8, lr=1e-2)

SWEEP = Sweep(
    name="retrieval_heads",
    space=grid(heads=HEADS, seq_len=[8, 16]) * SETTING,
    task=task,
    model=model,
    recipe=recipe,
    metric="nmse",
    goal="min",
    budget=epochs(150, report_every=5),
    replicates=2,
    early_stopping=Asha(grace=15, strata=("seq_len", "heads")),
    question=Transition(x="heads", by="seq_len"),
    presets={
        "paper": preset(
            note="the paper's grid; 125 trials, about three core-hours by what `quick` took a FLOP",
            space=grid(heads=HEADS, seq_len=PAPER_LENGTHS) * SETTING,
            budget=epochs(1000, report_every=20),
            replicates=5,
        ),
        "d3": preset(
            note="three maxima: the transition should move to 3 heads",
            space=grid(heads=HEADS, seq_len=[8, 16]) * grid(dim=3, depth=1, head_dim=8, lr=1e-2),
        ),
        "fixed_width": preset(
            note="total width 32 for every number of heads: is it heads or parameters? Where 32 is "
            "not divisible the heads are narrower and a projection leads back to 32",
            space=(
                grid(heads=HEADS, seq_len=[8, 16]) * grid(dim=4, depth=1, embed_dim=32, lr=1e-2)
            ).derive(head_dim=lambda point: 32 // point.heads),
        ),
        "two_layers": preset(
            note="the paper's conjecture: what counts is heads times layers. With a residual: "
            "without one the second layer loses what the first has read",
            space=grid(heads=[1, 2, 3, 4], seq_len=[8, 16])
            * grid(dim=4, depth=2, head_dim=8, residual=True, lr=1e-2),
        ),
        "sets": preset(
            note="each maximum over a block of positions of its own, from sequences that never "
            "repeat; `--set outer=squares` (product, sine) for another function of the maxima",
            space=grid(heads=HEADS, seq_len=[8, 16])
            * grid(sets="blocks", samples="stream", outer="sum")
            * SETTING,
        ),
        "tuned": preset(
            note="learning rates compete within each cell of heads and length",
            space=grid(heads=HEADS, seq_len=[8, 16], lr=[3e-3, 1e-2, 3e-2])
            * grid(dim=4, depth=1, head_dim=8),
            question=Transition(x="heads", by="seq_len", nuisance=("lr",)),
            early_stopping=Asha(grace=15, strata=("seq_len", "heads"), compete="points"),
        ),
        "smoke": preset(
            note="half a minute, to see that everything works; far too short for an answer",
            space=grid(heads=[1, 4], seq_len=[8]) * SETTING,
            budget=epochs(4),
            replicates=1,
            early_stopping=None,
        ),
    },
)
