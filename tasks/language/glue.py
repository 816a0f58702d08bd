"""GLUE: masked-language-model pre-training, judged by fine-tuning."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import DataError, Metric, TaskData, not_in_key
from tasks.language.glue_tasks import GLUE_TASKS, metric_name
from tasks.language.masked_text import MaskedText
from tasks.metrics import accuracy
from tasks.settings import at_least, one_of, settle, share, whole_number, yes_or_no
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest, resolved

if TYPE_CHECKING:
    import torch

_VERSION = "2"


@dataclass(frozen=True, slots=True)
class Glue:
    """Pre-train as ``pretraining`` says, and fine-tune copies of the model on tasks of GLUE.

    Pre-training is what a trial's budget buys. At its last report the model is copied for each
    task, fine-tuned and scored, as paper L ("Leaner Transformers: More Heads, Less Depth", arXiv
    2505.20802, table 1) and Cramming do: five epochs, batches of 16, AdamW (betas 0.9 and 0.98,
    eps 1e-6, no weight decay) at 4e-5, which rises over the first 10 % of the steps and falls to 0
    as a cosine, at most 128 tokens, and dropout. A linear map with tanh pools the first token to
    1,024 numbers, from which another reads classes or, for STS-B, the score. One setting serves
    all tasks, and everything follows from the sampling seed.

    Batches, losses and what a model returns are those of the pre-training. A model also has
    ``features(tokens, mask)``: (batch, tokens) of int64 and of booleans that say which are no
    padding, to (batch, tokens, width).

    Attributes:
        pretraining: text, tokenizer and masks.
        data: a folder in the hub layout of ``nyu-mll/glue``, a configuration for each task, or,
            when the environment variable HSWEEP_HUB is 1, a name on the Hugging Face hub.
        tasks: which tasks; any of the nine, in any number.
        every_report: fine-tune at every report, not at the last one alone. Whatever stops trials
            by these scores needs it.
        epochs: passes over a task's training examples.
        batch_size: examples a step.
        lr: peak learning rate.
        seq_len: most tokens of an example; of two texts the longer one is cut first.
        dropout: rate of every dropout of the model while it is fine-tuned, that of attention
            weights included, and of the pooled token's.
        max_train: fine-tune on this many examples of a task only, evenly spaced.

    Raises:
        ValueError: a setting out of its range, or an unknown task.
    """

    pretraining: MaskedText
    data: str = not_in_key("nyu-mll/glue")
    tasks: tuple[str, ...] = tuple(GLUE_TASKS)
    every_report: bool = False
    epochs: int = 5
    batch_size: int = 16
    lr: float = 4e-5
    seq_len: int = 128
    dropout: float = 0.1
    max_train: int | None = None

    name = "glue"

    def __post_init__(self) -> None:
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tasks must name at least one task and none twice: {self.tasks!r}")
        for task in self.tasks:
            one_of("each of tasks", task, tuple(GLUE_TASKS))
        settle(
            self,
            {
                "data": lambda _, data: resolved(data),
                # Any order is the same study.
                "tasks": lambda _, tasks: tuple(name for name in GLUE_TASKS if name in tasks),
                "every_report": yes_or_no,
                **dict.fromkeys(("epochs", "batch_size", "max_train"), whole_number),
                # The first token, a separator, and one of each text with its separator.
                "seq_len": at_least(5),
                "dropout": share,
            },
        )
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be a positive number, not {self.lr!r}")

    @property
    def vocab_size(self) -> int:
        """Tokens that a model tells apart, those of the pre-training."""
        return self.pretraining.vocab_size

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The average (main) and each task's scores, all after fine-tuning, and those of
        pre-training.

        The average is that of paper L: the mean over the tasks' first scores, MNLI's two
        validation sets counted apart.
        """
        return (
            accuracy("glue_average", "mean of the tasks' first scores"),
            *(
                accuracy(metric_name(task, split, score), f"{score} on {task}'s split {split}")
                for task in self.tasks
                for split in GLUE_TASKS[task].validation
                for score in GLUE_TASKS[task].scores
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
        """Read the text and all tasks, tokenising them if no trial has before."""
        from tasks.language.fine_tuning import FineTuning
        from tasks.language.glue_data import GlueData, read_split

        pretraining = self.pretraining.open(
            data_seed=data_seed, sampling_seed=sampling_seed, batch_size=batch_size, device=device
        )
        subwords = self.pretraining.subwords()
        tuning = FineTuning(self, subwords.special("separator"), device)
        splits = {
            task: read_split(self.data, task, subwords, self.seq_len, self.max_train)
            for task in self.tasks
        }
        return GlueData(pretraining, splits, tuning, sampling_seed, every_report=self.every_report)
