"""A study beside the printed results, in words and tables."""

from typing import Final

from analysis.against_results import (
    AgainstResult,
    AgainstRow,
    CriticalHeads,
    PrintedValue,
    Standing,
)
from analysis.tables import Table
from analysis.wording import NONE, number_text, p_text

_STANDINGS: Final[dict[Standing, str]] = {
    "alike": "not told apart",
    "better": "better than printed",
    "worse": "worse than printed",
    "untested": "not tested",
}


def against_sentence(result: AgainstResult) -> str:
    """Return how the study stands to what was published, in a few sentences."""
    if not result.comparable:
        said = f"Not comparable with {result.title}: {result.reason}."
        return " ".join([said, *map(critical_sentence, _placed(result))])
    counted = {
        standing: sum(row.standing == standing for row in result.rows) for standing in _STANDINGS
    }
    listed = ", ".join(
        f"{number} {_STANDINGS[standing]}" for standing, number in counted.items() if number
    )
    cells = "comparison" if len(result.rows) == 1 else "comparisons"
    lacking = (
        f" {len(result.missing)} published value{'' if len(result.missing) == 1 else 's'} of it "
        f"{'was' if len(result.missing) == 1 else 'were'} not run."
        if result.missing
        else ""
    )
    parts = [f"Beside {result.title}: {len(result.rows)} {cells}, {listed}.{lacking}"]
    return " ".join([*parts, *map(critical_sentence, _placed(result))])


def _placed(result: AgainstResult) -> list[CriticalHeads]:
    return [row for row in result.critical if row.verdict]


def critical_sentence(row: CriticalHeads) -> str:
    """Return where paper and study see the transition."""
    printed = f"The paper sees the transition at about {number_text(row.printed.value)} heads"
    if row.h_star is None:
        return f"{printed}; the study establishes none ({row.verdict})."
    listed = ", ".join(number_text(h) for h in row.h_set)
    joint = "and" if row.agrees else "but"
    return f"{printed}, {joint} the study at {number_text(row.h_star)} (95% set {{{listed}}})."


def printed_text(value: PrintedValue) -> str:
    """Return a printed value as it may be read: a range, an approximate one."""
    mark = {"approximate": "~", "digitised": "\N{ALMOST EQUAL TO}"}.get(value.reading, "")
    upper = "" if value.upper is None else f" to {number_text(value.upper)}"
    return f"{mark}{number_text(value.value)}{upper}"


def settings_text(value: PrintedValue) -> str:
    """Return what distinguishes a printed value."""
    return ", ".join(f"{name}={setting}" for name, setting in value.settings.items())


def against_table(result: AgainstResult) -> Table:
    """Return every comparison."""
    header = (
        *("paper", "settings", "metric", "printed", "study", "runs", "as the paper prints it"),
        *("difference", "in standard errors", "p", "outcome", "note"),
    )
    note = ""
    if result.rows:
        taken = "; ".join(result.assumptions)
        note = (
            "“As the paper prints it” is what the study's seeds would give by the paper's rule "
            f"(a single run, or the best of some). Differences of errors are factors. {taken}."
        )
    return Table(header, tuple(_row(row) for row in result.rows), note)


def _row(row: AgainstRow) -> tuple[str, ...]:
    difference = (
        f"{number_text(row.factor)} times"
        if row.factor is not None
        else number_text(row.difference)
    )
    return (
        f"{row.printed.paper}, {row.printed.source}",
        settings_text(row.printed),
        row.printed.metric,
        printed_text(row.printed),
        number_text(row.mean),
        str(row.n),
        number_text(row.expected),
        difference,
        number_text(row.in_se, 2) if row.in_se is not None else NONE,
        p_text(row.p).removeprefix("p = ").removeprefix("p ") if row.p is not None else NONE,
        _STANDINGS[row.standing],
        row.note,
    )


def brief_table(result: AgainstResult) -> Table:
    """Return every comparison in as many columns as a terminal has room for."""
    header = ("cell", "metric", "printed", "study", "runs", "difference", "s.e.", "outcome")
    rows = []
    for row, cells in zip(result.rows, against_table(result).rows, strict=True):
        outcome = row.note if row.standing == "untested" else cells[10]
        rows.append((row.label, *cells[2:6], cells[7], cells[8], outcome))
    return Table(header, tuple(rows), "; ".join(result.assumptions))


def missing_printed_table(result: AgainstResult) -> Table:
    """Return what was published and not run."""
    rows = tuple(
        (
            f"{value.paper}, {value.source}",
            settings_text(value),
            value.metric,
            printed_text(value),
            value.note,
        )
        for value in result.missing
    )
    return Table(("paper", "settings", "metric", "printed", "note"), rows)
