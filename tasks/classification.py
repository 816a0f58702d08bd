"""Scoring a classifier: the metrics that image tasks share."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric

if TYPE_CHECKING:
    from torch import Tensor, nn

_LEAST_CLASSES_FOR_TOP5 = 6
"""Among five classes, five guesses are always right."""


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


@dataclass(frozen=True, slots=True)
class Scores:
    """How well a classifier does on a set of examples.

    Attributes:
        top1: share of examples whose class has the largest logit.
        top5: share of examples whose class is among the five largest; None below six classes.
        loss: mean cross-entropy in nats, without label smoothing.
    """

    top1: float
    top5: float | None
    loss: float


def classification_metrics(
    num_classes: int,
    validation: Sequence[float] | None = None,
    train: Sequence[float] | None = None,
) -> tuple[Metric, ...]:
    """Return the metrics of an image task, ``top1`` first.

    Args:
        num_classes: classes.
        validation, train: the share of each class among the images of a split, from which follows
            what a constant predictor scores; None for classes that are equally frequent.
    """
    even = (1 / num_classes,) * num_classes
    seen, own = constant_scores(validation or even), constant_scores(train or even)
    has_top5 = num_classes >= _LEAST_CLASSES_FOR_TOP5
    top5 = Metric("top5", "max", "accuracy", "top-5 accuracy, validation images", seen.top5)
    train_top5 = Metric(
        "train_top5",
        "max",
        "accuracy",
        "top-5 accuracy, training images unaugmented",
        own.top5,
        of_training=True,
    )
    return (
        Metric("top1", "max", "accuracy", "top-1 accuracy, validation images", seen.top1),
        *([top5] if has_top5 else []),
        Metric(
            "train_top1",
            "max",
            "accuracy",
            "top-1 accuracy, training images unaugmented",
            own.top1,
            of_training=True,
        ),
        *([train_top5] if has_top5 else []),
        Metric(
            "validation_loss", "min", "loss", "cross-entropy in nats, validation images", seen.loss
        ),
        Metric(
            "train_loss",
            "min",
            "loss",
            "cross-entropy in nats, training images unaugmented",
            own.loss,
            of_training=True,
        ),
    )


def constant_scores(shares: Sequence[float]) -> Scores:
    """Return what the best constant predictor scores on classes of these shares: the commonest
    class is right that often, the five commonest hold the label, and the shares themselves as
    probabilities have the least cross-entropy, the entropy of the classes."""
    ordered = sorted(shares, reverse=True)
    return Scores(
        ordered[0],
        sum(ordered[:5]) if len(ordered) >= _LEAST_CLASSES_FOR_TOP5 else None,
        -sum(share * math.log(share) for share in ordered if share > 0),
    )


def named_scores(scores: Scores, *, of_training: bool) -> dict[str, float]:
    """Return the scores of a split under the names of ``classification_metrics``."""
    prefix, split = ("train_", "train") if of_training else ("", "validation")
    top5 = {} if scores.top5 is None else {f"{prefix}top5": scores.top5}
    return {f"{prefix}top1": scores.top1, **top5, f"{split}_loss": scores.loss}


def logits_of(model: "nn.Module", images: "Tensor", num_classes: int) -> "Tensor":
    """Return the model's logits, (batch, num_classes).

    Raises:
        ValueError: the model returns another shape.
    """
    logits: Tensor = model(images)
    if logits.shape != (len(images), num_classes):
        raise ValueError(
            f"the model must return logits of shape ({len(images)}, {num_classes}) for "
            f"{len(images)} images, not {tuple(logits.shape)}"
        )
    return logits


def score(
    model: "nn.Module", batches: "Iterable[tuple[Tensor, Tensor]]", num_classes: int
) -> Scores:
    """Score ``model`` on (images, labels) pairs; sums stay on the device until the end.

    Of an evaluation that is divided each process gives its own batches, and all get the scores of
    all of them.

    Args:
        model: maps (batch, channels, height, width) to (batch, num_classes).
        batches: images and int64 labels of shape (batch,); at least one example in all.
        num_classes: logits expected.
    """
    import torch
    from torch.nn import functional

    from tasks.division import summed

    guesses = 5 if num_classes >= _LEAST_CLASSES_FOR_TOP5 else 1
    total = torch.zeros(3, dtype=torch.float64)
    examples = 0
    for images, labels in batches:
        logits = logits_of(model, images, num_classes).float()
        hit = logits.topk(guesses, dim=1).indices == labels[:, None]
        loss = functional.cross_entropy(logits, labels, reduction="none").double().sum()
        total = total.to(logits.device) + torch.stack(
            (hit[:, 0].sum().double(), hit.sum().double(), loss)
        )
        examples += len(labels)
    *sums, count = summed(torch.cat((total, total.new_tensor([examples])))).tolist()
    top1, top5, mean_loss = (each / count for each in sums)
    return Scores(top1, top5 if guesses == 5 else None, mean_loss)
