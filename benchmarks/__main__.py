"""`python -m benchmarks`: measure the tool."""

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import click

from benchmarks.pairs import HEADER, table_rows

# The benchmarks of speed: each is a module with a click command named `command`, which imports
# nothing heavy at its top. `suite` runs them in this order.
SPEED = ("study", "overhead", "tracking", "steps", "analysis", "plan", "storage")
COMMANDS = (*SPEED, "calibration", "adaptive", "lean", "fronts")


class _Lazy(click.Group):
    """A group whose commands of modules are imported only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command = importlib.import_module(f"benchmarks.{cmd_name}").command
            assert isinstance(command, click.Command)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure the tool."""


@main.command()
@click.option("--quick", is_flag=True, help="See that it works: tiny, no claims.")
@click.option("--strict", is_flag=True, help="Exit with 1 if a bar is missed.")
@click.option("--only", help="Names with commas between; all by default.")
def suite(quick: bool, strict: bool, only: str | None) -> None:
    """Measure everything that has to be fast, one after another, and end with one table."""
    names = SPEED if only is None else tuple(only.split(","))
    for name in names:
        if name not in SPEED:
            raise click.BadParameter(
                f"unknown benchmark {name!r}; there are {', '.join(SPEED)}", param_hint="--only"
            )
    holds = _run(names, quick=quick)
    if strict and not holds:
        sys.exit(1)


def _run(names: Sequence[str], *, quick: bool) -> bool:
    """Run benchmarks in this order, each in a process of its own, print their results, and return
    whether all ran and reached every bar. A benchmark that fails is a bar missed; the others still
    run."""
    results: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for name in names:
        click.echo(f"# {name}\n")
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks", name, *(["--quick"] if quick else [])],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
        click.echo(ended.stdout)
        if ended.returncode == 0:
            results[name] = json.loads(ended.stdout.strip().splitlines()[-1])
        else:
            failed.append(name)
    click.echo(f"# all\n\n{HEADER}")
    for name, result in results.items():
        for row in (*result["pairings"], *result["quantities"]):
            click.echo(table_rows([{**row, "name": f"{name}: {row['name']}"}])[0])
    for name in failed:
        click.echo(f"| {name} | | | | | | failed |")
    holds = not failed and all(result["holds"] for result in results.values())
    click.echo(f"\n{json.dumps({'benchmark': 'suite', 'holds': holds, 'failed': failed})}")
    return holds


if __name__ == "__main__":
    main()
