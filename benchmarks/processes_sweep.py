"""A ViT and a GPT-2 of the size that a CPU trains in seconds, without dropout.

hsweep run benchmarks/processes_sweep.py --set model=vit --set processes=2
"""

from hsweep import Point, Recipe, Sweep, grid, steps
from models.base import AnyModelConfig
from models.decoder import gpt2_tiny_stories
from models.vit import ViT
from tasks.base import Task
from tasks.language.stories import Stories
from tasks.vision.images import Images


def task(point: Point) -> Task:
    """Digits drawn large, or docstrings."""
    if point.model == "vit":
        return Images("digits", image_size=32)
    return Stories(seq_len=64, vocab_size=1024, max_validation=64)


def model(point: Point) -> AnyModelConfig:
    """A model of four heads."""
    if point.model == "vit":
        return ViT(
            embed_dim=128,
            depth=4,
            heads=4,
            patch_size=4,
            image_size=32,
            in_chans=1,
            num_classes=10,
        )
    return gpt2_tiny_stories(depth=2, heads=4, seq_len=64, vocab_size=1024, dropout=0.0)


SWEEP = Sweep(
    name="processes",
    space=grid(model=["vit", "gpt2"]),
    task=task,
    model=model,
    recipe=Recipe(batch_size=64, clip_norm=1.0),
    metric="train_loss",
    goal="min",
    budget=steps(50, report_every=25),
    replicates=2,
)
