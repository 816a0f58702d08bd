"""Trains a trial by a user's function."""

import contextlib
import errno
import multiprocessing
import os
import re
import threading
from collections.abc import Iterator
from typing import Final

from hsweep.design.point import Point
from hsweep.design.user_training import Command, UserTraining
from hsweep.errors import UserError, format_error, user_frame
from hsweep.seeding import ChildSeed, derived_seed
from hsweep.training.checkpoints import holds_files
from hsweep.training.devices import DoesNotFitError, is_out_of_memory
from hsweep.training.own.leftovers import MARK_VARIABLE, Leftovers
from hsweep.training.process_state import seed_all
from hsweep.training.run import StopTrial
from hsweep.training.storage import StorageError
from hsweep.training.trial_run import RETURNED, TrialRun
from hsweep.training.world import with_variables

_MAIN_THREAD: Final = re.compile("in main thread|no current event loop in thread")
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def train_function(run: TrialRun) -> None:
    """Call the user's function once, in this thread, and end all processes that it has started.

    Once the trial is stopped each report raises ``StopTrial``. A function that goes on all the same
    keeps its process, which the driver ends.

    Raises:
        DoesNotFitError: memory did not suffice.
        StopTrial: the trial ends at a report that an earlier attempt had made.
        StorageError: its folder cannot be used, or the disk is full.
        Exception: the function's own, or a UserError that says what it did wrong.
    """
    task = run.assignment.trial.task
    assert isinstance(task, UserTraining)
    assert not isinstance(task.train, Command)
    saved = run.restore(holds_files)
    run.send_again()
    try:
        run.open_folder(saved)
    except OSError as error:
        raise StorageError(f"the trial's folder cannot be used: {error}") from error
    del saved
    raised: BaseException | None = None
    try:
        with (
            contextlib.closing(Leftovers(run.folder, run.rank)) as leftovers,
            with_variables({MARK_VARIABLE: leftovers.mark}),
            _seeded(run),
        ):
            try:
                task.train(Point(run.assignment.trial.point), run)
            except BaseException as error:
                raised = error
            if run.is_fork:
                os._exit(0)  # the function has forked, and the fork has come to its end
            if raised is None and run.refusal is None and not run.is_stopped:
                # Another rank may wait at a report; where one raised, its process reports that.
                run.check_ranks(RETURNED)
    finally:
        run.close_folder()
    _judge_end(run, run.refusal or raised)


@contextlib.contextmanager
def _seeded(run: TrialRun) -> Iterator[None]:
    """Seed what draws random numbers without a seed of its own: this process, alike in every rank,
    and those that it spawns.

    The seed depends on the replicate and on where the trial goes on: what begins again repeats its
    numbers, and what goes on from a checkpoint does not draw those of the beginning once more.
    """
    seeds = run.assignment.trial.seeds
    seed = derived_seed(seeds.init, seeds.data, seeds.sampling, run.unit, run.steps_within)
    seed_all(seed, run.device)
    sent = vars(multiprocessing.current_process())["_config"]  # to all children
    sent[__name__] = ChildSeed(seed)
    try:
        yield
    finally:
        sent.pop(__name__, None)


def _judge_end(run: TrialRun, error: BaseException | None) -> None:
    """End the trial of a function that has returned; raise if it has neither trained its budget
    nor ended by itself nor been stopped."""
    budget = run.assignment.trial.budget
    if isinstance(error, KeyboardInterrupt) and run.has_to_end:
        raise error
    if run.is_stopped:
        return
    if isinstance(error, StorageError):
        raise error
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        raise StorageError(
            f"the training function cannot write ({error}); free space there, then resume"
        ) from error
    if error is not None and is_out_of_memory(error):
        where, message = user_frame(error), " ".join(format_error(error).split())
        error.__traceback__ = None  # it holds what was computed
        subject = f"the training after unit {run.unit}"
        raise DoesNotFitError(subject, f"{message} at {where}" if where else message) from None
    what = "" if error is None else f"raised {format_error(error)}"
    if isinstance(error, Exception):
        is_main = threading.current_thread() is threading.main_thread()
        if is_main or not _MAIN_THREAD.search(str(error)):
            raise error
        what += (
            ": Ray calls it in a thread of its worker; train by command(...), which starts a "
            "process, or with --runner inline"
        )
    elif run.is_over and (error is None or isinstance(error, StopTrial)):
        return
    elif error is None:
        if run.has_to_end:
            run.stop()  # what it was told may be why it returned
        return run.end_by_itself()
    else:  # an exit or interrupt of its own is none of this process
        progress = f"after unit {run.unit}" if run.has_reported else "without a report"
        what += (
            f" {progress}, and its budget is {budget}: it has to report unit {budget.amount} last, "
            "or to end by itself, and to return"
        )
    raise UserError(f"the training function {what}").with_traceback(error.__traceback__) from error
