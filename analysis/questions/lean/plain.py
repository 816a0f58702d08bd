"""What a lean comparison says to readers who do not know the statistics."""

from analysis.questions.lean.budget_text import budgets_sentence
from analysis.questions.lean.result import LeanResult
from analysis.questions.lean.text import (
    baseline_losses,
    chosen_row,
    lean_sentence,
    savings_text,
    settings_at_edge,
    what_it_takes,
)
from analysis.text.numbers import (
    MINUS,
    all_at_best,
    at_fixed_rate,
    chance_text,
    number_text,
    percent_text,
    sentence,
)


def plain_lean(result: LeanResult) -> list[str]:
    """Return the answer in everyday words: first what was found, then what qualifies it."""
    found = [plain_headline(result)]
    chosen = chosen_row(result)
    if chosen is not None:
        low, high = sorted((chosen.ci.low, chosen.ci.high))
        found += [
            f"As well means worse by less than {number_text(result.margin)} in {result.metric}, "
            f"the margin. Measured, it is {_better(chosen.diff)} on average "
            f"({percent_text(result.settings.confidence)} interval: {_better(low)} to "
            f"{_better(high)}; {chosen.n} seeds{chosen.lost.behind}).",
        ]
        if chosen.p_holm is not None:
            found += [
                f"Were it worse by the margin, {chance_text(chosen.p_holm)} such studies would "
                "make it look this good."
            ]
    elif result.verdict == "undecided":
        found += [what_it_takes(result)]
    if result.table:
        at_best = all_at_best(result.nuisance) if result.nuisance else ""
        found += [
            at_best or at_fixed_rate(result.fixed_rate, "All runs had"),
            sentence(result.doubt),
            settings_at_edge(result),
            baseline_losses(result),
            budgets_sentence(result),
        ]
    return [text.strip() for text in found if text.strip()]


def plain_headline(result: LeanResult) -> str:
    """Return what was found in one sentence."""
    chosen = chosen_row(result)
    if chosen is not None:
        return f"{chosen.label} does as well as {result.baseline_label}{savings_text(chosen)}."
    number = len(result.table) + len(result.stopped)
    tried = (
        "the cheaper shape tried" if number == 1 else f"any of the {number} cheaper shapes tried"
    )
    by_more = f"by more than {number_text(result.margin)} in {result.metric}"
    if result.verdict == "excluded":
        each = "The cheaper shape" if number == 1 else f"Each of the {number} cheaper shapes"
        return f"{each} tried is worse than {result.baseline_label} {by_more}."
    if result.verdict == "undecided":
        return (
            f"The runs do not tell yet whether {tried} does as well as {result.baseline_label}, or "
            f"is worse {by_more}."
        )
    return lean_sentence(result)


def _better(difference: float) -> str:
    size = number_text(abs(difference)).removeprefix(MINUS)
    return f"{size} {'worse' if difference < 0 else 'better'}"
