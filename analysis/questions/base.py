"""A kind of question, and its finding: one value that the terminal, pages and files all show.

A `Kind` reads what it needs from a study or from any table and returns a `Finding`. The terminal,
the page, JSON, files, figures, notebooks and ``hsweep analyze`` show findings and know no kind by
name: a new kind is a folder and a line in `analysis.ask`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.settings import Option
from analysis.runs.chance import with_at_chance
from analysis.runs.columns import NO_VALUE
from analysis.runs.ladder import Ladder, furthest, ladder_of
from analysis.runs.repeats import CURVE
from analysis.runs.statuses import FULL, NOT_NEEDED
from analysis.runs.table import Runs
from analysis.text.numbers import Tone
from analysis.text.tables import Table
from analysis.values import value_text
from hsweep.design.missing import Missing
from hsweep.design.scales import Goal
from hsweep.design.search import NOT_ASKED
from hsweep.errors import UserError
from hsweep.record.manifest import Manifest

if TYPE_CHECKING:
    from hsweep.record.tables import StudyTables

Result = TypeVar("Result")
Count = Callable[[Sequence[Missing]], Sequence[int]]


class Section(NamedTuple):
    """A table under its heading; ``in_columns`` where its columns, not its rows, are the cases."""

    title: str
    table: Table
    in_columns: bool = False


def tables_with_rows(*sections: Section) -> tuple[Section, ...]:
    return tuple(section for section in sections if section.table.rows)


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to a question; the terminal, the page, JSON and notebooks show the same.

    Attributes:
        kind: the kind of question.
        result: a frozen `Jsonable` value with ``settings`` and perhaps ``warnings``.
        sentences: the answer and then its qualifications, each sentence with its numbers.
        badge: the verdict in a few words and its tone; None where the finding has no verdict.
        tables: the numbers behind the answer.
        charts: draws the answer's charts.
        missing: the runs that would settle an open answer.
        confirm: the runs with fresh seeds that confirm a choice, every shape with as many seeds.
    """

    kind: "Kind"
    result: Any
    sentences: tuple[str, ...]
    badge: tuple[str, Tone] | None = None
    tables: tuple[Section, ...] = ()
    charts: Callable[[], Sequence[Chart]] = tuple
    missing: tuple[Missing, ...] = ()
    confirm: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question.

    The functions are given the values of all options of ``hsweep analyze``, the kind's own among
    them, with ``settings`` (texts such as ``alpha=0.1``), ``goal`` and ``scale`` (None if not
    given). They raise UserError where an option is missing or does not fit, or the study cannot
    answer, with the reason.

    Attributes:
        name: a sweep's question of the same name is answered by this kind.
        about: the question in one sentence.
        settings: the dataclass of the kind's settings, where it has some.
        of_study: answers the question from a study; None where this kind has nothing to add. The
            options are None where the study answers its own question, without ``--kind``. The
            findings are those of the kinds that answered before.
        of_table: answers the question from any table; None where only a study can be asked.
        options: the options of ``hsweep analyze`` that this kind reads, besides those of all kinds.
        stands_beside: it is asked of each study, to say what else that shows; else only of a study
            whose own question it is.
    """

    name: str
    about: str
    settings: type[Any] = object
    of_study: Callable[
        ["StudyRuns", Mapping[str, Any] | None, Sequence[Finding]], Finding | None
    ] = lambda _study, _options, _findings: None
    of_table: Callable[[Runs, Mapping[str, Any]], Finding] | None = None
    options: tuple[Option, ...] = ()
    stands_beside: bool = True


@dataclass(frozen=True)
class StudyRuns:
    """A study whose record is read once for all kinds.

    Attributes:
        longest: trials of longer budgets are left out; None leaves out none.
        only: rows of ``every_trial``, perhaps changed, as if they were all of the study.
        answered: the budget that answers speak of; None for the largest that every cell has.
        is_listed: the study's points are listed or drawn, so that its cells can be given further
            trials.
        count: how many trials ``hsweep run --only-missing`` trains for each of some missing runs;
            None where the study is not at hand to be planned, so that its record tells.
    """

    manifest: Manifest
    tables: "StudyTables"
    longest: int | None = None
    is_listed: bool = True
    only: pd.DataFrame | None = None
    answered: int | None = None
    count: Count | None = None

    @property
    def goal(self) -> Goal:
        return "max" if self.manifest.goal == "max" else "min"

    @property
    def question(self) -> Mapping[str, Any]:
        """The sweep's question as recorded; empty where it asks none."""
        return self.manifest.question or {}

    def asking(self, question: Mapping[str, Any]) -> "StudyRuns":
        """Return the study as if its sweep had asked another question, given as recorded.

        `hsweep run` adds trials for the sweep's own question alone.
        """
        study = replace(self, manifest=replace(self.manifest, question=question))
        is_same = _plain(question) == _plain(self.question)
        return replace(study, is_listed=self.is_listed and is_same)

    def counting(self, missing: Sequence[Missing]) -> tuple[Missing, ...]:
        """Return missing runs with how many trials they come to."""
        if self.count is not None:
            numbers: Iterable[int | None] = self.count(missing)
        else:
            numbers = map(self.tables.journal.lacking().get, (runs.name for runs in missing))
        pairs = zip(missing, numbers, strict=True)
        return tuple(replace(runs, trials=number) for runs, number in pairs)

    def at(self, axis: str, value: Any) -> "StudyRuns":
        """Return the part of the study at one value of the axis within which its question asks; the
        question has the number of such parts, which share its error rate."""
        trials, values = self.every_trial, self._filled(self.every_trial).frame[axis]
        question = {**self.question, "within": None, "parts": values.nunique()}
        return replace(
            self,
            manifest=replace(self.manifest, question=question),
            only=trials.loc[values.eq(value)].reset_index(drop=True),
        )

    def by_value(
        self, axis: str, answer: Callable[["StudyRuns", Any], Result]
    ) -> tuple[dict[str, Result], dict[str, str]]:
        """Return the answers of the parts of the study (see `at`), and why others have none, by
        their values of the axis in words; ``answer`` is given a part and its value."""
        found: dict[str, Result] = {}
        problems: dict[str, str] = {}
        for value in self.runs.frame[axis].drop_duplicates():
            try:
                found[value_text(value)] = answer(self.at(axis, value), value)
            except UserError as error:
                problems[value_text(value)] = str(error)
        return found, problems

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The trials that answers rest on: for each point and seed, the trial of ``budget``.

        A trial that has learned nothing has the status ``at_chance``.
        """
        trials = self.counted
        is_excluded = trials["budget"] > self.budget
        if self.budget > self.manifest.budget["amount"]:
            # A run that ended at a shorter budget is not compared with runs of this one.
            is_excluded |= trials["status"].isin(FULL) & (trials["budget"] < self.budget)
        comparable = trials.loc[~is_excluded].reset_index(drop=True)
        return furthest(comparable, [*self.manifest.axes, "seed"])

    @cached_property
    def budget(self) -> int:
        """The budget that answers speak of: the largest at which every cell has full runs.

        It is the sweep's budget or a longer one that was requested later, but for a search, which
        has decided by the sweep's. Nuisance axes do not divide the points into cells.
        """
        planned = int(self.manifest.budget["amount"])
        if self.answered is not None:
            return self.answered
        if self.manifest.is_sequential:
            return planned
        full = self.counted.loc[self.counted["status"].isin(FULL)]
        nuisance = self.question.get("nuisance") or ()
        cells = [axis for axis in self.manifest.axes if axis not in nuisance]
        if not cells or not (full["budget"] > planned).any():
            return planned
        by_cell = full["budget"].groupby([full[axis] for axis in cells], dropna=False).agg(set)
        common = set.intersection(*(budgets for budgets in by_cell if max(budgets) >= planned))
        return int(max(common | {planned}))

    def fixed_rate(self, varying: Sequence[str]) -> float | None:
        """Return the one learning rate of all trials; ``varying`` are the axes that vary.

        None where trials have several learning rates, or where the rate is not known.
        """
        return None if {"lr", "learning_rate"} & set(varying) else self.manifest.fixed_rate

    @property
    def unfinished(self) -> int:
        """How many runs have not ended yet, without trials that are probably not needed."""
        counts = self.every_trial["status"].value_counts()
        still_open = int(counts.get("planned", 0) + counts.get("running", 0))
        if not still_open:
            return 0
        ended = len(self.every_trial) - still_open - int(counts.get(NOT_NEEDED, 0))
        return min(still_open, self.tables.journal.num_runs() - ended)

    @property
    def answering(self) -> pd.DataFrame:
        """The trials, without those that never started because their setting had lost."""
        if not self.manifest.scouts:
            return self.trials
        return self.trials.loc[self.trials["status"].ne(NOT_NEEDED)].reset_index(drop=True)

    @cached_property
    def ladder(self) -> Ladder:
        """The trials of each budget, where points were trained to several."""
        unit, runs = str(self.manifest.budget.get("unit", "")), self._filled(self.counted)
        ladder = ladder_of(runs, self.manifest.axes, "budget", answered=self.budget)
        can_be_extended = self.is_listed and unit != "seconds"
        return replace(ladder, unit=unit, to_extend=self.budget if can_be_extended else None)

    @cached_property
    def every_trial(self) -> pd.DataFrame:
        """One row a trial; a trial that has learned nothing has the status ``at_chance``."""
        if self.only is not None:
            return self.only
        manifest, trials = self.manifest, self.tables.trials_frame()
        if manifest.metric in trials:
            same = trials["key"][trials.duplicated(manifest.metric, keep=False)]
            reports = self.tables.reports_of(same.tolist()).groupby("key")[manifest.metric]
            trials[CURVE] = trials["key"].map(reports.std()).fillna(0.0)
        return with_at_chance(
            trials,
            manifest.provenance.get("data", ()),
            metric=manifest.metric,
            goal=self.goal,
            axes=manifest.axes,
            eval_size=self.question.get("eval_size"),
        )

    @cached_property
    def counted(self) -> pd.DataFrame:
        """The trials of every budget, without those that only chose a setting, and those that a
        search did not ask for."""
        trials = self.every_trial
        # The seeds that chose a setting would flatter it.
        counted = trials["seed"].ge(self.manifest.scouts) & trials["reason"].ne(NOT_ASKED)
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
