"""What a study's own run shows of its answer: a description, tags and metrics."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.tracking.names import NOTE, acceptable, safe_names
from hsweep.tracking.study import TrackedStudy

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import Metric, Run

_OURS: Final = "hsweep.note_digest"
"""The tag with the digest of the description that was written last: another one is the user's."""
_NUMBERS: Final = "hsweep.numbers"
"""The tag that tells the numbers of the answer from metrics that a user has added."""
_TAGS: Final = ("kind", "verdict", "choice")


def read_analysis(path: Path) -> dict[str, Any]:
    """Return the content of a study's ``analysis.json``; empty if that cannot be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def note_of(study: TrackedStudy, charts: str, analysis: Mapping[str, Any] | None = None) -> str:
    """Return the description of a study's run, as Markdown: the answer, what limits it, what to run
    next, where the ``charts`` are, and the lab note."""
    link = f"[All trials in charts]({charts})"
    return acceptable("\n\n".join([*_answer_lines(analysis or {}), link, study.description]))


def _answer_lines(analysis: Mapping[str, Any]) -> Iterator[str]:
    if not analysis.get("answer"):
        return
    yield f"**{analysis['answer']}**"
    if analysis.get("qualifications"):
        yield "\n".join(f"- {text}" for text in analysis["qualifications"])
    for name in ("settle", "confirm"):
        if text := analysis.get(f"{name}_command"):
            yield f"To {name} it: `{text}`"


def note_tags(note: str, run: "Run | None" = None) -> dict[str, str]:
    """Return the tags that give a run a description; none where the user has edited the present
    one of ``run``."""
    present = None if run is None else run.data.tags.get(NOTE)
    if run is not None and present and _digest(present) != run.data.tags.get(_OURS):
        return {}
    return {NOTE: note, _OURS: _digest(note)} if note else {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def answer_tags(analysis: Mapping[str, Any], run: "Run") -> dict[str, str]:
    """Return what the answer is in a word each, and which numbers it has; empty where the run has
    one of an earlier answer and this one has none."""
    words = {f"hsweep.{name}": acceptable(str(analysis.get(name) or "")) for name in _TAGS}
    values = {**words, _NUMBERS: ",".join(_numbers(analysis))}
    return {name: value for name, value in values.items() if value or name in run.data.tags}


def answer_metrics(analysis: Mapping[str, Any], run: "Run", moment: int) -> "list[Metric]":
    """Return the numbers of the answer at a moment (milliseconds since the epoch); one that an
    earlier answer had and this one has not becomes NaN, since no metric can be removed."""
    from hsweep.tracking.mlflow_api import Metric

    earlier = filter(None, run.data.tags.get(_NUMBERS, "").split(","))
    values = dict.fromkeys(earlier, math.nan) | _numbers(analysis)
    return [Metric(name, value, moment, 0) for name, value in values.items()]


def _numbers(analysis: Mapping[str, Any]) -> dict[str, float]:
    numbers: Mapping[str, float] = analysis.get("numbers") or {}
    names = safe_names(numbers)
    return {names[name]: float(number) for name, number in numbers.items()}
