"""Trains a trial in this process: chooses the function that trains it, and reports how it ends.

Everything that trains is a function of a ``TrialRun``, to which it reports: this project's own loop
(``loop.py``), a user's function (``own/function.py``) and a script (``own/script.py``).
"""

import time
from typing import TYPE_CHECKING, Final

from hsweep.design.trial import Assignment, Event, OutOfMemory, StorageFailure
from hsweep.design.user_training import Command, UserTraining
from hsweep.garbage import Collection
from hsweep.training.run import Channel, StopTrial
from hsweep.training.world import ALONE, World

if TYPE_CHECKING:
    from hsweep.training.trial_run import TrialRun

_COLLECTION: Final = Collection()


def train(assignment: Assignment, channel: Channel, world: World = ALONE) -> Event | None:
    """Train a trial up to its end, or up to where the channel ends it; nothing before this imports
    torch.

    Training goes on from the newest valid checkpoint; reports that came with it and are not on
    record go to the channel again, so the record has no gap. Where the channel ends the trial
    before its last report, a checkpoint is written. Where memory does not suffice for a single
    example, or checkpoints cannot be written, that is the last event.

    Where several processes train the trial, all of them call this. One process or several give the
    same numbers up to rounding, but for the masks of dropout.

    On the CPU the reports of this project's own loop depend on the trial alone, to the bit, however
    often it was interrupted: the batch of a step and the state of the random generator at a report
    are functions of the seeds and the position. Exceptions are the number of steps in a budget of
    seconds and the step at which memory gives out, which depend on the machine; the size of the
    parts of a batch is kept in the checkpoint.

    Returns:
        Why the trial cannot go on, which the channel knows too; None where nothing prevents it.

    Raises:
        BaseException: the error of its training.
    """
    import torch

    from hsweep.training import devices
    from hsweep.training.storage import StorageError
    from hsweep.training.trial_run import TrialRun

    devices.reuse_freed_memory()

    # Workers are reused between trials, so whatever a trial sets it sets for itself.
    torch.set_num_threads(assignment.resources.num_threads)
    begin = time.perf_counter()
    run: TrialRun | None = None
    ending: Event | None = None
    try:
        run = TrialRun(assignment, channel, world)
        devices.measure_peak(run.device)
        channel.begins()
        _train(run)
    except StopTrial:
        pass
    except devices.DoesNotFitError as error:
        ending = OutOfMemory(str(error))
    except StorageError as error:
        ending = StorageFailure(str(error))
    finally:
        if run is not None:
            # The next attempt finds all that was kept.
            run.close()
            run.process.restore()
            _COLLECTION.after(time.perf_counter() - begin)
            devices.release(run.device)
    if ending is not None:
        channel.put(ending)
    return ending


def _train(run: "TrialRun") -> None:
    task = run.assignment.trial.task
    if run.assignment.trial.model is not None:
        from hsweep.training.loop import train_model

        train_model(run)
    elif isinstance(task, UserTraining) and isinstance(task.train, Command):
        from hsweep.training.own.script import train_script

        train_script(run)
    else:
        from hsweep.training.own.function import train_function

        train_function(run)
