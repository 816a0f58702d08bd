"""Classifying small images that fit in memory whole: digits, CIFAR-10 and their like."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.classification import classification_metrics
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest
from tasks.vision.image_arrays import digits_digest
from tasks.vision.images_config import ImagesConfig

if TYPE_CHECKING:
    import torch

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Images(ImagesConfig):
    """The task that ``ImagesConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``images``."""
        return "images"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 accuracy on validation images (main) and on training ones, top-5 beside it from
        six classes on, and losses.

        Raises:
            DataError: as ``spec``.
        """
        self.spec()
        source = self.source()
        return classification_metrics(
            source.num_classes, source.validation_shares, source.train_shares
        )

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Where the folder lies does not matter.

        Raises:
            DataError: the data are missing or unusable.
        """
        self.spec()
        content = (
            digits_digest() if self.data == "digits" else content_digest(self.data, self.config)
        )
        return definition_digest(self, _VERSION, content)

    def example_input(self) -> "torch.Tensor":
        """Return a black image as a batch of one, (1, C, H, W).

        Raises:
            DataError: as ``spec``.
        """
        import torch

        spec = self.spec()
        return torch.zeros(1, spec.in_chans, spec.image_size, spec.image_size)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the images onto ``device``; kept for the next trial of this process.

        Raises:
            DataError: the data are missing, or an image or label is unusable.
            ValueError: a batch size below 1.
        """
        from tasks.vision.image_data import ImageData, load

        self.spec()
        chosen = self.held_out or self.max_train or self.max_validation
        split_seed = data_seed if chosen else 0
        tensors = load(self, self.fingerprint(), split_seed, device)
        return ImageData(self, tensors, sampling_seed, batch_size)
