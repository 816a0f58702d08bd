"""Every benchmark of speed, one after another, and one table of all."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import click

from benchmarks.pairs import HEADER, table_rows


def run(names: Sequence[str], *, quick: bool) -> bool:
    """Run the benchmarks, each in a process of its own, and print what they found.

    A benchmark that fails is a bar missed; the others still run.

    Args:
        names: which, in this order.
        quick: tiny versions, to see that they work.

    Returns:
        Whether all ran and reached every bar.
    """
    found: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for name in names:
        click.echo(f"# {name}\n")
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks", name, *(["--quick"] if quick else [])],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        click.echo(ended.stdout)
        if ended.returncode == 0:
            found[name] = json.loads(ended.stdout.strip().splitlines()[-1])
        else:
            failed.append(name)
    click.echo(f"# all\n\n{HEADER}")
    for name, result in found.items():
        for row in (*result["pairings"], *result["quantities"]):
            click.echo(table_rows([{**row, "name": f"{name}: {row['name']}"}])[0])
    for name in failed:
        click.echo(f"| {name} | | | | | | failed |")
    holds = not failed and all(result["holds"] for result in found.values())
    click.echo(f"\n{json.dumps({'benchmark': 'suite', 'holds': holds, 'failed': failed})}")
    return holds
