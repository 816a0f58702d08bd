"""Can a vision transformer trade depth for heads?

Question. "Leaner Transformers: More Heads, Less Depth" reports that more heads in fewer layers
give the same accuracy with 30 to 50 % fewer parameters. The width of a head is kept apart from the
width of a token here: attention is heads * head_dim wide, whatever embed_dim is, as in the paper's
ViT rows, so more heads mean more attention parameters and must earn them.

Expectation. Shallow shapes with many heads lie on the front of accuracy against parameters, and
one of them is not worse than the deep baseline by more than the margin.

Seen. `quick`, a race on digits at one rate: 8 heads in 1 layer are no worse than 4 heads in 4
layers by the margin of 3.5 points (-0.9 points over 5 seeds; at most 3 % of such studies would say
so of a shape worse by the margin) and save 61 % of the parameters; that is not known to be settled.
Ten other study seeds choose the same shape, in races of 44 to 70 runs and in their grids (`grid`).
The margin is wide so that the shapes lie on one side of it: with 2 points 4 heads in 2 layers, 8 in
1 and 8 in 2 take turns. `tuned`,
on digits, each shape at its best of four rates (0.0032 or 0.01, inside the range): undecided:
medians lie between 96.4 and 97.2 % for eight of the sixteen shapes, 8 heads in 1 layer with half
the MLP (74 % fewer parameters) and the baseline among them, but 5 seeds establish none as no worse
by 2 points; it would take 18 of each or more. The images are tiny and the task is easy.
`conditioning`: better conditioned shapes are better (rank correlation -0.83 given the parameters),
also among shapes of equally many heads (-0.67, p = 0.007); but the condition number falls with
coupled heads, too, where the theory says it stays the same.

Cost. `quick`: scikit-learn's 1,797 digits, 48 of 200 runs, 55 seconds on two cores.
`tuned`: 560 trials, 20 minutes of one core that had other work as well. `conditioning`: 66 trials
of these, four minutes. `cifar10`: a GPU for about a day (not measured), `--set
data=PATH_OR_HUB_NAME`. `paper`: ViT-B/16 on ImageNet-1k, 300 epochs with the paper's recipe; the
baseline alone is 3.7e19 FLOPs, about 100 hours of a GPU that sustains 100 TFLOP/s.

    hsweep run vit_lean
    hsweep plan vit_lean --preset paper --max-params 60M
"""

from hsweep import (
    Asha,
    Point,
    Recipe,
    Resources,
    SizeBand,
    Sweep,
    adaptive_search,
    epochs,
    grid,
    grid_search,
    lean,
    preset,
    tuned,
    zipped,
)
from models.conditioning import Conditioning
from models.vit import ViT
from tasks.vision.images import Images
from tasks.vision.streamed_images import StreamedImages


def small_task(point: Point) -> Images:
    """A set of images that fits in memory; augmented unless it is the tiny digits."""
    if point.data == "digits":
        return Images(data="digits", max_train_eval=359)
    return Images(data=point.data, crop_padding=4, flip=True)


def small_vit(point: Point) -> ViT:
    """A small ViT on whatever size of image the data has; ``whole`` reads all tokens in its last
    layer too, which changes no output but lets a probe see that layer."""
    images = small_task(point).spec()
    return ViT(
        embed_dim=point.embed_dim,
        depth=point.depth,
        heads=point.heads,
        head_dim=point.head_dim,
        mlp_ratio=point.mlp_ratio,
        image_size=images.image_size,
        patch_size=point.patch_size,
        in_chans=images.in_chans,
        num_classes=images.num_classes,
        skip_unread_tokens=not point.get("whole", False),
    )


def small_recipe(point: Point) -> Recipe:
    """The rate is held until it falls, so that budgets share a beginning."""
    return Recipe(
        lr=point.lr,
        batch_size=64,
        weight_decay=0.05,
        schedule="wsd",
        warmup_steps=50,
        clip_norm=1.0,
    )


def imagenet_task(point: Point) -> StreamedImages:
    """ImageNet-1k with the paper's augmentation (its Table 6)."""
    return StreamedImages(data=point.data)


def vit_b16(point: Point) -> ViT:
    """ViT-B/16 with the paper's changes of heads, depth and MLP."""
    return ViT(
        embed_dim=768,
        depth=point.depth,
        heads=point.heads,
        head_dim=point.head_dim,
        mlp_ratio=point.mlp_ratio,
        drop_path=0.1,
    )


def is_leaner(point: Point) -> bool:
    """Whether a shape has no more heads in all than the baseline: those would cost more."""
    return int(point.heads * point.depth) <= 16


