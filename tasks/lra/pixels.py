"""Classifying images read pixel by pixel: grey CIFAR-10 in the Long Range Arena."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.lra.pixels_config import PixelsConfig
from tasks.lra.spec import even_shares, token_metrics
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest
from tasks.vision.image_arrays import digits_digest

if TYPE_CHECKING:
    import torch

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Pixels(PixelsConfig):
    """The task that ``PixelsConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``pixels``."""
        return "pixels"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation images (main), on test and training ones, and losses."""
        return token_metrics(even_shares(self.num_classes), with_test=self.test is not None)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Raises:
            DataError: the data are missing or unusable, or not of the size and classes announced.
        """
        from tasks.lra.pixels_rows import sources

        sources(self)
        embedded = self.data == "digits"
        content = digits_digest() if embedded else content_digest(self.data, self.config)
        return definition_digest(self, _VERSION, content)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the images onto ``device``; kept for the next trial of this process.

        Raises:
            DataError: the data are missing, or an image or label is unusable.
            ValueError: a batch size below 1.
        """
        from tasks.lra.pixels_data import load
        from tasks.lra.token_data import TokenData

        tensors = load(self, self.fingerprint(), data_seed, device)
        return TokenData(
            tensors, sampling_seed, batch_size, self.steps_per_epoch, self.label_smoothing
        )
