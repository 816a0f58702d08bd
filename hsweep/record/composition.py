"""What a study's trials are, in words: cells, shapes or points, their seeds and budgets, those that
only choose a setting and those that were not needed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hsweep.design.budget import unit_word
from hsweep.design.labels import listed
from hsweep.design.trial import TrialStatus
from hsweep.record.manifest import Manifest

_PLACES: Final = {"Transition": "cell", "Lean": "shape"}
"""What the trials with the same axis values but for the nuisance axes are called, by the type of
the question."""
_RATES: Final = ("lr", "learning_rate")


class HasSeed(Protocol):
    """A trial, planned or of the record."""

    @property
    def point(self) -> Mapping[str, Any]:
        """The axis values."""

    @property
    def replicate(self) -> int:
        """Which of its point's seeds it has."""


class Recorded(HasSeed, Protocol):
    """A trial of the record."""

    @property
    def budget(self) -> int:
        """In units."""

    @property
    def status(self) -> str:
        """How it stands."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a study is, in the units of its question.

    Attributes:
        place: what it counts: cells of a transition, shapes, or points without a question.
        places: how many.
        seeds: those of a place that count, at most.
        settings: of the nuisance axes, in one place at most.
        nuisance: these axes.
    """

    place: str
    places: int
    seeds: int
    settings: int
    nuisance: tuple[str, ...]

    @classmethod
    def of(cls, trials: Iterable[HasSeed], question: Mapping[str, Any], scouts: int) -> "Size":
        """Return the size of a study with these trials.

        Args:
            trials: planned or recorded.
            question: as plain content, with its ``type``; empty for none.
            scouts: how many seeds of a point, the first ones, only choose its setting.
        """
        nuisance = tuple(question.get("nuisance", ()))
        # Replicates may share their point.
        names: dict[int, tuple[str, str]] = {}
        places: dict[str, set[str]] = {}
        seeds: set[int] = set()
        for trial in trials:
            if id(trial.point) not in names:
                own = {axis: trial.point[axis] for axis in trial.point if axis not in nuisance}
                names[id(trial.point)] = _text(own), _text(trial.point)
            place, point = names[id(trial.point)]
            places.setdefault(place, set()).add(point)
            seeds.add(trial.replicate)
        return cls(
            _PLACES.get(question.get("type", ""), "point"),
            len(places),
            sum(seed >= scouts for seed in seeds),
            max(map(len, places.values()), default=0),
            nuisance,
        )

    def __str__(self) -> str:
        """Return it in words: ``10 cells x 2 seeds, each at its best of 3 learning rates``."""
        words = counted(self.places, self.place)
        if self.seeds > 1:
            words += f" x {self.seeds} seeds"
        if self.settings < 2:
            return words
        is_rate = len(self.nuisance) == 1 and self.nuisance[0] in _RATES
        settings = "learning rates" if is_rate else f"settings of {listed(self.nuisance)}"
        return f"{words}, each at its best of {self.settings} {settings}"


def run_counts(counts: Mapping[Any, int], runs: int) -> list[tuple[str, int]]:
    """Return how many of a study's ``runs`` stand how, in order: of its trials, ``counts`` by
    status, those that are not needed are none, nor those that are not likely to be; those that a
    search has yet to propose are planned."""
    found = {status: counts[status] for status in TrialStatus}
    del found[TrialStatus.NOT_NEEDED]
    begun = sum(found.values()) - found[TrialStatus.PLANNED]
    found[TrialStatus.PLANNED] = max(0, runs - begun)
    return [(str(status), number) for status, number in found.items()]


def counted(number: int, what: str) -> str:
    """Return a number of things: ``1 run``, ``90 runs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def budgets_in_words(amounts: Iterable[int], unit: str) -> str:
    """Return the budgets of some runs: ``of 40 or 80 epochs``."""
    found = sorted(set(amounts))
    return f"of {listed(found, 'or')} {unit_word(unit, found[-1])}"


def composition_lines(trials: Sequence[Recorded], manifest: Manifest, runs: int) -> list[str]:
    """Return what a study's trials are, those that were not needed apart.

    Args:
        trials: of one study.
        manifest: of it.
        runs: trials that will have been started when the study is complete.
    """
    scouts, unit = manifest.scouts, str(manifest.budget["unit"])
    size = Size.of(trials, manifest.question or {}, scouts)
    budgets = budgets_in_words((trial.budget for trial in trials), unit)
    lines = [f"{size}: {counted(runs, 'run')} {budgets}"] if trials else []
    if scouts:
        which = "seed 0" if scouts == 1 else f"seeds 0 to {scouts - 1}"
        lines.append(
            f"{which} of each setting {'is a scout' if scouts == 1 else 'are scouts'}: only to "
            "choose among the settings, and counted in no answer"
        )
    if unneeded := sum(trial.status == TrialStatus.NOT_NEEDED for trial in trials):
        were = "was" if unneeded == 1 else "were"
        lines.append(
            f"{counted(unneeded, 'further run')} {were} planned and not needed: what loses by its "
            "scouts, or at a shorter budget, is trained no further"
        )
    return lines


def _text(point: Mapping[str, Any]) -> str:
    return json.dumps(dict(point), default=str, sort_keys=True)
