"""What a study has measured, as a small table that stands above its answer: the metric by cell, by
shape, or of the best points where nothing is asked."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from analysis.questions.base import Section, StudyRuns
from analysis.questions.shapes import answered_axes, axes_within_cells, nuisance_axes
from analysis.runs.columns import rows_by_values
from analysis.runs.losses import Losses
from analysis.runs.statuses import FULL, NOT_NEEDED
from analysis.runs.tuned import tuned_runs
from analysis.text.numbers import NONE, at_best, number_text, si_text
from analysis.text.tables import TERMINAL_ROWS, Table, first_rows, varying_columns
from analysis.values import AxisValue
from hsweep.errors import UserError
from hsweep.record.summary import first_line

_REST_NOTE: Final = "the page has them all"
_BEST: Final = 5
_DIGITS: Final = 3
_ENDS: Final = ("lowest", "highest")
_END_TEXTS: Final = {
    "stopped_early": "were stopped early",
    "too_large": "were too large for the device",
}
_GAP: Final = 2
"""Columns of a terminal between those of a table."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The runs of a cell, a shape or a point.

    Attributes:
        at: its axis values, in words.
        values: of the metric, one a seed.
        lost: what of its runs gave no number, in words.
        num_params: of its models; None where that is not known.
    """

    at: tuple[str, ...]
    values: tuple[float, ...]
    lost: str
    num_params: float | None

    @property
    def ends(self) -> tuple[str, str]:
        """The lowest and the highest value, in words."""
        low, high = min(self.values, default=math.nan), max(self.values, default=math.nan)
        return number_text(low, _DIGITS), number_text(high, _DIGITS)

    @property
    def median(self) -> float:
        return median(self.values) if self.values else math.nan

    @property
    def count(self) -> str:
        """How many values there are, and what was lost."""
        return f"{len(self.values)}{f' ({self.lost})' if self.lost else ''}"


def results_section(study: StudyRuns, width: int = 200) -> Section | None:
    """Return the table of a study's results, for a terminal of so many columns; None where it has
    none, or where its runs do not make one."""
    question, metric = study.question, study.manifest.metric
    varying = varying_columns(study.trials, study.manifest.axes)
    cell_axes = [axis for axis in answered_axes(study) if axis in varying]
    nuisance = [*nuisance_axes(study)]
    config = cell_axes or [axis for axis in varying if axis not in nuisance]
    if cell_axes:
        others = [axis for axis in varying if axis not in nuisance]
        nuisance += axes_within_cells(study.trials, cell_axes, others)
    places = _places(study, config, nuisance)
    if not any(place.values for place in places):
        return None
    better = "lower" if study.goal == "min" else "higher"
    after = "after" if study.manifest.final == "last" else "at its best within"
    budget = f"{after} {study.budget:,} {study.manifest.budget['unit']}"
    title = f"{metric} ({better} is better) {budget}{at_best(nuisance, study.manifest.place)}"
    if len(cell_axes) == 2:
        grid = _grid_table(cell_axes, places)
        if _width(grid) <= width:
            return Section(title, grid)
    if not cell_axes:
        sign = 1 if study.goal == "min" else -1
        places.sort(key=lambda place: (not place.values, sign * place.median))
    if not question:
        best_places = [place for place in places if place.values][:_BEST]
        if len(best_places) < len(places):
            title = f"the best {len(best_places)} of {len(places):,} points, by {title}"
        return Section(title, _list_table(config, best_places, metric, is_shape=True))
    return Section(title, _list_table(config, places, metric, is_shape=not cell_axes))


def which_report(study: StudyRuns) -> str:
    """Return which reports stand for the runs that ended by themselves, or for all of them; empty
    where all have trained their budget and the last counts."""
    trials, budget = study.trials, study.manifest.budget
    early = trials.loc[trials["status"].isin(FULL) & (trials["reached"] < trials["budget"])]
    choice = study.manifest.final
    if early.empty:
        return "" if choice == "last" else "The best report of each run counts."
    runs = "run" if len(trials) == 1 else "runs"
    low, high = early["reached"].min(), early["reached"].max()
    at = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    return (
        f"{len(early):,} of {len(trials):,} {runs} ended by themselves, at {at} of "
        f"{study.budget:,} {budget['unit']}; the {choice} report of each run counts."
    )


def no_results(study: StudyRuns) -> str:
    """Return that none of a study's runs has a result and none is to come, with how they ended and
    the commonest reason; empty where one has."""
    trials = study.every_trial.loc[study.every_trial["status"].ne(NOT_NEEDED)]
    counts = Counter(map(str, trials["status"]))
    if not counts or any(counts[word] for word in (*FULL, "planned", "running")):
        return ""
    ends = ", ".join(f"{number:,} {_END_TEXTS.get(word, word)}" for word, number in counts.items())
    subject = f"none of the {len(trials):,} runs has" if len(trials) > 1 else "the run has not"
    message = f"{subject} a result: {ends}"
    reasons = Counter(first_line(str(reason)) for reason in trials["reason"] if reason)
    if not reasons:
        return message
    reason, number = reasons.most_common(1)[0]
    often = "" if number == len(trials) else f"most often, {number:,} times: "
    return f"{message} ({often}{reason})"


def _places(study: StudyRuns, config: Sequence[str], nuisance: Sequence[str]) -> list[_Place]:
    """Return the cells, shapes or points in the order of their axis values; none where the runs
    cannot be told apart."""
    try:
        rows, _ = study.runs.rows([*config, *nuisance], at_chance_counts=True)
        counted = rows.runs
        if nuisance:
            kept, _, _ = tuned_runs(rows, config=config, nuisance=nuisance, goal=study.goal)
            counted = kept.runs
    except UserError:
        return []
    runs = rows.runs.assign(num_params=study.runs.frame["num_params"].reset_index(drop=True))
    is_counted = runs.index.isin(counted.index[counted["complete"]])
    places = []
    for key, at in rows_by_values(rows.keys, config):
        part = runs.iloc[at]
        params = part["num_params"].dropna()
        places.append(
            _Place(
                tuple(map(_text, key)),
                tuple(part["value"][is_counted[at]]),
                "" if nuisance else Losses.of(part["status"]).text,
                float(params.iloc[0]) if len(params) else None,
            )
        )
    return places


def _text(value: AxisValue) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _list_table(
    config: Sequence[str], places: Sequence[_Place], metric: str, *, is_shape: bool
) -> Table:
    """Return one row a place."""
    has_seeds = any(len(place.values) > 1 for place in places)
    has_losses = any(place.lost for place in places)
    columns = [(axis, [place.at[k] for place in places]) for k, axis in enumerate(config)]
    if is_shape and len({place.num_params for place in places}) > 1:
        columns.append(("parameters", [si_text(place.num_params) for place in places]))
    medians = [number_text(place.median, _DIGITS) for place in places]
    columns.append(("median" if has_seeds else metric, medians))
    if has_seeds:
        columns += [(end, [place.ends[k] for place in places]) for k, end in enumerate(_ENDS)]
    if has_seeds or has_losses:
        columns.append(("seeds" if has_seeds else "runs", [place.count for place in places]))
    header, cells = zip(*columns, strict=True)
    return first_rows(Table(header, tuple(zip(*cells, strict=True))), TERMINAL_ROWS, _REST_NOTE)


def _grid_table(axes: Sequence[str], places: Sequence[_Place]) -> Table:
    """Return one row a value of the first axis, and a column for each of the second."""
    x, by = axes
    at: Mapping[tuple[str, ...], _Place] = {place.at: place for place in places}
    columns = list(dict.fromkeys(place.at[1] for place in places))
    counts = {place.count for place in places}
    is_same = len(counts) == 1 and next(iter(counts)).isdigit()

    def cell(place: _Place | None) -> str:
        if place is None or not place.values:
            return NONE if place is None or not place.lost else f"{NONE} ({place.lost})"
        spread = f" ({' to '.join(place.ends)})" if len(place.values) > 1 else ""
        return (
            f"{number_text(place.median, _DIGITS)}{spread}{'' if is_same else f', n={place.count}'}"
        )

    rows = [
        (value, *(cell(at.get((value, column))) for column in columns))
        for value in dict.fromkeys(place.at[0] for place in places)
    ]
    number = next(iter(counts), "")
    note = ""
    if any(len(place.values) > 1 for place in places):
        note = (
            f"The median{f' of {number} seeds' if is_same else ''}, and the lowest to the highest."
        )
    return first_rows(
        Table((x, *(f"{by}={column}" for column in columns)), tuple(rows), note),
        TERMINAL_ROWS,
        _REST_NOTE,
    )


def _width(table: Table) -> int:
    columns = zip(table.header, *table.rows, strict=True)
    return sum(max(map(len, column)) + _GAP for column in columns) - _GAP
