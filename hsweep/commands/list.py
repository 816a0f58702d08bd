"""``hsweep list``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hsweep.commands.options import from_option, home_option, json_option
from hsweep.commands.output import NO_STUDY, console_for, minute, print_json
from hsweep.paths import Home

if TYPE_CHECKING:
    from rich.console import Console


@click.command("list")
@from_option
@home_option
@json_option
def list_(storage: str | None, home: Home, as_json: bool) -> None:
    """List the studies of the home, or of a storage as they were last noted there."""
    from hsweep.record.mirror import stored_studies
    from hsweep.record.study import statuses

    rows = statuses(home) if storage is None else stored_studies(storage)
    if as_json:
        print_json(rows)
    elif rows:
        _show_studies(console_for(as_json=False), rows)
    else:
        click.echo(NO_STUDY.format(home=storage or home.root))


def _show_studies(console: "Console", studies: Sequence[Mapping[str, Any]]) -> None:
    from hsweep.terminal import table_of

    table = table_of("study", "state", ">finished", ">stopped early", ">lost", ">runs", "created")
    for study in studies:
        if "error" in study:
            table.add_row(study["study"], "unreadable", "", "", "", "", study["error"])
            continue
        table.add_row(
            study["study"],
            study["state"],
            _with(study["finished"], study["reused"], "({} reused)"),
            str(study["stopped_early"]),
            _lost_in_words(study),
            _with(study["runs"], study["orphaned"], "(+{} orphaned)"),
            minute(study["created"]),
        )
    console.print(table)


def _with(number: int, num_others: int, words: str) -> str:
    return f"{number} {words.format(num_others)}" if num_others else str(number)


def _lost_in_words(study: Mapping[str, Any]) -> str:
    """Return the number of trials without a result, and why: ``3: 2 diverged, 1 too large``."""
    from hsweep.record.summary import counts_in_words

    losses = [(word, study[word]) for word in ("failed", "diverged", "too_large") if study[word]]
    number = sum(count for _, count in losses)
    return f"{number}: {counts_in_words(losses)}" if losses else "0"
