"""What every kind of question is, and what it finds: one value that every place shows.

A `Kind` reads what it needs from a study or from any table and returns a `Finding`. The terminal,
the page, JSON, files, figures, notebooks and ``hsweep analyze`` show findings and know no kind by
name: a new kind is a folder and a line in `analysis.ask`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.settings import Option
from analysis.runs.chance import with_at_chance
from analysis.runs.columns import NO_VALUE
from analysis.runs.ladder import Ladder, furthest, ladder_of
from analysis.runs.statuses import FULL, NOT_NEEDED
from analysis.runs.table import Runs
from analysis.text.numbers import Tone
from analysis.text.tables import Table
from hsweep.design.question import Goal, Missing
from hsweep.errors import UserError
from hsweep.record.manifest import Manifest

if TYPE_CHECKING:
    from hsweep.record.tables import StudyTables


class Section(NamedTuple):
    """A table under its heading; ``in_columns`` where its columns, not its rows, are the cases."""

    title: str
    table: Table
    in_columns: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What a kind of question finds; the terminal, the page, JSON and notebooks show the same.

    Attributes:
        kind: the kind of question that found it.
        result: a frozen `Jsonable` value with ``settings`` and perhaps ``warnings``.
        sentences: what was found, and then what qualifies it, each sentence with its numbers.
        badge: the verdict in a few words and its tone; None where it is no answer of its own.
        tables: the numbers behind it.
        charts: draws its charts.
        missing: the runs that would settle it.
        confirm: the runs with fresh seeds that confirm what it chose, each shape with as many.
    """

    kind: "Kind"
    result: Any
    sentences: tuple[str, ...]
    badge: tuple[str, Tone] | None = None
    tables: tuple[Section, ...] = ()
    charts: Callable[[], Sequence[Chart]] = tuple
    missing: tuple[Missing, ...] = ()
    confirm: tuple[Missing, ...] = ()


