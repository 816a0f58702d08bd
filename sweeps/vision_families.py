"""Does every family of vision transformers trade depth for heads, and not ViT alone?

Question. "Leaner Transformers: More Heads, Less Depth", table 4, gives ViT, DeiT, XCiT, TNT, VOLO
and DaViT of base size more heads and fewer layers, and reports the accuracy of the originals with
29 to 54 % fewer parameters. Each family is its own comparison here: a lean shape is held against
the original of its family, never against another family, and the error rate of 5 % is shared among
them.

Expectation. By the paper, every family has a lean shape that is no worse than its original.

What differs besides heads and depth. The paper's lean ViT, DeiT and TNT also halve the MLP, and
more heads mean two things: ViT's, DeiT's and XCiT's keep their width, so attention grows, while
those of TNT, VOLO and DaViT share the width of their predecessors. `--set
variant=original,lean_coupled,lean_decoupled` tries both in every family. The shapes are those that
give the printed parameter counts, which in places are not the printed shapes (docs/models.md).
DeiT is not trained twice: without its distillation token, under one recipe, it is ViT, and the plan
merges the two.

Seen. `quick`, at one rate: XCiT, VOLO and DaViT are no worse by 2 points (Holm p at most 0.005, 4
seeds) with 21, 34 and 13 % fewer parameters; ViT and TNT are undecided. `tuned`, on digits, each
shape at its best of three rates, answered with the scatter of all shapes pooled and not trained
again since: by a margin of 2 points the lean shapes of ViT, XCiT, TNT and VOLO are established as
no worse than their originals (differences of +0.7, -0.3, +1.0 and +0.2 points, with 56, 21, 62 and
34 % fewer parameters; 5 seeds, Holm p below 0.004 each). DaViT's is undecided (-0.3 points, 13 %
fewer parameters): 11 seeds would tell. The lean ViT's lead shrinks from 21 points after 6 epochs to
0.7 after 24 and may turn by more than the margin at 48. Seven of the eight shapes of these four
have their best rate at an end of the range, 0.001 or 0.01. The task is easy: all shapes reach 96 to
99 %.

Cost. `quick`: 80 trials, 3 min 22 s on two cores. `tuned`: scaled-down members of five families on
scikit-learn's digits, enlarged to 32x32 pixels since DaViT halves an image five times; 310 trials,
42 minutes of one core that had other work as well. `paper`: ImageNet-1k, 300 epochs, the paper's
recipe: 30 trials, about 2,400 hours of a GPU that sustains 100 TFLOP/s (an extrapolation), and up
to 162 GB for a batch of 1024 on one device: `--max-memory 80G` leaves out what is larger. `--set
family=xcit` takes one family.

    hsweep run vision_families
    hsweep plan vision_families --preset paper
    hsweep run vision_families --set family=xcit --set variant=original,lean_decoupled
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from hsweep import Point, Recipe, Resources, Space, Sweep, epochs, grid, lean, preset, tuned
from models.base import ModelConfig
from models.davit import DaViT, davit_base
from models.shape import PerStage
from models.tnt import TNT, tnt_base
from models.vit import ViT, deit_base, vit_base
from models.volo import VOLO, volo_d3
from models.xcit import XCiT, xcit_medium
from sweeps.vit_lean import small_recipe
from tasks.vision.images import Images
from tasks.vision.streamed_images import StreamedImages


class Form(NamedTuple):
    """What the paper varies: for all of a model, or stage by stage."""

    depth: PerStage[int]
    heads: PerStage[int]
    head_dim: int | None
    mlp_ratio: float = 4


class Family(NamedTuple):
    """A family's two forms, and how wide the original's heads are (its widest, if they differ)."""

    original: Form
    lean: Form
    head_width: int

    def form(self, variant: str) -> Form:
        """Return the form called ``variant``.

        Raises:
            ValueError: an unknown name.
        """
        forms = {
            "original": self.original,
            "lean": self.lean,
            "lean_coupled": self.lean._replace(head_dim=None),
            "lean_decoupled": self.lean._replace(head_dim=self.head_width),
        }
        if variant not in forms:
            raise ValueError(f"variant must be one of {', '.join(forms)}, not {variant!r}")
        return forms[variant]


def comparisons(families: Mapping[str, Family]) -> Space:
    """Return the original and the lean form of every family, their shapes as axes."""

    def form(point: Point) -> Form:
        if point.family not in families:
            raise ValueError(f"family must be one of {', '.join(families)}, not {point.family!r}")
        return families[point.family].form(point.variant)

    return grid(family=list(families), variant=["original", "lean"]).derive(
        depth=lambda point: form(point).depth,
        heads=lambda point: form(point).heads,
        head_dim=lambda point: form(point).head_dim,
        mlp_ratio=lambda point: form(point).mlp_ratio,
    )


def shape(point: Point) -> dict[str, PerStage[int] | PerStage[float] | None]:
    """Return a point's shape as arguments of a model."""
    return {name: point[name] for name in ("depth", "heads", "head_dim", "mlp_ratio")}


DIGITS: Final = Images(data="digits", image_size=32, max_train_eval=359)
"""The 8x8 digits, enlarged: DaViT halves the size of an image five times."""


