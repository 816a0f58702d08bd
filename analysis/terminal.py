"""An answer as text for the terminal."""

from typing import Final

from rich.console import Console
from rich.table import Table as RichTable

from analysis.answer import Answer
from analysis.text.tables import TERMINAL_ROWS, Table, first_rows

_REST: Final = "`hsweep analyze` with --json or --out FILE has them all"


def show_answer(console: Console, answer: Answer) -> None:
    """Print an answer: its sentences, the numbers behind it, and what to know besides."""
    show_sentences(console, answer)
    if answer.direction:
        console.print(f"{answer.direction}.", style="dim", soft_wrap=True)
    if answer.read_as is not None:
        console.print(f"read as: {answer.read_as.text}", style="dim", soft_wrap=True)
    if answer.settle_command is not None:
        console.print("run what it lacks:")
        console.print(answer.settle_command, soft_wrap=True)
    for finding in answer.findings:
        if finding is answer.leading:
            for title, table, _ in finding.tables:
                console.print()
                print_table(console, title, first_rows(table, TERMINAL_ROWS, _REST))
        else:
            console.print()
            console.print(finding.sentences[0], soft_wrap=True)
    if answer.confirm_command is not None:
        console.print()
        console.print("confirm the choice with fresh seeds:")
        console.print(answer.confirm_command, soft_wrap=True)
    for warning in answer.warnings:
        console.print(f"note: {warning}", style="yellow", soft_wrap=True)


def show_sentences(console: Console, answer: Answer) -> None:
    """Print an answer and, right below it, what qualifies it."""
    first, *rest = answer.sentences
    console.print(first, style="bold", soft_wrap=True)
    for text in rest:
        console.print(text, soft_wrap=True)


def print_table(console: Console, title: str, table: Table) -> None:
    """Print a small table with its title and note."""
    console.print(title, style="italic", soft_wrap=True)
    drawn = RichTable(box=None, pad_edge=False)
    for name in table.header:
        drawn.add_column(name, overflow="fold")
    for row in table.rows:
        drawn.add_row(*row)
    console.print(drawn)
    if table.note:
        console.print(table.note, style="dim", soft_wrap=True)
