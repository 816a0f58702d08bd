"""Which is the leanest shape that is no worse than the baseline? A race for it.

The cheaper half of the shapes have one run at first, which tells whom to try first and no more;
then those that may still win have 3, 5 and 8, and the baseline, with which all are compared, has
more. After each of these looks

- a shape is **established** by a one-sided test of "worse by the margin or more", at its look's
  share of alpha (`_SHARES`; Bonferroni over the looks) and by Holm over all cheaper shapes,
  raced or not (Maurer and Bretz 2013 for group-sequential tests). Dearer shapes then leave;
- a shape **leaves** once it is unlikely to be established by its last look, given its runs so far.
  Leaving spends no alpha: it costs power alone;
- the cheapest go on: so many that one of them is likely to be established, and the others wait. The
  dearer half begin where it is not even as likely as not.

Where none is left that could be established, those that have left go on if all of them may be shown
to be worse by more than the margin, again by Holm and with alpha divided over the looks.

A test is that of the grid (`analysis.questions.lean.fit`): each shape has its own variance. Which
shapes go on is chosen by those of `analysis.rounds.looks`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from scipy import special

from analysis.questions.lean.limits import BASELINE_MORE, RACE_SEEDS
from analysis.rounds.design import Design, Round
from analysis.rounds.looks import Looks, Run
from analysis.statistics.moderated import error_of_difference
from hsweep.design.scales import ALPHA

Outcome = Literal["established", "excluded", "undecided", "left early", "not raced", "failed"]

SEEDS: Final = (1, 3, 5, RACE_SEEDS)
"""Runs of a shape at each look."""
BASELINE_SEEDS: Final = (3, 5, 8, RACE_SEEDS + BASELINE_MORE)
"""Those of the baseline."""
_SHARES: Final[dict[Outcome, tuple[float, ...]]] = {
    "established": (0.0, 0.1, 0.3, 0.6),
    "excluded": (0.0, 0.2, 0.3, 0.5),
}
"""Share of alpha that each look has."""
_SIGN: Final[dict[Outcome, int]] = {"established": 1, "excluded": -1}
_HOPELESS: Final = (0.01, 0.1, 0.1, 0.1)
"""A shape leaves at a look where its chance to be established is below this."""
_UNSHOWN: Final = 0.03
"""Nor is it tried to exclude all, where the chance to exclude one is below this."""
_LEADING: Final = 0.9
"""Shapes wait where one of the cheaper ones is established with this chance."""
_LIKELY: Final = 0.5
"""The same of shapes that have no run yet."""


Comparison = tuple[int, ...]
"""A baseline and the shapes that are compared with it, which cost less, the cheapest first."""


@dataclass(slots=True)
class Standing:
    """What the race has shown of a shape.

    Attributes:
        look: the last that it had; -1 for none.
        seeds: its runs that count.
        diff: how much better it is than the baseline, with its standard error and degrees of
            freedom, by all runs of the race; these are NaN of a single run, or without a spread.
        p: one-sided p value of "worse by the margin or more", and ``p_worse`` of "worse by no
            more", both after Holm and for all looks; 1 where they were not tested.
        outcome: ``established`` and ``excluded`` are tested; ``left early`` was unlikely to be
            established, ``not raced`` had cheaper ones before it, ``failed`` has too few values,
            ``undecided`` has had all its runs.
    """

    shape: int
    look: int = -1
    seeds: int = 0
    diff: float = math.nan
    se: float = math.nan
    df: float = math.nan
    p: float = 1.0
    p_worse: float = 1.0
    outcome: Outcome = "not raced"


Raced = tuple[Standing, ...]
"""The end of a race: where each of the cheaper shapes stands, the cheapest first."""


def race(comparisons: Sequence[Comparison], margin: float) -> Design[Run, tuple[Raced, ...]]:
    """Ask for the runs that find the leanest shape of each comparison; return how these ended.

    Comparisons are raced side by side, each at its part of alpha.

    Args:
        margin: how much worse still counts as equal, in the unit of the values, of which more is
            better.
    """
    races = [_Race(each, margin, ALPHA / len(comparisons)) for each in comparisons]
    while asked := [run for each in races for run in each.runs()]:
        why = "; ".join(dict.fromkeys(each.why for each in races if each.why))
        got = yield Round("race", tuple(asked), why)
        for run in asked:
            next(each for each in races if run.shape in each.looks).take(run, got[run])
    return tuple(each.end() for each in races)


class _Race(Looks):
    """One comparison."""

    def __init__(self, comparison: Comparison, margin: float, alpha: float) -> None:
        self.base, *cheaper = comparison
        self.margin, self.alpha = margin, alpha
        self.standings = {shape: Standing(shape) for shape in cheaper}
        sizes = {self.base: BASELINE_SEEDS, **dict.fromkeys(cheaper, SEEDS)}
        super().__init__(sizes, "which shapes may be no worse?" if cheaper else "")
        self.looks = dict.fromkeys((self.base, *cheaper[: math.ceil(len(cheaper) / 2)]), 0)

    def end(self) -> Raced:
        """Return where each shape stands by all runs: since it left, the baseline has had more."""
        return tuple(
            replace(each, **self._gap(k)) if each.seeds else each
            for k, each in self.standings.items()
        )

    def _gap(self, k: int) -> dict[str, Any]:
        own, base = pair = [self.samples[k], self.samples[self.base]]
        variances = [each.own / each.size for each in pair]
        se, df = error_of_difference(variances, [each.size - 1 for each in pair], self.usual)
        return {"seeds": own.size, "diff": own.mean - base.mean, "se": se, "df": df}

    def _look(self) -> None:
        """Test the shapes that have come to a further look, and choose those that go on."""
        raced = [each for k, each in self.samples.items() if k != self.base and each.size > 1]
        self.usual = float(np.median([each.own / each.size for each in raced] or [0.0]))
        for k, each in self.standings.items():
            if each.look != self.looks.get(k, each.look):
                self.standings[k] = self._standing(k)
        self._step_down("established")
        self._step_down("excluded")
        going_on, self.why = self._next()
        for k in going_on:
            self.looks[k] = self.looks.get(k, -1) + 1
            self.looks[self.base] = max(self.looks[self.base], self.looks[k])

    def _standing(self, k: int) -> Standing:
        own, base, look = self.samples.get(k), self.samples.get(self.base), self.looks[k]
        if own is None or base is None or base.size < 2 or own.size < min(2, SEEDS[look]):
            return Standing(k, look, outcome="failed")
        outcome: Outcome = "undecided" if look == len(SEEDS) - 1 else "not raced"
        return Standing(k, look, outcome=outcome, **self._gap(k))

    def _step_down(self, outcome: Outcome) -> None:
        """Establish or exclude shapes by Holm's steps over all of them."""
        highest, left, tests = 0.0, self._untold(outcome), []
        for k, each in self.standings.items():
            share = _SHARES[outcome][each.look]
            if each.outcome not in (outcome, "failed") and share and each.se > 0:
                t = _SIGN[outcome] * (each.diff + self.margin) / each.se
                tests.append((float(special.stdtr(each.df, -t)) / share, k))
        for p, k in sorted(tests):
            highest = max(highest, min(1.0, p * left))
            setattr(self.standings[k], "p" if outcome == "established" else "p_worse", highest)
            if highest <= self.alpha:
                self.standings[k].outcome = outcome
                left -= 1

    def _untold(self, outcome: Outcome) -> int:
        return sum(each.outcome != outcome for each in self.standings.values())

    def _next(self) -> tuple[list[int], str]:
        """Return the shapes that go on to their next look, and why; none at the end."""
        leading, missed = [], 1.0
        for k, each in self.standings.items():
            has_begun = k in self.looks
            if each.outcome == "established" or 1 - missed > (_LEADING if has_begun else _LIKELY):
                break
            if not has_begun:
                leading.append(k)
            elif each.outcome == "not raced":
                chance = self._told_last(k, "established")
                if chance < _HOPELESS[each.look]:
                    each.outcome = "left early"
                else:
                    leading.append(k)
                    missed *= 1 - chance
        if leading:
            number = len(leading)
            first = "the cheapest" if number == 1 else f"one of the {number} cheapest"
            return leading, f"is {first} of those left good enough?"
        rest = [k for k, each in self.standings.items() if each.outcome != "excluded"]
        have_left = all(self.standings[k].outcome == "left early" for k in rest)
        if have_left and all(self._told_last(k, "excluded") >= _UNSHOWN for k in rest):
            return rest, "are all worse by more than the margin?" if rest else ""
        return [], ""

    def _told_last(self, k: int, outcome: Outcome) -> float:
        """Return the chance that the last look establishes or excludes a shape, given its runs."""
        each, level = self.standings[k], _SHARES[outcome][-1] * self.alpha / self._untold(outcome)
        ahead = _SIGN[outcome] * (each.diff + self.margin)
        return self.chance(k, self.base, ahead, level)
