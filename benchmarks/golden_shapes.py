"""A small lean question on digits, with shapes that compete, and one training that draws on every
random stream: order, augmentation, mixing of examples, dropped paths.

hsweep run benchmarks/golden_shapes.py --runner inline
"""

from hsweep import Asha, Point, Recipe, Sweep, epochs, grid, lean, preset
from models.vit import ViT
from tasks.vision.images import Images


def model(point: Point) -> ViT:
    """A vision transformer of 24 numbers a token."""
    return ViT(
        embed_dim=24,
        depth=point.depth,
        heads=point.heads,
        mlp_ratio=2,
        image_size=8,
        patch_size=4,
        in_chans=1,
        num_classes=10,
        drop_path=point.get("drop_path", 0.0),
    )


SWEEP = Sweep(
    name="golden_shapes",
    space=grid(heads=[1, 2, 4], depth=[1, 2]),
    task=Images(data="digits", max_train_eval=359),
    model=model,
    recipe=Recipe(lr=5e-3, batch_size=64, weight_decay=0.05, schedule="wsd", warmup_steps=20),
    metric="top1",
    goal="max",
    budget=epochs(10, ladder=[4, 10]),
    replicates=5,
    early_stopping=Asha(compete="points", min_survivors=3),
    question=lean(baseline={"heads": 2, "depth": 2}, margin=0.05),
    presets={
        "streams": preset(
            space=grid(heads=[2], depth=[2], drop_path=0.2),
            task=Images(data="digits", crop_padding=1, flip=True, mixup=0.8, cutmix=1.0),
            recipe=Recipe(lr=5e-3, batch_size=64, label_smoothing=0.1, ema=0.9, clip_norm=1.0),
            budget=epochs(3),
            replicates=2,
            early_stopping=None,
            question=None,
        ),
    },
)
