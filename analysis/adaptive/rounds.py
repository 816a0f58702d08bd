"""Rounds of runs: what a design asks for, and what it gets.

A design is a generator. It yields a `Round`, gets the values of its runs, and returns its answer at
the end. It has no other input and draws no random numbers, so the values on record rebuild its
state: `play` feeds it what is there, and returns the round that is missing or the answer.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

Answer = TypeVar("Answer")
Phase = Literal["search", "window", "place", "growth"]


class Run(NamedTuple):
    """One run: the indices of its head count and of its length, and the number of its seed."""

    head: int
    length: int
    seed: int


@dataclass(frozen=True, slots=True)
class Round:
    """Runs that are asked for together; the next round depends on all of them.

    Attributes:
        why: what the design wants to know by them, in words.
    """

    phase: Phase
    runs: tuple[Run, ...]
    why: str


Values = Mapping[Run, float | None]
"""The y of runs on the metric's scale; None for a run that ended without a value."""
Design = Generator[Round, Values, Answer]


@dataclass(frozen=True, slots=True)
class Played(Generic[Answer]):
    """How far a design has come.

    Attributes:
        rounds: that have all their values, in their order.
        next: the round that lacks some; None at the end.
        answer: None before the end.
    """

    rounds: tuple[Round, ...]
    next: Round | None = None
    answer: Answer | None = None


def play(
    design: Design[Answer], value_of: Callable[[Run], float | None], ended: Callable[[Run], bool]
) -> Played[Answer]:
    """Give a design the values of runs until some are missing.

    Args:
        value_of: returns the y of a run that has ended.
        ended: whether a run has.
    """
    rounds: list[Round] = []
    try:
        asked = next(design)
        while all(map(ended, asked.runs)):
            rounds.append(asked)
            asked = design.send({run: value_of(run) for run in asked.runs})
    except StopIteration as end:
        return Played(tuple(rounds), answer=end.value)
    return Played(tuple(rounds), asked)
