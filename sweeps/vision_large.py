"""Does the trade of depth for heads hold for large vision transformers?

Question. "Leaner Transformers: More Heads, Less Depth", table 5, repeats its table 4 with ViT-L,
DeiT-L, XCiT-L, VOLO-d4 and DaViT-L and reports the originals' accuracy with 29 to 52 % fewer
parameters. As in `vision_families.py`, each family's lean shape is held against its own original,
and the error rate of 5 % is shared among the families.

Expectation. By the paper, every family has a lean shape that is no worse than its original.

What differs besides heads and depth. The cuts are deeper than for the base models: ViT goes from 24
layers to 8. The ViT-L and DeiT-L that the paper calls original have half the usual MLP, by their
printed counts. Only ViT's and DeiT's heads keep their width; XCiT's share it, unlike XCiT-M's.
DeiT is ViT here, and is not trained twice. `--set variant=original,lean_coupled,lean_decoupled`
tries heads of both kinds in every family; the 30 heads of ViT-L cannot share its width.

Seen. `quick`, at one rate: XCiT and VOLO are no worse by 2 points (Holm p = 0.002 and 0.001, 4
seeds) with 35 and 36 % fewer parameters; ViT and DaViT are undecided. `tuned`, each shape at its
best of three rates, answered with the scatter of all shapes pooled and not trained again since: in
all four families the lean shape is no worse by 2 points of top-1 (5 seeds, Holm p at most 0.008 in
each), with 48 % (ViT), 35 % (XCiT), 36 % (VOLO) and 21 % (DaViT) fewer parameters. Three of the
eight shapes have their best rate at an end of the range, 0.001 or 0.01. All of them end at 97 to 99
%, so digits leave little room for a difference.

Cost. `quick`: 64 trials, 3 min 37 s on two cores. `tuned`: scaled-down members of four families,
deeper than those of `vision_families.py`, on scikit-learn's digits enlarged to 32x32 pixels; 248
trials, 47 minutes of one core that had other work as well. `paper`: ImageNet-1k, 300 epochs, the
paper's recipe; a thousand GPU hours and more (not measured).

    hsweep run vision_large
    hsweep plan vision_large --preset paper
"""

from collections.abc import Callable, Mapping
from typing import Final

from hsweep import Point, Resources, Sweep, epochs, grid, lean, preset
from models.base import ModelConfig
from models.davit import davit_large
from models.vit import deit_large, vit_large
from models.volo import volo_d4
from models.xcit import xcit_large
from sweeps.vision_families import (
    DIGITS,
    RATES,
    Family,
    Form,
    comparisons,
    imagenet,
    imagenet_recipe,
    shape,
    small_model,
)
from sweeps.vit_lean import small_recipe

SMALL: Final = {
    "vit": Family(Form(6, 4, 12, 2), Form(2, 8, 12, 2), head_width=12),
    "xcit": Family(Form(6, 4, None), Form(3, 8, None), head_width=8),
    "volo": Family(
        Form((2, 2, 4, 2), (2, 4, 4, 4), None, 3),
        Form((1, 1, 2, 1), (4, 8, 8, 8), None, 3),
        head_width=8,
    ),
    "davit": Family(
        Form((1, 1, 5, 1), (1, 2, 4, 8), None), Form((1, 1, 3, 1), (1, 2, 8, 8), None), head_width=8
    ),
}
"""Table 5 in miniature."""

LARGE: Final = {
    "vit": Family(Form(24, 16, 64, 2), Form(8, 30, 64, 2), head_width=64),
    "deit": Family(Form(24, 16, 64, 2), Form(8, 30, 64, 2), head_width=64),
    "xcit": Family(Form(24, 16, None), Form(12, 24, None), head_width=48),
    "volo": Family(
        Form((8, 8, 16, 4), (12, 16, 16, 16), None, 3),
        Form((4, 4, 8, 2), (24, 32, 32, 32), None, 3),
        head_width=48,
    ),
    "davit": Family(
        Form((1, 1, 9, 1), (6, 12, 24, 48), None),
        Form((1, 1, 5, 1), (6, 12, 48, 48), None),
        head_width=32,
    ),
}
"""Table 5."""

_LARGE_MODELS: Final[Mapping[str, Callable[..., ModelConfig]]] = {
    "vit": vit_large,
    "deit": deit_large,
    "xcit": xcit_large,
    "volo": volo_d4,
    "davit": davit_large,
}


def large_model(point: Point) -> ModelConfig:
    """The published member of the family, in the point's shape."""
    return _LARGE_MODELS[point.family](**shape(point), drop_path=0.1)


SWEEP = Sweep(
    name="vision_large",
    space=comparisons(SMALL) * grid(lr=4e-3),
    task=DIGITS,
    model=small_model,
    recipe=small_recipe,
    metric="top1",
    goal="max",
    budget=epochs(12, ladder=[6, 12]),
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
            note="table 5 on ImageNet-1k, three seeds; DeiT's trials are ViT's. Nothing is stopped "
            "early: there are two shapes a family",
            space=comparisons(LARGE) * grid(data="imagenet-1k"),
            task=imagenet,
            model=large_model,
            recipe=imagenet_recipe(512),
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
