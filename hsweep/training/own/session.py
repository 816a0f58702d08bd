"""Opens a trial of the user's own training: a function, or a command."""

from hsweep.design.own_training import Command, OwnTask
from hsweep.design.trial import Assignment
from hsweep.training.session import Session
from hsweep.training.world import World


def open_own_session(assignment: Assignment, world: World) -> Session:
    """Begin a trial whose training is the user's own."""
    task = assignment.trial.task
    assert isinstance(task, OwnTask)
    if isinstance(task.train, Command):
        from hsweep.training.own.script import ScriptSession

        return ScriptSession(assignment, task, task.train)
    from hsweep.training.own.function import FunctionSession

    return FunctionSession(assignment, world)
