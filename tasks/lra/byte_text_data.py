"""Reading texts of a hub-style data set as bytes."""

import hashlib
from collections.abc import Iterator
from typing import Final

import torch

from tasks.lra.byte_text_config import ByteTextConfig
from tasks.lra.byte_text_rows import UsedSplit, splits_in_use
from tasks.lra.texts import Texts, joined, numbered, read_texts
from tasks.lra.token_data import TokenTensors, held_out, limited
from tasks.sources.cache import cached_arrays
from tasks.sources.hub import content_digest
from tasks.sources.kept import kept
from tasks.sources.progress import tell

_READING: Final = "byte-text-2"
"""To be changed with the code that reads, so that arrays read before are not used again."""

_TOLD_EVERY: Final = 1_000
"""Texts."""

FIRST_ID: Final = 1
"""Token of byte 0; 0 is padding."""


@kept(most=2)
def load(
    task: ByteTextConfig,
    fingerprint: str,  # noqa: ARG001
    data_seed: int,
    device: torch.device,
) -> TokenTensors:
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
    examples = numbered({role: split.labels for role, split in used.items()})
    if isinstance(task.validation, float):
        examples["train"], examples["validation"] = held_out(
            examples["train"], task.validation, data_seed, f"{task.data}, split 'train'"
        )
    return TokenTensors(
        _texts(task, used),
        limited(examples, task, data_seed),
        spec=task.spec(),
        first_id=FIRST_ID,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )


def _texts(task: ByteTextConfig, used: dict[str, UsedSplit]) -> Texts:
    """Return the texts of all splits, one split after the other, in memory that processes share."""

    def read() -> Iterator[bytes]:
        wanted = sum(len(split.labels) for split in used.values())
        done = 0
        for split in used.values():
            for text in split.encoded():
                yield text[: task.bytes_kept]
                done += 1
                if done % _TOLD_EVERY == 0 or done == wanted:
                    tell("texts", done, wanted)

    names = [split.texts.split for split in used.values()]
    content = content_digest(task.data, task.config)
    asked = (_READING, content, task.config, names, task.text_column, task.bytes_kept)
    key = hashlib.sha256(repr(asked).encode()).hexdigest()
    return read_texts(cached_arrays(f"{_READING}-{key[:32]}", lambda: joined(read())._asdict()))
