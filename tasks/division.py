"""Evaluation divided among the processes that train one trial.

A task that evaluates example by example asks ``own_slices`` which of them are this process's, and
adds up the scores of all processes by ``sum_over_processes``. A process alone has every row. A task
that asks neither is evaluated whole by every process: the same numbers, only no sooner.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

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


_WHOLE: Final = Share(0, 1, lambda sums: sums)
_share: ContextVar[Share | None] = ContextVar("share", default=None)


@contextmanager
def divide_evaluation(share: Share | None) -> Iterator[None]:
    """Divide every evaluation within the ``with``; None leaves it whole."""
    if share is None:
        yield
        return
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


def own_slices(count: int, at_once: int) -> Iterator[slice]:
    """Yield which of ``count`` rows this process evaluates, in slices of ``at_once`` at most.

    Each row is one process's. Where there are fewer rows than processes some have none, and no
    slice.
    """
    share = _share.get() or _WHOLE
    end = count * (share.rank + 1) // share.size
    for start in range(count * share.rank // share.size, end, at_once):
        yield slice(start, min(start + at_once, end))


def sum_over_processes(sums: Tensor) -> Tensor:
    """Return the sum of ``sums`` over all processes; every process calls this equally often."""
    return (_share.get() or _WHOLE).add(sums)
