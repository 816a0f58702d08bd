"""Lightning: a callback for its ``Trainer``."""

import shutil
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor

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
        self._before: dict[str, Tensor] = {}
        self.resume_from = None if run.checkpoint is None else str(run.checkpoint / _FILE)

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self._is_validated = trainer.state.fn == "fit" and not trainer.sanity_checking
        # Training cannot go on to the same numbers from a validation at an epoch's last step, but
        # it can from the end of that epoch.
        if self._is_validated and not self._by_epochs and not trainer.is_last_batch:
            # Lightning still has other metrics as they were when the epoch began.
            found = trainer.callback_metrics.items()
            self._report(trainer, {n: v for n, v in found if v is not self._before.get(n)})

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._is_validated or not trainer.enable_validation:
            self._report(trainer, trainer.callback_metrics)

    def _report(self, trainer: Trainer, metrics: Mapping[str, Tensor]) -> None:
        self._is_validated = False
        unit = trainer.current_epoch + 1 if self._by_epochs else trainer.global_step
        folder = self._run.folder / f"checkpoint-{unit}"
        trainer.save_checkpoint(folder / _FILE)
        try:
            self._run.report(unit, checkpoint=folder, **{n: float(v) for n, v in metrics.items()})
        except StopTrial:
            trainer.should_stop = True
        if trainer.is_global_zero:
            shutil.rmtree(folder)

    def state_dict(self) -> dict[str, Any]:
        return random_states()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_random_states(state_dict)
