"""An answer as text for the terminal."""

from rich.console import Console
from rich.table import Table as RichTable

from analysis.answer import Answer
from analysis.questions.conditioning.text import correlations_table, shapes_table
from analysis.questions.effects.result import EffectsResult
from analysis.questions.published.text import published_sentence
from analysis.questions.surrogate.result import SurrogateResult
from analysis.words.shape_sections import shape_sections
from analysis.words.tables import (
    Table,
    lean_table,
    missing_runs_table,
    missing_table,
    pareto_table,
    reading_table,
)
from analysis.words.wording import sentence


def show_answer(console: Console, answer: Answer) -> None:
    """Print an answer: its sentence, the numbers behind it, and what to know besides."""
    console.print(answer.sentence, style="bold", soft_wrap=True)
    for text in answer.qualifications:
        console.print(sentence(text), soft_wrap=True)
    if answer.settle_command is not None:
        console.print("run what it lacks:")
        console.print(answer.settle_command, soft_wrap=True)
    for title, table in _tables(answer):
        if table.rows:
            console.print()
            print_table(console, title, table)
    if answer.published is not None:
        console.print()
        console.print(published_sentence(answer.published), soft_wrap=True)
    if answer.confirm_command is not None:
        console.print()
        console.print("confirm the choice with fresh seeds:")
        console.print(answer.confirm_command, soft_wrap=True)
    groups = answer.lean_groups.found.values() if answer.lean_groups is not None else ()
    fronts = answer.lean_groups.fronts.values() if answer.lean_groups is not None else ()
    results = (
        *(answer.transition, answer.pareto, answer.lean, *groups, *fronts, answer.conditioning),
        *(_shapes_asked_for(answer)),
    )
    warnings = [text for result in results if result is not None for text in result.warnings]
    for warning in dict.fromkeys(text for text in warnings if text not in answer.qualifications):
        console.print(f"note: {warning}", style="yellow", soft_wrap=True)


def _tables(answer: Answer) -> list[tuple[str, Table]]:
    found: list[tuple[str, Table]] = []
    if answer.transition is not None:
        found.append(("numbers", reading_table(answer.transition)))
        found.append(("trials that would settle it", missing_table(answer.transition)))
    if answer.lean is not None:
        found.append(("candidates", lean_table(answer.lean)))
        found.append(("trials that would settle it", missing_runs_table({"": answer.lean})))
    if answer.lean_groups is not None:
        groups = answer.lean_groups
        lacking = missing_runs_table(groups.found, groups.within)
        found.append(("trials that would settle it", lacking))
        for value, result in answer.lean_groups.found.items():
            found.append((f"candidates, {answer.lean_groups.within} = {value}", lean_table(result)))
    if answer.pareto is not None:
        found.append(("shapes", pareto_table(answer.pareto)))
    if answer.lean_groups is not None:
        for value, front in answer.lean_groups.fronts.items():
            found.append((f"shapes, {answer.lean_groups.within} = {value}", pareto_table(front)))
    if answer.conditioning is not None:
        found.append(("condition numbers", shapes_table(answer.conditioning)))
        found.append(("correlations", correlations_table(answer.conditioning)))
    found += shape_sections(*_shapes_asked_for(answer), said=True)
    return found


def _shapes_asked_for(
    answer: Answer,
) -> tuple[EffectsResult | None, SurrogateResult | None]:
    """Return effects and surrogate where they were the question; else the report shows them."""
    leading = answer.transition or answer.lean or answer.lean_groups or answer.pareto
    return (None, None) if leading is not None else (answer.effects, answer.surrogate)


def print_table(console: Console, title: str, table: Table) -> None:
    """Print a small table with its title and note."""
    drawn = RichTable(title=title, title_justify="left", box=None, pad_edge=False)
    for name in table.header:
        drawn.add_column(name, overflow="fold")
    for row in table.rows:
        drawn.add_row(*row)
    console.print(drawn)
    if table.note:
        console.print(table.note, style="dim", soft_wrap=True)
