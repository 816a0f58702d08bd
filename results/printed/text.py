"""A study beside the printed results, in words and tables."""

from collections import Counter
from typing import Final

from analysis.questions.base import Section, tables_with_rows
from analysis.text.numbers import NONE, number_text, p_text
from analysis.text.tables import Table
from analysis.values import describe
from results.printed.difference import Standing
from results.printed.numbers import PrintedValue
from results.printed.result import CriticalHeads, PublishedResult, PublishedRow

_OUTCOMES: Final[dict[Standing, str]] = {
    "alike": "not told apart",
    "better": "better than printed",
    "worse": "worse than printed",
    "untested": "not tested",
}


def published_sentence(result: PublishedResult) -> str:
    parts = [f"Not comparable with {result.title}: {result.reason}."]
    if result.comparable:
        counts = Counter(row.standing for row in result.rows)
        outcomes = [f"{counts[name]} {text}" for name, text in _OUTCOMES.items() if counts[name]]
        cells = "comparison" if len(result.rows) == 1 else "comparisons"
        parts = [f"Beside {result.title}: {len(result.rows)} {cells}, {', '.join(outcomes)}."]
        if number := len(result.missing):
            values = "value of it was" if number == 1 else "values of it were"
            parts.append(f"{number} published {values} not run.")
    return " ".join([*parts, *(_critical_sentence(row) for row in result.critical if row.verdict)])


def _critical_sentence(row: CriticalHeads) -> str:
    printed = f"The paper sees the transition at about {number_text(row.printed.value)} heads"
    if row.h_star is None:
        return f"{printed}; the study establishes none ({row.verdict.replace('_', ' ')})."
    listed = ", ".join(map(number_text, row.h_set))
    joint = "and" if row.agrees else "but"
    return f"{printed}, {joint} the study at {number_text(row.h_star)} (95% set {{{listed}}})."


def printed_text(value: PrintedValue) -> str:
    mark = {"approximate": "~", "digitised": "\N{ALMOST EQUAL TO}"}.get(value.reading, "")
    upper = "" if value.upper is None else f" to {number_text(value.upper)}"
    return f"{mark}{number_text(value.value)}{upper}"


def published_tables(result: PublishedResult) -> tuple[Section, ...]:
    """Return the tables of the comparison; none where nothing can be compared."""
    if not result.comparable:
        return ()
    return tables_with_rows(
        Section("Published and run", published_table(result)),
        Section("Published, not run", missing_printed_table(result)),
    )


def published_table(result: PublishedResult) -> Table:
    """Return every comparison; the note says what is the same for all."""
    columns = {
        "published in": [_source(row.printed) for row in result.rows],
        "metric": [row.printed.metric for row in result.rows],
        "cell of the study": [row.label for row in result.rows],
        "printed": [printed_text(row.printed) for row in result.rows],
        "study": [number_text(row.mean) for row in result.rows],
        "runs": [str(row.n) for row in result.rows],
        "by the paper's rule": [number_text(row.expected) for row in result.rows],
        "difference": [_difference_text(row) for row in result.rows],
        "s.e.": [number_text(row.in_se, 2) for row in result.rows],
        "p": [
            NONE if row.p is None else p_text(row.p).removeprefix("p = ").removeprefix("p ")
            for row in result.rows
        ],
        "outcome": [_outcome(row) for row in result.rows],
    }
    assumptions = "; ".join(result.assumptions)
    note = (
        f"“By the paper's rule” is what the study's seeds would give if printed as the "
        "paper does: one run, or the best of some. The difference, of errors a factor, is from "
        "that to the printed value, and beside it in standard errors. Taken for granted: "
        f"{assumptions}."
    )
    return _table(columns, ("published in", "metric"), note)


def missing_printed_table(result: PublishedResult) -> Table:
    """Return what was published and not run; the note says what is the same for all."""
    columns = {
        "published in": [_source(value) for value in result.missing],
        "metric": [value.metric for value in result.missing],
        "settings": [describe(value.settings) for value in result.missing],
        "printed": [printed_text(value) for value in result.missing],
        "remark": [value.note for value in result.missing],
    }
    return _table(columns, ("published in", "metric", "remark"))


def _table(columns: dict[str, list[str]], names: tuple[str, ...], note: str = "") -> Table:
    """Return a table; those of the columns ``names`` that say the same in every row go into its
    note."""
    shared = ""
    for name in names:
        values = set(columns[name])
        if len(values) == 1:
            value = values.pop()
            del columns[name]
            shared += f"{name[:1].upper()}{name[1:]}: {value}. " if value else ""
    rows = tuple(zip(*columns.values(), strict=True))
    return Table(tuple(columns), rows, f"{shared}{note}".strip() if rows else "")


def _source(value: PrintedValue) -> str:
    return f"paper {value.paper}, {value.source}"


def _difference_text(row: PublishedRow) -> str:
    factor = row.factor
    return number_text(row.difference) if factor is None else f"{number_text(factor)} times"


def _outcome(row: PublishedRow) -> str:
    if not row.note:
        return _OUTCOMES[row.standing]
    return row.note if row.standing == "untested" else f"{_OUTCOMES[row.standing]} ({row.note})"
