"""GLUE's scores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.language.glue_tasks import Score

Numbers = NDArray[np.generic]


def scored(score: Score, predicted: Numbers, truth: Numbers) -> float:
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


def _constant(values: Numbers) -> bool:
    return bool((values == values[0]).all())
