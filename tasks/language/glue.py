"""GLUE: masked-language-model pre-training, judged by fine-tuning."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from models.fields import Rule, at_least, choice, settle, share
from tasks.base import Batch, DataError, Metric, TaskData, TrainingEvaluated, not_in_key
from tasks.language.fine_tuning import FineTuning
from tasks.language.glue_tasks import GLUE_TASKS, Examples, check, examples, metric_name, scored
from tasks.language.masked_text import MaskedText
from tasks.language.subwords import evenly_spaced
from tasks.metrics import accuracy
from tasks.sampling import stream_seed
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest, resolved

_VERSION: Final = "2"
_FINE_TUNING: Final = 4
"""Keeps fine-tuning's seeds apart from those of the pre-training's order and masks."""


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
        settle(
            self,
            data=lambda _, data: resolved(data),
            tasks=_tasks,
            # The first token, a separator, and one of each text with its separator.
            seq_len=at_least(5),
            dropout=share,
        )
        if self.lr == 0:
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
        """Return a hash of the settings and of all data's contents, wherever they lie."""
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
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "GlueData":
        """Read the text and all tasks, tokenising them if no trial has before."""
        pretraining = self.pretraining.open(
            data_seed=data_seed, sampling_seed=sampling_seed, batch_size=batch_size, device=device
        )
        return GlueData(self, pretraining, sampling_seed, device)

    def split(self, task: str) -> "Split":
        """Return a task's examples, tokenised.

        Raises:
            DataError: they are missing or unusable.
        """
        subwords = self.pretraining.subwords()
        train, *validation = (
            examples(self.data, task, split, subwords, self.seq_len)
            for split in ("train", *GLUE_TASKS[task].validation)
        )
        named = dict(zip(GLUE_TASKS[task].validation, validation, strict=True))
        return Split(_fewer(train, self.max_train), named)


def _tasks(name: str, tasks: Any) -> tuple[str, ...]:
    """Return names of tasks in GLUE's order: any order is the same study."""
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(f"{name} must name at least one task and none twice: {tasks!r}")
    rule: Rule = choice(*GLUE_TASKS)
    for task in tasks:
        rule(f"each of {name}", task)
    return tuple(task for task in GLUE_TASKS if task in tasks)


class Split(NamedTuple):
    """A task's examples: to fine-tune on, and to validate on by the name of their split."""

    train: Examples
    validation: Mapping[str, Examples]


class GlueData:
    """A text to pre-train on, opened for one trial, and the tasks to fine-tune on."""

    def __init__(
        self, task: Glue, pretraining: TaskData, sampling_seed: int, device: torch.device
    ) -> None:
        self._pretraining = pretraining
        self._splits = {name: task.split(name) for name in task.tasks}
        padding = task.pretraining.subwords().special("separator")
        self._tuning = FineTuning(
            task.epochs, task.batch_size, task.lr, task.dropout, padding, device
        )
        self._sampling_seed = sampling_seed
        self._every_report = task.every_report

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the text."""
        return self._pretraining.steps_per_epoch

    @property
    def eval_size(self) -> int:
        """Examples to validate on, of all tasks together."""
        return sum(
            len(part.labels)
            for split in self._splits.values()
            for part in split.validation.values()
        )

    def batches(self, start_step: int) -> Iterator[Batch]:
        """Yield pre-training's batches."""
        return self._pretraining.batches(start_step)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return pre-training's loss."""
        return self._pretraining.loss(model, batch)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return pre-training's metrics."""
        return self._pretraining.evaluate(model)

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return pre-training's metrics of training examples."""
        assert isinstance(self._pretraining, TrainingEvaluated)
        return self._pretraining.evaluate_training(model)

    def evaluate_further(self, model: nn.Module, *, is_last: bool) -> Mapping[str, float]:
        """Return the average and every score, where it is time to fine-tune, else nothing."""
        if not (is_last or self._every_report):
            return {}
        scores: dict[str, float] = {}
        counted = []
        for number, name in enumerate(GLUE_TASKS):
            if name not in self._splits:
                continue
            split, task = self._splits[name], GLUE_TASKS[name]
            seed = stream_seed(self._sampling_seed, _FINE_TUNING, number)
            predicted = self._tuning.predictions(
                model, task.num_classes, split.train, split.validation, seed
            )
            for part, answers in predicted.items():
                values = [
                    scored(score, answers, split.validation[part].labels) for score in task.scores
                ]
                names = (metric_name(name, part, score) for score in task.scores)
                scores.update(zip(names, values, strict=True))
                counted.append(values[0])
        return {"glue_average": fmean(counted), **scores}

    def warm_start(self, model: nn.Module) -> None:
        """Do what pre-training does."""
        longest = max(
            _longest(examples)
            for split in self._splits.values()
            for examples in (split.train, *split.validation.values())
        )
        self._tuning.check_encoder(model, longest)
        self._pretraining.warm_start(model)


def _longest(examples: Examples) -> int:
    """Return how many tokens the longest of the examples has."""
    return int(np.diff(examples.ends, prepend=0).max())


def _fewer(examples: Examples, limit: int | None) -> Examples:
    """Return at most so many of the examples, evenly spaced."""
    if limit is None or limit >= len(examples.labels):
        return examples
    rows = evenly_spaced(len(examples.labels), limit)
    ends = np.asarray(examples.ends)
    starts = np.concatenate(([0], ends[:-1]))
    pieces = [np.asarray(examples.tokens[starts[row] : ends[row]]) for row in rows]
    lengths = np.array([len(piece) for piece in pieces])
    return Examples(np.concatenate(pieces), lengths.cumsum(), np.asarray(examples.labels)[rows])
