"""The findings of a study whose question asks anew at each value of an axis, as one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

from analysis.questions.base import Finding, Kind, Section
from analysis.text.numbers import NONE, Tone, first_to_lower, sentence
from analysis.text.tables import Table
from analysis.values import Jsonable
from hsweep.design.labels import listed

Result = TypeVar("Result")
_NO_ANSWER: Final[tuple[str, Tone]] = ("no answer", "unknown")
_TONES: Final[tuple[Tone, ...]] = ("found", "partial", "absent", "unknown")


@dataclass(frozen=True)
class Groups(Jsonable):
    """The results of a study, one a value of an axis; they share the error rate.

    Attributes:
        found: the results, by the value in words.
        problems: why there is no answer, by each value that has none.
    """

    within: str
    found: dict[str, Any]
    problems: dict[str, str]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(result.warnings for result in self.found.values()))


def results_of(findings: Iterable[Finding], kind: type[Result]) -> list[Result]:
    """Return the results of a class, those of groups among them."""
    results = chain.from_iterable(
        finding.result.found.values() if isinstance(finding.result, Groups) else (finding.result,)
        for finding in findings
    )
    return [result for result in results if isinstance(result, kind)]


def together(
    kind: Kind, within: str, found: Mapping[str, Finding], problems: Mapping[str, str]
) -> Finding:
    """Return the findings at the values of an axis as one: the verdicts, then every answer.

    Args:
        found: the findings, by the value in words.
        problems: why others have none.
    """
    verdicts = {value: finding.badge or ("answered", "found") for value, finding in found.items()}
    badges = _values_by({**verdicts, **dict.fromkeys(problems, _NO_ANSWER)})
    badges.sort(key=lambda badge: _TONES.index(badge[0][1]))
    badge, values = badges[0]
    if len(badges) > 1:
        label = f"{badge[0]} in {len(values)} of {len(found) + len(problems)}"
        badge = label, "partial" if badge[1] == "found" else badge[1]
    texts = {value: " ".join(finding.sentences) for value, finding in found.items()}
    texts |= {value: f"No answer: {problem}." for value, problem in problems.items()}
    where = [f"{label} with {within} = {listed(values)}" for (label, _), values in badges]
    answers = [
        f"{within} = {', '.join(values)}: {first_to_lower(text)}"
        for text, values in _values_by(texts)
    ]
    return Finding(
        kind,
        Groups(within, {v: finding.result for v, finding in found.items()}, dict(problems)),
        (sentence("; ".join(where)), *answers),
        badge,
        tuple(_sections(within, found)),
        lambda: [chart.at(within, v) for v, finding in found.items() for chart in finding.charts()],
        tuple(chain.from_iterable(finding.missing for finding in found.values())),
    )


def _values_by(texts: Mapping[str, Result]) -> list[tuple[Result, list[str]]]:
    """Return what values have, each once, with the values that have it."""
    values: dict[Result, list[str]] = {}
    for value, text in texts.items():
        values.setdefault(text, []).append(value)
    return list(values.items())


def _sections(within: str, found: Mapping[str, Finding]) -> Iterable[Section]:
    """Yield the tables of each title as one where their columns agree, else one by one."""
    titles: dict[str, dict[str, Section]] = {}
    for value, finding in found.items():
        for section in finding.tables:
            titles.setdefault(section.title, {})[value] = section
    for title, sections in titles.items():
        tables = {value: section.table for value, section in sections.items()}
        first = next(iter(sections.values()))
        if first.in_columns:
            yield first._replace(table=_beside(within, tables))
        elif len({table.header for table in tables.values()}) == 1:
            rows = [(value, *row) for value, table in tables.items() for row in table.rows]
            header = (within, *first.table.header)
            notes = _values_by({value: table.note for value, table in tables.items()})
            own = " ".join(f"{within} = {listed(values)}: {note}" for note, values in notes if note)
            note = own if len(notes) > 1 else first.table.note
            yield first._replace(table=Table(header, tuple(rows), note))
        else:
            for value, section in sections.items():
                yield section._replace(title=f"{title}, {within} = {value}")


def _beside(within: str, tables: Mapping[str, Table]) -> Table:
    """Return tables of a name and its value as one with a column for each."""
    numbers: Sequence[dict[str, str]] = [dict(table.rows) for table in tables.values()]  # type: ignore[arg-type]
    names = dict.fromkeys(chain.from_iterable(numbers))
    rows = tuple((name, *(its.get(name, NONE) for its in numbers)) for name in names)
    return Table((within, *tables), rows)
