"""Sets of Pathfinder images: drawn once, part by part, and read as arrays that processes share."""

from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from tasks.lra.pathfinder_images import draw
from tasks.lra.texts import Examples, Texts, drawn_parts, numbered, of_equal_length
from tasks.sources.cache import Arrays, cached_arrays, remove_parts
from tasks.sources.progress import tell

if TYPE_CHECKING:
    from tasks.lra.pathfinder import Pathfinder

_SPLITS: Final = ("train", "validation", "test")
"""Their order numbers the streams of the data seed."""

_STARTED_AT_ONCE: Final = 8192
"""Images started at once, of which a few hundred are finished. Part of what a seed means."""


def prepare(task: "Pathfinder", data_seed: int) -> Arrays:
    """Return all images, drawn if they are missing; parts drawn before an interruption are kept.

    Args:
        task: what is drawn, and how much of it.
        data_seed: decides which images.

    Returns:
        ``pixels`` of all splits, one after the other, (n, 1024), uint8; and the labels of each
        split under its name, int64.

    Raises:
        DataError: the cache cannot be written.
    """
    key = f"pathfinder-{task.set_digest()[:24]}-{data_seed}"
    counts = dict(zip(_SPLITS, (task.num_train, task.num_validation, task.num_test), strict=True))

    def part(random: np.random.Generator) -> Arrays:
        drawn = draw(_STARTED_AT_ONCE, task, random)
        return {"pixels": drawn.pixels.reshape(len(drawn.labels), -1), "labels": drawn.labels}

    def make() -> Arrays:
        pixels, labels = [], {}
        before = 0
        for stream, (split, count) in enumerate(counts.items()):
            drawn, classes, have = [], [], 0
            for images in drawn_parts(key, split, part, data_seed, stream):
                drawn.append(images["pixels"])
                classes.append(images["labels"])
                have += len(classes[-1])
                tell("images", before + min(have, count), sum(counts.values()))
                if have >= count:
                    break
            pixels.append(np.concatenate(drawn)[:count])
            labels[split] = np.concatenate(classes)[:count]
            before += count
        return {"pixels": np.concatenate(pixels), **labels}

    arrays = cached_arrays(key, make)
    remove_parts(key)
    return arrays


def examples(task: "Pathfinder", data_seed: int) -> tuple[Texts, dict[str, Examples]]:
    """Return the pixels of all images as texts, and the images of each role.

    Raises:
        DataError: the cache cannot be written.
    """
    held = prepare(task, data_seed)
    return (
        of_equal_length(cast(NDArray[np.uint8], held["pixels"])),
        numbered({split: cast(NDArray[np.int64], held[split]) for split in _SPLITS}),
    )
