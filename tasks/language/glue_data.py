"""GLUE opened for one trial: pre-training, and fine-tuning at reports."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from tasks.base import Batch, TaskData, TrainingEvaluated
from tasks.language.fine_tuning import FineTuning
from tasks.language.glue_tasks import GLUE_TASKS, metric_name, scored
from tasks.language.glue_texts import Examples, examples
from tasks.language.subwords import Subwords
from tasks.language.token_files import evenly_spaced
from tasks.sampling import stream_seed

_FINE_TUNING = 4
"""Keeps fine-tuning's seeds apart from those of the pre-training's order and masks."""


class Split(NamedTuple):
    """A task's examples: to fine-tune on, and to validate on by the name of their split."""

    train: Examples
    validation: Mapping[str, Examples]


def read_split(
    data: str, task: str, subwords: Subwords, seq_len: int, max_train: int | None
) -> Split:
    """Return a task's examples, tokenised.

    Raises:
        DataError: they are missing or unusable.
    """
    train, *validation = (
        examples(data, task, split, subwords, seq_len)
        for split in ("train", *GLUE_TASKS[task].validation)
    )
    named = dict(zip(GLUE_TASKS[task].validation, validation, strict=True))
    return Split(_fewer(train, max_train), named)


class GlueData:
    """A text to pre-train on, and the tasks to fine-tune on.

    Args:
        pretraining: the text, opened.
        splits: the examples by task.
        tuning: how to fine-tune.
        sampling_seed: decides what is drawn while fine-tuning.
        every_report: fine-tune at every report, not at the last one alone.
    """

    def __init__(
        self,
        pretraining: TaskData,
        splits: Mapping[str, Split],
        tuning: FineTuning,
        sampling_seed: int,
        *,
        every_report: bool,
    ) -> None:
        self._pretraining = pretraining
        self._splits = splits
        self._tuning = tuning
        self._sampling_seed = sampling_seed
        self._every_report = every_report

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
            for part, found in predicted.items():
                values = [
                    scored(score, found, split.validation[part].labels) for score in task.scores
                ]
                names = (metric_name(name, part, score) for score in task.scores)
                scores.update(zip(names, values, strict=True))
                counted.append(values[0])
        return {"glue_average": fmean(counted), **scores}

    def warm_start(self, model: nn.Module) -> None:
        """Do what pre-training does.

        Raises:
            ValueError: a model that cannot be pre-trained, or not be fine-tuned on the longest of
                the examples, before any time is spent on it.
        """
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


def _fewer(examples: Examples, most: int | None) -> Examples:
    """Return at most so many of the examples, evenly spaced."""
    if most is None or most >= len(examples.labels):
        return examples
    rows = evenly_spaced(len(examples.labels), most)
    ends = np.asarray(examples.ends)
    starts = np.concatenate(([0], ends[:-1]))
    pieces = [np.asarray(examples.tokens[starts[row] : ends[row]]) for row in rows]
    lengths = np.array([len(piece) for piece in pieces])
    return Examples(np.concatenate(pieces), lengths.cumsum(), np.asarray(examples.labels)[rows])
