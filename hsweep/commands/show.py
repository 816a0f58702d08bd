"""``hsweep show``: how a study and its trials stand."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.command_line import command
from hsweep.commands.model import weights_json, weights_lines
from hsweep.commands.options import (
    from_option,
    home_of,
    home_option,
    json_option,
    study_argument,
)
from hsweep.commands.output import console_for, minute, print_json, quantity
from hsweep.design.labels import first_of
from hsweep.errors import UserError
from hsweep.paths import Home

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hsweep.record.journal_reader import JournalReader
    from hsweep.record.rows import TrialRow
    from hsweep.record.study import StudyFolder

_MAX_LABELS: Final = 8
_MAX_ROWS: Final = 200
_BEST_ROWS: Final = 20
_MAX_POINTS: Final = 20_000
"""The number of points that are read to see which axes vary."""


@click.command()
@study_argument
@click.argument("trial", required=False)
@click.option("--all", "all_trials", is_flag=True, help="Every trial, however many there are.")
@click.option(
    "--best", type=click.IntRange(1), metavar="N", help="The N best that finished, best first."
)
@click.option("--errors", is_flag=True, help="What each failed attempt raised, in full.")
@from_option
@home_option
@json_option
def show(
    study_name: str,
    trial: str | None,
    all_trials: bool,
    best: int | None,
    errors: bool,
    storage: str | None,
    home: Home,
    as_json: bool,
) -> None:
    """Show how STUDY and its trials stand, also while it runs.

    Of more than 200 trials the first 200 are listed, of more than 5,000 the best 20. TRIAL shows
    one, by its key or as tables name it: "heads=2 #0".
    """
    from hsweep.clusters.slurm import Submissions
    from hsweep.record.study import StudyFolder, holds_a_study

    if best is not None and (all_trials or trial is not None or errors):
        raise UserError("--best lists some trials; leave it out beside TRIAL, --all and --errors")
    home = home_of(study_name, home, storage)
    console = console_for(as_json=as_json)
    jobs = Submissions(home.submissions(study_name))
    if not as_json and jobs.jobs() and not holds_a_study(home.study(study_name)):
        for line in [f"{study_name} is submitted, and has not begun", *jobs.lines()]:
            console.print(line)
        return
    study = StudyFolder.open(home, study_name)
    if trial is not None:
        _show_trial(console, study, trial, as_json=as_json)
    elif errors:
        _show_errors(console, study, as_json=as_json)
    elif as_json:
        _print_study(study, best)
    else:
        _show_study(console, study, all_trials=all_trials, best=best)
        for line in jobs.lines():
            console.print(line)


# One trial, and failed attempts.


def _trials_list(study: "StudyFolder") -> list[dict[str, Any]]:
    """Return the table of trials; rows of a user's training also have the folder of the trial and
    the file with its output, if these exist."""
    from hsweep.paths import trial_folder
    from hsweep.reporting import OUTPUT_FILE

    with study.reading() as tables:
        trials: list[dict[str, Any]] = tables.trials.to_pylist()
    for trial in trials if study.manifest.training else ():
        folder = trial_folder(study.checkpoints(), trial["key"])
        places = {"folder": folder, "output": folder / OUTPUT_FILE}
        trial |= {name: str(place) for name, place in places.items() if place.exists()}
    return trials


def _failed_attempts(study: "StudyFolder") -> list[dict[str, Any]]:
    """Return the failed attempts of a study's trials in the order they were recorded."""
    from hsweep.record.rows import labels_of

    with study.journal() as journal, journal.snapshot():
        labels = labels_of(journal.trials())
        entries = list(journal.errors())
    return [
        {
            "trial": labels[entry.key],
            "key": entry.key,
            "attempt": entry.attempt,
            "time": entry.time,
            "reason": str(entry.payload["reason"]).strip(),
        }
        for entry in entries
        if entry.key in labels
    ]


