"""How many heads does an image classifier need, and does a longer sequence need more?

Question. "The Effect of Attention Head Count on Transformer Approximation" trains a 4-layer ViT on
CIFAR-10 (patches of 8 pixels, heads 16 wide) and lengthens the sequence by extending the image's
border, which adds tokens but no information. It reports 90 to 95 % training accuracy with 8 heads
and 96 to 98 % from 10 heads on, a transition at about 10. Does it show, and does the length matter
below it?

Expectation. By the paper, the training error falls with heads and grows with T below the
transition; above it, it no longer grows. Validation accuracy may fall with many heads.

Seen. `quick`, on digits, at one rate: no collapse is established (14 % of declines without one look
as abrupt); the median training accuracy at T = 16 rises from 0.58 with 1 head to 0.97 with 4 and
0.999 with 8. `tuned`, on digits, each cell at its best of four rates: the error collapses at 8
heads, with other seeds perhaps at 4 or 6: growth with T ends there (slope -1.53, 95 % interval
-2.42 to -0.64), and that the fall is sudden is not shown; it falls from head count to head count,
by 0.8 decades at most. Few heads do best at 0.032 or 0.01, many at 0.0032. Not known to be settled:
with more training the place may be 6 heads.

Choices. Not stated in the paper: the rule of the border (the mean colour here; `--set fit=edge`
repeats the outermost pixels), the heads tried, the MLP (ratio 4), the recipe. No augmentation:
training accuracy is the object. A token is 16 * heads wide.

Cost. `quick`: scikit-learn's 8x8 digits, 60 trials, 3 min 14 s on two cores. `tuned`, on
scikit-learn's 8x8 digits with patches of 2 pixels: 160 trials, 9 minutes of one core that had other
work as well. `sample`: the same model on CIFAR-10 or a part of it, `--set data=PATH`. `paper`: a
GPU (not measured).

    hsweep run cifar10_heads
    hsweep plan cifar10_heads --preset paper
"""

import math

from hsweep import Point, Recipe, Resources, Sweep, Transition, epochs, grid, preset, tuned
from models.vit import ViT
from tasks.vision.images import Images

DIGITS = grid(data="digits", in_chans=1, patch_size=2, head_dim=4, fit="border")
CIFAR10 = grid(data="uoft-cs/cifar10", in_chans=3, patch_size=8, head_dim=16, fit="border")
TRAIN_EVAL = 5_000


def task(point: Point) -> Images:
    """Images on a canvas that gives ``seq_len`` patches."""
    return Images(
        data=point.data,
        image_size=math.isqrt(point.seq_len) * point.patch_size,
        fit=point.fit,
        max_train_eval=TRAIN_EVAL,
    )


def model(point: Point) -> ViT:
    """Four layers; the width of a head is fixed, that of a token is all heads' together."""
    side = math.isqrt(point.seq_len)
    if side**2 != point.seq_len:
        raise ValueError(f"seq_len must be a square, for a square image: not {point.seq_len}")
    return ViT(
        embed_dim=point.heads * point.head_dim,
        depth=4,
        heads=point.heads,
        head_dim=point.head_dim,
        mlp_ratio=4,
        image_size=side * point.patch_size,
        patch_size=point.patch_size,
        in_chans=point.in_chans,
        num_classes=10,
    )


def recipe(point: Point) -> Recipe:
    """The rate is held until it falls, so that budgets share a beginning."""
    return Recipe(lr=point.lr, batch_size=64, schedule="wsd", warmup_steps=40, clip_norm=1.0)


CELLS = grid(heads=[1, 2, 4, 6, 8], seq_len=[16, 36]) * DIGITS

SWEEP = Sweep(
    name="cifar10_heads",
    space=CELLS * grid(lr=6e-3),
    task=task,
    model=model,
    recipe=recipe,
    metric="train_top1",
    goal="max",
    budget=epochs(20, ladder=[10, 20]),
    replicates=3,
    question=Transition(x="heads", by="seq_len", scale="accuracy", eval_size=1_438),
    presets={
        "tuned": preset(
            note="each cell at the best of four learning rates, over three budgets",
            space=CELLS * grid(lr=tuned(1e-3, 3.2e-2)),
            budget=epochs(20, ladder=[5, 10, 20]),
        ),
        "sample": preset(
            note="CIFAR-10, or a part of it in the same layout, at two lengths: `--set data=PATH`",
            space=grid(heads=[1, 2, 4, 8, 10, 12], seq_len=[16, 36]) * CIFAR10,
            recipe=Recipe(lr=1e-3, batch_size=128, warmup_fraction=0.1, clip_norm=1.0),
            budget=epochs(20, report_every=2),
            replicates=2,
            question=Transition(x="heads", by="seq_len", scale="accuracy", eval_size=TRAIN_EVAL),
        ),
        "paper": preset(
            note="CIFAR-10 at four lengths, three seeds; epochs and recipe are not published",
            space=grid(heads=[1, 2, 4, 6, 8, 10, 12, 14, 16], seq_len=[16, 36, 64, 100]) * CIFAR10,
            recipe=Recipe(lr=1e-3, batch_size=128, warmup_fraction=0.05, clip_norm=1.0),
            budget=epochs(200, report_every=5),
            replicates=3,
            resources=Resources(cpus=2, gpus=0.25),
            question=Transition(x="heads", by="seq_len", scale="accuracy", eval_size=TRAIN_EVAL),
        ),
        "smoke": preset(
            note="to see that everything works; far too short for an answer",
            space=grid(heads=[1, 4], seq_len=[16]) * DIGITS * grid(lr=1e-2),
            budget=epochs(3),
            replicates=1,
        ),
    },
)
