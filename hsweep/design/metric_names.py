"""Goal (smaller or larger is better) and scale of a metric, and whether a column is a cost, guessed
from its name."""

import re
from typing import Final

from hsweep.design.scales import Goal, Scale

_SHARES: Final = r".*acc\d*|.*accuracy\d*|(?:val|test|train|eval)?top\d+"
_WORDS: Final[dict[Scale, str]] = {
    "error": r".*errors?|.*mse|.*perplexity|err|ppl|mae|wer|cer",
    "loss": r".*loss|losses|.*nll|.*entropy|xent|bpb|bpc",
    "accuracy": _SHARES + r"|(?:micro|macro)?f1|.*auc|auroc|.*mrr\d*|.*bleu\d*|ndcg\d*|m?iou",
}
_TURNED: Final = {"neg", "negative", "minus", "inv", "inverse"}
"""Words after which a larger error may be the better one."""

_COSTS: Final = (
    r"n?params?|parameters?|weights?|.*bytes|[kmgt]i?b|mem(?:ory)?|v?ram|.*seconds?|secs?|m?s|minutes?"
    r"|hours?|time|latency|[kmgt]?(?:flops?|macs?)|energy|k?wh|joules?|costs?|price|usd|dollars?|size"
    r"|steps?|epochs?|iterations?|updates|tokens?|examples|samples"
)
_RATES: Final = r"per_?(m?s|secs?|seconds?|minutes?|hours?)(?![a-z])|/m?s(?![a-z])|throughput|speed"


def goal_of(metric: str) -> Goal | None:
    """Return whether a metric of this name is minimised or maximised.

    None for a name that has no known word, or words of both goals (``top1_error``).
    """
    scales = _scales(metric)
    is_share = "accuracy" in scales
    if not scales or (is_share and len(scales) > 1):
        return None
    return "max" if is_share else "min"


def scale_of(metric: str, goal: Goal) -> Scale:
    """Return the scale of a metric of this name and goal: a metric that is minimised is an error,
    unless its name says that it is a loss alone."""
    if goal == "max":
        return "accuracy"
    return "loss" if _scales(metric) == {"loss"} else "error"


def is_cost(name: str) -> bool:
    """Whether the name of a column says that less of it is better: a quantity that is paid, and
    not one a second."""
    if re.search(_RATES, name.lower()):
        return False
    return any(re.fullmatch(_COSTS, word) for word in _words(name))


def counts_examples(metric: str) -> bool:
    """Whether a metric of this name is the share of examples that are answered correctly."""
    return any(re.fullmatch(_SHARES, word) for word in _words(metric))


def _scales(metric: str) -> set[Scale]:
    words = _words(metric)
    if _TURNED & words or re.match(r"\s*1\s*[-\N{MINUS SIGN}]", metric):
        return set()
    return {
        scale
        for scale, pattern in _WORDS.items()
        if any(re.fullmatch(pattern, word) for word in words)
    }


def _words(metric: str) -> set[str]:
    name = re.sub(r"(?<=[a-z\d])(?=[A-Z])", " ", metric).lower()
    return {re.sub(r"[^a-z\d]", "", word) for word in re.findall(r"[a-z]+(?:[-_@ ]?\d+)?", name)}
