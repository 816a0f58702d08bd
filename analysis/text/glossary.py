"""The terms of the analysis and what they mean, for readers from outside."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


class Term(NamedTuple):
    """A term of art: its name, what it means, and a pattern that finds it in a text."""

    name: str
    meaning: str
    pattern: str

    @property
    def place(self) -> str:
        """Its identifier on a page."""
        return "word-" + re.sub(r"\W+", "-", self.name.lower()).strip("-")


TERMS: Final = (
    Term(
        "decade",
        "A factor of ten: an error that drops by 2 decades is a hundredth of what it was.",
        r"decades?",
    ),
    Term(
        "point",
        "A hundredth of an accuracy: from 0.31 to 0.97 are 66 points.",
        # Points of a space are counted before a colon or a verb; accuracies are not.
        r"(?<=\d )points?(?!:| x | in all| were| there)",
    ),
    Term(
        "nat",
        "The unit of a cross-entropy loss that uses the natural logarithm.",
        r"nats?",
    ),
    Term(
        "bracket",
        "The two tried values between which the error falls: (2, 3] means above 2, up to 3.",
        r"brackets?",
    ),
    Term(
        "95% set",
        "The values at which the fall may lie: redrawing the seeds puts it at one of them in 95 of "
        "100 draws.",
        r"\d+(?:\.\d+)?% sets?|h\*",
    ),
    Term(
        "interval",
        "The range in which the true value should lie, given how far repeated runs scatter: a 95% "
        "interval holds it in 95 of 100 studies.",
        r"(?:\d+(?:\.\d+)?% )?(?:Jeffreys )?intervals?",
    ),
    Term(
        "p value",
        "How often a result at least this strong would arise by chance alone; the smaller, the "
        "stronger the evidence.",
        r"p values?|p(?= [=<])",
    ),
    Term(
        "Holm",
        "A p value raised for the number of comparisons made, since one of many can pass by luck.",
        r"Holm(?: p)?",
    ),
    Term(
        "abrupt",
        "A fall on one step that is larger than the steady decline before it explains.",
        r"abrupt(?:ly|ness)?",
    ),
    Term(
        "seed",
        "The number that fixes a run's random choices; runs that differ in it alone show how much "
        "chance matters.",
        r"seeds?",
    ),
    Term(
        "lr",
        "The learning rate: how far each training step moves the weights.",
        r"lr",
    ),
    Term(
        "cell",
        "All runs with the same values of the axes in question.",
        r"cells?",
    ),
    Term(
        "margin",
        "How much worse still counts as equal; fixed before the runs.",
        r"margins?",
    ),
    Term(
        "baseline",
        "The shape that the others are compared with.",
        r"baselines?",
    ),
    Term(
        "settled",
        "Training for longer would not change the answer, as far as the runs at several budgets "
        "tell.",
        r"settled",
    ),
    Term(
        "power",
        "How likely a study of this size would find what is there.",
        r"power",
    ),
    Term(
        "front",
        "The shapes that no other one beats in both the metric and the cost.",
        r"(?:Pareto )?fronts?",
    ),
    Term(
        "P(front)",
        "How likely the shape lies on the front, given how far seeds scatter.",
        r"P\(front\)",
    ),
    Term(
        "hypervolume",
        "The area that a front encloses: one number for how good it is, the larger the better.",
        r"hypervolume",
    ),
    Term(
        "full budget",
        "As much training as the study gives a trial that is not stopped early.",
        r"full[- ]budget",
    ),
    Term(
        "slope",
        "How fast the error grows: 1 means ten times the error at ten times the length.",
        r"slopes?",
    ),
    Term(
        "condition number",
        "How unevenly a matrix stretches its inputs; the larger, the harder to train.",
        r"condition numbers?",
    ),
    Term(
        "over-dispersion",
        "How many times more the cells scatter than their seeds explain.",
        r"over-dispersion",
    ),
    Term(
        "AICc",
        "A score that weighs how well a law fits against how many numbers it needs.",
        r"AICc",
    ),
    Term(
        "scout",
        "A trial that only chooses a setting; no answer counts it.",
        r"scouts?",
    ),
)
"""Every term that pages explain."""

_EACH: Final = re.compile(
    "|".join(
        f"(?P<t{at}>(?<![\\w-])(?:{term.pattern})(?![\\w-]))" for at, term in enumerate(TERMS)
    ),
    re.IGNORECASE,
)


def terms_in(text: str) -> Iterator[tuple[str, Term | None]]:
    """Split a text into its parts, in order: a term where it first stands, with what it means, or
    what lies between, with None."""
    end, seen = 0, set()
    for found in _EACH.finditer(text):
        term = TERMS[int(str(found.lastgroup)[1:])]
        if term in seen:
            continue
        seen.add(term)
        yield text[end : found.start()], None
        yield found[0], term
        end = found.end()
    yield text[end:], None
