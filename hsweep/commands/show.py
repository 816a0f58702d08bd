"""``hsweep show``."""

import click

from hsweep.commands.options import home_option, json_option, study_argument
from hsweep.commands.output import console_for, print_json
from hsweep.paths import Home


@click.command()
@study_argument
@click.option("--all", "every", is_flag=True, help="Every trial, however many there are.")
@click.option("--errors", is_flag=True, help="What each failed attempt raised, in full.")
@home_option
@json_option
def show(study_name: str, every: bool, errors: bool, home: Home, as_json: bool) -> None:
    """Show how STUDY and its trials stand, also while it runs.

    Of more than 200 trials the first 200 are listed, of more than 5,000 the best 20.
    """
    from hsweep.commands.failed_attempts import failed_attempts, show_failed_attempts
    from hsweep.commands.study_tables import show_study
    from hsweep.record.reading import reading
    from hsweep.record.study import Study

    study = Study.open(home, study_name)
    if errors:
        found = failed_attempts(study)
        if as_json:
            print_json([each.to_json() for each in found])
        else:
            show_failed_attempts(console_for(as_json=False), study, found)
        return
    status = study.status()
    if as_json:
        with reading(study) as tables:
            accepted = list(study.manifest.accepted)
            trials = tables.trials.to_pylist()
        print_json({**status, "accepted": accepted, "trials_list": trials})
    else:
        show_study(console_for(as_json=False), study, status, every=every)
