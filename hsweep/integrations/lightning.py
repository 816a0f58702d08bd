"""Lightning: a callback for its ``Trainer``."""

import shutil
from typing import Any

from lightning.pytorch import Trainer

from hsweep.integrations import counts_epochs
from hsweep.integrations.lightning_states import RandomStates
from hsweep.training.run import Run, StopTrial

_FILE = "lightning.ckpt"


class ReportCallback(RandomStates):
    """Reports what the module has logged, with a checkpoint in place of Lightning's own: after each
    epoch with a validation or, where the budget counts steps, after each validation.

    ``resume_from`` is for ``Trainer.fit(ckpt_path=...)``. Training goes on to the same numbers from
    an epoch's end; within one, only if the training data's loader has a ``state_dict``.

    Args:
        run: the trial.

    Raises:
        UserError: a budget in seconds.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._by_epochs, self._is_validated = run, counts_epochs(run), False
        self._before: dict[str, Any] = {}
        self.resume_from = None if run.checkpoint is None else str(run.checkpoint / _FILE)

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self._is_validated = trainer.state.fn == "fit" and not trainer.sanity_checking
        # At an epoch's last step it is the epoch's end from which Lightning resumes exactly.
        if self._is_validated and not self._by_epochs and not trainer.is_last_batch:
            # Lightning still has other metrics as they were when the epoch began.
            now, old = trainer.callback_metrics, self._before
            self._report(trainer, {n: now[n] for n in now if now[n] is not old.get(n)})

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._is_validated or not trainer.enable_validation:
            self._report(trainer, trainer.callback_metrics)

    def _report(self, trainer: Trainer, metrics: dict[str, Any]) -> None:
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
