"""Classifying texts read byte by byte: film reviews (IMDB) in the Long Range Arena."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.lra.byte_text_config import ByteTextConfig
from tasks.lra.spec import even_shares, token_metrics
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest

if TYPE_CHECKING:
    import torch

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class ByteText(ByteTextConfig):
    """The task that ``ByteTextConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``byte_text``."""
        return "byte_text"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation texts (main), on test and training ones, and losses."""
        return token_metrics(even_shares(2), with_test=self.test is not None)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Raises:
            DataError: the data are missing, or lack a split or column, or a split has no rows, or a
                text is missing, empty or not UTF-8, or a label is out of range, or a share held out
                leaves no text.
        """
        from tasks.lra.byte_text_rows import splits_in_use

        splits_in_use(self)
        content = content_digest(self.data, self.config)
        return definition_digest(self, _VERSION, content)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the texts onto ``device``; kept for the next trial of this process.

        Raises:
            DataError: the data are missing, or a text or label is unusable.
            ValueError: a batch size below 1.
        """
        from tasks.lra.byte_text_data import load
        from tasks.lra.token_data import TokenData

        tensors = load(self, self.fingerprint(), data_seed, device)
        return TokenData(
            tensors, sampling_seed, batch_size, self.steps_per_epoch, self.label_smoothing
        )