SHAPES = grid(heads=[2, 4, 8], depth=[1, 2, 4]).where(is_leaner)
LEANER = grid(heads=[1, 2, 4, 8, 16], depth=[1, 2, 4]).where(is_leaner)
DIGITS = grid(data="digits", patch_size=2, embed_dim=48, head_dim=12)

SWEEP = Sweep(
    name="vit_lean",
    space=LEANER * grid(mlp_ratio=2) * DIGITS * grid(lr=5e-3),
    task=small_task,
    model=small_vit,
    recipe=small_recipe,
    metric="top1",
    goal="max",
    budget=epochs(20, ladder=[10, 20]),
    replicates=8,
    question=lean(baseline={"heads": 4, "depth": 4}, margin=0.035),
    search=adaptive_search(),
    presets={
        "grid": preset(note="every shape with eight seeds", search=grid_search()),
        "tuned": preset(
            note="twice the shapes, each at the best of four learning rates, over three budgets",
            search=grid_search(),
            space=SHAPES * grid(mlp_ratio=[2, 4]) * DIGITS * grid(lr=tuned(1e-3, 3.2e-2)),
            budget=epochs(28, ladder=[7, 14, 28]),
            replicates=7,
            question=lean(baseline={"heads": 4, "depth": 4, "mlp_ratio": 4}, margin=0.02),
        ),
        "conditioning": preset(
            note="the paper's explanation: does the condition number of attention fall with heads, "
            "and does accuracy follow it? Heads that share 48 columns beside heads 8 wide, whose "
            "17 tokens meet as many columns at 2 heads, where the theory has its peak. No shape "
            "is stopped early: all are units of the comparison",
            search=grid_search(),
            # Six heads share 48 columns at 8 each: one model under two names.
            space=grid(heads=[1, 2, 3, 4, 6, 8], head_dim=[None, 8], depth=[1, 2]).where(
                lambda point: (point.heads, point.head_dim) != (6, 8)
            )
            * grid(data="digits", patch_size=2, embed_dim=48, mlp_ratio=2, whole=True),
            recipe=Recipe(
                lr=5e-3, batch_size=64, weight_decay=0.05, warmup_fraction=0.1, clip_norm=1.0
            ),
            budget=epochs(20, report_every=5),
            replicates=3,
            early_stopping=None,
            probe=Conditioning(every=2, examples=32),
            question=None,
        ),
        "cifar10": preset(
            note="CIFAR-10 at its native size, patch 4; give a local copy by --set data=PATH, or "
            "set HSWEEP_HUB=1 to let it be downloaded",
            search=grid_search(),
            space=grid(heads=[2, 4, 8, 12], depth=[3, 6, 9, 12], mlp_ratio=[2, 4])
            * grid(data="uoft-cs/cifar10", patch_size=4, embed_dim=192, head_dim=32),
            recipe=Recipe(
                lr=1e-3, batch_size=256, weight_decay=0.05, warmup_fraction=0.05, clip_norm=1.0
            ),
            budget=epochs(100),
            replicates=5,
            early_stopping=Asha(grace=10, strata=SizeBand(factor=2.0), compete="points"),
            question=lean(baseline={"heads": 8, "depth": 12, "mlp_ratio": 4}, margin=0.01),
        ),
        "paper": preset(
            note="ViT-B/16 on ImageNet-1k: figure 3's grid and table 4's lean row; about 100 hours "
            "a trial of baseline size on a GPU that sustains 100 TFLOP/s",
            search=grid_search(),
            space=(
                grid(heads=list(range(2, 20, 2)), depth=[12, 8], mlp_ratio=4)
                + zipped(heads=[12, 16], depth=[12, 7], mlp_ratio=[4, 2])
            )
            * grid(data="imagenet-1k", head_dim=64),
            task=imagenet_task,
            model=vit_b16,
            recipe=Recipe(
                lr=3e-3,
                batch_size=1024,
                weight_decay=0.3,
                warmup_fraction=20 / 300,
                warmup_lr=1e-5,
                precision="bfloat16",
            ),
            budget=epochs(300),
            replicates=5,
            early_stopping=Asha(grace=30, strata=SizeBand(factor=1.5), compete="points"),
            resources=Resources(cpus=8, gpus=1),
            question=lean(baseline={"heads": 12, "depth": 12, "mlp_ratio": 4}, margin=0.005),
        ),
        "smoke": preset(
            note="half a minute, to see that everything works; far too short for an answer",
            search=grid_search(),
            space=grid(heads=[2, 8], depth=[2], mlp_ratio=[2]) * DIGITS * grid(lr=5e-3),
            budget=epochs(3),
            replicates=1,
            early_stopping=None,
            question=lean(baseline={"heads": 8}, margin=0.02),
        ),
    },
)
