"""Lean equivalents: which cheaper shapes are no worse than a baseline?"""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Final

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.base import (
    Confirmation,
    Finding,
    Kind,
    Missing,
    Section,
    StudyRuns,
    fixed_rate,
    ranked,
)
from analysis.questions.lean.budget_charts import budget_chart
from analysis.questions.lean.budget_text import budgets_sentence, budgets_table, longer_table
from analysis.questions.lean.budgets import with_budgets
from analysis.questions.lean.charts import forest_chart, roles_in
from analysis.questions.lean.fit import fit
from analysis.questions.lean.group_text import (
    group_baselines_table,
    group_candidates_table,
    groups_badge,
    groups_sentences,
    plain_groups,
)
from analysis.questions.lean.groups import Comparison, LeanGroups, fit_groups
from analysis.questions.lean.plain import plain_lean
from analysis.questions.lean.result import LeanResult, LeanSettings
from analysis.questions.lean.text import (
    lean_badge,
    lean_sentence,
    lean_table,
    missing_runs_table,
)
from analysis.questions.pareto.charts import front_charts
from analysis.questions.pareto.finding import ParetoFinding, likeliest_first
from analysis.questions.pareto.fit import fit as fit_front
from analysis.questions.pareto.result import ParetoResult
from analysis.questions.pareto.text import pareto_table
from analysis.questions.settings import with_settings
from analysis.questions.shapes import (
    BASELINE,
    CONFIG,
    COSTS,
    MARGIN,
    NUISANCE,
    front_question,
    read_baseline,
)
from analysis.questions.study_shapes import asked_of, parting_axis
from analysis.runs.chance import study_chance
from analysis.runs.ladder import ladder_of
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.statistics.noninferiority import confirming_seeds
from analysis.text.numbers import Tone, direction_text
from analysis.text.settled import settled_badge
from analysis.text.tables import MAX_ROWS, TERMINAL_ROWS, varying_columns
from hsweep.errors import UserError
from hsweep.record.manifest import NEW_SEED
from hsweep.record.tables import frame

_NEEDED: Final = (
    "a lean question needs --baseline (heads=12,depth=12, or a name) and --margin: how much worse "
    "still counts as equal has no default"
)
_FIRST_REPORT = "score at the first report"
"""Column of what the baseline's trials scored at their first of several reports."""


@dataclass(frozen=True)
class _Comparisons(Finding):
    """Lean comparisons; ``front`` is over the same shapes, where they learn one task."""

    result: Any
    front: ParetoResult | None = None

    answers: ClassVar[bool] = True
    title: ClassVar[str] = "Cheaper shapes beside the baseline"

    @property
    @abstractmethod
    def comparisons(self) -> list[Comparison]:
        """Each comparison with what tells it from the others."""

    @property
    def fronts(self) -> list[tuple[str, ParetoResult]]:
        """The fronts, each with its heading."""
        return [("", self.front)] if self.front is not None else []

    @property
    def numbers(self) -> dict[str, float]:
        accepted = sum(len(each.result.accepted) for each in self.comparisons)
        front = {"front_size": float(self.front.front_size)} if self.front is not None else {}
        return {"accepted": float(accepted), **front}

    @property
    def warnings(self) -> tuple[str, ...]:
        fronts = (front.warnings for _, front in self.fronts)
        compared = (each.result.warnings for each in self.comparisons)
        return tuple(chain(*fronts, *compared))

    def _missing_section(self, title: str) -> list[Section]:
        within = self.comparisons[0].within if self.comparisons else None
        found = {each.value: each.result for each in self.comparisons}
        table = missing_runs_table(found, within or "")
        return [Section(title, table)] if table.rows else []

    def _budget_sections(self) -> list[Section]:
        tables = {
            "Gap to the baseline at each budget": budgets_table,
            "Trials that would tell whether it is settled": longer_table,
        }
        return [
            Section(f"{title}, {each.heading}" if each.heading else title, table)
            for title, table_of in tables.items()
            for each in self.comparisons
            if (table := table_of(each.result)).rows
        ]

    def _shapes(self, title: str, most: int = MAX_ROWS) -> list[Section]:
        return [
            Section(
                f"{title}, {heading}" if heading else title,
                pareto_table(likeliest_first(front, most)),
            )
            for heading, front in self.fronts
        ]

    def page_tables(self, *, beside: bool) -> list[Section]:
        return [
            *self._candidates(),
            *self._missing_section("Trials that would settle it"),
            *self._shapes("Shapes"),
        ]

    @abstractmethod
    def _candidates(self) -> list[Section]:
        """Return what the page shows of the shapes that were compared."""

    def charts(self, trials: pd.DataFrame) -> list[Chart]:
        roles = roles_in(self.comparisons)
        found = [
            _headed(chart, heading)
            for heading, front in self.fronts
            for chart in front_charts(front, self.trials_of(heading, trials), roles)
        ]
        own = (forest_chart(self.comparisons), budget_chart(self.comparisons))
        return [*found, *(chart for chart in own if chart is not None)]

    def trials_of(self, heading: str, trials: pd.DataFrame) -> pd.DataFrame:
        """Return the trials of the front under a heading."""
        return trials

    @property
    def missing(self) -> tuple[Missing, ...]:
        return tuple(chain(*map(_missing, self.comparisons)))

    @property
    def confirmation(self) -> Confirmation | None:
        return _confirmation(self.comparisons)

    @property
    def settings(self) -> Mapping[str, Any]:
        fronts = self.fronts
        return {"front": fronts[0][1].settings} if fronts else {}

    def to_json(self) -> dict[str, Any]:
        front = {} if self.front is None else {"pareto": self.front.to_json()}
        return {**self.result.to_json(), **front}


