"""How a run ended, and its last lines."""

from collections.abc import Sequence
from dataclasses import dataclass

from hsweep.command_line import command
from hsweep.design.labels import counted, varying_axes
from hsweep.design.trial import TrialStatus
from hsweep.options import option_words
from hsweep.paths import Home
from hsweep.record.study import StudyFolder
from hsweep.record.summary import (
    SEARCH_END,
    counts_in_words,
    num_ended,
    orphaned_lines,
    remarks,
    run_counts,
)
from hsweep.running.progress import duration
from hsweep.tracking.target import TrackingTarget


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        num_runs: estimated number of trials that are started until the study is complete.
        stop_reason: reason why the run ended before its trials; None if it did not.
        was_terminated: whether that was by SIGTERM.
        is_in_trouble: whether a failure ended the run, such as a full disk.
        problem: reason why results could not be written; empty if they were.
        wall_seconds: time from the set-up of the training to the written tables.
        undelivered: lines about what MLflow or another place has not got.
    """

    counts: dict[TrialStatus, int]
    stop_reason: str | None
    was_interrupted: bool
    was_terminated: bool
    is_in_trouble: bool
    problem: str
    wall_seconds: float
    num_runs: int
    undelivered: Sequence[str] = ()

    @property
    def has_results(self) -> bool:
        return self.counts[TrialStatus.FINISHED] > 0

    @property
    def num_ended(self) -> int:
        return num_ended(self.counts)

    @property
    def is_complete(self) -> bool:
        return not (self.counts[TrialStatus.PLANNED] or self.counts[TrialStatus.RUNNING])


def resume_line(study: StudyFolder) -> str:
    return command("resume", study.name, home=study.paths.home)


def mended_line(study: StudyFolder) -> str:
    """Return how a study goes on with the user's file, which may be edited meanwhile, where a fault
    may lie there: resuming takes the study's copy, and would repeat it."""
    file = study.origin()
    if file is None:
        return resume_line(study)
    from hsweep.planning.prepare import recorded_options  # slow to import

    words = option_words(recorded_options(study.manifest))
    return command("run", file, "--study", study.name, *words, home=study.paths.home)


def browse_line(target: TrackingTarget, home: Home, study_name: str) -> str:
    """Return how to look at a study's runs: a server's address, or the command for a store."""
    if target.is_server:
        return target.shown_uri
    is_own = target.sqlite_file == home.mlflow_database
    where = () if is_own else ("--tracking-uri", target.shown_uri)
    return command("ui", study_name, *where, home=home.root)


def errors_line(study: StudyFolder) -> str:
    line = command("show", study.name, "--errors", home=study.paths.home)
    return f"what failed attempts raised, in full: {line}"


def closing_lines(outcome: Outcome, study: StudyFolder) -> list[str]:
    """Return the last lines of a run: counts of trials by status, losses and how to go on."""
    with study.journal() as journal:
        rows, orphaned = journal.trials(), journal.orphaned_counts()
        noted, varying = journal.noted_reports(), varying_axes(row.point for row in rows)
        reused, search_end = journal.reused_from(), journal.meta(SEARCH_END)
    counts = counts_in_words(run_counts(outcome.counts, outcome.num_runs), reused, rows)
    runs = counted(outcome.num_runs, "run")
    if not outcome.is_complete:
        runs = f"{outcome.num_ended} of {runs}"
    lines = [f"{runs} in {duration(outcome.wall_seconds)}{f': {counts}' if counts else ''}"]
    if search_end is not None:
        lines.append(search_end)
    if outcome.problem:
        lines.append(outcome.problem)
    lines += [remark.line for remark in remarks(rows, noted, varying)]
    if any(row.failures for row in rows):
        lines.append(errors_line(study))
    lines += orphaned_lines(orphaned)
    if not outcome.is_complete:
        state = "paused" if outcome.is_in_trouble else "ended early"
        why = f"{state}: {outcome.stop_reason}" if outcome.stop_reason else "trials are left"
        way = mended_line if outcome.is_in_trouble else resume_line
        lines.append(f"{why}; go on by: {way(study)}")
    return lines
