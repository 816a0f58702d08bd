"""Learning from images, wherever they come from: settings, mixing, cross-entropy and accuracies.

Shapes: B images in a batch, C channels, H rows, W columns, K classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.torchvision_compat import make_torchvision_importable
from tasks.base import Metric
from tasks.division import sum_over_processes
from tasks.metrics import LEAST_CLASSES_FOR_TOP5, accuracy, constant_scores, loss
from tasks.sampling import EpochData, of_shape, seeded_globals, stream_seed

_MIXING: Final = 2
"""Keeps a step's mixing apart from its augmentation."""

Mixing: TypeAlias = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
LabelledBatches: TypeAlias = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What a model has to know about a task's images, known without training anything.

    Attributes:
        image_size: height and width the model is given, in pixels.
        in_chans: colour channels.
        num_classes: classes, and so logits.
    """

    image_size: int
    in_chans: int
    num_classes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTask:
    """What tasks of images have in common.

    Attributes:
        label_smoothing: share of the target spread evenly over the classes, in training.
        mixup: alpha of mixup, 0 for none; targets are then of shape (batch, num_classes), float32.
        cutmix: alpha of CutMix, 0 for none; with both, each batch takes either at random.
        max_validation: use this many validation images only.
    """

    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    max_validation: int | None = None


def image_metrics(validation: Sequence[float], train: Sequence[float]) -> tuple[Metric, ...]:
    """Return the metrics of an image task, ``top1`` first and ``top5`` from six classes on.

    Args:
        validation, train: the share of each class among the images of a split, from which follows
            what a constant predictor scores.
    """
    validation_chance, train_chance = constant_scores(validation), constant_scores(train)
    trained = "training images unaugmented"
    by_rank = [
        accuracy("top1", "top-1 accuracy, validation images", validation_chance.top1),
        accuracy("top5", "top-5 accuracy, validation images", validation_chance.top5),
        accuracy("train_top1", f"top-1 accuracy, {trained}", train_chance.top1),
        accuracy("train_top5", f"top-5 accuracy, {trained}", train_chance.top5),
    ]
    return (
        *(
            metric
            for metric in by_rank
            if validation_chance.top5 is not None or "top1" in metric.name
        ),
        loss("validation_loss", "cross-entropy in nats, validation images", validation_chance.loss),
        loss("train_loss", f"cross-entropy in nats, {trained}", train_chance.loss),
    )


class ImageLearning(EpochData, ABC):
    """Images opened for one trial; how they are read is a subclass's.

    Raises:
        ValueError: a batch size below 1, or one that does not consist of pairs where images are
            mixed.
    """

    def __init__(
        self,
        task: ImageTask,
        num_classes: int,
        *,
        num_train: int,
        eval_size: int,
        sampling_seed: int,
        batch_size: int,
    ) -> None:
        super().__init__(num_train, eval_size, sampling_seed, batch_size)
        self._num_classes = num_classes
        self._mix = _mixing(task, num_classes, sampling_seed, self._batch_size)
        # Mixed targets are smoothed already.
        self._smoothing = 0.0 if self._mix else task.label_smoothing

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean cross-entropy of the batch, in nats, with label smoothing."""
        images, targets = batch
        logits = self._logits(model, images)
        return functional.cross_entropy(logits, targets, label_smoothing=self._smoothing)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return accuracies and loss on validation images."""
        top1, top5, loss = self._scores(model, self._to_validate())
        return {"top1": top1, **({"top5": top5} if self._has_top5 else {}), "validation_loss": loss}

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return accuracies and loss on unaugmented training images."""
        top1, top5, loss = self._scores(model, self._to_score())
        return {
            "train_top1": top1,
            **({"train_top5": top5} if self._has_top5 else {}),
            "train_loss": loss,
        }

    @abstractmethod
    def _to_validate(self) -> LabelledBatches:
        """Return this process's validation images, and their labels."""

    @abstractmethod
    def _to_score(self) -> LabelledBatches:
        """Return this process's training images, unaugmented, and their labels."""

    @property
    def _has_top5(self) -> bool:
        return self._num_classes >= LEAST_CLASSES_FOR_TOP5

    def _logits(self, model: nn.Module, images: Tensor) -> Tensor:
        shape = (len(images), self._num_classes)
        return of_shape(model(images), shape, f"logits of shape {shape} for {len(images)} images")

    def _scores(self, model: nn.Module, batches: LabelledBatches) -> list[float]:
        """Return top-1, top-5 (top-1 again below six classes) and the mean cross-entropy.

        Sums stay on the device until the end. Of an evaluation that is divided each process gives
        its own batches, and all get the scores of all of them.
        """
        guesses = 5 if self._has_top5 else 1
        total = torch.zeros(3, dtype=torch.float64)
        examples = 0
        for images, labels in batches:
            logits = self._logits(model, images).float()
            hit = logits.topk(guesses, dim=1).indices == labels[:, None]
            loss = functional.cross_entropy(logits, labels, reduction="none").double().sum()
            total = total.to(logits.device) + torch.stack(
                (hit[:, 0].sum().double(), hit.sum().double(), loss)
            )
            examples += len(labels)
        *sums, count = sum_over_processes(torch.cat((total, total.new_tensor([examples])))).tolist()
        return [part / count for part in sums]


def _mixing(
    task: ImageTask, num_classes: int, sampling_seed: int, batch_size: int
) -> Mixing | None:
    """Return what mixes the images (B, C, H, W) and labels (B,) of a step, and makes the labels
    smoothed probabilities (B, num_classes); None for a task that mixes none.

    What is drawn depends on the sampling seed and the step alone.
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
            pair: tuple[Tensor, Tensor] = mix(images, labels)
        return pair

    return mixed


def timm_data() -> Any:
    """Return ``timm.data``; timm imports torchvision, which not every build of torch has beside
    it."""
    make_torchvision_importable()
    import timm.data

    return timm.data
