"""Do many heads of low rank replace one of full rank?

Question. For every point of a sequence, name the one farthest from it. "Quality over Quantity in
Attention Layers: When Adding More Heads Hurts" (Amsel, Yehudai and Bruna, ICLR 2025) shows that one
head whose rank is the points' dimension represents this target, and that heads of lower rank need
to be exponentially many, or further layers. Attention here is `widening` times as wide as a token,
so there are widening * dim / rank heads: heads and rank vary apart.

Expectation. In one layer the error collapses at full rank, rank = dim, and nowhere below it. Below
full rank the error grows with the number of points N, while more heads help little. Published, for
one layer, 64 dimensions, 16 points and 8 times the width: 0.83, 0.82, 0.79, 0.73, 0.62, 0.43 and
0.007 for ranks 1 to 64. With 3 or 5 layers low ranks do far better (0.05 at rank 4).

Seen. `quick`, in one layer of twice the width, each cell at the best of four learning rates, two
seeds that did not choose it: with 16 points the error falls from 0.57 at rank 1 to 0.44 at rank 4,
and to 0.012 at rank 8, which is the dimension (with 4 points 0.48, 0.29 and 0.011). It collapses at
rank 8 (95 % set {8}), by a factor of about 30, and hardly grows with the number of points there
(slope 0.054). After 5 and 10 epochs the answer is the same, with drops of 1.13 and 1.31 decades.
The place is settled; growth with the number of points may come back with more training. The best
rate is 0.1 in seven cells of eight and 0.032 in the other, inside the range tried.

Choices. Training sequences never repeat, and the error is that of held-out sequences; the published
runs met the same 100 batches in every epoch and report the error on these, the least over all
epochs and seeds (`replay` does so, and shows both errors). Initial weights differ between seeds,
which the published ones did not. The published schedule moves once an epoch, from 0 over the first
twentieth of all epochs and then along a cosine to 0; here it moves every step.

Cost. `quick`: 8 dimensions, 96 trials trained and 192 stopped early, 4 minutes of one core that had
other work as well. `paper`: 315 trials of 1e5 batches, at most
six hours of a GPU each by the paper.

    hsweep run nearest_neighbor_rank
    hsweep plan nearest_neighbor_rank --preset paper
"""

from dataclasses import replace

from hsweep import Asha, Point, Recipe, Resources, Sweep, Transition, epochs, grid, preset, tuned
from models.rank_encoder import RankEncoder, nearest_neighbor_encoder
from tasks.synthetic.nearest_neighbor import NearestNeighbor


def task(point: Point) -> NearestNeighbor:
    """Points uniform on the sphere, in a stream unless ``replay`` counts batches to repeat."""
    return NearestNeighbor(
        seq_len=point.seq_len, dim=point.dim, replay_batches=point.get("replay") or None
    )


def model(point: Point) -> RankEncoder:
    """The post-norm encoder; a rank that does not divide the width is impossible."""
    return nearest_neighbor_encoder(
        depth=point.depth,
        rank=point.rank,
        widening=point.widening,
        embed_dim=point.dim,
        seq_len=point.seq_len,
        mlp_dim=point.mlp_dim,
        positions=point.positions,
    )


def published_recipe(point: Point) -> Recipe:
    """The published optimiser and schedule."""
    return Recipe(lr=point.lr, batch_size=point.batch_size, betas=(0.9, 0.95), warmup_fraction=0.05)


def recipe(point: Point) -> Recipe:
    """The published optimiser, its rate held until it falls, so that budgets share a beginning."""
    return replace(published_recipe(point), schedule="wsd", warmup_fraction=0.0, warmup_steps=100)


SMALL = grid(dim=8, depth=1, mlp_dim=64, batch_size=128, positions="none") * grid(
    lr=tuned(1e-2, 3.2e-1)
)
PUBLISHED = grid(dim=64, mlp_dim=2048, batch_size=256, positions="none")
RANKS = [1, 2, 4, 8, 16, 32, 64]

SWEEP = Sweep(
    name="nearest_neighbor_rank",
    space=grid(rank=[1, 2, 4, 8], seq_len=[4, 16], widening=2) * SMALL,
    task=task,
    model=model,
    recipe=recipe,
    metric="squared_error",
    goal="min",
    budget=epochs(20, ladder=[5, 10, 20]),
    # From a quarter of the budget on: here the largest rates lead at every budget.
    early_stopping=Asha(grace=5, reduction_factor=2, min_survivors=1, scouts=1),
    replicates=3,
    question=Transition(x="rank", by="seq_len"),
    presets={
        "heads": preset(
            note="eight times as many heads at every rank: does that make up for the rank?",
            space=grid(rank=[1, 2, 4, 8], widening=[1, 8], seq_len=16) * SMALL,
            question=Transition(x="rank", by="widening"),
        ),
        "replay": preset(
            note="as published, the same 100 batches in every epoch; train_squared_error is theirs",
            space=grid(rank=[1, 2, 4, 8], seq_len=[4, 16], widening=2, replay=100) * SMALL,
        ),
        "paper": preset(
            note="figure 1 at the published rate: one, three and five layers, three widths, five "
            "seeds; at every rank "
            "the widths compete, so the question is whether any number of heads makes up for it. "
            "`--set depth=1` asks it of one layer alone",
            space=grid(rank=RANKS, depth=[1, 3, 5], widening=[1, 8, 64])
            * grid(seq_len=16, lr=0.01)
            * PUBLISHED,
            recipe=published_recipe,
            budget=epochs(1000, report_every=20),
            replicates=5,
            early_stopping=Asha(grace=200, strata=("rank", "depth", "widening")),
            resources=Resources(cpus=1, gpus=0.25),
            question=Transition(x="rank", by="depth", nuisance=("widening",)),
        ),
        "lengths": preset(
            note="the figure over the number of points at the published rate: two layers, 64 times "
            "the width",
            space=grid(rank=[1, 8, 16, 32, 64], seq_len=[4, 16, 64, 256])
            * grid(depth=2, widening=64, lr=0.005)
            * PUBLISHED,
            recipe=published_recipe,
            budget=epochs(2000, report_every=40),
            replicates=5,
            early_stopping=Asha(grace=400, strata=("rank", "seq_len")),
            resources=Resources(cpus=1, gpus=0.5),
        ),
        "smoke": preset(
            note="to see that everything works; far too short for an answer",
            space=(grid(rank=[1, 8], seq_len=[4], widening=2) * SMALL).override("lr", [0.03]),
            budget=epochs(2),
            replicates=1,
            early_stopping=None,
        ),
    },
)
