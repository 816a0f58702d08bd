"""The head-count study, end to end, beside what users write today."""

import click

from benchmarks.pairs import measured


@click.command("study")
@measured(pairs=1)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure a whole study beside Ray Tune's and Optuna's own scripts."""
    raise click.UsageError("not yet")
