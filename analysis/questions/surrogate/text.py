"""What a surrogate expects, in words and tables."""

from collections.abc import Sequence

from analysis.questions.surrogate.result import Prediction, SurrogateResult
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    NONE,
    all_at_best,
    cost_text,
    cost_title,
    interval_text,
    number_text,
    percent_text,
)
from analysis.text.tables import Table

_NO_ERROR = 1e-6


def surrogate_sentence(result: SurrogateResult) -> str:
    predicts = result.verdict == "predicts"
    lead = "The surrogate predicts" if predicts else "The surrogate shows no skill"
    parts = [f"{lead}: {result.reason}.", *(map(prediction_sentence, result.predictions))]
    if result.verdict == "none":
        parts.append("It suggests no untried shape.")
    elif result.candidates:
        parts.append(_suggestions_sentence(result))
    if result.nuisance:
        parts.append(all_at_best(result.nuisance))
    return " ".join(parts)


def prediction_sentence(prediction: Prediction) -> str:
    warned = f"; this extrapolates ({prediction.why})" if prediction.extrapolates else ""
    return (
        f"For {prediction.label} it expects {interval_text(prediction.mean)}, and of a single run"
        f" {number_text(prediction.run.low)} to {number_text(prediction.run.high)}{warned}."
    )


def _suggestions_sentence(result: SurrogateResult) -> str:
    cost = cost_title(result.cost or "cost")
    margin = result.settings.margin
    worse = f"no worse than {result.reference}"
    if margin:
        worse += f" by {number_text(margin)}"
    looked = f"{result.candidates} untried shapes of fewer {cost}"
    if not result.suggestions:
        return f"Of {looked} within the range tried, none is expected to be {worse}."
    named = "; ".join(
        f"{found.label} ({cost_text(result.cost or '', found.cost)},"
        f" P = {number_text(found.p_no_worse, 2)})"
        for found in result.suggestions[:3]
    )
    return f"Of {looked}, it expects these to be {worse}, cheapest first: {named}."


def predictions_table(result: SurrogateResult, predictions: Sequence[Prediction]) -> Table:
    share = percent_text(result.settings.confidence)
    header = (
        "shape",
        f"expected {result.metric}",
        f"{share} interval",
        f"{share} interval of one run",
        cost_title(result.cost) if result.cost else "cost",
        f"P(no worse than {result.reference})",
        "extrapolates",
    )
    rows = tuple(
        (
            f"{found.label}{' (tried)' if found.tried else ''}",
            number_text(found.mean.estimate, 4),
            _ends(found.mean),
            _ends(found.run),
            cost_text(result.cost or "", found.cost) if found.cost is not None else NONE,
            number_text(found.p_no_worse, 2),
            found.why or "no",
        )
        for found in predictions
    )
    return Table(header, rows, suggestion_note(result))


def suggestion_note(result: SurrogateResult) -> str:
    how = (
        f"Costs of untried shapes are estimated from the tried ones (largest error when one is left"
        f" out: {_error_text(result.cost_error)}). "
        if result.cost_error is not None
        else ""
    )
    return (
        f"{how}Nothing was trained at these shapes, and a model may refuse some of them: plan and"
        " run them before relying on them."
    )


def _error_text(error: float) -> str:
    return "none" if error < _NO_ERROR else percent_text(error)


def left_out_table(result: SurrogateResult) -> Table:
    rows = tuple(
        (
            shape.label,
            number_text(shape.metric, 4),
            number_text(shape.left_out.estimate, 4),
            _ends(shape.left_out),
            "yes" if is_inside(shape.metric, shape.left_out) else "no",
        )
        for shape in result.shapes
    )
    header = (
        "shape",
        f"measured {result.metric}",
        "predicted from the others",
        f"{percent_text(result.settings.confidence)} interval",
        "inside",
    )
    return Table(header, rows, f"{result.reason[:1].upper()}{result.reason[1:]}.")


def is_inside(value: float, interval: Interval) -> bool:
    return interval.low <= value <= interval.high


def _ends(interval: Interval) -> str:
    return f"{number_text(interval.low, 4)} to {number_text(interval.high, 4)}"
