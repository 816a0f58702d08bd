"""An answer as a value: what the kinds of question found, the sweep's own first."""

import dataclasses
import html
import math
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from analysis.questions.base import Finding
from analysis.runs.table import ReadAs
from analysis.text.numbers import sentence as as_sentence
from analysis.values import Jsonable

NO_QUESTION: Final = "the sweep asks no question; the report shows its learning curves"

Result = TypeVar("Result", bound=Jsonable)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the runs of a study or a table say.

    Attributes:
        findings: what the kinds of question found; the first that may lead does.
        instead: what stands in place of the leading finding's sentence, where the question asked
            has no answer or there is none.
        problem: why the question could not be answered; None if it was.
        confirm_command: what confirms a lean choice with fresh seeds; None without a choice.
        settle_command: what runs the trials that the answer lacks; None where it lacks none.
        unfinished: runs of the study that have not ended yet.
        read_as: which columns of a table were taken for what; None of a study.
    """

    findings: tuple[Finding, ...] = ()
    instead: str | None = None
    problem: str | None = None
    confirm_command: str | None = None
    settle_command: str | None = None
    unfinished: int = 0
    read_as: ReadAs | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<answer: {self.text}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        commands = {"settle": self.settle_command, "confirm": self.confirm_command}
        return "".join(
            [
                f"<p><b>{html.escape(self.sentence)}</b></p>",
                *(f"<p>{html.escape(as_sentence(text))}</p>" for text in self.qualifications),
                *(
                    f"<p>{name} <code>{html.escape(text)}</code></p>"
                    for name, text in commands.items()
                    if text is not None
                ),
            ]
        )

    @property
    def leading(self) -> Finding | None:
        """The finding that answers the question, or else the first that may lead."""
        return next((each for each in self.findings if each.leads), None)

    @property
    def is_answered(self) -> bool:
        """Whether a finding answers a question that a sweep can ask."""
        return any(each.answers for each in self.findings)

    def result(self, kind: type[Result]) -> Result | None:
        """Return what was found of a class; None where there is none."""
        found = (each.result for each in self.findings)
        return next((each for each in found if isinstance(each, kind)), None)

    @property
    def sentences(self) -> list[str]:
        """The answer with its uncertainty, part by part, or why there is none."""
        leading = self.leading
        if self.instead is not None or leading is None:
            return [self.instead or NO_QUESTION]
        return leading.sentences

    @property
    def plain(self) -> list[str]:
        """The answer in everyday words: first what was found, then what qualifies it."""
        leading = self.leading
        if self.instead is not None or leading is None:
            found = [as_sentence(text) for text in self.sentences]
        else:
            found = leading.plain
        return [*found, *map(as_sentence, self.qualifications)]

    @property
    def sentence(self) -> str:
        """The answer in one text."""
        return " ".join(self.sentences)

    @property
    def qualifications(self) -> tuple[str, ...]:
        """What limits the answer and has to stand beside it wherever it is printed."""
        found = tuple(text for each in self.findings for text in each.qualifications)
        is_counted = any(each.counts_unfinished for each in self.findings)
        if self.unfinished and not is_counted:
            still = "1 run has" if self.unfinished == 1 else f"{self.unfinished} runs have"
            found = (*found, f"{still} not ended yet; the answer may change")
        return found

    @property
    def direction(self) -> str:
        """Which way the metric is read; empty where nothing was found."""
        return next((each.direction for each in self.findings if each.direction), "")

    def warnings_of(self, findings: tuple[Finding, ...]) -> list[str]:
        """Return the findings' warnings, each once, without those that limit the answer."""
        found = dict.fromkeys(text for each in findings for text in each.warnings)
        return [text for text in found if text not in self.qualifications]

    @property
    def numbers(self) -> dict[str, float]:
        """What stands for the answer where there is room for a few numbers."""
        found = {name: value for each in self.findings for name, value in each.numbers.items()}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    @property
    def text(self) -> str:
        """The answer with its qualifications, in sentences."""
        return " ".join([self.sentence, *map(as_sentence, self.qualifications)])

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain JSON content.

        The fields of the leading finding stand at the top, the others under their kind's name.
        """
        leading = self.leading
        content: dict[str, Any] = {
            "kind": leading.kind if leading is not None else None,
            "answer": self.sentence,
            "problem": self.problem,
            "direction": self.direction,
            **(leading.to_json() if leading is not None else {}),
            "qualifications": list(self.qualifications),
            "numbers": self.numbers,
        }
        content |= {each.kind: each.to_json() for each in self.findings if each is not leading}
        if self.read_as is not None:
            content["read_as"] = dataclasses.asdict(self.read_as)
        commands = {"confirm_command": self.confirm_command, "settle_command": self.settle_command}
        return content | {name: text for name, text in commands.items() if text is not None}
