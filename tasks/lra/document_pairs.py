"""Telling whether two documents read byte by byte are related: citations in the ACL Anthology."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.lra.document_pairs_config import DocumentPairsConfig
from tasks.lra.spec import even_shares, token_metrics
from tasks.sources.digest import definition_digest, sampled_digest

if TYPE_CHECKING:
    import torch

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class DocumentPairs(DocumentPairsConfig):
    """The task that ``DocumentPairsConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``document_pairs``."""
        return "document_pairs"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation pairs (main), on test and training ones, and losses."""
        return token_metrics(even_shares(2))

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the files' names and sizes, and of samples of their
        contents.

        Not all is read, as it is gigabytes; a change between the samples that leaves the size as
        it was goes unnoticed.

        Raises:
            DataError: a file is missing or empty, or its first line is unusable.
        """
        from tasks.lra.document_files import pair_files

        files = {path.name: path for path in pair_files(self.data).values()}
        return definition_digest(self, _VERSION, sampled_digest(files))

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the documents onto ``device``; the first time, from the files.

        Raises:
            DataError: a file is missing, or a line is unusable.
            ValueError: a batch size below 1.
        """
        from tasks.lra.document_pairs_data import load
        from tasks.lra.token_data import TokenData

        tensors = load(self, self.fingerprint(), data_seed, device)
        return TokenData(
            tensors, sampling_seed, batch_size, self.steps_per_epoch, self.label_smoothing
        )