@dataclass(frozen=True)
class LeanFinding(_Comparisons):
    """One comparison."""

    result: LeanResult

    kind: ClassVar[str] = "lean"

    @property
    def comparisons(self) -> list[Comparison]:
        return [Comparison(self.result)]

    @property
    def numbers(self) -> dict[str, float]:
        found = self.result
        chosen = [row.saving for row in found.table if row.label == found.choice]
        saving = {"saving": chosen[0][found.costs[0]]} if chosen else {}
        return {**super().numbers, **saving}

    @property
    def sentences(self) -> list[str]:
        return [f"{lean_sentence(self.result)}{budgets_sentence(self.result)}"]

    @property
    def plain(self) -> list[str]:
        return plain_lean(self.result)

    @property
    def badge(self) -> tuple[str, Tone]:
        budgets = self.result.budgets
        return settled_badge(lean_badge(self.result), budgets.verdict if budgets else None)

    def _candidates(self) -> list[Section]:
        rows = ranked(self.result.table, lambda row: not row.accepted)
        return [
            Section("Candidates", lean_table(replace(self.result, table=rows))),
            *self._budget_sections(),
        ]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        rows = ranked(self.result.table, lambda row: not row.accepted, TERMINAL_ROWS)
        return [
            Section("candidates", lean_table(replace(self.result, table=rows))),
            *self._budget_sections(),
            *self._missing_section("trials that would settle it"),
            *self._shapes("shapes", TERMINAL_ROWS),
        ]

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "lean": self.result.settings}


@dataclass(frozen=True)
class LeanGroupsFinding(_Comparisons):
    """Several comparisons, with a front each where they learn different tasks."""

    result: LeanGroups

    kind: ClassVar[str] = "lean_groups"

    @property
    def comparisons(self) -> list[Comparison]:
        groups = self.result
        return [Comparison(found, groups.within, value) for value, found in groups.found.items()]

    @property
    def fronts(self) -> list[tuple[str, ParetoResult]]:
        within, fronts = self.result.within, self.result.fronts
        own = [(f"{within} = {value}", front) for value, front in fronts.items()]
        return super().fronts or own

    @property
    def direction(self) -> str:
        found: list[LeanResult | ParetoResult] = [each.result for each in self.comparisons]
        found += [front for _, front in self.fronts]
        return direction_text(found[0].metric, found[0].goal) if found else ""

    def trials_of(self, heading: str, trials: pd.DataFrame) -> pd.DataFrame:
        if not heading:
            return trials
        within = self.result.within
        return trials.loc[(f"{within} = " + trials[within].astype(str)) == heading]

    @property
    def sentences(self) -> list[str]:
        return groups_sentences(self.result)

    @property
    def plain(self) -> list[str]:
        return plain_groups(self.result)

    @property
    def badge(self) -> tuple[str, Tone]:
        return groups_badge(self.result)

    def _candidates(self) -> list[Section]:
        return [
            Section("Candidates", group_candidates_table(self.result)),
            Section("Baselines", group_baselines_table(self.result)),
            *self._budget_sections(),
        ]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        return [
            *self._missing_section("trials that would settle it"),
            *(
                Section(f"candidates, {each.heading}", lean_table(each.result))
                for each in self.comparisons
            ),
            *self._budget_sections(),
            *self._shapes("shapes", TERMINAL_ROWS),
        ]

    @property
    def saved(self) -> Finding | None:
        return None if self.front is None else ParetoFinding(self.front)


