"""``hsweep show``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands.options import home_option, json_option, study_argument
from hsweep.commands.output import console_for, print_json
from hsweep.paths import Home

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.record.study import Study

_MOST_NAMED: Final = 8


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
    from hsweep.commands.study_tables import show_study
    from hsweep.record.study import Study

    study = Study.open(home, study_name)
    if errors:
        found = _failed_attempts(study)
        if as_json:
            print_json(found)
        else:
            _show_failed_attempts(console_for(as_json=False), study, found)
        return
    status = study.status()
    if as_json:
        with study.reading() as tables:
            accepted = list(study.manifest.accepted)
            trials = tables.trials.to_pylist()
        print_json({**status, "accepted": accepted, "trials_list": trials})
    else:
        show_study(console_for(as_json=False), study, status, every=every)


def _failed_attempts(study: "Study") -> list[dict[str, Any]]:
    """Return the failed attempts of a study's trials in the order they were recorded."""
    from hsweep.design.labels import point_label, varying_axes

    with study.journal() as journal, journal.snapshot():
        trials = {row.key: row for row in journal.trials()}
        entries = list(journal.errors())
    varying = varying_axes(list(trials.values()))
    return [
        {
            "trial": f"{point_label(row.point, varying)} #{row.replicate}",
            "key": entry.key,
            "attempt": entry.attempt,
            "time": entry.time,
            "reason": str(entry.payload["reason"]).strip(),
        }
        for entry in entries
        if (row := trials.get(entry.key)) is not None
    ]


def _show_failed_attempts(
    console: "Console", study: "Study", found: Sequence[Mapping[str, Any]]
) -> None:
    """Print failed attempts, those that failed in the very same way together."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for each in found:
        alike.setdefault(each["reason"], []).append(each)
    for reason, group in alike.items():
        named = [f"{each['trial']} (attempt {each['attempt']})" for each in group[:_MOST_NAMED]]
        if len(group) > _MOST_NAMED:
            named.append(f"and {len(group) - _MOST_NAMED} more")
        console.print(", ".join(named), style="bold")
        console.print(reason)
        console.print()
    if not found:
        console.print(f"no attempt of {study.name} has failed")
