"""Random expressions of list operations, many at once, level by level.

All nodes of one depth are one array, the children of a node next to each other, so an expression
costs a few array operations a level instead of a function call a node.
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

DIGITS: Final = 10
MIN, MAX, MED, SM = range(DIGITS, DIGITS + 4)
CLOSE: Final = DIGITS + 4
"""Symbols 0 to 9 are the digits themselves."""

WORDS: Final = (*(str(digit) for digit in range(DIGITS)), "[MIN", "[MAX", "[MED", "[SM", "]")
"""How each symbol is written."""

_OPERATOR_PROBABILITY: Final = 0.25
_AT_ONCE: Final = 4096
"""Trees drawn at once. Part of what a seed means."""

_ROUNDS_FOR_SHARES: Final = 6
_FEWEST_FOR_SHARES: Final = 100

_Ints = NDArray[np.int64]


@dataclass(slots=True)
class _Level:
    """The nodes of one depth.

    Attributes:
        tree: number of the tree of each node, ascending.
        parent: the parent's place in the level above.
        symbol: digit or operator.
        num_children: 0 for a digit.
    """

    tree: _Ints
    parent: _Ints
    symbol: _Ints
    num_children: _Ints


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression.

    Attributes:
        symbols: its digits, operators and closing brackets, in order.
        value: what it evaluates to, 0 to 9.
    """

    symbols: bytes
    value: int


def expressions(
    random: np.random.Generator,
    *,
    min_length: int,
    max_length: int,
    max_depth: int,
    max_args: int,
    rounds: int | None = None,
) -> Iterator[Expression]:
    """Yield random expressions of more than ``min_length`` and fewer than ``max_length`` symbols;
    some may be alike.

    The length bounds are met by rejection, as in the Long Range Arena's script.

    Args:
        random: where chance comes from.
        min_length: exclusive.
        max_length: exclusive.
        max_depth: depth of the deepest node; a lone digit has depth 1.
        max_args: most arguments of an operator; the least is 2.
        rounds: draw this many times 4,096 trees, most of which are rejected; None for no end.
    """
    for _ in itertools.count() if rounds is None else range(rounds):
        levels, length = _grown(random, max_length, max_depth, max_args)
        accepted = (length > min_length) & (length < max_length)
        if accepted.any():
            yield from _written(_only(levels, accepted))


@functools.cache
def value_shares(
    min_length: int, max_length: int, max_depth: int, max_args: int
) -> tuple[float, ...]:
    """Return how frequent each value is among some thousand expressions within these bounds.

    Where hardly any tree meets the bounds the values are taken to be equally frequent.
    """
    sample = expressions(
        np.random.default_rng(0),
        min_length=min_length,
        max_length=max_length,
        max_depth=max_depth,
        max_args=max_args,
        rounds=_ROUNDS_FOR_SHARES,
    )
    counts = np.bincount([expression.value for expression in sample], minlength=DIGITS)
    if counts.sum() < _FEWEST_FOR_SHARES:
        return (1 / DIGITS,) * DIGITS
    return tuple((counts / counts.sum()).tolist())


def _grown(
    random: np.random.Generator, max_length: int, max_depth: int, max_args: int
) -> tuple[list[_Level], _Ints]:
    """Return trees and their lengths; one that has reached ``max_length`` grows no further."""
    length = np.zeros(_AT_ONCE, dtype=np.int64)
    tree = np.arange(_AT_ONCE)
    parent = np.zeros(_AT_ONCE, dtype=np.int64)
    levels: list[_Level] = []
    while len(tree):
        symbol = random.integers(0, DIGITS, len(tree))
        num_children = np.zeros_like(tree)
        operator = random.random(len(tree)) < _OPERATOR_PROBABILITY
        if len(levels) + 1 == max_depth:
            operator[:] = False
        operator &= length[tree] < max_length
        symbol[operator] = random.integers(MIN, SM + 1, operator.sum())
        num_children[operator] = random.integers(2, max_args + 1, operator.sum())
        length += np.bincount(tree, minlength=_AT_ONCE)
        length += np.bincount(tree[operator], minlength=_AT_ONCE)  # closing brackets
        levels.append(_Level(tree, parent, symbol, num_children))
        parent = np.repeat(np.arange(len(tree)), num_children)
        tree = tree[parent]
    return levels, length


def _only(levels: list[_Level], accepted: NDArray[np.bool_]) -> list[_Level]:
    """Return the levels with the nodes of accepted trees alone, renumbered."""
    new_tree = np.cumsum(accepted) - 1
    new_parent = np.zeros(len(accepted), dtype=np.int64)
    trimmed = []
    for level in levels:
        is_accepted = accepted[level.tree]
        trimmed.append(
            _Level(
                new_tree[level.tree[is_accepted]],
                new_parent[level.parent[is_accepted]],
                level.symbol[is_accepted],
                level.num_children[is_accepted],
            )
        )
        new_parent = np.cumsum(is_accepted) - 1
    return [level for level in trimmed if len(level.tree)]


def _written(levels: list[_Level]) -> Iterator[Expression]:
    """Yield every tree as an expression, in order."""
    values, sizes = _evaluated(levels)
    ends = np.cumsum(sizes[0])
    symbols = np.empty(ends[-1], dtype=np.uint8)
    place = ends - sizes[0]
    for depth, level in enumerate(levels):
        if depth:
            # A child stands after its parent's bracket and the siblings before it.
            before = np.cumsum(sizes[depth]) - sizes[depth]
            first = _first_children(levels[depth - 1].num_children)[level.parent]
            place = place[level.parent] + 1 + before - before[first]
        symbols[place] = level.symbol
        operator = level.num_children > 0
        symbols[(place + sizes[depth] - 1)[operator]] = CLOSE
    for start, end, value in zip(ends - sizes[0], ends, values[0], strict=True):
        yield Expression(symbols[start:end].tobytes(), int(value))


def _evaluated(levels: list[_Level]) -> tuple[list[_Ints], list[_Ints]]:
    """Return the value of every node, and the symbols it is written with, by level."""
    values = [np.where(level.symbol < DIGITS, level.symbol, 0) for level in levels]
    sizes = [np.where(level.num_children > 0, 2, 1) for level in levels]
    for depth in reversed(range(len(levels) - 1)):
        level, below = levels[depth], values[depth + 1]
        operator = np.flatnonzero(level.num_children)
        first = _first_children(level.num_children)[operator]
        count = level.num_children[operator]
        ordered = below[np.lexsort((below, levels[depth + 1].parent))]
        middle = ordered[first + (count - 1) // 2] + ordered[first + count // 2]
        outcomes = np.stack(
            (
                ordered[first],
                ordered[first + count - 1],
                middle // 2,
                np.add.reduceat(below, first) % DIGITS,
            )
        )
        values[depth][operator] = outcomes[level.symbol[operator] - MIN, np.arange(len(operator))]
        sizes[depth][operator] += np.add.reduceat(sizes[depth + 1], first)
    return values, sizes


def _first_children(num_children: _Ints) -> _Ints:
    """Return where the children of each node begin in the level below."""
    return np.cumsum(num_children) - num_children
