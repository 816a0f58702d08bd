"""The parameters of every shape of a grid: each model of timm's is built on the meta device.

Prints one line of JSON: the parameters of each shape, in the order of the grid.
"""

import argparse
import itertools
import json

from models.torchvision_compat import make_torchvision_importable

# timm imports a torchvision that may not fit the torch that is there.
make_torchvision_importable()

from timm.models.vision_transformer import VisionTransformer  # noqa: E402


def num_params(heads: int, head_dim: int, depth: int, mlp_ratio: float) -> int:
    """Return the parameters of one shape, for images of 32 by 32 in 16 patches."""
    model = VisionTransformer(
        img_size=32,
        patch_size=8,
        in_chans=1,
        num_classes=10,
        embed_dim=heads * head_dim,
        depth=depth,
        num_heads=heads,
        mlp_ratio=mlp_ratio,
        weight_init="skip",
        device="meta",
    )
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    """Count the grid's shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    for axis in ("heads", "head-dim", "depth"):
        parser.add_argument(f"--{axis}", type=int, nargs="+", required=True)
    parser.add_argument("--mlp-ratio", type=float, nargs="+", required=True)
    given = parser.parse_args()
    shapes = itertools.product(given.heads, given.head_dim, given.depth, given.mlp_ratio)
    print(json.dumps({"num_params": [num_params(*shape) for shape in shapes]}))


if __name__ == "__main__":
    main()
