"""Lean comparisons, one or several, as a finding."""

import re
from collections.abc import Sequence
from dataclasses import replace

from analysis.charts.chart import Chart
from analysis.questions.base import Finding, Kind, Section
from analysis.questions.lean.charts import forest_chart, roles_in
from analysis.questions.lean.group_text import (
    group_baselines_table,
    group_candidates_table,
    groups_badge,
    groups_sentences,
)
from analysis.questions.lean.result import Comparison, LeanGroups, LeanResult, comparisons
from analysis.questions.lean.text import lean_badge, lean_sentences, lean_table
from analysis.questions.pareto.charts import front_charts
from analysis.questions.pareto.result import ParetoResult
from analysis.questions.pareto.text import pareto_table
from analysis.statistics.noninferiority import confirming_seeds
from analysis.text.missing import missing_table
from analysis.text.numbers import Tone
from analysis.text.settled import budgets_table, sensitivity_badge
from analysis.text.tables import TERMINAL_ROWS
from hsweep.design.question import Missing


def lean_finding(kind: Kind, result: LeanResult) -> Finding:
    """Return what is said of one comparison."""
    rows = result.table
    if len(rows) > TERMINAL_ROWS:
        rows = tuple(sorted(rows, key=lambda row: not row.accepted))
    return _finding(
        kind,
        result,
        [Comparison(result)],
        tuple(lean_sentences(result)),
        sensitivity_badge(lean_badge(result), result.sensitivity),
        [Section("Candidates", lean_table(replace(result, table=rows)))],
    )


def groups_finding(kind: Kind, groups: LeanGroups) -> Finding:
    """Return what is said of several comparisons, with a front each where they learn different
    tasks."""
    compared = comparisons(groups)
    return _finding(
        kind,
        groups,
        compared,
        tuple(groups_sentences(groups)),
        groups_badge(groups),
        [
            Section("Candidates", group_candidates_table(groups)),
            Section("Baselines", group_baselines_table(groups)),
            *(
                Section(f"Shapes, {groups.within} = {value}", pareto_table(front))
                for value, front in groups.fronts.items()
            ),
        ],
    )


def _finding(
    kind: Kind,
    result: LeanResult | LeanGroups,
    compared: Sequence[Comparison],
    sentences: tuple[str, ...],
    badge: tuple[str, Tone],
    tables: list[Section],
) -> Finding:
    def charts() -> list[Chart]:
        roles = roles_in(compared)
        fronts = [
            _headed(chart, within, value)
            for within, value, front in _fronts(result)
            for chart in front_charts(front, roles)
        ]
        return [*fronts, *filter(None, [forest_chart(compared)])]

    title = "Answer at each budget"
    tables += [
        Section(
            f"{title}, {each.heading}" if each.heading else title,
            budgets_table(each.result.sensitivity),
        )
        for each in compared
    ]
    missing = tuple(
        replace(lacking, at={**each.at, **lacking.at})
        for each in compared
        for lacking in each.result.missing
    )
    told = next((each.result.sensitivity for each in compared if each.result.sensitivity), None)
    tables.append(Section("Runs that would settle it", missing_table(missing, told)))
    return Finding(
        kind,
        result,
        sentences,
        badge,
        tuple(section for section in tables if section.table.rows),
        charts,
        missing,
        _confirm(compared),
    )


def _fronts(result: LeanResult | LeanGroups) -> list[tuple[str, str, ParetoResult]]:
    if isinstance(result, LeanResult):
        return []
    return [(result.within, value, front) for value, front in result.fronts.items()]


def _confirm(compared: Sequence[Comparison]) -> tuple[Missing, ...]:
    """Return the runs that confirm what a study chose.

    The choice was the cheapest of several that passed, which inflates its estimate; seeds that no
    part of the study has seen tell whether it holds. Every chosen shape and its baseline is run
    with the seeds that find an equal shape nine times in ten (the most that any comparison needs).
    """
    usable = [
        each for each in compared if each.result.choice_config is not None and each.result.confirm
    ]
    if not usable:
        return ()
    # Alone a comparison is tested at the error rate that the whole study had.
    alpha = 0.05 if usable[0].at else usable[0].result.settings.alpha
    seeds = max(
        confirming_seeds(each.result.margin_over_sd or 0.0, alpha / len(usable)) for each in usable
    )
    runs = []
    for each in usable:
        result = each.result
        assert result.choice_config is not None
        chosen = next(row for row in result.table if row.label == result.choice)
        for config, setting in (
            (result.baseline, result.baseline_setting),
            (result.choice_config, chosen.setting),
        ):
            # What is confirmed is the shape at the setting that stands for it.
            at = {**each.at, **config, **(setting.values if setting is not None else {})}
            runs.append(Missing(at, seeds, "confirms the choice with fresh seeds"))
    return tuple(runs)


def _headed(chart: Chart, within: str, value: str) -> Chart:
    """Return a chart of one of several fronts, with a name and a title of its own."""
    own = re.sub(r"\W+", "-", f"{within} = {value}").strip("-")
    return replace(
        chart,
        name=f"{chart.name}-{own}",
        title=f"{chart.title}, {within} = {value}",
        picks=tuple(replace(pick, at=(*pick.at, (within, value))) for pick in chart.picks),
    )