def _show_trial(console: "Console", study: "StudyFolder", name: str, *, as_json: bool) -> None:
    """Print a trial's row on record, then its failed attempts."""
    from hsweep.record.summary import first_line
    from hsweep.terminal import table_of

    key = study.trial_named(name).key
    trial = next(row for row in _trials_list(study) if row["key"] == key)
    failures = [attempt for attempt in _failed_attempts(study) if attempt["key"] == key]
    if as_json:
        print_json({**trial, "failed_attempts": failures})
        return
    table = table_of("", "")
    for column, value in {**trial, "reason": first_line(trial["reason"])}.items():
        if value not in (None, "") and column != "ordinal":
            table.add_row(column, f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)
    for failure in failures:
        console.print(f"\nattempt {failure['attempt']}", style="bold")
        console.print(failure["reason"])


def _show_errors(console: "Console", study: "StudyFolder", *, as_json: bool) -> None:
    """Print failed attempts, grouped by error."""
    failures = _failed_attempts(study)
    if as_json:
        print_json(failures)
        return
    alike: dict[str, list[str]] = {}
    for failure in failures:
        label = f"{failure['trial']} (attempt {failure['attempt']})"
        alike.setdefault(failure["reason"], []).append(label)
    for reason, labels in alike.items():
        console.print(first_of(labels, _MAX_LABELS), style="bold")
        console.print(f"{reason}\n")
    if not failures:
        console.print(f"no attempt of {study.name} has failed")


# A study.


def _print_study(study: "StudyFolder", best: int | None) -> None:
    """Print a study and its trials as JSON."""
    status, trials = study.status(), _trials_list(study)
    with study.journal() as journal:
        weights = weights_json(study, journal)
        if best is not None:
            by_key = {trial["key"]: trial for trial in trials}
            rows = journal.best_trials(best, study.manifest)
            trials = [by_key[row.key] for row in rows if row.key in by_key]
    accepted = list(study.manifest.accepted)
    print_json({**status, "accepted": accepted, "weights": weights, "trials_list": trials})


def _show_study(
    console: "Console", study: "StudyFolder", *, all_trials: bool, best: int | None
) -> None:
    """Print a study and its trials: the first ones in their order, the ``best`` ones (the default
    for very many trials), or ``all_trials``."""
    from hsweep.design.labels import varying_axes
    from hsweep.design.trial import TrialStatus
    from hsweep.planning.code_changes import acceptance_line
    from hsweep.record.journal_reader import LEFT_OUT
    from hsweep.record.mirror import mirror_line
    from hsweep.record.study import CLOSELY
    from hsweep.record.summary import (
        composition_lines,
        counts_in_words,
        orphaned_lines,
        remarks,
        run_counts,
    )
    from hsweep.record.tables import mixed_versions_lines
    from hsweep.running.outcome import errors_line

    manifest, status = study.manifest, study.status()
    is_running = status["state"] == "running"
    if best is None and not all_trials:
        best = _BEST_ROWS if status["trials"] + status["orphaned"] > CLOSELY else None
    is_best = best is not None
    with study.journal() as journal, journal.snapshot():
        if best is not None:
            rows, noted, trained = journal.best_trials(best, manifest), [], None
        else:
            rows = journal.trials()
            noted, trained = journal.noted_reports(), [row.key for row in rows]
        varying = varying_axes(journal.points(_MAX_POINTS if is_best else -1))
        if is_best:
            lines = [*_losses(journal, status)]
        else:
            lines = [remark.line for remark in remarks(rows, noted, varying)]
        lines += orphaned_lines(journal.orphaned_counts())
        lines += [
            f"accepted {minute(entry['time'])}: {acceptance_line(entry)}"
            for entry in manifest.accepted
        ]
        lines += mixed_versions_lines(journal, trained)
        lines += weights_lines(study, journal)
        lines += (journal.meta(LEFT_OUT) or "").splitlines()
        reused = journal.reused_from()
    listed = [
        row for row in rows if all_trials or is_best or row.status is not TrialStatus.NOT_NEEDED
    ]
    shown = listed if all_trials or is_best else listed[:_MAX_ROWS]

    title = f"{status['study']} ({status['sweep']}, preset {status['preset']})"
    console.print(f"{title}: {status['state']}", style="bold")
    if is_best:
        console.print(f"the best by {manifest.metric}:" if shown else "no trial has finished yet")
    if shown or not is_best:
        console.print(_trials_table(shown, varying, study, is_running=is_running))
    if num_more := status["trials"] - len(shown):
        unneeded = 0 if is_best else len(rows) - len(listed)
        which = f", {unneeded} of them not needed" if unneeded else ""
        text = f"... and {num_more} more trials{which}" if shown else f"{num_more} trials"
        console.print(f"{text} (--all lists all, --json too)")
    words = {} if is_running else {"running": "interrupted"}
    counts = counts_in_words(
        [(words.get(word, word), count) for word, count in run_counts(status, status["runs"])],
        reused,
        rows,
    )
    console.print(f"{counts}; folder {status['folder']}")
    if not is_best:
        lines = [*composition_lines(rows, manifest, status["runs"]), *lines]
    if status["tried_again"] or status["failed"]:
        lines.append(errors_line(study))
    if manifest.training:
        lines += _folders_lines(study)
    if status["search_end"] is not None:
        lines.append(status["search_end"])
    if (share := status["data_wait_share"]) is not None:
        lines.append(f"{share:.1%} of the training time was waiting for data")
    if line := mirror_line(study.paths):
        lines.append(line)
    for line in lines:
        console.print(line)


