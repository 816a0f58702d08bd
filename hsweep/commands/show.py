"""``hsweep show``: how a study and its trials stand."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.command_line import command
from hsweep.commands.model import weights_json, weights_lines
from hsweep.commands.options import home_option, json_option, study_argument
from hsweep.commands.output import console_for, minute, print_json
from hsweep.commands.show_trial import (
    folders_line,
    places_of,
    show_trial,
)
from hsweep.commands.trials_list import TrialOrder, trials_table
from hsweep.errors import UserError
from hsweep.paths import Home

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.record.journal_reader import JournalReader
    from hsweep.record.study import StudyFolder

_MOST_NAMED: Final = 8
_MAX_ROWS: Final = 200
_BEST_ROWS: Final = 20
_MOST_POINTS: Final = 20_000
"""Points that are looked at to see which axes vary."""


@click.command()
@study_argument
@click.argument("trial", required=False)
@click.option("--all", "every", is_flag=True, help="Every trial, however many there are.")
@click.option(
    "--best", type=click.IntRange(1), metavar="N", help="The N best that finished, best first."
)
@click.option(
    "--sort",
    "column",
    metavar="COLUMN",
    help="In the order of a column: an axis, a metric, num_params, time, ...; -COLUMN: the "
    "largest first.",
)
@click.option("--errors", is_flag=True, help="What each failed attempt raised, in full.")
@home_option
@json_option
def show(
    study_name: str,
    trial: str | None,
    every: bool,
    best: int | None,
    column: str | None,
    errors: bool,
    home: Home,
    as_json: bool,
) -> None:
    """Show how STUDY and its trials stand, also while it runs.

    Of more than 200 trials the first 200 are listed, of more than 5,000 the best 20. TRIAL shows
    one, by its key or as tables name it: "heads=2 #0".
    """
    from hsweep.record.study import StudyFolder

    if best is not None and every:
        raise UserError("--all lists every trial, --best some of them; leave one out")
    if (trial is not None or errors) and not (best is None and column is None):
        raise UserError("--best and --sort list trials; leave them out beside TRIAL and --errors")
    study = StudyFolder.open(home, study_name)
    console = console_for(as_json=as_json)
    if trial is not None:
        from hsweep.record.trial_names import trial_named

        key = trial_named(study, trial).key
        (row,) = (each for each in _trials_list(study) if each["key"] == key)
        failures = [each for each in _failed_attempts(study) if each["key"] == key]
        if as_json:
            print_json({**row, "failed_attempts": failures})
        else:
            show_trial(console, row, failures)
        return
    if errors:
        found = _failed_attempts(study)
        if as_json:
            print_json(found)
        else:
            _show_failed_attempts(console, study, found)
        return
    order = None if column is None else TrialOrder.of(study, column)
    status = study.status()
    if as_json:
        accepted = list(study.manifest.accepted)
        trials = _trials_list(study)
        with study.journal() as journal:
            weights = weights_json(study, journal)
            if best is not None:
                by_key = {each["key"]: each for each in trials}
                rows = journal.best_trials(
                    best, study.manifest.metric, highest=study.manifest.goal == "max"
                )
                trials = [by_key[row.key] for row in rows if row.key in by_key]
        if order is not None:
            trials = order.sorted(trials, lambda each: str(each["key"]))
        print_json({**status, "accepted": accepted, "weights": weights, "trials_list": trials})
    else:
        _show_study(console, study, status, every=every, best=best, order=order)


def _trials_list(study: "StudyFolder") -> list[dict[str, Any]]:
    with study.reading() as tables:
        trials: list[dict[str, Any]] = tables.trials.to_pylist()
    if study.manifest.training:
        trials = [{**trial, **places_of(study, trial["key"])} for trial in trials]
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


def _show_failed_attempts(
    console: "Console", study: "StudyFolder", found: Sequence[Mapping[str, Any]]
) -> None:
    """Print failed attempts, those that failed in the very same way together."""
    alike: dict[str, list[str]] = {}
    for each in found:
        named = f"{each['trial']} (attempt {each['attempt']})"
        alike.setdefault(each["reason"], []).append(named)
    for reason, group in alike.items():
        more = len(group) - _MOST_NAMED
        named = ", ".join([*group[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
        console.print(named, style="bold")
        console.print(reason)
        console.print()
    if not found:
        console.print(f"no attempt of {study.name} has failed")


def _show_study(
    console: "Console",
    study: "StudyFolder",
    status: Mapping[str, Any],
    *,
    every: bool,
    best: int | None,
    order: TrialOrder | None,
) -> None:
    """Print a study and its trials: the first ones in their order, or the ``best``, by default of
    very many; ``every`` one."""
    from hsweep.design.labels import point_label, varying_in
    from hsweep.design.trial import TrialStatus
    from hsweep.planning.code_changes import acceptance_line
    from hsweep.record.composition import composition_lines, run_counts
    from hsweep.record.endings import counts_in_words, orphaned_lines, remarks, trial_ends
    from hsweep.record.reading import mixed_versions_lines
    from hsweep.record.study import CLOSELY
    from hsweep.running.outcome import errors_line

    manifest = study.manifest
    if best is None and order is None and not every:
        best = _BEST_ROWS if status["trials"] + status["orphaned"] > CLOSELY else None
    is_best = best is not None
    with study.journal() as journal, journal.snapshot():
        if best is not None:
            rows = journal.best_trials(best, manifest.metric, highest=manifest.goal == "max")
            remarked, trained = [], None
        else:
            rows = journal.trials()
            remarked, trained = list(journal.remarked_reports()), [row.key for row in rows]
        varying = varying_in(journal.points(_MOST_POINTS if is_best else -1))
        ends = trial_ends(rows, remarked, lambda point: point_label(point, varying))
        lines = [*(_losses(journal, status) if is_best else [each.line for each in remarks(ends)])]
        lines += orphaned_lines(journal.orphaned_counts())
        lines += [
            f"accepted {minute(entry['time'])}: {acceptance_line(entry)}"
            for entry in manifest.accepted
        ]
        lines += mixed_versions_lines(journal, trained)
        lines += weights_lines(study, journal)
        reused = Counter(journal.reused_from())
    listed = [
        (row, end)
        for row, end in zip(rows, ends, strict=True)
        if every or is_best or row.status is not TrialStatus.NOT_NEEDED
    ]
    if order is not None:
        listed = order.sorted(listed, lambda each: each[0].key)
    shown = listed if every or is_best else listed[:_MAX_ROWS]
    counts = counts_in_words(
        _counted(status, run_counts(status, status["runs"])),
        reused.elements(),
        sum(end.is_waiting for end in ends),
        sum(end.is_interrupted for end in ends),
    )

    title = f"{status['study']} ({status['sweep']}, preset {status['preset']})"
    console.print(f"{title}: {status['state']}", style="bold")
    if is_best:
        console.print(f"the best by {manifest.metric}:" if shown else "no trial has finished yet")
    if shown or not is_best:
        is_running = status["state"] == "running"
        console.print(trials_table(shown, varying, manifest, order, is_running=is_running))
    if more := status["trials"] - len(shown):
        never = 0 if is_best else len(rows) - len(listed)
        which = f", {never} of them not needed" if never else ""
        what = f"... and {more} more trials{which}" if shown else f"{more} trials"
        console.print(f"{what} (--all lists all, --json too)")
    console.print(f"{counts}; folder {status['folder']}")
    if not is_best:
        for line in composition_lines(rows, manifest, status["runs"]):
            console.print(line)
    for line in lines:
        console.print(line)
    if status["tried_again"] or status["failed"]:
        console.print(errors_line(study))
    if manifest.training and (line := folders_line(study)):
        trial = command("show", study.name, "TRIAL", home=study.paths.home)
        console.print(f"{line}; those of one trial, its output and how it ended: {trial}")
    if status["search_end"] is not None:
        console.print(status["search_end"])
    if status["data_wait_share"] is not None:
        console.print(f"{status['data_wait_share']:.1%} of the training time was waiting for data")


def _counted(status: Mapping[str, Any], counts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    if status["state"] == "running":
        return list(counts)
    return [("interrupted" if word == "running" else word, number) for word, number in counts]


def _losses(journal: "JournalReader", status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what became of very many trials, none of them named."""
    from hsweep.record.endings import loss_line

    for lost, reasons in journal.losses().items():
        yield loss_line(str(lost).replace("_", " "), reasons)
    if status["tried_again"]:
        yield f"{status['tried_again']} tried again after failing"
