"""The answers of a study whose question asks anew at each value of an axis."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from analysis.text.numbers import first_to_lower
from analysis.values import Jsonable

Result = TypeVar("Result")


@dataclass(frozen=True)
class Groups(Jsonable, Generic[Result]):
    """The answers of a study, one a value of an axis; they share the error rate.

    Attributes:
        found: the answers, by the value in words.
        problems: why there is no answer, by each value that has none.
    """

    within: str
    found: dict[str, Result]
    problems: dict[str, str]

    def answers(self, words: Callable[[Result], Iterable[str]]) -> list[str]:
        """Return each answer in words, with the values that have it."""
        texts = {value: " ".join(words(result)) for value, result in self.found.items()}
        texts |= {value: f"No answer: {problem}." for value, problem in self.problems.items()}
        values_of: dict[str, list[str]] = {}
        for value, text in texts.items():
            values_of.setdefault(text, []).append(value)
        return [
            f"{self.within} = {', '.join(values)}: {first_to_lower(text)}"
            for text, values in values_of.items()
        ]
