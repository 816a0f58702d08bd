"""Metrics by their scale, and what a constant predictor scores.

A metric whose name begins with ``train_`` is measured on training examples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.base import Metric

LEAST_CLASSES_FOR_TOP5 = 6
"""Among five classes, five guesses are always right."""


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


def accuracy(name: str, description: str, chance: float | None = None) -> Metric:
    """Return a metric in [0, 1] of which more is better."""
    return Metric(name, "max", "accuracy", description, chance, name.startswith("train_"))


def error(name: str, description: str, chance: float | None = None) -> Metric:
    """Return a positive metric of which less is better, compared as log10."""
    return Metric(name, "min", "error", description, chance, name.startswith("train_"))


def loss(name: str, description: str, chance: float | None = None) -> Metric:
    """Return a metric in nats."""
    return Metric(name, "min", "loss", description, chance, name.startswith("train_"))


def even_shares(num_classes: int) -> tuple[float, ...]:
    """Return the shares of classes that are equally frequent."""
    return (1 / num_classes,) * num_classes


def constant_scores(shares: Sequence[float]) -> Scores:
    """Return what the best constant predictor scores on classes of these shares: the commonest
    class is right that often, the five commonest hold the label, and the shares themselves as
    probabilities have the least cross-entropy, the entropy of the classes."""
    ordered = sorted(shares, reverse=True)
    return Scores(
        ordered[0],
        sum(ordered[:5]) if len(ordered) >= LEAST_CLASSES_FOR_TOP5 else None,
        -sum(share * math.log(share) for share in ordered if share > 0),
    )
