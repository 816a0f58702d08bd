"""The settings of the task of streamed images, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tasks.base import not_in_key
from tasks.classification import ImageSpec
from tasks.settings import alpha, one_of, share, whole_number
from tasks.sources.hub import resolved

if TYPE_CHECKING:
    pass

HUB_PREFIX = "hfds/"
"""timm's prefix for data sets read by the datasets library."""


@dataclass(frozen=True, slots=True)
class StreamedImagesConfig:
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

    def __post_init__(self) -> None:
        if not self.data.removeprefix(HUB_PREFIX):
            raise ValueError(f"data must name a folder, or a data set after {HUB_PREFIX!r}")
        prefix = HUB_PREFIX if self.from_hub_layout else ""
        object.__setattr__(self, "data", prefix + resolved(self.location))
        for field, minimum in (
            ("image_size", 1),
            ("num_classes", 2),
            ("max_train_eval", 1),
            ("max_validation", 1),
            ("num_workers", 0),
        ):
            if getattr(self, field) is not None:
                value = whole_number(field, getattr(self, field), minimum=minimum)
                object.__setattr__(self, field, value)
        for field in ("mixup", "cutmix"):
            object.__setattr__(self, field, alpha(field, getattr(self, field)))
        smoothing = share("label_smoothing", self.label_smoothing)
        object.__setattr__(self, "label_smoothing", smoothing)
        if not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must lie in (0, 1], not {self.crop_pct!r}")
        one_of("interpolation", self.interpolation, ("bicubic", "bilinear", "random"))

    @property
    def from_hub_layout(self) -> bool:
        """Whether the datasets library reads the data, rather than timm's folder reader."""
        return self.data.startswith(HUB_PREFIX)

    @property
    def location(self) -> str:
        """The folder or hub name, without prefix."""
        return self.data.removeprefix(HUB_PREFIX)

    @property
    def mixing(self) -> bool:
        """Whether training images are mixed with one another."""
        return self.mixup > 0 or self.cutmix > 0

    def spec(self) -> ImageSpec:
        """Return image size, channels and number of classes, from the settings alone."""
        return ImageSpec(self.image_size, 3, self.num_classes)