def _missing(compared: Comparison) -> list[Missing]:
    """Return what an answer lacks, and where there is one, what would tell if it would survive."""
    result = compared.result
    if result.missing or result.budgets is None:
        return [
            Missing({**compared.at, **run.config}, run.trials, run.why) for run in result.missing
        ]
    return [
        Missing({**compared.at, **run.config}, run.trials, run.why, int(run.budget))
        for run in result.budgets.missing
    ]


def _confirmation(comparisons: Sequence[Comparison]) -> Confirmation | None:
    """Return the runs that confirm what a study chose, None where it had no choice.

    The choice was the cheapest of several that passed, which inflates its estimate; seeds that no
    part of the study has seen tell whether it holds. Every chosen shape and its baseline is run
    with the seeds that find an equal shape nine times in ten (the most that any comparison needs).
    """
    usable = [
        each
        for each in comparisons
        if each.result.choice_config is not None and each.result.confirm
    ]
    if not usable:
        return None
    # Alone a comparison is tested at the error rate that the whole study had.
    alpha = 0.05 if usable[0].at else usable[0].result.settings.alpha
    at, seeds = [], 0
    for each in usable:
        result = each.result
        assert result.choice_config is not None
        wanted = confirming_seeds(result.margin_over_sd or 0.0, alpha / len(usable))
        seeds = max(seeds, wanted)
        chosen = next(row for row in result.table if row.label == result.choice)
        for config, setting in (
            (result.baseline, result.baseline_setting),
            (result.choice_config, chosen.setting),
        ):
            # What is confirmed is the shape at the setting that stands for it.
            at.append({**each.at, **config, **(setting.values if setting is not None else {})})
    return Confirmation(tuple(at), seeds)


def _headed(chart: Chart, heading: str) -> Chart:
    """Return a chart of one of several fronts, with a name and a title of its own."""
    if not heading:
        return chart
    own = re.sub(r"\W+", "-", heading).strip("-")
    return replace(chart, name=f"{chart.name}-{own}", title=f"{chart.title}, {heading}")


