"""What image tasks have in common, known without reading any data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tasks.base import Metric
from tasks.metrics import accuracy, constant_scores, loss
from tasks.settings import Rule, alpha, share

MIXING_RULES: Final[dict[str, Rule]] = {
    "label_smoothing": share,
    "mixup": alpha,
    "cutmix": alpha,
}


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


def image_metrics(validation: Sequence[float], train: Sequence[float]) -> tuple[Metric, ...]:
    """Return the metrics of an image task, ``top1`` first and ``top5`` from six classes on.

    Args:
        validation, train: the share of each class among the images of a split, from which follows
            what a constant predictor scores.
    """
    seen, own = constant_scores(validation), constant_scores(train)
    trained = "training images unaugmented"
    by_rank = [
        accuracy("top1", "top-1 accuracy, validation images", seen.top1),
        accuracy("top5", "top-5 accuracy, validation images", seen.top5),
        accuracy("train_top1", f"top-1 accuracy, {trained}", own.top1),
        accuracy("train_top5", f"top-5 accuracy, {trained}", own.top5),
    ]
    return (
        *(metric for metric in by_rank if seen.top5 is not None or "top1" in metric.name),
        loss("validation_loss", "cross-entropy in nats, validation images", seen.loss),
        loss("train_loss", f"cross-entropy in nats, {trained}", own.loss),
    )
