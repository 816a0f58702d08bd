"""Evaluation divided among the processes that train one trial.

A task that evaluates example by example asks ``own_rows`` which of them are this process's, and
has ``summed`` add up what all processes found. A process alone has every row. A task that asks
neither is evaluated whole by every process: the same numbers, only no sooner.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Share:
    """This process's share of an evaluation.

    Attributes:
        rank: its number, from 0.
        size: how many processes evaluate.
        add: returns the sum of a tensor over all processes, to each of them.
    """

    rank: int
    size: int
    add: Callable[[Tensor], Tensor]


_share: ContextVar[Share | None] = ContextVar("share", default=None)


@contextmanager
def divided(share: Share | None) -> Iterator[None]:
    """Divide what is evaluated meanwhile; None leaves it whole."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


def own_rows(count: int) -> slice:
    """Return which of ``count`` rows this process evaluates: each is one process's, and where
    there are fewer rows than processes some processes have none."""
    share = _share.get()
    if share is None:
        return slice(0, count)
    return slice(count * share.rank // share.size, count * (share.rank + 1) // share.size)


def summed(sums: Tensor) -> Tensor:
    """Return the sum of ``sums`` over all processes; every process calls this equally often."""
    share = _share.get()
    return sums if share is None else share.add(sums)
