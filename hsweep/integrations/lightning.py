"""Lightning: a callback for its ``Trainer``."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from hsweep.integrations import counts_epochs
from hsweep.training.process_state import random_states, set_random_states
from hsweep.training.run import Run, StopTrial

_FILE = "lightning.ckpt"


class LightningCallback(Checkpoint):
    """Reports the metrics that the module has logged, and writes the checkpoints in Lightning's
    place: after each epoch that has a validation or, if the budget counts steps, after each
    validation, and between them where that is of use (see ``Run.should_checkpoint``).

    ``resume_from`` is for ``Trainer.fit(ckpt_path=...)``. Training goes on to the same numbers from
    an epoch's end; within one, only if the training data's loader has a ``state_dict``. The states
    of the process's random generators, which Lightning does not keep, are in the checkpoints.

    Args:
        run: the trial.

    Raises:
        UserError: a budget in seconds.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._by_epochs, self._is_validated = run, counts_epochs(run), False
        self._before: dict[str, Any] = {}
        self._loaded: dict[str, Any] | None = None
        self.resume_from = None if run.checkpoint is None else str(run.checkpoint / _FILE)

    def state_dict(self) -> dict[str, Any]:
        return random_states(self._run.device)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict
        # Lightning makes the first epoch's iterator before it calls any other hook.
        set_random_states(state_dict, self._run.device)

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        loop = trainer.fit_loop
        # Where Lightning counts steps it makes a second one now, and uses that.
        if self._loaded and not (loop.is_resuming or loop.epoch_loop.restarting):
            set_random_states(self._loaded, self._run.device)
        self._loaded = None

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        # At an epoch's last step it is the epoch's end from which Lightning resumes exactly.
        if not trainer.is_last_batch:
            self._offer(trainer)

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self._is_validated = trainer.state.fn == "fit" and not trainer.sanity_checking
        if self._is_validated and not self._by_epochs and not trainer.is_last_batch:
            # Lightning still has other metrics as they were when the epoch began.
            metrics, before = trainer.callback_metrics, self._before
            new = {n: value for n, value in metrics.items() if value is not before.get(n)}
            self._report(trainer, new)

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._is_validated or not trainer.enable_validation:
            self._report(trainer, trainer.callback_metrics)
        else:
            self._offer(trainer)

    def _offer(self, trainer: Trainer) -> None:
        if self._run.should_checkpoint:
            with self._saved(trainer) as folder:
                self._run.save(folder)  # at StopTrial Lightning would validate once more

    def _report(self, trainer: Trainer, metrics: dict[str, Any]) -> None:
        self._is_validated = False
        unit = trainer.current_epoch + 1 if self._by_epochs else trainer.global_step
        values = {name: float(value) for name, value in metrics.items()}
        with self._saved(trainer) as folder:
            try:
                self._run.report(unit, checkpoint=folder, **values)
            except StopTrial:
                trainer.should_stop = True

    @contextlib.contextmanager
    def _saved(self, trainer: Trainer) -> Iterator[Path]:
        folder = self._run.folder / "checkpoint"
        trainer.save_checkpoint(folder / _FILE)
        try:
            yield folder
        finally:
            if trainer.is_global_zero:
                shutil.rmtree(folder)
