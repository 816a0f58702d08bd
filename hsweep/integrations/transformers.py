"""Hugging Face Transformers: a callback for its ``Trainer``."""

import warnings
from numbers import Real
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hsweep.errors import UserError
from hsweep.integrations import counts_epochs
from hsweep.training.run import Run, StopTrial


class TransformersCallback(TrainerCallback):
    """Reports each evaluation with a checkpoint; those within an epoch only if the budget counts
    steps. Saves between them where that is of use (see ``Run.should_checkpoint``).

    Metrics have the Trainer's names (``eval_loss``); its timings are left out. ``resume_from`` is
    for ``Trainer.train(resume_from_checkpoint=...)``: training goes on to the same numbers.

    Args:
        run: the trial.

    Raises:
        UserError: a budget in seconds; as training begins, arguments that would leave out reports.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._by_epochs = run, counts_epochs(run)
        self._metrics: dict[str, float] = {}
        self._has_trained = False
        self.resume_from = None if run.checkpoint is None else str(run.checkpoint)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.eval_strategy == "no" or args.save_strategy == "best":
            raise UserError(
                "each evaluation is a report with a checkpoint, so eval_strategy must be 'epoch' or"
                " 'steps' and save_strategy 'no', 'epoch' or 'steps', not "
                f"{args.eval_strategy} and {args.save_strategy}"
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._has_trained = True
        control.should_save |= self._run.should_checkpoint

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not self._has_trained:
            return  # eval_on_start, of which a later step is not the place
        control.should_save = True
        for name, value in kwargs["metrics"].items():
            if not name.endswith(("epoch", "_runtime", "_time", "_per_second")):
                if isinstance(value, Real):
                    self._metrics[name] = float(value)
                else:
                    warnings.warn(f"{name} is no number, so no report has it", stacklevel=2)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        metrics, self._metrics = self._metrics, {}
        unit = (state.epoch or 0) if self._by_epochs else state.global_step
        folder = f"{args.output_dir}/checkpoint-{state.global_step}"
        if not metrics or unit != int(unit):
            self._run.save(folder)  # at StopTrial the Trainer would evaluate once more
            return
        try:
            self._run.report(int(unit), checkpoint=folder, **metrics)
        except StopTrial:
            control.should_training_stop = True
