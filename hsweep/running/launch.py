"""From a plan to a finished study: the one place where all the parts of a run meet."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from rich.console import Console

from hsweep.coordination.coordinator import Coordinator, stop_after
from hsweep.coordination.protocols import Proposer
from hsweep.coordination.runner import InlineRunner, Runner
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.interrupts import EXIT_INTERRUPTED
from hsweep.paths import Home
from hsweep.planning.calibration import Calibration
from hsweep.planning.checking import check_trials
from hsweep.planning.plan import Plan, Planner
from hsweep.ray_tune.environment import prepare_ray
from hsweep.record.journal import Journal
from hsweep.record.provenance import hardware
from hsweep.record.study import Study
from hsweep.running.outcome import Outcome, resume_line
from hsweep.running.progress import ENDING, Progress
from hsweep.running.reuse import Reuse, reuse_for
from hsweep.terminal import doing
from hsweep.tracking.names import study_tags
from hsweep.tracking.shutdown import Shutdown
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.tracker import Tracker
from hsweep.training.checkpoints import CheckpointStore, file_system
from hsweep.training.compiler import cannot_be_compiled
from hsweep.workspace import LoadedSweep

if TYPE_CHECKING:
    from hsweep.ray_tune.runner import RayRunner


class Conclude(Protocol):
    """What is said of a study once it has run."""

    def import_ahead(self) -> None:
        """Import what that and tracking take."""

    def __call__(self, study: Study) -> Sequence[Path]:
        """Write it, and return the files to keep with the study's tracked run."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a study is run; none of it changes a result.

    Attributes:
        runner: Ray, or one trial after another in this process.
        max_concurrent: trials at once; None for as many as fit.
        address: an existing Ray cluster.
        time_budget: seconds after which the run ends, its trials checkpointed.
        target: the MLflow store.
        report_timeout: seconds without a report after which a trial counts as hung; None for what
            the sweep says.
        dashboard: whether a Ray that is started here has its dashboard.
        retry_failed: whether trials that had failed or were too large are tried again.
        reuse: whether trials that another study of the home has finished are taken from there.
        accept_code: whether code that has changed counts as the same: trials on record are kept,
            and those of other studies taken, and that is recorded.
        checks: whether new trials are tried out before anything is recorded.
    """

    runner: Literal["ray", "inline"]
    max_concurrent: int | None
    address: str | None
    time_budget: float | None
    target: TrackingTarget
    reuse: bool = True
    accept_code: bool = False
    retry_failed: bool = False
    report_timeout: float | None = None
    dashboard: bool = True
    checks: bool = True


def check_new(trials: Sequence[Trial], options: RunOptions, console: Console) -> None:
    """Try out the smallest and the largest of the trials that are new to a study, if there are any
    and the options do not leave it out.

    Raises:
        UserError: one of them cannot be trained or evaluated.
    """
    if options.checks and trials:
        for line in check_trials(trials).lines():
            console.print(line, soft_wrap=True)


def make_runner(
    options: RunOptions, home: Home, name: str, storage: str | None, loaded: LoadedSweep
) -> "RayRunner | InlineRunner":
    """Return the runner that the options ask for.

    Raises:
        UserError: a storage that cannot be used.
    """
    paths = home.study(name)
    if storage is not None:
        file_system(paths.checkpoint_root(storage))
    if options.runner == "inline":
        return InlineRunner()
    doing(f"joining the Ray at {options.address}" if options.address else "starting Ray")
    prepare_ray(joins_cluster=options.address is not None)
    from hsweep.ray_tune.runner import RayRunner

    return RayRunner(
        scratch=paths.ray(storage),
        address=options.address,
        has_dashboard=options.dashboard,
        max_concurrent=options.max_concurrent,
        own_modules=tuple(loaded.own_modules()),
        sweep_folder=loaded.folder,
    )


def prepare_runner(
    runner: "RayRunner | InlineRunner", plan: Plan, conclude: Conclude | None = None
) -> None:
    """Connect, and refuse what cannot run before anything is recorded.

    What tracking and the end of the run take is imported meanwhile: starting Ray's processes leaves
    this one idle for seconds. It is all there when this returns, before any thread needs it.

    Raises:
        UserError: the cluster cannot be reached or cannot hold a trial, a trial needs a process
            of its own where there is one, or a compiler that is not there.
    """
    is_here = isinstance(runner, InlineRunner) or runner.address is None
    if is_here and (missing := cannot_be_compiled(plan.trials)):
        raise UserError(missing)
    if isinstance(runner, InlineRunner) and plan.sweep.isolate:
        raise UserError(
            "isolate gives every trial a process of its own, and the inline runner has but this "
            "one; leave out --runner inline, or set isolate=false"
        )
    import_ahead = conclude.import_ahead if conclude is not None else lambda: None
    if isinstance(runner, InlineRunner):
        import_ahead()
        return
    # No daemon: an interpreter that ends waits for it, rather than ending it within an import.
    importing = threading.Thread(target=import_ahead, name="import-ahead")
    importing.start()
    runner.connect()
    runner.check({trial.key: trial.resources for trial in plan.trials})
    importing.join()


def run_study(
    study: Study,
    plan: Plan,
    planner: Planner,
    runner: Runner,
    options: RunOptions,
    console: Console,
    home: Home,
    conclude: Conclude,
    only: frozenset[str] | None = None,
) -> Outcome:
    """Run everything of a study that is not finished, then conclude it.

    With ``only``, the trials of these keys and no others.

    Raises:
        UserError: another process runs it.
    """
    started = time.monotonic()
    with study.locked(), study.journal(read_only=False) as journal:
        if options.retry_failed:
            journal.reopen(_given_up(journal), "asked for again")
        reuse = reuse_for(
            study,
            journal,
            home,
            probe=plan.sweep.probe,
            only=only,
            is_wanted=options.reuse,
            accepts_code=options.accept_code,
        )
        coordinator = _coordinator(study, plan, planner, journal, only, reuse)
        if options.report_timeout is not None:
            coordinator.sweep = replace(coordinator.sweep, report_timeout=options.report_timeout)
        trials = coordinator.planned_trials()
        if reuse is not None:
            for line in reuse.lines(len(trials)):
                console.print(line, soft_wrap=True)
            _record_accepted(study, reuse)
        # An adaptive search knows its trials only as it goes; the plan's draws stand in for them.
        progress = Progress(console, plan.sweep.metric, trials or list(plan.trials))
        coordinator.observer = progress
        tracker = Tracker(
            study.paths.journal,
            options.target,
            study=study.name,
            tags=study_tags(study.manifest),
            metric=plan.sweep.metric,
        )
        study.export(plan.to_json())
        tracker.attach(study.paths.plan)
        tracker.start()
        timer = stop_after(coordinator, options.time_budget) if options.time_budget else None
        try:
            with (
                _stopping_on_signals(coordinator, study, progress),
                progress.showing(coordinator),
                _printing_to(console),
            ):
                runner.run(coordinator)
        finally:
            if timer is not None:
                timer.cancel()
            coordinator.settle()
        if reuse is not None:
            _record_accepted(study, reuse)
        with _closing(runner):
            problem = _write_tables(study)
            _remove_checkpoints(study, coordinator)
            _calibrate(home, journal, trials)
            counts = journal.status_counts()
            # The report links to the runs, so they should be there.
            tracking = Shutdown(
                tracker, console, is_interrupted=coordinator.stop_reason == _INTERRUPTED
            )
            tracking.flush()
            for path in conclude(study):
                tracker.attach(path)
            summary = tracking.close()
    return Outcome(
        counts=counts,
        stop_reason=coordinator.stop_reason,
        was_interrupted=coordinator.stop_reason == _INTERRUPTED,
        is_in_trouble=coordinator.is_in_trouble,
        problem=problem,
        tracking=summary,
        wall_seconds=time.monotonic() - started,
    )


def _printing_to(console: Console) -> contextlib.AbstractContextManager[Any]:
    """Keep what models and tasks print in this process out of JSON: it goes where messages go."""
    return contextlib.redirect_stdout(sys.stderr) if console.stderr else contextlib.nullcontext()


@contextlib.contextmanager
def _closing(runner: Runner) -> Iterator[None]:
    """Close a runner while the study is concluded: Ray's processes take seconds to end."""
    closing = threading.Thread(target=runner.close, name="closing")
    closing.start()
    try:
        yield
    finally:
        closing.join()


def _record_accepted(study: Study, reuse: Reuse) -> None:
    """Record what was taken from other studies although their code was another."""
    while reuse.accepted:
        study.accept(reuse.accepted.pop(0))


def _given_up(journal: Journal) -> list[str]:
    """Return the keys of the trials that ended without a result and could do better now."""
    given_up = (TrialStatus.FAILED, TrialStatus.TOO_LARGE)
    return [row.key for row in journal.trials() if row.status in given_up]


def _coordinator(
    study: Study,
    plan: Plan,
    planner: Planner,
    journal: Journal,
    only: frozenset[str] | None,
    reuse: Reuse | None,
) -> Coordinator:
    trials: list[Trial] = list(plan.trials)
    proposer: Proposer | None = None
    if plan.is_adaptive:
        from hsweep.coordination.search import OptunaProposer

        adaptive = OptunaProposer(plan.sweep, planner, journal, plan.study_seed)
        trials, proposer = adaptive.known_trials, adaptive
    return Coordinator(
        journal=journal,
        sweep=plan.sweep,
        trials=trials,
        checkpoints=study.checkpoints(),
        proposer=proposer,
        only=only,
        exempt=study.manifest.added_keys,
        reuse=reuse,
    )


_INTERRUPTED: Final = "interrupted"
_SHOW_CURSOR: Final = "\x1b[?25h"


@contextlib.contextmanager
def _stopping_on_signals(
    coordinator: Coordinator, study: Study, progress: Progress
) -> Iterator[None]:
    """Let the first interrupt end the study cleanly, and the second at once."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        if coordinator.stop_requested:
            cursor = _SHOW_CURSOR if progress.is_live else ""
            line = f"{cursor}\nstopped at once; go on by: {resume_line(study)}\n"
            os.write(2, line.encode())
            os._exit(EXIT_INTERRUPTED)
        coordinator.request_stop(_INTERRUPTED)
        if not progress.is_live:
            sys.stderr.write(f"\n{ENDING}\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[signal.Signals, Callable[..., Any] | int | None] = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, handle)
    except ValueError:
        # Not in the main thread: whoever runs us there has the signals.
        before.clear()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_tables(study: Study) -> str:
    """Write the study's tables; return why that failed, empty if it did not."""
    try:
        study.write_tables()
    except (UserError, OSError) as error:
        return f"{error}; the record has everything, and resuming writes the tables again"
    return ""


def _remove_checkpoints(study: Study, coordinator: Coordinator) -> None:
    """Remove what no trial can go on from, in this study or under a longer budget; a failure to
    remove costs only space."""
    root = study.checkpoints()
    finished = {
        row.key for row in coordinator.journal.trials() if row.status is TrialStatus.FINISHED
    }
    kept = {
        trial.key
        for trial in coordinator.planned_trials()
        if trial.key in finished and trial.can_be_lengthened
    }
    with contextlib.suppress(OSError):
        for key in coordinator.final_keys():
            store = CheckpointStore(root, key, attempt=0)
            if key in kept:
                store.remove_but_newest()
            else:
                store.remove()


def _calibrate(home: Home, journal: Journal, trials: list[Trial]) -> None:
    by_key = {trial.key: trial for trial in trials}
    measured = [
        (by_key[row.key], row.wall_seconds, row.unit)
        for row in journal.trials()
        if row.status is TrialStatus.FINISHED and row.key in by_key and not row.reused_from
    ]
    with contextlib.suppress(OSError):
        Calibration(home.calibration, hardware()).add(measured)


def sweep_source(path: Path) -> str:
    """Return a sweep file's text.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the sweep file {path} cannot be read: {error}") from error