class Kind(ABC):
    """A kind of question.

    Attributes:
        name: of the kind; a sweep's question of the same name is answered by it.
        about: what it asks, as a question.
        settings: the dataclass of its choices.
        options: what it asks of ``hsweep analyze``, besides what all kinds do.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    settings: ClassVar[type[Any]]
    options: ClassVar[tuple[Option, ...]] = ()

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        """Return what any table says.

        Args:
            runs: the table.
            chosen: values of all options of ``hsweep analyze``, the kind's own among them, with
                ``settings`` (texts such as ``alpha=0.1``), ``goal`` and ``scale`` (None if not
                given).

        Raises:
            UserError: an option that is missing or does not fit the table.
        """
        raise UserError(f"no table can be asked for {self.name}; it is read from a study")

    @abstractmethod
    def of_study(
        self, study: "StudyRuns", chosen: Mapping[str, Any] | None, findings: Sequence[Finding]
    ) -> Finding | None:
        """Return what a study says; None if nothing.

        Args:
            study: the study.
            chosen: values of the options where ``--kind`` asks the study, as in `of_table`; None
                where the study answers its own question, or says what else it shows.
            findings: what was found before.

        Raises:
            UserError: it cannot be said, with the reason.
        """


@dataclass(frozen=True)
class StudyRuns:
    """A study whose record is read once for all kinds.

    Attributes:
        longest: trials of longer budgets are left out; None leaves out none.
        is_listed: its points are listed or drawn, so that its cells can be given further trials.
    """

    manifest: Manifest
    tables: "StudyTables"
    longest: int | None = None
    is_listed: bool = True

    @property
    def goal(self) -> Goal:
        return "max" if self.manifest.goal == "max" else "min"

    @property
    def question(self) -> Mapping[str, Any]:
        """The sweep's question as recorded; empty where it asks none."""
        return self.manifest.question or {}

    def asking(self, question: Mapping[str, Any]) -> "StudyRuns":
        """Return the study as if its sweep had asked another question, as it would be recorded.

        To another question no trials are added, which `hsweep run` does for the sweep's own.
        """
        own = replace(self, manifest=replace(self.manifest, question=question))
        return replace(own, is_listed=self.is_listed and _plain(question) == _plain(self.question))

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The trials that answers rest on, those that have learned nothing with the status
        ``at_chance``: of one point and seed, that of ``budget``."""
        trials = self.counted
        of_others = trials["budget"] > self.budget
        if self.budget > self.manifest.budget["amount"]:
            # What has run to its end at a shorter budget is not compared with them.
            of_others |= trials["status"].isin(FULL) & (trials["budget"] < self.budget)
        own = trials.loc[~of_others].reset_index(drop=True)
        return furthest(own, [*self.manifest.axes, "seed"], "budget")

    @cached_property
    def budget(self) -> int:
        """The budget that answers are of: the largest that all cells have full runs of, which is
        the sweep's or one that was asked for later. Nuisance axes make no cells."""
        planned = int(self.manifest.budget["amount"])
        full = self.counted.loc[self.counted["status"].isin(FULL)]
        nuisance = self.question.get("nuisance") or ()
        cells = [axis for axis in self.manifest.axes if axis not in nuisance]
        if not cells or not (full["budget"] > planned).any():
            return planned
        by_cell = full["budget"].groupby([full[axis] for axis in cells], dropna=False).agg(set)
        common = set.intersection(*(budgets for budgets in by_cell if max(budgets) >= planned))
        return int(max(common | {planned}))

    def fixed_rate(self, varying: Sequence[str]) -> float | None:
        """Return the one learning rate of the trials, of which the axes ``varying`` vary.

        None where a later trial was given another one, or where it is not known.
        """
        return None if {"lr", "learning_rate"} & set(varying) else self.manifest.fixed_rate

    @property
    def unfinished(self) -> int:
        """How many runs have not ended yet; a trial that is not likely to be needed is none."""
        counts = self.every_trial["status"].value_counts()
        still_open = int(counts.get("planned", 0) + counts.get("running", 0))
        ended = len(self.every_trial) - still_open - int(counts.get(NOT_NEEDED, 0))
        return min(still_open, self.tables.journal.num_runs() - ended)

    @property
    def answering(self) -> pd.DataFrame:
        """The trials, without those of a setting that lost before they began."""
        if not self.manifest.scouts:
            return self.trials
        return self.trials.loc[self.trials["status"].ne(NOT_NEEDED)].reset_index(drop=True)

    @cached_property
    def ladder(self) -> Ladder:
        """The trials of each budget, where points were trained to several."""
        unit, runs = str(self.manifest.budget.get("unit", "")), self._filled(self.counted)
        ladder = ladder_of(runs, self.manifest.axes, "budget", unit, answered=self.budget)
        can_be_extended = self.is_listed and unit != "seconds"
        return replace(ladder, unit=unit, to_extend=self.budget if can_be_extended else None)

    @cached_property
    def every_trial(self) -> pd.DataFrame:
        """One a row; those that have learned nothing are ``at_chance``."""
        manifest = self.manifest
        return with_at_chance(
            self.tables.trials_frame(),
            manifest.provenance.get("data", ()),
            metric=manifest.metric,
            goal=self.goal,
            axes=manifest.axes,
            eval_size=self.question.get("eval_size"),
        )

    @cached_property
    def counted(self) -> pd.DataFrame:
        """The trials of every budget, without those that only chose a setting."""
        trials = self.every_trial
        # Those that chose the settings say nothing of them that is not flattered.
        counted = trials["seed"] >= self.manifest.scouts
        if self.longest is not None:
            counted &= trials["budget"] <= self.longest
        return trials.loc[counted].reset_index(drop=True)

    @cached_property
    def runs(self) -> Runs:
        """The trials, with `NO_VALUE` for an axis that only part of the space has."""
        return self._filled(self.trials)

    def _filled(self, trials: pd.DataFrame) -> Runs:
        filled = {
            axis: trials[axis].astype(object).where(trials[axis].notna(), NO_VALUE)
            for axis in self.manifest.axes
            if trials[axis].isna().any()
        }
        return Runs(trials.assign(**filled), self.manifest.metric)


def _plain(question: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(question))
