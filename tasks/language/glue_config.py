"""The settings of the task of GLUE, its tasks and scores, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tasks.base import not_in_key
from tasks.language.masked_text import MaskedText
from tasks.settings import one_of, share, whole_number, yes_or_no
from tasks.sources.hub import resolved

if TYPE_CHECKING:
    pass

Score = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]


@dataclass(frozen=True, slots=True)
class GlueTask:
    """One of GLUE's tasks (Wang et al. 2019, arXiv 1804.07461, table 1).

    Attributes:
        columns: the text, or the two texts.
        num_classes: classes; 0 for a number to predict.
        scores: GLUE's scores for it, the first of which counts in the average.
        validation: splits to validate on.
    """

    columns: tuple[str, ...]
    num_classes: int
    scores: tuple[Score, ...]
    validation: tuple[str, ...] = ("validation",)


GLUE_TASKS: Final = {
    "cola": GlueTask(("sentence",), 2, ("matthews",)),
    "sst2": GlueTask(("sentence",), 2, ("accuracy",)),
    "mrpc": GlueTask(("sentence1", "sentence2"), 2, ("f1", "accuracy")),
    "qqp": GlueTask(("question1", "question2"), 2, ("f1", "accuracy")),
    "stsb": GlueTask(("sentence1", "sentence2"), 0, ("pearson", "spearman")),
    "mnli": GlueTask(
        ("premise", "hypothesis"), 3, ("accuracy",), ("validation_matched", "validation_mismatched")
    ),
    "qnli": GlueTask(("question", "sentence"), 2, ("accuracy",)),
    "rte": GlueTask(("sentence1", "sentence2"), 2, ("accuracy",)),
    "wnli": GlueTask(("sentence1", "sentence2"), 2, ("accuracy",)),
}
EIGHT_TASKS: Final = tuple(name for name in GLUE_TASKS if name != "wnli")
"""Those that paper L and Cramming report: WNLI's splits contradict each other."""


@dataclass(frozen=True, slots=True)
class GlueConfig:
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", resolved(self.data))
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tasks must name at least one task and none twice: {self.tasks!r}")
        for task in self.tasks:
            one_of("each of tasks", task, tuple(GLUE_TASKS))
        # Any order is the same study.
        ordered = tuple(name for name in GLUE_TASKS if name in self.tasks)
        object.__setattr__(self, "tasks", ordered)
        object.__setattr__(self, "every_report", yes_or_no("every_report", self.every_report))
        for field in ("epochs", "batch_size"):
            object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        # The first token, a separator, and one of each text with its separator.
        seq_len = whole_number("seq_len", self.seq_len, minimum=5)
        object.__setattr__(self, "seq_len", seq_len)
        if self.max_train is not None:
            object.__setattr__(self, "max_train", whole_number("max_train", self.max_train))
        object.__setattr__(self, "dropout", share("dropout", self.dropout))
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be a positive number, not {self.lr!r}")

    @property
    def vocab_size(self) -> int:
        """Tokens that a model tells apart, those of the pre-training."""
        return self.pretraining.vocab_size


def metric_name(task: str, split: str, score: str) -> str:
    """Return what a score is called in reports, for example ``mrpc_f1``.

    MNLI's second validation set is ``mnli_mismatched_accuracy``.
    """
    middle = "mismatched_" if split.endswith("_mismatched") else ""
    return f"{task}_{middle}{score}"
