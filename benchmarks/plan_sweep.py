"""Ten thousand shapes of a small vision transformer, to be planned and never trained.

hsweep plan benchmarks/plan_sweep.py --set mlp_ratio=0.5,1.0
"""

from hsweep import Point, Sweep, epochs, grid
from models.vit import ViT
from tasks.vision.images import Images

IMAGE_SIZE = 32
PATCH_SIZE = 8
NUM_CLASSES = 10


def model(point: Point) -> ViT:
    """The heads share the width, as in the library's own model."""
    return ViT(
        embed_dim=point.heads * point.head_dim,
        depth=point.depth,
        heads=point.heads,
        mlp_ratio=point.mlp_ratio,
        image_size=IMAGE_SIZE,
        patch_size=PATCH_SIZE,
        in_chans=1,
        num_classes=NUM_CLASSES,
        skip_unread_tokens=False,
    )


SWEEP = Sweep(
    name="plan",
    space=grid(
        heads=list(range(1, 11)),
        head_dim=list(range(8, 88, 8)),
        depth=list(range(1, 11)),
        mlp_ratio=[0.5 * number for number in range(1, 11)],
    ),
    task=Images(data="digits", image_size=IMAGE_SIZE),
    model=model,
    metric="top1",
    goal="max",
    budget=epochs(1),
)
