"""What a metric is: which values are better, on which scale it is read, at which level it is
tested."""

from typing import Final, Literal, get_args

from hsweep.errors import check_choice

Goal = Literal["min", "max"]
Scale = Literal["error", "accuracy", "loss"]
"""How a metric is put on an axis: ``error`` as log10, ``accuracy`` as log10 of 1 - accuracy,
``loss`` (with an irreducible part) in nats, never as a logarithm."""
ALPHA: Final = 0.05
"""Level of every test, unless an analysis is set to another one."""
_ROUNDING: Final = 1e-6
"""The largest deviation from 1 of a sum of shares."""


def outside_scale(value: float, scale: Scale) -> str:
    """Return the rule of a scale that a value breaks; empty for none."""
    if scale == "accuracy" and value > 1 + _ROUNDING:
        return "an accuracy cannot be above 1 (divide percentages by 100)"
    if scale == "accuracy" and value < 0:
        return "an accuracy cannot be below 0"
    if scale == "error" and value < 0:
        return (
            "an error cannot be below 0, and scale 'error' takes a logarithm (use scale 'loss' for "
            "a quantity that can be below 0)"
        )
    return ""


def check_scale(scale: object) -> None:
    """Refuse a scale of another name."""
    if scale is not None:
        check_choice("scale", scale, get_args(Scale))
