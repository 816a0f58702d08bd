"""Images of a batch mixed with one another, by timm."""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from torch import Tensor

from tasks.global_rng import seeded_globals
from tasks.sampling import stream_seed

_MIXING: Final = 2
"""Keeps a step's mixing apart from its augmentation."""

Mixing: TypeAlias = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


class MixingSettings(Protocol):
    """A task of images that may be mixed."""

    @property
    def mixup(self) -> float:
        """Alpha of mixup, 0 for none."""

    @property
    def cutmix(self) -> float:
        """Alpha of CutMix, 0 for none."""

    @property
    def label_smoothing(self) -> float:
        """Share of the target spread evenly over the classes."""


def mixing_of(
    task: MixingSettings, num_classes: int, sampling_seed: int, batch_size: int
) -> Mixing | None:
    """Return what mixes the images (B, C, H, W) and labels (B,) of a step, and makes the labels
    smoothed probabilities (B, num_classes); None for a task that mixes none.

    What is drawn depends on the sampling seed and the step alone.

    Raises:
        ValueError: a batch that does not consist of pairs.
    """
    if not (task.mixup or task.cutmix):
        return None
    if batch_size % 2:
        raise ValueError(
            f"mixup and cutmix pair images up, so a batch must be even, not {batch_size}"
        )
    mix = timm_data().Mixup(
        mixup_alpha=task.mixup,
        cutmix_alpha=task.cutmix,
        label_smoothing=task.label_smoothing,
        num_classes=num_classes,
    )

    def mixed(images: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
        with seeded_globals(stream_seed(sampling_seed, step, _MIXING)):
            found: tuple[Tensor, Tensor] = mix(images, labels)
        return found

    return mixed


def timm_data() -> Any:
    """Return ``timm.data``."""
    # timm imports torchvision, which does not import beside every build of torch.
    from models.torchvision_compat import make_torchvision_importable

    make_torchvision_importable()
    import timm.data

    return timm.data
