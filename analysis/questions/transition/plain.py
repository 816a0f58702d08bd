"""What a transition says to readers who do not know the statistics."""

from analysis.questions.transition.budget_text import budgets_sentence
from analysis.questions.transition.result import TransitionResult
from analysis.questions.transition.text import (
    at_settings,
    cells_with_losses,
    transition_sentence,
)
from analysis.text.numbers import (
    chance_text,
    fold_text,
    metric_title,
    number_text,
    percent_text,
)
from analysis.values import Number
from hsweep.design.labels import listed

_FALLS = ("transition", "jump_only", "threshold", "plateau", "suggested")


def plain_transition(result: TransitionResult) -> list[str]:
    """Return the answer in everyday words: first what was found, then what qualifies it."""
    settled = budgets_sentence(result)
    if result.verdict not in _FALLS or result.bracket is None or result.drop is None:
        found = [transition_sentence(result), settled]
    else:
        low, high = result.bracket
        found = [
            _headline(result, low, high),
            *_place(result),
            *_doubt(result),
            *_growth(result),
            at_settings(result),
            cells_with_losses(result),
            settled,
        ]
    return [text.strip() for text in found if text.strip()]


def _headline(result: TransitionResult, low: Number, high: Number) -> str:
    x, error = result.x, metric_title(result.metric, result.scale)
    sizes = {
        "loss": f"{number_text(result.drop)} nats lower",
        "error": fold_text(result.drop or 0.0),
        "accuracy": f"{number_text(result.drop_points)} points higher",
    }
    shown = result.metric if result.scale == "accuracy" else error
    fall = f"{shown} is {sizes[result.scale]} than at {number_text(low)}"
    if result.verdict == "suggested":
        return f"The error may collapse at {x} = {number_text(high)}, which is not tested: {fall}."
    if result.verdict == "plateau":
        return f"From {x} = {number_text(high)} on, more {x} gains little: there {fall}."
    verb = "collapses" if result.verdict == "transition" else "falls"
    return f"The error {verb} at {x} = {number_text(high)}: there {fall}."


def _place(result: TransitionResult) -> list[str]:
    if result.noise_gap:
        return [f"How far seeds scatter is not measured: {result.noise_gap}."]
    if not result.h_set:
        return []
    confidence = percent_text(result.settings.set_mass)
    if len(result.h_set) == 1:
        return [f"Other seeds would put it at the same place ({confidence} confidence)."]
    places = listed([number_text(value) for value in result.h_set], "or")
    return [f"With other seeds it may lie at {result.x} = {places} ({confidence} confidence)."]


def _doubt(result: TransitionResult) -> list[str]:
    if result.verdict == "plateau":
        return [
            "With one value below it, a sudden fall cannot be told from gains that shrink steadily."
        ]
    if not result.abrupt_testable or result.p_abrupt is None:
        return ["Whether the fall is a sudden one cannot be tested with so few values below it."]
    if result.noise_gap:
        return []
    chance = f"without one, {chance_text(result.p_abrupt)} such studies would show a fall as abrupt"
    if result.verdict == "threshold":
        return [f"That the fall is a sudden one is not shown: {chance}."]
    return [f"The fall is a sudden one: {chance}."]


def _growth(result: TransitionResult) -> list[str]:
    growth, by = result.gamma_above, result.by
    if by is None or growth is None:
        return []
    if growth.high <= result.limits.max_growth:
        return [f"From there on, a larger {by} does not make the error larger."]
    if growth.low > result.limits.max_growth:
        return [f"From there on, a larger {by} still makes the error larger."]
    return [f"Whether a larger {by} makes the error larger from there on is not clear yet."]
