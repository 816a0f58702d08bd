"""The rounds of a study that asked for few of its trials, as its answer tells them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.adaptive.rounds import Answer, AnyRun
from analysis.values import Number

if TYPE_CHECKING:
    from analysis.adaptive.planned import RoundSearch


@dataclass(frozen=True, slots=True)
class SearchRound:
    """One round.

    Attributes:
        phase: of the search, in a word.
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
    """

    rounds: tuple[SearchRound, ...]
    planned: int
    hidden: tuple[float, Number, Number] | None = None

    @classmethod
    def of(cls, search: "RoundSearch[AnyRun, Answer]") -> "SearchFilm":
        """Return the film of a search."""
        rounds = (
            SearchRound(each.phase, len(each.runs), search.cells(each.runs), each.why)
            for each in search.played.rounds
        )
        return cls(tuple(rounds), search.num_runs)

    @property
    def runs(self) -> int:
        """Runs that were asked for."""
        return sum(asked.runs for asked in self.rounds)

    @property
    def text(self) -> str:
        """The share that was trained, in a sentence."""
        return (
            f"The search trained {self.runs:,} of the {self.planned:,} runs that it could ask for, "
            f"in {len(self.rounds)} rounds."
        )
