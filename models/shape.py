"""What a transformer's shape is, and which shapes are possible. Free of torch."""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
PerStage: TypeAlias = T | tuple[T, ...]
"""One value for all stages of a model, or one for each."""


def whole_number(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return ``value`` as an int: numpy integers and whole floats such as 4.0 are normalised.

    Raises:
        ValueError: a boolean, a fraction, not a number at all, or below ``minimum``.
    """
    rule = f"{name} must be a whole number of at least {minimum}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{rule}, not {value!r}") from None
    if isinstance(value, bool) or number < minimum:
        raise ValueError(f"{rule}, not {value!r}")
    return number


def real_number(
    name: str, value: Any, *, minimum: float = 0.0, below: float | None = None
) -> float:
    """Return ``value`` as a finite float of at least ``minimum`` (and smaller than ``below``).

    Raises:
        ValueError: a boolean, not a number at all, not finite, or out of range.
    """
    upper = "" if below is None else f" and below {below:g}"
    rule = f"{name} must be a finite number of at least {minimum:g}{upper}"
    if isinstance(value, bool | str | bytes):
        raise ValueError(f"{rule}, not {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{rule}, not {value!r}") from None
    if not math.isfinite(number) or number < minimum or (below is not None and number >= below):
        raise ValueError(f"{rule}, not {value!r}")
    return number


def yes_or_no(name: str, value: Any) -> bool:
    """Return ``value`` if it is a boolean.

    Raises:
        ValueError: anything else, because a truthy string would silently mean yes.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}")
    return value


def token_width(embed_dim: int | None, heads: int, head_dim: int | None) -> int:
    """Return ``embed_dim``, or without one the width of all heads together.

    Raises:
        ValueError: there is no ``head_dim`` either.
    """
    if embed_dim is not None:
        return embed_dim
    if head_dim is None:
        raise ValueError(
            "embed_dim and head_dim cannot both be None: give the width of a token, or that of a "
            "head for tokens of heads * head_dim"
        )
    return heads * head_dim


def every_stage(
    name: str, value: Any, num_stages: int, check: Callable[[str, Any], T]
) -> tuple[T, ...]:
    """Return ``value`` for each of ``num_stages`` stages, or its values if it has that many, passed
    through ``check``.

    Raises:
        ValueError: what ``check`` raises, or a sequence of another length.
    """
    if not isinstance(value, tuple | list):
        return (check(name, value),) * num_stages
    if len(value) != num_stages:
        raise ValueError(
            f"{name} must have one value or {num_stages}, one for each stage, "
            f"not {len(value)}: {value!r}"
        )
    return tuple(check(f"{name} of stage {number}", each) for number, each in enumerate(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers that are all alike: a transformer, or the part of one between two changes of width.

    Two meanings of "more heads" are told apart. *Coupled* (``head_dim`` is None): the heads share
    the embedding's width among them, so more heads are narrower heads. *Decoupled* (``head_dim``
    is given): every head has that width, and the inner width ``heads * head_dim`` grows with the
    heads, free of ``embed_dim``.

    Attributes:
        embed_dim: width of the residual stream.
        depth: number of layers.
        heads: attention heads in each layer.
        head_dim: width of one head, or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the feed-forward block over ``embed_dim``; 0 for none.
        seq_len: tokens of an example, a class token included.

    Raises:
        ValueError: a value that is not a whole number of at least 1 (``mlp_ratio``: a number of
            at least 0), or coupled heads that do not divide ``embed_dim``.
    """

    embed_dim: int
    depth: int
    heads: int
    head_dim: int | None = None
    mlp_ratio: float = 4.0
    seq_len: int

    def __post_init__(self) -> None:
        for name in ("embed_dim", "depth", "heads", "seq_len"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        if self.head_dim is not None:
            object.__setattr__(self, "head_dim", whole_number("head_dim", self.head_dim))
        elif self.embed_dim % self.heads:
            raise ValueError(
                "embed_dim must be a multiple of heads when head_dim is coupled: "
                f"{self.embed_dim} is not a multiple of {self.heads}; give head_dim to decouple"
            )
        object.__setattr__(self, "mlp_ratio", real_number("mlp_ratio", self.mlp_ratio))
        if self.mlp_ratio > 0 and self.mlp_dim < 1:
            raise ValueError(
                "mlp_ratio must leave at least one hidden unit, or be 0 for no feed-forward "
                f"block: {self.mlp_ratio:g} * embed_dim {self.embed_dim} is below 1"
            )

    @property
    def head_width(self) -> int:
        """Width of one head, given or derived."""
        return self.embed_dim // self.heads if self.head_dim is None else self.head_dim

    @property
    def inner_dim(self) -> int:
        """Width of all heads of a layer together."""
        return self.heads * self.head_width

    @property
    def mlp_dim(self) -> int:
        """Hidden width of the feed-forward block, rounded down as timm does."""
        return int(self.embed_dim * self.mlp_ratio)


_FIELDS: Final = ("embed_dim", "depth", "heads", "head_dim", "mlp_ratio")
"""Of a stage, those that a configuration has as well."""


def stage_of(config: Any, seq_len: int, **others: Any) -> Stage:
    """Return the stage that a configuration's fields describe, ``others`` in place of some."""
    fields = {name: getattr(config, name) for name in _FIELDS if name not in others}
    return Stage(**fields, **others, seq_len=seq_len)


def stages_of(config: Any, seq_lens: Sequence[int]) -> tuple[Stage, ...]:
    """Return the stages of a configuration whose fields hold one value for all of them or a tuple
    of one for each.

    Args:
        config: with the fields of a stage but ``seq_len``.
        seq_lens: tokens of each stage.
    """
    columns = (
        value if isinstance(value := getattr(config, name), tuple) else (value,) * len(seq_lens)
        for name in _FIELDS
    )
    return tuple(
        Stage(**dict(zip(_FIELDS, values, strict=True)), seq_len=seq_len)
        for *values, seq_len in zip(*columns, seq_lens, strict=True)
    )
