"""What every kind of question is, and what one of them finds in a table of runs.

A `Kind` reads what it needs from a study or from any table and returns a `Finding`, a frozen value.
The answer, the page, the terminal, JSON, files, figures and ``hsweep analyze`` loop over findings
and know no kind by name: a new kind is a folder and a line in `analysis.ask`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.settings import Option
from analysis.questions.shapes import shape_columns
from analysis.runs.chance import with_at_chance
from analysis.runs.columns import NO_VALUE
from analysis.runs.ladder import Ladder, furthest, ladder_of
from analysis.runs.statuses import FULL, NOT_NEEDED
from analysis.runs.table import Runs
from analysis.text.numbers import Tone, direction_text
from analysis.text.tables import MAX_ROWS, Table
from analysis.values import AxisValue, Jsonable
from hsweep.design.question import Goal
from hsweep.record.manifest import Manifest
from hsweep.record.reading import StudyTables

Row = TypeVar("Row")


class Section(NamedTuple):
    """A table under its heading; ``in_columns`` where its columns, not its rows, are the cases."""

    title: str
    table: Table
    in_columns: bool = False


def ranked(
    rows: tuple[Row, ...], key: Callable[[Row], float], most: int = MAX_ROWS
) -> tuple[Row, ...]:
    """Return the rows, by ``key`` where they are too many to show them all."""
    return rows if len(rows) <= most else tuple(sorted(rows, key=key))


@dataclass(frozen=True, slots=True)
class Missing:
    """Runs that would settle an open finding.

    Attributes:
        at: axis values of the cell or shape, as the table of trials has them.
        trials: how many runs.
        why: what the finding lacks.
        budget: another one than the sweep's, to which that many seeds are trained; None for runs
            of the sweep's own.
    """

    at: dict[str, AxisValue]
    trials: int
    why: str
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Runs with fresh seeds that confirm a choice.

    Attributes:
        at: axis values of the chosen shapes and their baselines, as the table of trials has them.
        seeds: how many of each.
    """

    at: tuple[dict[str, AxisValue], ...]
    seeds: int


class Finding(ABC):
    """What one kind of question finds in a table of runs; a subclass is a frozen value."""

    kind: ClassVar[str]
    """Its name in JSON and in files of results."""
    title: ClassVar[str]
    """Its heading on the page."""
    answers: ClassVar[bool] = False
    """Whether it answers a sweep's question, rather than stands beside the answer."""
    leads: ClassVar[bool] = True
    """Whether it may stand first where nothing answers a question."""
    headlines: ClassVar[bool] = True
    """Whether its sentence is the answer of a sweep that asks no question."""
    counts_unfinished: ClassVar[bool] = False
    """Whether its qualifications say that trials have not ended yet."""
    is_logarithmic: ClassVar[bool] = False
    """Whether an accuracy is put on the logarithmic axis of its error."""
    result: Any
    """What was found, a frozen `Jsonable` value, with ``settings`` and perhaps ``warnings``."""

    @property
    @abstractmethod
    def sentences(self) -> list[str]:
        """The headline with its uncertainty; more than one where it has several parts."""

    @property
    def sentence(self) -> str:
        """The headline in one text."""
        return " ".join(self.sentences)

    @property
    def plain(self) -> list[str]:
        """The same in everyday words: first what was found, then what qualifies it. By default the
        exact sentences."""
        return self.sentences

    @property
    def badge(self) -> tuple[str, Tone]:
        """The verdict in a few words, and the tone it is shown in."""
        return "no verdict", "unknown"

    @property
    def problem(self) -> str | None:
        """Why the question asked could not be answered; None if it was."""
        return None

    @property
    def qualifications(self) -> tuple[str, ...]:
        """What limits the answer and stands beside it wherever it is printed."""
        return ()

    @property
    def direction(self) -> str:
        """Which way the metric is read; empty where the result is of none."""
        metric, goal = getattr(self.result, "metric", ""), getattr(self.result, "goal", None)
        scale = getattr(self.result, "scale", None)
        if scale == "accuracy" and not self.is_logarithmic:
            scale = None
        return direction_text(metric, goal, scale) if metric and goal else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader has to know besides."""
        found: tuple[str, ...] = getattr(self.result, "warnings", ())
        return found

    @abstractmethod
    def page_tables(self, *, beside: bool) -> list[Section]:
        """Return the tables of the page.

        ``beside`` tells that it does not lead, so that its sentence stands nowhere else.
        """

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        """Return the tables of the terminal; by default those of the page where it leads.

        ``beside`` tells that another finding answers the question.
        """
        return [] if beside else self.page_tables(beside=False)

    @property
    def terminal_note(self) -> str:
        """A sentence that the terminal prints below the tables; may be empty."""
        return ""

    def charts(self, trials: pd.DataFrame) -> list[Chart]:
        """Return its charts; ``trials`` tell what a point stands for."""
        return []

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The runs that would settle it."""
        return ()

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that stand for it where there is room for a few; none by default."""
        return {}

    @property
    def confirmation(self) -> Confirmation | None:
        """The runs that confirm a choice; None without a choice."""
        return None

    @property
    def searched_axis(self) -> str | None:
        """The axis that learning curves are grouped by; None leaves the choice to them."""
        return None

    def cells(self) -> Table | None:
        """Return how the trials of each of its cells ended; None leaves that to the page."""
        return None

    @property
    def settings(self) -> Mapping[str, Any]:
        """Every choice made, a dataclass by the name of the analysis that made them."""
        return {self.kind: self.result.settings}

    @property
    def saved(self) -> "Finding | None":
        """The finding that a file of results holds; None where no single result stands for it."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON content."""
        content: dict[str, Any] = self.result.to_json()
        return content

    def rows(self) -> pd.DataFrame:
        """Return the rows that stand for it in a parquet file; by default those of its table."""
        rows: list[dict[str, Any]] = self.result.to_json()["table"]
        for row in rows:
            _, row["ci_low"], row["ci_high"] = row.pop("ci")
        return pd.json_normalize(rows, sep=".")


