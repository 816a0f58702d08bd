"""Lightning: a callback for its ``Trainer``."""

import shutil
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from hsweep.integrations import counts_epochs
from hsweep.integrations.random_states import random_states, set_random_states
from hsweep.training.own.run import Run, StopTrial

_FILE = "lightning.ckpt"


class ReportCallback(Checkpoint):
    """Reports what the module has logged after each epoch with a validation or, where the budget
    counts steps, after each validation, with a checkpoint (Lightning keeps none of its own then).

    ``resume_from`` is for ``Trainer.fit(ckpt_path=...)``. Training goes on to the same numbers from
    an epoch's end. Within an epoch Lightning reads the training data from their start again, unless
    their loader has a ``state_dict``.

    Args:
        run: the trial.

    Raises:
        UserError: a budget in seconds.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._by_epochs, self._is_validated = run, counts_epochs(run), False
        self.resume_from = None if run.checkpoint is None else str(run.checkpoint / _FILE)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        """Report where the budget counts steps."""
        self._is_validated = trainer.state.fn == "fit" and not trainer.sanity_checking
        if self._is_validated and not self._by_epochs:
            self._report(trainer, trainer.global_step)

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        """Report where the budget counts epochs."""
        if self._by_epochs and (self._is_validated or not trainer.enable_validation):
            self._report(trainer, trainer.current_epoch + 1)

    def _report(self, trainer: Trainer, unit: int) -> None:
        self._is_validated = False
        folder = self._run.folder / f"checkpoint-{unit}"
        trainer.save_checkpoint(folder / _FILE)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        try:
            self._run.report(unit, checkpoint=folder, **metrics)
        except StopTrial:
            trainer.should_stop = True
        if trainer.is_global_zero:
            shutil.rmtree(folder)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the random generators, which Lightning does not keep."""
        return random_states()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the random generators, before Lightning asks for the first batch."""
        set_random_states(state_dict)
