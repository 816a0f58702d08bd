"""``hsweep recover``: what makes a damaged study whole again."""

import click

from hsweep.commands.options import home_option, json_option
from hsweep.commands.output import console_for, print_json
from hsweep.paths import Home


@click.command()
@click.argument("study_name", metavar="STUDY")
@home_option
@json_option
def recover(study_name: str, home: Home, as_json: bool) -> None:
    """Restore what is damaged of STUDY, from the second copy that its record keeps.

    Looks at every row of the record and at the study's files. `resume`, `run --only-missing` and
    `sync` do the same by themselves; this is for a study that is only to be read. Damaged files
    are kept under other names.
    """
    from hsweep.record.recovery import recover as restore

    said = restore(home, study_name)
    if as_json:
        print_json({"study": study_name, "damaged": bool(said), "done": said})
        return
    console = console_for(as_json=False)
    for line in said:
        console.print(f"{study_name}: {line}", soft_wrap=True, markup=False)
    if not said:
        console.print(f"{study_name}: nothing is damaged", soft_wrap=True, markup=False)
