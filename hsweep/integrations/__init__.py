"""Callbacks that report a trial from other libraries' training loops.

Each is given the ``run`` of a training function ``train(point, run)``. It reports what the library
has evaluated, each time with a checkpoint, and ends the library's training when the trial ends.
"""

from hsweep.errors import UserError
from hsweep.training.run import Run


def counts_epochs(run: Run) -> bool:
    """Whether the budget counts epochs, not steps.

    Raises:
        UserError: it counts seconds, which these loops do not.
    """
    if run.budget_unit == "seconds":
        raise UserError(
            "the budget of a trial that a callback reports must count epochs or steps, not "
            "seconds; give the sweep budget=epochs(...) or budget=steps(...)"
        )
    return run.budget_unit == "epochs"
