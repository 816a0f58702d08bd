"""The verb that makes a damaged study whole again."""

import click

from hsweep.paths import Home
from hsweep.commands.options import console_for, home_option, json_option


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
    from hsweep.commands.render import print_json

    said = restore(home, study_name)
    if as_json:
        print_json({"study": study_name, "damaged": bool(said), "done": said})
        return
    console = console_for(as_json=False)
    for line in said:
        console.print(f"{study_name}: {line}", soft_wrap=True, markup=False)
    if not said:
        console.print(f"{study_name}: nothing is damaged", soft_wrap=True, markup=False)
