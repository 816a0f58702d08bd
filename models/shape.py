"""What a transformer's shape is, and which shapes are possible. Free of torch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from models.fields import Rule, real_number, settle, whole_number

T = TypeVar("T")
PerStage: TypeAlias = T | tuple[T, ...]
"""One value for all stages of a model, or one for each."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers that are all alike: a transformer, or the part of one between two changes of width.

    Two meanings of "more heads" are told apart. *Coupled* (``head_dim`` is None): the heads share
    the embedding's width among them, so more heads are narrower heads. *Decoupled* (``head_dim`` is
    a number): every head has that width, and the inner width ``heads * head_dim`` grows with the
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
        settle(self)
        if self.head_dim is None and self.embed_dim % self.heads:
            raise ValueError(
                "embed_dim must be a multiple of heads when head_dim is coupled: "
                f"{self.embed_dim} is not a multiple of {self.heads}; give head_dim to decouple"
            )
        if self.mlp_ratio > 0 and self.mlp_dim < 1:
            raise ValueError(
                "mlp_ratio must leave at least one hidden unit, or be 0 for no feed-forward "
                f"block: {self.mlp_ratio:g} * embed_dim {self.embed_dim} is below 1"
            )

    @property
    def head_width(self) -> int:
        """Width of one head: ``head_dim``, or its share of ``embed_dim``."""
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


def stage_of(config: Any, seq_len: int, **overrides: Any) -> Stage:
    """Return the stage of a configuration's fields, with ``overrides`` in place of some."""
    fields = {name: getattr(config, name) for name in _FIELDS if name not in overrides}
    return Stage(**fields, **overrides, seq_len=seq_len)


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


def settle_stages(config: Any, num_stages: int, **rules_by_field: Rule) -> None:
    """Check a configuration's fields that hold a value for every stage, and give each of them one.

    Args:
        config: while it is made.
        num_stages: how many it has.
        rules_by_field: rules in place of the usual ones.

    Raises:
        ValueError: a value that its rule refuses, or too few or too many of them.
    """
    rules = {**dict.fromkeys(_FIELDS, whole_number), "mlp_ratio": real_number, **rules_by_field}
    for name, rule in rules.items():
        value = getattr(config, name)
        if value is not None:
            values = every_stage(name, value, num_stages, rule)
            object.__setattr__(config, name, values)


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
    return tuple(check(f"{name} of stage {number}", part) for number, part in enumerate(value))


def check_feed_forward(stages: Iterable[Stage]) -> None:
    """Check that every stage has a feed-forward part.

    Raises:
        ValueError: one has none.
    """
    if any(stage.mlp_dim == 0 for stage in stages):
        raise ValueError("mlp_ratio must be positive: a block has a feed-forward part")
