"""Pairs of documents on the training device."""

import hashlib
from typing import Final

import torch

from tasks.lra.byte_text_data import FIRST_ID
from tasks.lra.document_files import ENDINGS, pair_files, read_pairs
from tasks.lra.document_pairs_config import DocumentPairsConfig
from tasks.lra.texts import Examples, read_texts
from tasks.lra.token_data import TokenTensors, limited
from tasks.sources.cache import cached_arrays
from tasks.sources.kept import kept

_READING: Final = "document-pairs-1"
"""To be changed with the code that reads, so that arrays read before are not used again."""


@kept(most=2)
def load(
    task: DocumentPairsConfig,
    fingerprint: str,  # noqa: ARG001
    data_seed: int,
    device: torch.device,
) -> TokenTensors:
    """Return the documents of ``task`` on ``device``; the last two sets are kept for reuse.

    Args:
        task: what to read.
        fingerprint: of the task's data, so that data that change are read again.
        data_seed: decides which pairs are left out.
        device: where the documents are wanted.

    Raises:
        DataError: a file is missing, or a line is unusable.
    """
    files = pair_files(task.data)
    # A file's time tells it from another one of the same size.
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files.values()]
    key = hashlib.sha256(repr((_READING, stats, task.bytes_kept)).encode()).hexdigest()
    held = cached_arrays(f"{_READING}-{key[:32]}", lambda: read_pairs(files, task.bytes_kept))
    examples = {
        role: Examples(held[role], held[f"{role}_labels"])  # type: ignore[arg-type]
        for role in ENDINGS
    }
    return TokenTensors(
        read_texts(held),
        limited(examples, task, data_seed),
        spec=task.spec(),
        first_id=FIRST_ID,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )
