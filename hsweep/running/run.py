"""Runs a ``Change`` of a study, from the plan to the answer, whether the study is new, edited,
resumed or extended."""

import contextlib
import functools
import os
import shlex
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console

from hsweep.clusters.node import offering
from hsweep.clusters.slurm import JobRay
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import record_trials
from hsweep.coordination.rounds import RoundGate
from hsweep.coordination.runner import InlineRunner, Runner
from hsweep.design.function_model import FunctionModel
from hsweep.design.labels import counted
from hsweep.design.missing import Missing
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.garbage import collect_as_usual
from hsweep.paths import Home, StudyPaths
from hsweep.planning.calibration import Calibration
from hsweep.planning.code import files_of
from hsweep.planning.plan import Plan, Planner
from hsweep.ray_tune.environment import prepare_ray
from hsweep.record.journal import Journal
from hsweep.record.journal_reader import MOST, ROUND, RUNS
from hsweep.record.mirror import check_storage, mirroring
from hsweep.record.provenance import hardware
from hsweep.record.study import StudyFolder
from hsweep.record.summary import budgets_in_words
from hsweep.record.weights import WeightsKeeper
from hsweep.running.change import Change, Lacking
from hsweep.running.forecast import forecast, play_out, rehearsed, search_of
from hsweep.running.options import RunOptions
from hsweep.running.outcome import Outcome, browse_line, resume_line
from hsweep.running.pace import Outlook
from hsweep.running.progress import ENDING, Progress
from hsweep.running.reuse import Reuse, trains_all_itself
from hsweep.signals import (
    EXIT_INTERRUPTED,
    EXIT_UNFINISHED,
    ending_late,
    explain_interrupt,
    handling,
    leave_terminal,
    not_in_forks,
)
from hsweep.terminal import print_step
from hsweep.tracking.target import STORE_VARIABLE, network_lines
from hsweep.tracking.tracker import refuse_unusable, trackers_of, tracking_lines
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.compiled import cannot_be_compiled
from hsweep.training.storage import Store
from hsweep.workspace import LoadedSweep

if TYPE_CHECKING:
    from hsweep.ray_tune.runner import RayRunner

_INTERRUPTED: Final = "interrupted"
_TERMINATED: Final = "SIGTERM"
_LATE: Final = "the time to end (--grace) is over"
_SHARE_OF_TRIALS: Final = 0.8
"""The part of ``--grace`` in which trials have to end; the rest is for the driver's own end."""
_LAST_SECONDS: Final = 1.0
"""How long before the end of ``--grace`` the driver ends, whatever it is at."""
_SHOW_CURSOR: Final = "\x1b[?25h"
_MAX_SKIPPED: Final = 5
_UNTIL_PREPARED: Final = 8.0
"""Seconds: until then the study's start has the cores, and MLflow is imported."""


class Conclude(Protocol):
    """Answers a study's question once it has run."""

    def prepare(self) -> None:
        """Import the modules of the other methods; called in a thread while trials train."""

    def answer(
        self, study: StudyFolder, outcome: Outcome, count: Callable[[Sequence[Missing]], list[int]]
    ) -> None:
        """Find the answer and print it; ``count`` tells how many trials can be trained for each of
        the runs that it lacks."""

    def write(self, study: StudyFolder) -> Sequence[Path]:
        """Write the report with the answer; return the files for the study's tracked run."""


def run(
    change: Change,
    options: RunOptions,
    home: Home,
    console: Console,
    conclude: Conclude,
    *,
    is_guest: bool = False,
) -> tuple[StudyFolder, Outcome]:
    """Run a change of a study: check, connect, record, train, answer; UserError if anything stands
    in the way before the first trial.

    Args:
        is_guest: whether a user's program runs the study: a second interrupt then raises
            KeyboardInterrupt and does not end the process.
    """
    if options.log_weights and change.prepared.plan.sweep.keep == "none":
        raise UserError(
            "--log-weights uploads the final weights that the study keeps, and it keeps none; add "
            "--set keep=best, or leave it out"
        )
    refuse_unusable(options.track)
    if options.check and change.new:
        # Torch and the loop, seconds of importing where nothing is tried out.
        from hsweep.training.rehearsal import check_trials

        for line in check_trials(change.new).lines():
            console.print(line, soft_wrap=True)
    home.create()
    runner: RayRunner | InlineRunner = InlineRunner()
    if change.is_over:
        counts = StudyFolder.open(home, change.name).status()
        hint = "; --retry-failed tries again what failed" if counts["failed"] else ""
        console.print(f"every trial has ended: there is nothing to train{hint}")
    else:
        paths = home.study(change.name)
        if change.manifest.storage is not None:
            check_storage(change.manifest, paths)
        runner = make_runner(options, paths, change.manifest.storage, change.prepared.loaded)
    try:
        if not change.is_over:
            connect(runner, change.prepared.plan)
        if not isinstance(runner, InlineRunner):
            runner.announce = functools.partial(_print_dashboard, console, runner)
        collect_as_usual()
        with (
            change.recorded(home) as (study, journal),
            # Also the last copy of the record has to be made in time.
            ending_late(functools.partial(_leave, _LATE, study, EXIT_UNFINISHED)) as deadline,
            mirroring(study, journal, _code_files(change), console),
            explain_interrupt(f"with all reports on record; go on by: {resume_line(study)}"),
            offering(study.paths, None if isinstance(runner, InlineRunner) else runner.address),
        ):
            _greet(console, change, home, runner)
            return study, _train(
                *(study, journal, change, options, home, runner, console, conclude),
                None if is_guest else deadline,
            )
    finally:
        runner.close()


def make_runner(
    options: RunOptions, paths: StudyPaths, storage: str | None, loaded: LoadedSweep
) -> "RayRunner | InlineRunner":
    if options.runner == "inline":
        return InlineRunner()
    address, job = options.cluster, options.job
    prepare_ray(joins_cluster=address is not None or job is not None)
    from hsweep.ray_tune.local import StartingRay

    if StartingRay.unused is None:
        where = f" on the nodes of SLURM job {job.number}" if job else ""
        print_step(f"joining the Ray at {address}" if address else f"starting Ray{where}")
    from hsweep.ray_tune.runner import RayRunner

    return RayRunner(
        scratch=paths.stored(storage, paths.ray),
        address=address,
        cluster=JobRay(job) if job else None,
        has_dashboard=options.dashboard,
        max_concurrent=options.max_concurrent,
        study=paths.name,
        priority=options.priority,
        num_nodes=options.wait_for_nodes or 1,
        patience=options.wait,
        own_modules=tuple(loaded.own_modules()),
        sweep_folder=loaded.folder,
    )


def connect(runner: "RayRunner | InlineRunner", plan: Plan) -> None:
    """Connect a runner, and refuse a plan that it cannot run.

    Raises:
        UserError: the cluster cannot be reached or cannot hold a trial, the training cannot be sent
            there, a trial needs a process of its own where there is one, or a compiler that is not
            there.
    """
    is_here = isinstance(runner, InlineRunner) or runner.address is None
    if is_here and (missing := cannot_be_compiled(plan.trials)):
        raise UserError(missing)
    if isinstance(runner, InlineRunner):
        most = max(trial.num_ranks for trial in plan.trials)
        if plan.sweep.isolate or most > 1:
            raise UserError(
                f"the inline runner has but this process, and trials need {most} each (or, with "
                "isolate, one of their own); leave out --runner inline, or set isolate=false and "
                "processes=1 (or gpus=1)"
            )
        return
    runner.connect()
    runner.check({trial.key: trial.resources for trial in plan.trials})
    model = plan.trials[0].model
    runner.check_sent(model.function if isinstance(model, FunctionModel) else plan.sweep.train)
    runner.check_nodes(plan.trials[0])


def _code_files(change: Change) -> dict[str, Path]:
    """Return the files of the sweep's folder that its trials need, by their paths from there."""
    loaded, trials = change.prepared.loaded, change.prepared.plan.trials
    folder = loaded.folder.resolve()
    digests = {digest for trial in trials for digest in trial.parts.values()}
    files = {folder / name for digest in digests for name in files_of(digest) or ()}
    files |= {Path(module.__file__ or "").resolve() for module in loaded.own_modules()[1:]}
    return {str(file.relative_to(folder)): file for file in files if file.is_relative_to(folder)}


def _greet(
    console: Console, change: Change, home: Home, runner: "RayRunner | InlineRunner"
) -> None:
    plan = change.prepared.plan
    if change.only is None:
        expected = forecast(plan, home, None if change.is_over else runner.room)
        # Of a study that goes on, much is trained already.
        training = expected.line if len(change.new) == len(plan.trials) else expected.what
    else:
        amounts = (trial.budget.amount for trial in plan.trials if trial.key in change.only)
        budgets = budgets_in_words(amounts, plan.sweep.budget.unit)
        training = f"{counted(len(change.only), 'further run')} {budgets}"
    console.print(
        f"study {change.name}: {training}{', proposed one by one' if plan.is_adaptive else ''}",
        style="bold",
        soft_wrap=True,
    )
    for point, reason in list(plan.skipped.items())[:_MAX_SKIPPED]:
        console.print(f"skipped {dict(point)}: {reason}", soft_wrap=True)
    if len(plan.skipped) > _MAX_SKIPPED:
        console.print(f"... {len(plan.skipped)} points skipped in all (hsweep plan lists them)")
    if not isinstance(runner, InlineRunner) and runner.dashboard_url:
        _print_dashboard(console, runner)
    if os.environ.get(STORE_VARIABLE) == change.target.uri:
        console.print(f"MLflow store   {change.target.shown_uri} ({STORE_VARIABLE})")
    for line in network_lines(change.target):
        console.print(line, style="yellow", soft_wrap=True)
    console.print(f"MLflow UI      {browse_line(change.target, home, change.name)}", soft_wrap=True)


def _print_dashboard(console: Console, runner: "RayRunner") -> None:
    how = ""
    if token := runner.token:
        # A secret belongs on the user's own screen, not in a file that output goes to.
        asking = shlex.join([str(Path(sysconfig.get_path("scripts"), "ray")), "get-auth-token"])
        shown = token if console.is_terminal else f"what this prints: {asking}"
        how = f"  (it asks for a token: paste {shown})"
    console.print(f"Ray dashboard  {runner.dashboard_url}{how}", soft_wrap=True)


def _train(
    study: StudyFolder,
    journal: Journal,
    change: Change,
    options: RunOptions,
    home: Home,
    runner: Runner,
    console: Console,
    conclude: Conclude,
    deadline: Callable[[float], None] | None,
) -> Outcome:
    """Train the unfinished trials of a study that is held, then answer it.

    Raises:
        FencedError: another process has taken the study over; everything else is left to it.
    """
    start_time, lease = time.monotonic(), journal.lease
    assert lease is not None, "the study is held"
    plan = change.prepared.plan
    stopping = plan.sweep.early_stopping
    budget = plan.sweep.budget
    # On a ladder nothing is decided within a trial.
    rungs = frozenset(stopping.milestones(budget) if stopping and not budget.ladder else ())
    only = frozenset() if trains_all_itself(journal, reuse=options.reuse) else change.only
    reuse = Reuse(journal, study, plan.sweep.probe, only, options.accept_code, rungs)
    coordinator, outlook = _coordinator(study, journal, change, reuse)
    _note_runs(journal, outlook)
    if options.report_timeout is not None:
        coordinator.sweep = replace(coordinator.sweep, report_timeout=options.report_timeout)
    trials = coordinator.planned_trials()
    for line in reuse.lines(len(trials)):
        console.print(line, soft_wrap=True)
    note_round = functools.partial(_note_runs, journal, outlook)
    progress = Progress(
        console, outlook, functools.partial(setattr, lease, "seconds_left"), note_round
    )
    coordinator.observer = progress
    lease.lost = lambda error: coordinator.request_stop(str(error), is_trouble=True)
    if number := coordinator.num_gaps:
        console.print(
            f"the record has lost what {counted(number, 'trial')} reported at a rung: the others "
            "are compared there without",
            style="yellow",
        )
    trackers = trackers_of(study, change.target, options.track, lease.confirm)
    trackers[0].attach(study.paths.plan)
    for tracker in trackers:
        tracker.start()
    ending = threading.Timer(
        options.time_budget or 0.0, coordinator.request_stop, ("the time budget is used up",)
    )
    preparing = threading.Timer(_UNTIL_PREPARED, conclude.prepare)
    ending.daemon = preparing.daemon = True
    if options.time_budget:
        ending.start()
    if not isinstance(runner, InlineRunner):
        preparing.start()
    try:
        with (
            _stopping_on_signals(coordinator, study, progress, options.grace, deadline),
            progress.showing(),
        ):
            runner.run(coordinator)
        lease.check(at_once=True)
    except BaseException:
        # Where a program of the user's goes on, no thread of an ended run goes on with it.
        for tracker in trackers:
            tracker.close(wait_seconds=0.0)
        raise
    finally:
        preparing.cancel()
        ending.cancel()
        coordinator.settle()
        _note_runs(journal, outlook)
    was_terminated = coordinator.stop_reason == _TERMINATED
    was_interrupted = was_terminated or coordinator.stop_reason == _INTERRUPTED
    # Ray's processes take seconds to end.
    with ThreadPoolExecutor(1) as closing, contextlib.ExitStack() as copies:
        closing.submit(runner.close)
        problem = _write_tables(study)
        remove_checkpoints(study, coordinator)
        _calibrate(home, journal, trials)
        counts = journal.status_counts()
        outcome = Outcome(
            counts=counts,
            stop_reason=coordinator.stop_reason,
            was_interrupted=was_interrupted,
            was_terminated=was_terminated,
            is_in_trouble=coordinator.is_in_trouble,
            problem=problem,
            wall_seconds=time.monotonic() - start_time,
            num_runs=outlook.num_runs,
        )
        lacking = Lacking(plan, study.manifest.added_keys, journal)
        conclude.answer(study, outcome, lacking.count)
        lacking.note()
        # The report links to the runs, so they should be there.
        for tracker in trackers:
            tracker.await_delivery(console, is_interrupted=was_interrupted)
        for path in conclude.write(study):
            trackers[0].attach(path)
        try:
            weights = study.final_weights(with_files=options.log_weights)
            trackers[0].log_weights(copies.enter_context(weights))
        except OSError as error:
            console.print(str(error), style="red", soft_wrap=True)
            outcome = replace(outcome, problem=problem or str(error))
        undelivered = [
            line
            for tracker in trackers
            for line in tracking_lines(tracker.finish(), study, tracker.target)
        ]
        outcome = replace(outcome, undelivered=undelivered)
    return outcome


def _coordinator(
    study: StudyFolder, journal: Journal, change: Change, reuse: Reuse
) -> tuple[Coordinator, Outlook]:
    """Put the planned trials on record, with results of other studies; return their coordinator and
    its outlook."""
    plan, search = change.prepared.plan, search_of(change.prepared.plan)
    trials: list[Trial] = list(plan.trials)
    proposer = keeper = None
    if plan.sweep.keep != "none":
        keeper = WeightsKeeper(study.manifest, study.weights())
    if plan.is_adaptive:
        from hsweep.coordination.search import OptunaProposer

        planner = Planner(replace(plan, trials=()))
        home = Home(study.paths.home)
        proposer = OptunaProposer(plan.sweep, planner, journal, plan.study_seed, reuse, home)
        trials = proposer.known_trials
    record_trials(journal, trials)
    reuse(trials)
    expected, most = None, 0
    is_shorter = plan.sweep.early_stopping is not None or search is not None
    if is_shorter and proposer is None and change.only is None:
        typical, longest = rehearsed(trials, search)
        trained = play_out(plan.sweep, typical, study.manifest.added_keys)
        most = len(longest) if search is not None else 0
        expected = len(trained), sum(trained.values())
    coordinator = Coordinator(
        journal=journal,
        sweep=plan.sweep,
        trials=trials,
        checkpoints=study.checkpoints(),
        proposer=proposer,
        rounds=None if search is None else RoundGate(search),
        only=change.only,
        exempt=study.manifest.added_keys,
        # An adaptive search knows its trials only as it goes; the plan's draws stand in for them.
        named_by=trials or plan.trials,
        keeper=keeper,
    )
    return coordinator, Outlook(coordinator, expected, most)


def _note_runs(journal: Journal, outlook: Outlook) -> None:
    """Record how many trials the study will have trained, and the round that it is in, for readers;
    a record that cannot be written ends the run elsewhere."""
    rounds = outlook.coordinator.rounds
    present = None if rounds is None or rounds.is_over else rounds.design.line or None
    with contextlib.suppress(OSError):
        journal.set_metas({RUNS: str(outlook.num_runs), MOST: str(outlook.most), ROUND: present})


@contextlib.contextmanager
def _stopping_on_signals(
    coordinator: Coordinator,
    study: StudyFolder,
    progress: Progress,
    grace: float,
    deadline: Callable[[float], None] | None,
) -> Iterator[None]:
    """Let the first signal end the study cleanly, and a second interrupt at once. A hangup, unless
    it is ignored (``nohup``), is an interrupt too.

    A second SIGTERM is none: whoever passes it on to a process and its children sends it twice.

    Args:
        grace: seconds from SIGTERM to the end of the run.
        deadline: ends the process in time after SIGTERM; None where the study is a guest in it, of
            which a second interrupt raises KeyboardInterrupt.
    """

    @not_in_forks
    def handle(number: int, _frame: FrameType | None) -> None:
        is_termination = number == signal.SIGTERM
        if number == signal.SIGHUP:
            leave_terminal(f"the terminal has gone; go on by: {resume_line(study)}")
        if coordinator.stop_requested and not is_termination:
            if deadline is None:
                raise KeyboardInterrupt
            if progress.is_live:
                os.write(2, _SHOW_CURSOR.encode())
            _leave("stopped at once", study, EXIT_INTERRUPTED)
        if is_termination:
            coordinator.ending_seconds = _SHARE_OF_TRIALS * grace
            if deadline is not None:
                deadline(max(0.0, grace - _LAST_SECONDS))
        coordinator.request_stop(_TERMINATED if is_termination else _INTERRUPTED)
        if not progress.is_live:
            cause = f"SIGTERM, with {grace:g} s to end: " if is_termination else ""
            sys.stderr.write(f"\n{cause}{ENDING}\n")

    with handling(handle, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield


def _leave(why: str, study: StudyFolder, code: int) -> None:
    """End this process here, with all reports on record."""
    os.write(2, f"\n{why}; go on by: {resume_line(study)}\n".encode())
    os._exit(code)


def _write_tables(study: StudyFolder) -> str:
    """Write the study's tables; return why that failed, empty if it did not."""
    try:
        study.write_tables()
    except (UserError, OSError) as error:
        return f"{error}; the record has everything, and resuming writes the tables again"
    return ""


def remove_checkpoints(study: StudyFolder, coordinator: Coordinator) -> None:
    """Remove checkpoints that no trial, not even one with a larger budget, can continue; a failure
    to remove costs only space."""
    root = study.checkpoints()
    finished = {
        row.key for row in coordinator.journal.trials() if row.status is TrialStatus.FINISHED
    }
    trunks = {trial.key: trial.branch_point for trial in coordinator.planned_trials()}
    with contextlib.suppress(OSError):
        stored = frozenset(Store(root, subject="checkpoints").folders())
        for key, trunk in trunks.items():
            if key not in stored:
                continue
            store = CheckpointStore(root, key, attempt=0, branch_point=trunk)
            if key in finished and trunk:
                store.remove_but_branch_point()
            elif coordinator.journal.rows[key].status.is_final:
                store.remove()


def _calibrate(home: Home, journal: Journal, trials: list[Trial]) -> None:
    by_key = {trial.key: trial for trial in trials}
    speeds = [
        (by_key[row.key], row.wall_seconds, row.unit)
        for row in journal.trials()
        if row.status is TrialStatus.FINISHED and row.key in by_key and not row.reused_from
    ]
    with contextlib.suppress(OSError):
        Calibration(home.calibration, hardware()).add(speeds)