SMALL: Final = {
    "vit": Family(Form(4, 4, 12), Form(2, 6, 12, 2), head_width=12),
    "xcit": Family(Form(4, 4, 8), Form(2, 8, 8), head_width=8),
    "tnt": Family(Form(4, 4, None), Form(2, 8, None, 2), head_width=12),
    "volo": Family(Form(2, (2, 4, 4, 4), None, 3), Form(1, (4, 8, 8, 8), None, 3), head_width=8),
    "davit": Family(
        Form((1, 1, 3, 1), (1, 2, 4, 8), None), Form((1, 1, 2, 1), (1, 2, 8, 8), None), head_width=8
    ),
}
"""Table 4 in miniature: about half the layers, up to twice the heads, of the paper's widths."""

_ENLARGED: Final[dict[str, Any]] = {"image_size": 32, "in_chans": 1, "num_classes": 10}
_SMALL_MODELS: Final[Mapping[str, Callable[..., ModelConfig]]] = {
    "vit": partial(ViT, embed_dim=48, patch_size=8, **_ENLARGED),
    # Published XCiTs of 12 layers start the layer scale at 1, those of 24 at 1e-5.
    "xcit": partial(XCiT, embed_dim=32, patch_size=8, layer_scale=1.0, **_ENLARGED),
    "tnt": partial(TNT, embed_dim=48, patch_size=8, inner_dim=12, inner_heads=2, **_ENLARGED),
    "volo": partial(VOLO, embed_dim=(16, 32, 32, 32), stem_hidden_dim=8, **_ENLARGED),
    "davit": partial(DaViT, embed_dim=(8, 16, 32, 64), window_size=4, **_ENLARGED),
}


def small_model(point: Point) -> ModelConfig:
    """A member of the family for the enlarged digits."""
    return _SMALL_MODELS[point.family](**shape(point))


RATES: Final = grid(lr=tuned(1e-3, 1e-2))


BASE: Final = {
    "vit": Family(Form(12, 12, 64), Form(7, 16, 64, 2), head_width=64),
    "deit": Family(Form(12, 12, 64), Form(7, 16, 64, 2), head_width=64),
    "xcit": Family(Form(24, 8, 64), Form(12, 16, 64), head_width=64),
    "tnt": Family(Form(12, 10, None), Form(8, 16, None, 2), head_width=64),
    "volo": Family(
        Form((8, 8, 16, 4), (8, 16, 16, 16), None, 3),
        Form((4, 4, 8, 2), (16, 32, 32, 32), None, 3),
        head_width=32,
    ),
    "davit": Family(
        Form((1, 1, 9, 1), (4, 8, 16, 32), None),
        Form((1, 1, 5, 1), (4, 8, 32, 32), None),
        head_width=32,
    ),
}
"""Table 4."""

_BASE_MODELS: Final[Mapping[str, Callable[..., ModelConfig]]] = {
    "vit": vit_base,
    "deit": deit_base,
    "xcit": xcit_medium,
    "tnt": tnt_base,
    "volo": volo_d3,
    "davit": davit_base,
}


def base_model(point: Point) -> ModelConfig:
    """The published member of the family, in the point's shape."""
    return _BASE_MODELS[point.family](**shape(point), drop_path=0.1)


def imagenet(point: Point) -> StreamedImages:
    """ImageNet-1k with the paper's augmentation (its table 6)."""
    return StreamedImages(data=point.data)


def imagenet_recipe(batch_size: int) -> Recipe:
    """The paper's recipe (its table 6), for 300 epochs."""
    return Recipe(
        lr=3e-3,
        batch_size=batch_size,
        weight_decay=0.3,
        warmup_fraction=20 / 300,
        warmup_lr=1e-5,
        precision="bfloat16",
    )


SWEEP = Sweep(
    name="vision_families",
    space=comparisons(SMALL) * grid(lr=4e-3),
    task=DIGITS,
    model=small_model,
    recipe=small_recipe,
    metric="top1",
    goal="max",
    budget=epochs(11, ladder=[5, 11]),
    replicates=4,
    question=lean(baseline={"variant": "original"}, margin=0.02, within="family"),
    presets={
        "tuned": preset(
            note="each shape at the best of three learning rates, over three budgets",
            space=comparisons(SMALL) * RATES,
            budget=epochs(24, ladder=[6, 12, 24]),
            replicates=7,
        ),
        "paper": preset(
            note="table 4 on ImageNet-1k, three seeds; DeiT's trials are ViT's. Nothing is stopped "
            "early: there are two shapes a family",
            space=comparisons(BASE) * grid(data="imagenet-1k"),
            task=imagenet,
            model=base_model,
            recipe=imagenet_recipe(1024),
            budget=epochs(300, report_every=10),
            replicates=3,
            resources=Resources(cpus=8, gpus=1),
            question=lean(baseline={"variant": "original"}, margin=0.005, within="family"),
        ),
        "smoke": preset(
            note="to see that every family trains; far too short for an answer",
            space=comparisons(SMALL) * grid(lr=3e-3),
            budget=epochs(3),
            replicates=1,
        ),
    },
)
