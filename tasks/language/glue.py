"""GLUE: masked-language-model pre-training, judged by fine-tuning."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import DataError, Metric, TaskData
from tasks.language.glue_config import GLUE_TASKS, GlueConfig, metric_name
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest

if TYPE_CHECKING:
    import torch

_VERSION = "2"


@dataclass(frozen=True, slots=True)
class Glue(GlueConfig):
    """The task that ``GlueConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``glue``."""
        return "glue"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The average (main) and each task's scores, all after fine-tuning, and those of
        pre-training.

        The average is that of paper L: the mean over the tasks' first scores, MNLI's two
        validation sets counted apart.
        """
        return (
            Metric("glue_average", "max", "accuracy", "mean of the tasks' first scores"),
            *(
                Metric(metric, "max", "accuracy", f"{score} on {task}'s split {split}")
                for task in self.tasks
                for split in GLUE_TASKS[task].validation
                for score in GLUE_TASKS[task].scores
                for metric in [metric_name(task, split, score)]
            ),
            *self.pretraining.metrics,
        )

    def fingerprint(self) -> str:
        """Return a hash of the settings and of all data's contents, wherever they lie.

        Raises:
            DataError: the text, the tokenizer or a task is missing or unusable; the message names
                all such tasks, and of each a split, a column or a row.
        """
        from tasks.language.glue_texts import check

        pretraining = self.pretraining.fingerprint()
        if self.pretraining.tokenizer is not None:
            self.pretraining.subwords().special("first")
        problems = []
        for task in self.tasks:
            try:
                check(self.data, task)
            except DataError as error:
                problems.append(str(error))
        if problems:
            raise DataError("; ".join(dict.fromkeys(problems)))
        contents = [content_digest(self.data, task) for task in self.tasks]
        return definition_digest(self, _VERSION, pretraining, *contents, leave_out=["pretraining"])

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the text and all tasks, tokenising them if no trial has before.

        Raises:
            DataError: something is missing or unusable; the message names split and row.
            ValueError: a batch size below 1.
        """
        from tasks.language.glue_data import GlueData

        pretraining = self.pretraining.open(
            data_seed=data_seed, sampling_seed=sampling_seed, batch_size=batch_size, device=device
        )
        return GlueData(self, pretraining, sampling_seed, device)
