"""GLUE's tasks and their scores."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

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


def metric_name(task: str, split: str, score: str) -> str:
    """Return what a score is called in reports, for example ``mrpc_f1``.

    MNLI's second validation set is ``mnli_mismatched_accuracy``.
    """
    middle = "mismatched_" if split.endswith("_mismatched") else ""
    return f"{task}_{middle}{score}"


def scored(score: Score, predicted: NDArray[np.generic], truth: NDArray[np.generic]) -> float:
    """Return a score of predictions, at most 1.

    Accuracy; F1 of class 1; Matthews's correlation (all of classes); Pearson's and Spearman's (of
    numbers). A score that is not defined, because predictions or truth do not vary, is 0: nothing
    was told apart.

    Args:
        score: which one.
        predicted: (n,).
        truth: (n,).
    """
    from scipy import stats

    from tasks.global_rng import seeded_globals

    with seeded_globals(0):  # the first import draws from a global generator
        from sklearn import metrics

    if score == "accuracy":
        return float(np.mean(predicted == truth))
    if score == "f1":
        return float(metrics.f1_score(truth, predicted, zero_division=0.0))
    if _constant(predicted) or _constant(truth):
        return 0.0
    if score == "matthews":
        return float(metrics.matthews_corrcoef(truth, predicted))
    correlation: Any = stats.pearsonr if score == "pearson" else stats.spearmanr
    return float(correlation(predicted, truth).statistic)


def _constant(values: NDArray[np.generic]) -> bool:
    return bool((values == values[0]).all())
