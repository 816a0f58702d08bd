"""Checks of a configuration's fields, shared by the families. Free of torch."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from models.shape import Stage, real_number, whole_number, yes_or_no

SHAPE: Final = ("embed_dim", "depth", "heads", "head_dim", "mlp_ratio")
SEQUENCE: Final = (*SHAPE, "seq_len")


def settle(
    config: Any,
    *,
    whole: Iterable[str] = (),
    optional: Iterable[str] = (),
    rates: Iterable[str] = (),
    switches: Iterable[str] = (),
    choices: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """Check fields of a frozen configuration by kind, and normalise its numbers in place.

    Equal numbers of different types (4.0, numpy's 4) must lead to one and the same configuration.

    Args:
        config: the configuration, while it is being constructed.
        whole: fields that must be whole numbers of at least 1.
        optional: fields that must be such numbers, or None.
        rates: fields that must lie in [0, 1).
        switches: fields that must be True or False.
        choices: fields that must be one of the given words.

    Raises:
        ValueError: a field that is not; the message names it, the rule and the value.
    """
    for name in (*whole, *(name for name in optional if getattr(config, name) is not None)):
        object.__setattr__(config, name, whole_number(name, getattr(config, name)))
    for name in rates:
        object.__setattr__(config, name, real_number(name, getattr(config, name), below=1.0))
    for name in switches:
        yes_or_no(name, getattr(config, name))
    for name, words in (choices or {}).items():
        if getattr(config, name) not in words:
            raise ValueError(f"{name} must be one of {words}, not {getattr(config, name)!r}")


def settle_shape(config: Any, stage: Stage, names: Iterable[str] = SHAPE) -> None:
    """Write the checked values of ``stage`` back to the configuration's fields of these names.

    Raises:
        ValueError: the stage has no feed-forward part.
    """
    for name in names:
        object.__setattr__(config, name, getattr(stage, name))
    if stage.mlp_dim == 0:
        raise ValueError("mlp_ratio must be positive: a block has a feed-forward part")


def check_divides(small: str, large: str, config: Any) -> None:
    """Check that the field ``small`` divides the field ``large``.

    Raises:
        ValueError: it does not.
    """
    if getattr(config, large) % getattr(config, small):
        raise ValueError(
            f"{small} must divide {large}: {getattr(config, large)} is not a multiple of "
            f"{getattr(config, small)}"
        )
