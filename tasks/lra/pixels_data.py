"""Images as sequences of pixels on the training device."""

import numpy as np
import torch

from tasks.lra.pixels_config import PixelsConfig
from tasks.lra.pixels_rows import grey_rows, sources
from tasks.lra.texts import numbered, of_equal_length
from tasks.lra.token_data import TokenTensors, held_out, limited
from tasks.sampling import stream_seed
from tasks.sources.kept import kept
from tasks.vision.image_arrays import ImageArrays

_HELD_OUT_TEST = 11
"""Keeps the choice of test images apart from that of validation images."""


@kept(most=2)
def load(
    task: PixelsConfig,
    fingerprint: str,  # noqa: ARG001
    data_seed: int,
    device: torch.device,
) -> TokenTensors:
    """Return the images of ``task`` on ``device``; the last two sets are kept for reuse.

    Args:
        task: what to read.
        fingerprint: of the task's data, so that data that change are read again.
        data_seed: decides which images are held out or left out.
        device: where the images are wanted.

    Raises:
        DataError: an image or label is unusable, or no image is left for a split.
    """
    source = sources(task)
    parts: dict[str, ImageArrays] = {"train": source.train.read_train()}
    for role, split in (("validation", source.validation), ("test", source.test)):
        if split is not None:
            assert split.read_validation is not None
            parts[role] = split.read_validation()
    examples = numbered({role: part.labels for role, part in parts.items()})
    where = f"{task.data}, split 'train'"
    # The test first: the share held out for validation is one of what is left.
    for role, share, seed in (
        ("test", task.test, stream_seed(data_seed, _HELD_OUT_TEST)),
        ("validation", task.validation, data_seed),
    ):
        if isinstance(share, float):
            examples["train"], examples[role] = held_out(examples["train"], share, seed, where)
    return TokenTensors(
        of_equal_length(np.concatenate([grey_rows(part.pixels) for part in parts.values()])),
        limited(examples, task, data_seed),
        spec=task.spec(),
        first_id=0,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )
