"""``hsweep model``: the final weights of a trial."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.command_line import command
from hsweep.commands.options import home_option, json_option, study_argument
from hsweep.commands.output import print_json, quantity
from hsweep.design.labels import first_of
from hsweep.paths import Home

if TYPE_CHECKING:
    from hsweep.record.journal_reader import JournalReader
    from hsweep.record.rows import TrialRow
    from hsweep.record.study import StudyFolder
    from hsweep.record.weights import KeptWeights

_MAX_LABELS: Final = 8
_SHORT: Final = 9
"""Characters of a key that tell the trials of a study apart."""


@click.command()
@study_argument
@click.argument("trial_name", metavar="TRIAL")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="Where to: a safetensors file; a folder where a function of your own trained.",
)
@click.option("--force", is_flag=True, help="Replace what is there.")
@home_option
@json_option
def model(
    study_name: str, trial_name: str, out: Path, force: bool, home: Home, as_json: bool
) -> None:
    """Write the final weights of TRIAL of STUDY to a file.

    TRIAL is the beginning of a key, or the trial as tables name it: "heads=2 #0".

    A study keeps them where its sweep says keep="best" or "last", or --set keep=best is given. In
    Python, hsweep.load(STUDY).trial(TRIAL).load_model() returns the model.
    """
    from hsweep.record.study import StudyFolder
    from hsweep.trained import StudyTrial

    study = StudyFolder.open(home, study_name)
    trial = StudyTrial(study, study.trial_named(trial_name, orphaned=True))
    trial.save_weights(out, replace=force)
    if as_json:
        trained = {"trial": trial.key, "point": dict(trial.point), "value": trial.value}
        print_json({"study": study.name, **trained, "out": out})
        return
    content = "files of the last checkpoint" if out.is_dir() else "weights"
    click.echo(f"{out}: {content} of trial {trial.key} ({dict(trial.point)}, {trial.value})")


def weights_json(study: "StudyFolder", journal: "JournalReader") -> dict[str, Any]:
    """Return the setting ``keep`` of a study and, if it keeps weights and their storage can be
    read, the keys of the trials with and without weights."""
    content: dict[str, Any] = {"keep": study.manifest.keep}
    if not study.may_have_weights:
        return content
    content["folder"] = study.weights().root
    try:
        weights = study.kept_weights(journal)
    except OSError as error:
        return {**content, "problem": str(error)}
    return {
        **content,
        "bytes": weights.num_bytes,
        "kept": [row.key for row in weights.trials],
        "missing": [row.key for row in weights.missing],
    }


def weights_lines(study: "StudyFolder", journal: "JournalReader") -> list[str]:
    """Return lines about the final weights that a study keeps; none if it keeps no weights."""
    if not study.may_have_weights:
        return []
    try:
        weights = study.kept_weights(journal)
    except OSError as error:
        return [str(error)]
    from hsweep.design.labels import counted

    hint = command("model", study.name, "TRIAL", "--out", "FILE", home=study.paths.home)
    number = len(weights.trials)
    size = quantity(weights.num_bytes, "B")
    lines = [f"weights kept: {counted(number, 'trial')}, {size} in {study.weights().root}"]
    if number:
        lines.append(f"  {_named(weights.trials, weights)}; get them by: {hint}")
    if weights.missing:
        names = _named(weights.missing, weights)
        lines.append(
            f"  not there, although keep={study.manifest.keep}: {names} (`hsweep model` says why)"
        )
    return lines


def _named(rows: "Sequence[TrialRow]", weights: "KeptWeights") -> str:
    from hsweep.record.rows import labels_of

    labels = labels_of([*weights.trials, *weights.missing])
    return first_of([f"{row.key[:_SHORT]} ({labels[row.key]})" for row in rows], _MAX_LABELS)
