"""Classifying images too many for memory: ImageNet-1k under the lean paper's recipe."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.classification import classification_metrics
from tasks.sources.digest import definition_digest
from tasks.sources.hub import outline_digest
from tasks.vision.streamed_images_config import StreamedImagesConfig

if TYPE_CHECKING:
    import torch

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class StreamedImages(StreamedImagesConfig):
    """The task that ``StreamedImagesConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``streamed_images``."""
        return "streamed_images"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 accuracy on validation images (main) and on training ones, top-5 beside it from
        six classes on, and losses."""
        return classification_metrics(self.num_classes)

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the data's file names and sizes, and of samples of
        their contents.

        Not all is read, as it may be hundreds of gigabytes; a file between the samples that is
        replaced by another one of the same size goes unnoticed. Files are listed once a process.

        Raises:
            DataError: the data are missing or, in a folder of folders, a split is, or its classes
                are not what the settings say.
        """
        listing = _listing(self.location)
        if not self.from_hub_layout:
            from tasks.vision.streamed_data import readers

            readers(self)
        return definition_digest(self, _VERSION, listing)

    def open(
        self,
        *,
        data_seed: int,  # noqa: ARG002  the splits come with the data
        sampling_seed: int,
        batch_size: int,
        device: "torch.device",
    ) -> TaskData:
        """List the images; an unreadable one is a DataError when its turn comes.

        Raises:
            DataError: the data are missing, or their classes are not what the settings say.
            ValueError: a batch size below 1, or an odd one when mixing.
        """
        from tasks.vision.streamed_data import StreamedData, readers

        return StreamedData(self, readers(self), sampling_seed, batch_size, device)


@functools.lru_cache(maxsize=8)
def _listing(location: str) -> str:
    return outline_digest(location)
