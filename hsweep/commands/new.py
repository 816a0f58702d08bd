"""``hsweep new``: a sweep file to begin with."""

import shlex
import sys
from pathlib import Path
from typing import Final

import click

from hsweep.errors import UserError
from hsweep.paths import check_study_name

_TEMPLATES: Final = Path(__file__).parent / "templates"
KINDS: Final = {
    "heads": "at which number of heads does the error collapse?",
    "lean": "which cheaper shape is as good as the one I have?",
    "own": "the same of training of my own, a function train(point, run)?",
}


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice([*KINDS]), help="What the sweep asks; else you are asked."
)
def new(file: Path, kind: str | None) -> None:
    """Write a short sweep to FILE, as a beginning: it runs as it stands.

    heads: the number of heads at which the error collapses. lean: the cheaper shape that is as
    good as yours. own: your own training, a function.
    """
    if file.suffix != ".py" or not file.parent.is_dir():
        raise UserError(
            f"a sweep is a Python file with the ending .py, in a folder that exists; got {file}"
        )
    name = check_study_name(file.stem)
    if file.exists():
        raise UserError(f"{file} exists, and what is in a file stays; give another name")
    text = (_TEMPLATES / f"{kind or _asked()}.py.txt").read_text("utf-8")
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text.replace("SWEEP_NAME", name).replace("SWEEP_FILE", file.name))
    except FileExistsError:
        raise UserError(f"{file} has just been written by something else; look at it") from None
    click.echo(f"{file} is written; try it, then make it yours:")
    for command in ("plan", "run"):
        click.echo(f"  {shlex.join(['hsweep', command, str(file)])}")


def _asked() -> str:
    if not sys.stdin.isatty():
        raise UserError(f"what the sweep asks is given by --kind: {', '.join(KINDS)}")
    for kind, question in KINDS.items():
        click.echo(f"  {kind:6} {question}")
    chosen: str = click.prompt("What do you ask", type=click.Choice([*KINDS]), default="heads")
    return chosen