@dataclass(frozen=True)
class StudyRuns:
    """A study whose record is read once for all kinds.

    Attributes:
        longest: trials of longer budgets are left out; None leaves out none.
        shared: what kinds read from the runs for each other, by name.
        is_listed: its points are listed or drawn, so that its cells can be given further trials.
    """

    manifest: Manifest
    tables: StudyTables
    longest: int | None = None
    shared: dict[str, Any] = field(default_factory=dict)
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
        own = replace(self, manifest=replace(self.manifest, question=question), shared={})
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
        own = int(self.manifest.budget["amount"])
        full = self.counted.loc[self.counted["status"].isin(FULL)]
        nuisance = self.question.get("nuisance") or ()
        cells = [axis for axis in self.manifest.axes if axis not in nuisance]
        if not cells or not (full["budget"] > own).any():
            return own
        by_cell = full["budget"].groupby([full[axis] for axis in cells], dropna=False).agg(set)
        common = set.intersection(*(found for found in by_cell if max(found) >= own))
        return int(max(common | {own}))

    @property
    def unfinished(self) -> int:
        """How many runs have not ended yet; a trial that is not likely to be needed is none."""
        counts = self.every_trial["status"].value_counts()
        still_open = int(counts.get("planned", 0) + counts.get("running", 0))
        ended = len(self.every_trial) - still_open - int(counts.get(NOT_NEEDED, 0))
        return min(still_open, self.tables.num_runs - ended)

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
        found = ladder_of(runs, self.manifest.axes, "budget", unit, answered=self.budget)
        can_be_extended = self.is_listed and unit != "seconds"
        return replace(found, unit=unit, to_extend=self.budget if can_be_extended else None)

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


def fixed_rate(manifest: Manifest, varying: Sequence[str]) -> float | None:
    """Return the one learning rate of a study's trials, of which the axes ``varying`` vary.

    None where a later trial was given another one, or where it is not known.
    """
    return None if {"lr", "learning_rate"} & set(varying) else manifest.fixed_rate


class Kind(ABC):
    """A kind of question.

    Attributes:
        options: what only this kind (or some kinds) asks of a table.
        result: what its files hold.
        question: the type of a sweep's question that it answers; empty for none.
        takes_tables: whether any table can be asked.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    settings: ClassVar[type[Any]]
    result: ClassVar[type[Jsonable] | None] = None
    question: ClassVar[str] = ""
    takes_tables: ClassVar[bool] = True

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
        raise NotImplementedError(f"no table can be asked for {self.name}")

    def shape(self, runs: Runs, chosen: Mapping[str, Any]) -> list[str]:
        """Return the columns of a table whose values make its shapes or cells; none of a kind that
        does not ask for them.

        Raises:
            UserError: an option that is missing or does not fit the table.
        """
        return shape_columns(runs, chosen) if "config" in chosen else []

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        """Return what a study says, beside what other kinds ``found``; None if nothing.

        Raises:
            UserError: it cannot be said, with the reason.
        """
        return None

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        """Return what a study says where ``--kind`` asks it, whatever the study's own question.

        Args:
            study: the study.
            chosen: as in `of_table`, without what a study knows.

        Raises:
            UserError: it cannot be said, with the reason.
        """
        raise NotImplementedError(f"no study can be asked for {self.name}")
