"""An answer as a value: what the kinds of question found, the sweep's own first."""

import base64
import dataclasses
import html
import math
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

from analysis.charts.chart import Chart
from analysis.questions.base import Finding
from analysis.runs.choices import MOVES
from analysis.runs.repeats import REPEATED
from analysis.runs.table import ReadAs
from analysis.text.numbers import direction_text
from analysis.text.numbers import sentence as as_sentence
from analysis.values import Jsonable
from hsweep.design.missing import Missing

NO_QUESTION: Final = "the sweep asks no question; the report shows its learning curves"
_NUMBERS: Final = ("h_star", "drop", "p", "front_size", "saving")
"""Fields of results that stand for an answer where there is room for a few numbers."""

Result = TypeVar("Result", bound=Jsonable)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the runs of a study or a table say.

    Attributes:
        findings: what the kinds of question found; the first that has a verdict leads.
        instead: what stands in place of the leading finding's sentences, where the question asked
            has no answer or there is none.
        problem: why the question could not be answered; None if it was.
        confirm_command: what confirms a lean choice with fresh seeds; None without a choice.
        settle_command: what runs the trials that the answer lacks; None where it lacks none.
        which_report: which report of each run counts; empty where that needs no word.
        unfinished: runs of the study that have not ended yet.
        read_as: which columns of a table were taken for what; None of a study.
    """

    findings: tuple[Finding, ...] = ()
    instead: str | None = None
    problem: str | None = None
    confirm_command: str | None = None
    settle_command: str | None = None
    which_report: str = ""
    unfinished: int = 0
    read_as: ReadAs | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<answer: {self.text}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        first, *rest = (html.escape(text) for text in self.sentences)
        commands = (
            f"<p>{name} <code>{html.escape(text)}</code></p>"
            for name, text in (("settle", self.settle_command), ("confirm", self.confirm_command))
            if text is not None
        )
        texts = [f"<p><b>{first}</b></p>", *(f"<p>{text}</p>" for text in rest), *commands]
        charts = self.leading.charts() if self.leading and self.instead is None else ()
        return "".join([*texts, *map(_image, charts[:1])])

    @property
    def leading(self) -> Finding | None:
        """The finding that answers the question: the first with a verdict, else the first."""
        decided = (finding for finding in self.findings if finding.badge is not None)
        return next(decided, next(iter(self.findings), None))

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The runs that the findings lack."""
        return tuple(runs for finding in self.findings for runs in finding.missing)

    def result(self, kind: type[Result]) -> Result | None:
        """Return the result of a class; None where there is none."""
        results = (finding.result for finding in self.findings)
        return next((result for result in results if isinstance(result, kind)), None)

    @property
    def sentences(self) -> list[str]:
        """The answer with its uncertainty, or why there is none, and then what qualifies it."""
        leading = self.leading
        if self.instead is not None or leading is None:
            texts = [as_sentence(self.instead or NO_QUESTION)]
        else:
            texts = list(leading.sentences)
            warnings = getattr(leading.result, "warnings", ())
            texts[1:1] = [
                as_sentence(text) for text in warnings if text.startswith((REPEATED, MOVES))
            ]
        texts[1:1] = filter(None, [self.which_report])
        # A finding may say it of its cells.
        if self.unfinished and not any("not ended yet" in text for text in texts):
            runs = "1 run has" if self.unfinished == 1 else f"{self.unfinished} runs have"
            texts.append(f"{runs} not ended yet; the answer may change.")
        return texts

    @property
    def text(self) -> str:
        """The answer with what qualifies it, in one text."""
        return " ".join(self.sentences)

    @property
    def direction(self) -> str:
        """Which way the metric is read; empty where nothing was found."""
        for finding in self.findings:
            metric = getattr(finding.result, "metric", "")
            goal, scale = (getattr(finding.result, name, None) for name in ("goal", "scale"))
            # Only a transition puts an accuracy on the logarithmic axis of its error.
            if scale == "accuracy" and finding.kind.name != "transition":
                scale = None
            if metric and goal:
                return direction_text(metric, goal, scale)
        return ""

    @property
    def warnings(self) -> list[str]:
        """What else to know, each once, without what already qualifies the answer."""
        sentences = self.sentences
        warnings = (getattr(finding.result, "warnings", ()) for finding in self.findings)
        texts = dict.fromkeys(chain.from_iterable(warnings))
        return [text for text in texts if as_sentence(text) not in sentences]

    @property
    def numbers(self) -> dict[str, float]:
        """What stands for the answer where there is room for a few numbers."""
        return {
            name: float(value)
            for finding in self.findings
            if finding.badge is not None and finding.badge[1] in ("found", "partial")
            for name in _NUMBERS
            if isinstance(value := getattr(finding.result, name, None), int | float)
            and math.isfinite(value)
        }

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain JSON content, each fact once.

        The fields of the leading finding stand at the top, the others under their kind's name.
        """
        leading = self.leading
        first, *rest = self.sentences
        content: dict[str, Any] = {
            "kind": leading.kind.name if leading is not None else None,
            "answer": first,
            "qualifications": rest,
            "problem": self.problem,
            "direction": self.direction,
        }
        # What the result has of these is said above, or among the numbers of all findings.
        leading_content = leading.result.to_json() if leading is not None else {}
        content |= {name: value for name, value in leading_content.items() if name not in content}
        content |= {"numbers": self.numbers, "warnings": self.warnings}
        for finding in self.findings:
            if finding is not leading:
                content[finding.kind.name] = finding.result.to_json()
                content[finding.kind.name].pop("warnings", None)
        if self.read_as is not None:
            content["read_as"] = dataclasses.asdict(self.read_as)
        commands = {"confirm_command": self.confirm_command, "settle_command": self.settle_command}
        return content | {name: text for name, text in commands.items() if text is not None}


def _image(chart: Chart) -> str:
    """Return a chart as an image within HTML."""
    from analysis.charts.matplotlib_print import png_of  # slow to import

    content = base64.b64encode(png_of(chart)).decode()
    return f'<img alt="{html.escape(chart.title)}" src="data:image/png;base64,{content}">'
