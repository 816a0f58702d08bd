"""``hsweep new``: a sweep file to begin with."""

import shlex
import sys
from pathlib import Path
from typing import Final

import click

from hsweep.command_line import program
from hsweep.errors import UserError
from hsweep.paths import check_study_name

_TEMPLATES: Final = Path(__file__).parent / "templates"
KINDS: Final = {
    "heads": "at which number of heads does the error collapse?",
    "lean": "which cheaper shape is as good as the one I have?",
    "front": "which shapes does no other beat in both error and size?",
    "model": "the same of my own module on my own arrays?",
    "own": "the same of training of my own, a function train(point, run)?",
    "script": "the same of a script that trains, unchanged?",
}


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice([*KINDS]), help="What the sweep asks; else you are asked."
)
def new(file: Path, kind: str | None) -> None:
    """Write a short sweep to FILE, as a beginning: it runs as it stands.

    heads: the number of heads at which the error collapses. lean: the cheaper shape that is as
    good as yours. front: the shapes that no other beats. model: your own module and arrays. own:
    your own training, a function. script: your own training, a script, which is written beside
    FILE.
    """
    if file.suffix != ".py" or not file.parent.is_dir():
        raise UserError(
            f"a sweep is a Python file with the ending .py, in a folder that exists; got {file}"
        )
    name = check_study_name(file.stem)
    _refuse_present(file)
    kind = kind or _ask_for_kind()
    templates = {file: f"{kind}.py.txt"}
    script = file.with_name(f"{file.stem}_train.py")
    if kind == "script":
        _refuse_present(script)
        templates = {script: "script_train.py.txt", **templates}
    for path, template in templates.items():
        text = (_TEMPLATES / template).read_text("utf-8").replace("SWEEP_NAME", name)
        text = text.replace("SWEEP_FILE", file.name).replace("SCRIPT_FILE", script.name)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    names = " and ".join(map(str, templates))
    click.echo(
        f"{names} {'are' if len(templates) > 1 else 'is'} written; try it, then make it yours:"
    )
    for command in ("plan", "run"):
        click.echo(f"  {shlex.join([program(), command, str(file)])}")


def _refuse_present(file: Path) -> None:
    if file.exists():
        raise UserError(f"{file} exists, and what is in a file stays; give another name")


def _ask_for_kind() -> str:
    if not sys.stdin.isatty():
        raise UserError(f"what the sweep asks is given by --kind: {', '.join(KINDS)}")
    for kind, question in KINDS.items():
        click.echo(f"  {kind:6} {question}")
    chosen: str = click.prompt("What do you ask", type=click.Choice([*KINDS]), default="heads")
    return chosen
