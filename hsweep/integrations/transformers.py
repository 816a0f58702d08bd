"""Hugging Face Transformers: a callback for its ``Trainer``."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hsweep.errors import UserError
from hsweep.integrations import counts_epochs
from hsweep.training.own.run import Run, StopTrial


class ReportCallback(TrainerCallback):
    """Reports each evaluation, with the checkpoint that is saved after it; where the budget counts
    epochs, an evaluation within an epoch is not reported.

    Metrics have the Trainer's names (``eval_loss``); its timings are left out. ``resume_from`` is
    for ``Trainer.train(resume_from_checkpoint=...)``: training goes on to the same numbers.

    Args:
        run: the trial.

    Raises:
        UserError: a budget in seconds or, when training begins, arguments without evaluation or
            with ``save_strategy="best"``.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._by_epochs = run, counts_epochs(run)
        self._metrics: dict[str, float] = {}
        self.resume_from = None if run.checkpoint is None else str(run.checkpoint)

    def on_train_begin(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        if args.eval_strategy == "no" or args.save_strategy == "best":
            raise UserError(
                "each evaluation is a report with a checkpoint, so eval_strategy must be 'epoch' or"
                " 'steps' and save_strategy 'no', 'epoch' or 'steps', not "
                f"{str(args.eval_strategy)!r} and {str(args.save_strategy)!r}"
            )

    def on_evaluate(self, *args: Any, metrics: dict[str, Any], **_: Any) -> None:
        control: TrainerControl = args[2]
        control.should_save = True
        timings = ("epoch", "_runtime", "_time", "_per_second")
        self._metrics |= {n: v for n, v in metrics.items() if not n.endswith(timings)}

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        metrics, self._metrics = self._metrics, {}
        unit = state.epoch if self._by_epochs else state.global_step
        if metrics and unit == int(unit):
            try:
                folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                self._run.report(int(unit), checkpoint=folder, **metrics)
            except StopTrial:
                control.should_training_stop = True