class LeanKind(Kind):
    """Compares shapes with a baseline, of a study or of a table."""

    name = "lean"
    about = "Which cheaper shapes are no worse than a baseline by a margin?"
    settings = LeanSettings
    result = LeanResult
    question = "Lean"
    options = (CONFIG, COSTS, NUISANCE, BASELINE, MARGIN)

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        asked = front_question(runs, chosen)
        baseline, margin = chosen["baseline"], chosen["margin"]
        if baseline is None or margin is None:
            raise UserError(_NEEDED)
        asked["baseline"] = read_baseline(baseline, asked["config"], runs.frame)
        settings = with_settings(LeanSettings(), chosen["settings"])

        def answer(some: Runs) -> LeanResult:
            return fit(some, margin=margin, settings=settings, **asked)

        ladder = ladder_of(runs, [*asked["config"], *asked["nuisance"]])
        return LeanFinding(with_budgets(answer(runs), ladder, answer))

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        return self._answer(study, LeanSettings())

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        """See `Kind.ask_study`; what is not asked for is as in the study's own lean question."""
        own = study.question if study.question.get("type") == self.question else {}
        study, margin = asked_of(study, chosen), chosen["margin"]
        baseline = own.get("baseline") if chosen["baseline"] is None else study.question["baseline"]
        margin = own.get("margin") if margin is None else margin
        if baseline is None or margin is None:
            raise UserError(_NEEDED)
        within = own.get("within") if chosen["baseline"] is None else parting_axis(study)
        if within is not None and within in dict(baseline):
            raise UserError(
                f"{within} changes the task, so each of its values is compared with the baseline "
                "of its own; leave it out of --baseline"
            )
        asked = {
            **own,
            "type": self.question,
            "baseline": tuple(dict(baseline).items()),
            "margin": margin,
            "costs": study.question.get("costs") or ("num_params",),
            "within": within,
            "nuisance": study.question.get("nuisance", ()),
        }
        settings = with_settings(LeanSettings(), chosen["settings"])
        answer = self._answer(study.asking(asked), settings)
        if answer.problem is not None:
            raise UserError(answer.problem)
        return answer

    def _answer(self, study: StudyRuns, settings: LeanSettings) -> Finding:
        question, manifest = study.question, study.manifest
        baseline = dict(question["baseline"])
        axes = varying_columns(study.trials, manifest.axes)
        nuisance = [axis for axis in question.get("nuisance", ()) if axis in axes]
        config = [
            axis
            for axis in manifest.axes
            if (axis in axes or axis in baseline) and axis not in nuisance
        ]
        rate = fixed_rate(manifest, axes)
        within = question.get("within")
        if within is not None and study.trials[within].nunique() < 2:
            within = None
        data = manifest.provenance.get("data", ())
        several_tasks = within is not None and len(data) > 1
        asked: dict[str, Any] = {
            "goal": study.goal,
            "costs": question["costs"],
            "nuisance": nuisance,
        }
        front = fit_front(study.runs, config=config, **asked) if not several_tasks else None
        common = study_chance(data, manifest.metric, baseline)
        asked |= {
            "baseline": baseline,
            "margin": question["margin"],
            "settings": replace(settings, chance=common, looks=_looks(manifest.extensions)),
            "first_report": _FIRST_REPORT,
        }
        reported = study.runs.frame.assign(**{_FIRST_REPORT: _first_reports(study, baseline)})
        runs = Runs(reported, manifest.metric)
        if within is not None:
            chances = {
                str(value): study_chance(data, manifest.metric, {**baseline, within: value})
                for value in reported[within].unique()
            }
            groups = fit_groups(
                runs,
                within=within,
                axes=config,
                chances={name: chance for name, chance in chances.items() if chance is not None},
                with_fronts=several_tasks,
                ladder=study.ladder,
                **asked,
            )
            return LeanGroupsFinding(replace(groups, fixed_rate=rate), front)
        assert front is not None
        try:
            result = replace(fit(runs, config=config, **asked), fixed_rate=rate)
        except UserError as error:
            # Typically the baseline has not finished; the front stands without it.
            return ParetoFinding(front, str(error))

        def answer(some: Runs) -> LeanResult:
            return fit(some, config=config, **{**asked, "first_report": None})

        return LeanFinding(with_budgets(result, study.ladder, answer), front)


def _looks(extensions: Sequence[Mapping[str, Any]]) -> int:
    """Return how many times a study with these extensions has been looked at for its answer."""
    return 1 + sum(
        any(trial["how"] == NEW_SEED for trial in extension["trials"]) for extension in extensions
    )


def _first_reports(study: StudyRuns, baseline: Mapping[str, Any]) -> "pd.Series[float]":
    """Return what the baseline's finished trials scored at their first of several reports."""
    trials, metric = study.runs.frame, study.manifest.metric
    own = trials["status"].isin(FULL)
    for axis, value in baseline.items():
        own &= trials[axis].eq(value)
    reports = frame(study.tables.reports_of(list(trials.loc[own, "key"])))
    scores = reports.dropna(subset=[metric]).groupby("key")[metric].agg(["first", "size"])
    return trials["key"].map(scores.loc[scores["size"] > 1, "first"]).astype(float)


LEAN = LeanKind()
