"""Rounds of runs: what a design asks for, and what it gets.

A design is a generator. It yields a `Round`, gets the values of its runs, and returns its answer at
the end. It has no other input and draws no random numbers, so the values on record rebuild its
state: `play` feeds it what is there, and returns the round that is missing or the answer.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from analysis.values import Number

AnyRun = TypeVar("AnyRun", bound=tuple[int, ...])
"""One run: the indices of what is trained, and the number of its seed."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Round(Generic[AnyRun]):
    """Runs that are asked for together; the next round depends on all of them.

    Attributes:
        phase: of the design, in a word.
        why: what the design wants to know by them, in words.
    """

    phase: str
    runs: tuple[AnyRun, ...]
    why: str


Design = Generator[Round[AnyRun], Mapping[AnyRun, float | None], Answer]
"""Reads the value of each run; None for one that ended without a value."""


@dataclass(frozen=True, slots=True)
class Played(Generic[AnyRun, Answer]):
    """How far a design has come.

    Attributes:
        rounds: that have all their values, in their order.
        next: the round that lacks some; None at the end.
        answer: None before the end.
    """

    rounds: tuple[Round[AnyRun], ...]
    next: Round[AnyRun] | None = None
    answer: Answer | None = None


def play(
    design: Design[AnyRun, Answer],
    value_of: Callable[[AnyRun], float | None],
    ended: Callable[[AnyRun], bool],
) -> Played[AnyRun, Answer]:
    """Give a design the values of runs until some are missing.

    Args:
        value_of: returns the value of a run that has ended.
        ended: whether a run has.
    """
    rounds: list[Round[AnyRun]] = []
    try:
        asked = next(design)
        while all(map(ended, asked.runs)):
            rounds.append(asked)
            asked = design.send({run: value_of(run) for run in asked.runs})
    except StopIteration as end:
        return Played(tuple(rounds), answer=end.value)
    return Played(tuple(rounds), asked)


@dataclass(frozen=True, slots=True)
class SearchRound:
    """One round.

    Attributes:
        phase: of the search, in a word.
        runs: how many, at every budget.
        cells: what was trained, in words.
        why: what the search wanted to know.
    """

    phase: str
    runs: int
    cells: str
    why: str


@dataclass(frozen=True, slots=True)
class SearchFilm:
    """What a search has trained, and what it has left out.

    Attributes:
        planned: runs that it could have asked for.
        hidden: the largest jump beyond a smooth decline that may lie between two neighbours among
            the values that a search for a transition has tried, and these two; None where all were
            tried.
        now: the round that is in training, in words; empty where the search has ended.
    """

    rounds: tuple[SearchRound, ...]
    planned: int
    hidden: tuple[float, Number, Number] | None = None
    now: str = ""

    @property
    def runs(self) -> int:
        """Runs that were asked for."""
        return sum(asked.runs for asked in self.rounds)

    @property
    def text(self) -> str:
        """The share that was trained, in a sentence; while it goes on, the round that it is in."""
        if self.now:
            return f"The search has not ended; it is in {self.now}{'.' * (self.now[-1] != '?')}"
        return (
            f"The search trained {self.runs:,} of the {self.planned:,} runs that it could ask for, "
            f"in {len(self.rounds)} round{'s' * (len(self.rounds) > 1)}."
        )
