"""Sets of Pathfinder images: drawn once, part by part, and read as arrays that processes share."""

import itertools
from typing import Final, cast

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.lra.pathfinder_config import IMAGE_SIZE, PathfinderConfig
from tasks.lra.pathfinder_images import Drawing, draw
from tasks.lra.texts import numbered, of_equal_length
from tasks.lra.token_data import TokenTensors
from tasks.sampling import stream_seed
from tasks.sources.cache import cached_arrays
from tasks.sources.kept import kept
from tasks.sources.parts import Arrays, cached_part, remove_parts
from tasks.sources.progress import tell

_SPLITS: Final = ("train", "validation", "test")
"""Their order numbers the streams of the data seed."""

_STARTED_AT_ONCE: Final = 8192
"""Images started at once, of which a few hundred are finished. Part of what a seed means."""


def prepare(task: PathfinderConfig, data_seed: int) -> Arrays:
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
    counts = dict(zip(_SPLITS, (task.num_train, task.num_validation, task.num_test), strict=True))

    def make() -> Arrays:
        pixels, labels = [], {}
        before = 0
        for split, count in counts.items():
            drawn, classes, have = [], [], 0
            for number in itertools.count():
                images = _part(task, data_seed, split, number)
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

    arrays = cached_arrays(_key(task, data_seed), make)
    remove_parts(_key(task, data_seed))
    return arrays


def _part(task: PathfinderConfig, data_seed: int, split: str, number: int) -> Arrays:
    """Return images that are drawn together, kept until the whole set is complete."""
    drawing = Drawing(
        size=IMAGE_SIZE,
        contour_length=task.contour_length,
        distractor_length=task.short_length,
        num_distractors=task.num_short,
        continuity=task.continuity,
        contrast=task.contrast,
    )

    def make() -> Arrays:
        random = np.random.default_rng(stream_seed(data_seed, _SPLITS.index(split), number))
        drawn = draw(_STARTED_AT_ONCE, drawing, random)
        return {"pixels": drawn.pixels.reshape(len(drawn.labels), -1), "labels": drawn.labels}

    return cached_part(_key(task, data_seed), f"{split}-{number}", make)


@kept(most=2)
def load(task: PathfinderConfig, data_seed: int, device: torch.device) -> TokenTensors:
    """Return the images on ``device``; the last two sets are kept for reuse.

    Raises:
        DataError: the cache cannot be written.
    """
    held = prepare(task, data_seed)
    return TokenTensors(
        of_equal_length(cast(NDArray[np.uint8], held["pixels"])),
        numbered({split: cast(NDArray[np.int64], held[split]) for split in _SPLITS}),
        spec=task.spec(),
        first_id=0,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )


def _key(task: PathfinderConfig, data_seed: int) -> str:
    return f"pathfinder-{task.set_digest()[:24]}-{data_seed}"
