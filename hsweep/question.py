"""What a sweep asks: plain values that the analysis package knows how to answer."""

from dataclasses import dataclass
from typing import Literal

from hsweep.errors import UserError

Goal = Literal["min", "max"]
Scale = Literal["error", "accuracy", "loss"]
"""How a metric is put on an axis: ``error`` as log10, ``accuracy`` as log10 of 1 - accuracy,
``loss`` (with an irreducible part) in nats, never as a logarithm."""


@dataclass(frozen=True, slots=True)
class Transition:
    """At which value of ``x`` does the error collapse, and does its growth with ``by`` vanish?

    Attributes:
        x: the ordered axis that is searched for the critical value (usually ``heads``).
        by: the modulating axis (usually ``seq_len``), or None.
        scale: how the metric is transformed.
        eval_size: evaluation examples, needed by the ``accuracy`` scale to floor the error.
    """

    x: str = "heads"
    by: str | None = "seq_len"
    scale: Scale = "error"
    eval_size: int | None = None


@dataclass(frozen=True, slots=True)
class Lean:
    """Which shapes lie on the front of metric and cost, and which is the leanest good one?

    Attributes:
        costs: columns to save, first one first (``num_params``, ``flops_per_example``,
            ``train_memory_bytes``, ``wall_seconds``, ``latency_seconds``).
        baseline: axis values that name the baseline shape.
        within: an axis at each of whose values the baseline is another shape, for example a family
            of models; shapes are then compared only with the baseline they share it with.
        margin: how much worse than the baseline, in the metric's own unit, still counts as equal.
        scale: how the metric is transformed for display.

    Raises:
        UserError: a margin that is not positive.
    """

    baseline: tuple[tuple[str, int | float | str], ...]
    margin: float
    costs: tuple[str, ...] = ("num_params",)
    scale: Scale = "accuracy"
    within: str | None = None

    def __post_init__(self) -> None:
        if not self.margin > 0:
            raise UserError(f"margin must be positive, not {self.margin!r}")


Question = Transition | Lean


def lean(
    baseline: dict[str, int | float | str],
    margin: float,
    costs: tuple[str, ...] = ("num_params",),
    scale: Scale = "accuracy",
    within: str | None = None,
) -> Lean:
    """Return the lean question with its baseline given as a dictionary of axis values."""
    return Lean(tuple(sorted(baseline.items())), margin, costs, scale, within)