def _losses(journal: "JournalReader", status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the outcomes of a large study as counts, without naming trials."""
    from hsweep.record.summary import loss_line

    for word, reasons in journal.losses().items():
        yield loss_line(str(word).replace("_", " "), reasons)
    if status["tried_again"]:
        yield f"{status['tried_again']} tried again after failing"


def _folders_lines(study: "StudyFolder") -> Iterator[str]:
    """Yield the disk space of the trials' folders on this machine, if there are any."""
    from hsweep.paths import trial_folder

    folder = trial_folder(study.checkpoints(), "any").parent
    if not folder.is_dir():
        return
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # a script may remove files meanwhile
                total += Path(place, name).lstat().st_size
    trial = command("show", study.name, "TRIAL", home=study.paths.home)
    yield (
        f"{quantity(total, 'B')} of trials' own files in {folder}; those of one trial, its output "
        f"and how it ended: {trial}"
    )


def _trials_table(
    rows: Sequence["TrialRow"],
    varying: tuple[str, ...],
    study: "StudyFolder",
    *,
    is_running: bool,
) -> "Table":
    """Return a table of trials and how they stand."""
    from rich.text import Text

    from hsweep.design.labels import point_label
    from hsweep.design.trial import TrialStatus
    from hsweep.record.summary import INTERRUPTED, first_line, is_interrupted, is_waiting
    from hsweep.running.progress import STATUS_STYLES, duration, number
    from hsweep.terminal import table_of

    metric, scouts = study.manifest.metric, study.manifest.scouts
    table = table_of("trial", ">seed", "status", ">done", f">{metric}", ">time", "reason")
    for row in rows:
        status = "waiting" if is_waiting(row) else str(row.status).replace("_", " ")
        if not is_running and (row.status is TrialStatus.RUNNING or is_interrupted(row)):
            status = INTERRUPTED
        micro_batch = row.last.get("micro_batch")
        remark = f"{micro_batch} examples at once: memory" if micro_batch else ""
        if row.reused_from:
            remark = f"taken from study {row.reused_from}"
        table.add_row(
            point_label(row.point, varying),
            f"scout {row.replicate}" if row.replicate < scouts else str(row.replicate),
            Text(status, STATUS_STYLES[row.status]),
            f"{row.unit}/{row.budget}",
            number(row.metrics.get(metric)),
            duration(row.wall_seconds),
            remark if status == row.reason else first_line(row.reason) or remark,
        )
    return table
