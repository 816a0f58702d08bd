"""Reading texts of a hub-style data set as bytes."""

import functools
import hashlib
from typing import Final

import torch

from tasks.lra.byte_text import ByteText
from tasks.lra.byte_text_rows import UsedSplit, splits_in_use, utf8_texts
from tasks.lra.texts import Splits, Texts, concatenated, joined, one_text_each
from tasks.lra.token_data import TokenTensors, held_out, limited
from tasks.sources.cache import cached_arrays
from tasks.sources.hub import content_digest

_READING: Final = "byte-text-1"
"""To be changed with the code that reads, so that arrays read before are not used again."""

FIRST_ID: Final = 1
"""Token of byte 0; 0 is padding."""


@functools.lru_cache(maxsize=2)
def load(task: ByteText, fingerprint: str, data_seed: int, device: torch.device) -> TokenTensors:  # noqa: ARG001
    """Return the texts of ``task`` on ``device``; the last two sets are kept for reuse.

    Args:
        task: what to read.
        fingerprint: of the task's data, so that data that change are read again.
        data_seed: decides which texts are held out or left out.
        device: where the texts are wanted.

    Raises:
        DataError: a text or label is unusable, or no text is left to train or validate on.
    """
    used = splits_in_use(task)
    digest = content_digest(task.data, task.config)
    parts, examples = [], {}
    first = 0
    for role, split in used.items():
        parts.append(_texts(task, split, digest))
        examples[role] = one_text_each(first, split.labels)
        first += len(split.labels)
    if isinstance(task.validation, float):
        examples["train"], examples["validation"] = held_out(
            examples["train"], task.validation, data_seed, used["train"].where
        )
    chosen = limited(examples, data_seed, task.max_train, task.max_validation, task.max_test)
    return TokenTensors(
        Splits(
            parts[0] if len(parts) == 1 else concatenated(parts),
            chosen["train"],
            chosen["validation"],
            chosen.get("test"),
        ),
        spec=task.spec(),
        first_id=FIRST_ID,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )


def _texts(task: ByteText, split: UsedSplit, digest: str) -> Texts:
    # The split's name tells splits of one data set apart.
    asked = (_READING, digest, split.where.rsplit("split", 1)[-1], task.text_column)
    key = hashlib.sha256(repr((*asked, task.bytes_kept)).encode()).hexdigest()
    arrays = cached_arrays(
        f"{_READING}-{key[:32]}",
        lambda: joined(
            text[: task.bytes_kept]
            for text in utf8_texts(split.dataset, task.text_column, split.where)
        )._asdict(),
    )
    return Texts(arrays["symbols"], arrays["offsets"])  # type: ignore[arg-type]
