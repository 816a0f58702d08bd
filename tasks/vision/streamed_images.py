"""Classifying images too many for memory: ImageNet-1k under the lean paper's recipe."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tasks.base import Metric, TaskData, not_in_key
from tasks.metrics import even_shares
from tasks.settings import at_least, choice, settle, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.hub import outline_digest, resolved
from tasks.vision.spec import MIXING_RULES, ImageSpec, image_metrics

if TYPE_CHECKING:
    import torch

HUB_PREFIX = "hfds/"
"""timm's prefix for data sets read by the datasets library."""

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class StreamedImages:
    """Classify images decoded and augmented as they are needed, with timm's readers, transforms,
    RandAugment and Mixup.

    The defaults are the recipe of "Leaner Transformers: More Heads, Less Depth" (arXiv 2505.20802,
    Table 6): RandAugment (9, 0.5), mixup 0.8, cutmix 1, label smoothing 0.1. What the table leaves
    open follows timm's usual training: crops of 8% to 100% of the area, mirror images, increasing
    magnitudes (``inc1``), bicubic interpolation; evaluation on the central crop.

    timm's own loader draws augmentation from generators whose state depends on the worker and on
    all examples before. Here a torch DataLoader is told (epoch, index) for every example and each
    is augmented under a seed derived from (sampling seed, epoch, index), so the batch of a step
    depends neither on the steps before it nor on the number of workers. Mixup is drawn from
    (sampling seed, step).

    Batches are pairs (x, y): x of shape (batch, 3, image_size, image_size), float32, normalised by
    ImageNet's channel means; y of shape (batch, num_classes), float32 probabilities, when mixing,
    else labels of shape (batch,), int64. A model maps x to logits (batch, num_classes).

    Attributes:
        data: a folder that holds ``train`` and ``val`` (or ``validation``), each with one folder
            of images a class; or ``hfds/`` and a folder or hub name for the datasets library.
        image_size: height and width the model is given, in pixels.
        num_classes: classes; compared with the data when they are opened.
        auto_augment: timm's policy string, empty for crops and mirror images alone.
        mixup: alpha of mixup, 0 for none.
        cutmix: alpha of cutmix, 0 for none; with both, each batch takes either at random.
        label_smoothing: share of the target spread evenly over the classes, in training.
        interpolation: how crops are resized.
        crop_pct: central share of an image's shorter side kept in evaluation, in (0, 1].
        validation: for ``hfds/`` data, the split to validate on.
        image_column: for ``hfds/`` data, the column of images.
        label_column: for ``hfds/`` data, the column of labels.
        max_train_eval: training images, the same ones always, for the training metrics.
        max_validation: use this many validation images only.
        num_workers: processes that decode, at most one a core; 0 to decode in this process.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key()
    image_size: int = 224
    num_classes: int = 1000
    auto_augment: str = "rand-m9-mstd0.5-inc1"
    mixup: float = 0.8
    cutmix: float = 1.0
    label_smoothing: float = 0.1
    interpolation: Literal["bicubic", "bilinear", "random"] = "bicubic"
    crop_pct: float = 0.875
    validation: str = "validation"
    image_column: str = "image"
    label_column: str = "label"
    max_train_eval: int = 10_000
    max_validation: int | None = None
    num_workers: int = not_in_key(4)

    name = "streamed_images"

    def __post_init__(self) -> None:
        settle(
            self,
            {
                "data": _place,
                "image_size": whole_number,
                "num_classes": at_least(2),
                "max_train_eval": whole_number,
                "max_validation": whole_number,
                "num_workers": at_least(0),
                **MIXING_RULES,
                "interpolation": choice("bicubic", "bilinear", "random"),
            },
        )
        if not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must lie in (0, 1], not {self.crop_pct!r}")

    @property
    def from_hub_layout(self) -> bool:
        """Whether the datasets library reads the data, rather than timm's folder reader."""
        return self.data.startswith(HUB_PREFIX)

    @property
    def location(self) -> str:
        """The folder or hub name, without prefix."""
        return self.data.removeprefix(HUB_PREFIX)

    def spec(self) -> ImageSpec:
        """Return image size, channels and number of classes, from the settings alone."""
        return ImageSpec(self.image_size, 3, self.num_classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 accuracy on validation images (main) and on training ones, top-5 beside it from
        six classes on, and losses."""
        return image_metrics(even_shares(self.num_classes), even_shares(self.num_classes))

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
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """List the images; an unreadable one is a DataError when its turn comes."""
        from tasks.vision.streamed_data import StreamedData, readers

        del data_seed  # the splits come with the data
        return StreamedData(self, readers(self), sampling_seed, batch_size, device)


def _place(name: str, data: str) -> str:
    location = data.removeprefix(HUB_PREFIX)
    if not location:
        raise ValueError(f"{name} must name a folder, or a data set after {HUB_PREFIX!r}")
    return data[: -len(location)] + resolved(location)


@functools.lru_cache(maxsize=8)
def _listing(location: str) -> str:
    return outline_digest(location)
