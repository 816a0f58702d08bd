"""How trials ended, whether their results allow an answer, and which trials an answer needs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd

from analysis.questions.transition.limits import FEWEST_FOR_A_BREAK
from analysis.questions.transition.result import CellCounts, Place, axis_values
from analysis.questions.transition.table import RunTable
from analysis.runs.losses import Losses, losses_named
from analysis.runs.statuses import AT_CHANCE
from analysis.values import Number, number
from hsweep.design.labels import counted
from hsweep.design.missing import Missing

Need = Literal["seeds", "below", "heads", "cells", ""]
"""What an open answer needs; empty where no further runs are known to help."""
_MIN_CELL_SHARE: Final = 0.9
"""Share of the cells that must have a full-budget run."""
_SEEDS_A_CELL: Final = 3
"""Seeds that an untested answer needs in every cell: two allow a test, three make a median and show
runs that get stuck."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a sweep reached its full budget.

    Attributes:
        x, by: the searched axis and the modulating one, which may be None.
        refusal: why no verdict is possible; empty where a verdict is possible.
        pruned_out: early stopping emptied cells, so the remaining cells are a selection, and no
            verdict is possible.
        pruned_inside: some cell holds runs stopped early beside its full-budget runs.
    """

    x: str
    by: str | None
    counts: tuple[CellCounts, ...]
    refusal: str
    pruned_out: bool
    pruned_inside: bool
    qualifications: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def xs(self) -> list[Number]:
        return sorted({cell.x for cell in self.counts})

    def crossed(self, xs: Iterable[Number]) -> list[Place]:
        """Return the cells with these values of x."""
        bys = sorted({cell.by for cell in self.counts}, key=lambda by: by or 0)
        return [(x, by) for x in xs for by in bys]


def audit(table: RunTable) -> Coverage:
    """Return the coverage of a table.

    A sweep gets no verdict when fewer than 90 % of its cells have a full-budget run, or no cell of
    some head count has. Cells that the table does not name were never part of the sweep: they are
    reported and do not count.
    """
    counts = _counts(table)
    done, empty = ([c for c in counts if bool(c.read) is has] for has in (True, False))
    empty_heads = sorted({cell.x for cell in counts} - {cell.x for cell in done})
    refusal = ""
    if len(done) / len(counts) < _MIN_CELL_SHARE or empty_heads:
        refusal = f"only {len(done)} of {len(counts)} cells have a full-budget run"
        if any(cell.setting is not None and cell.setting.lacks for cell in empty):
            refusal += " that can be compared"
        if empty_heads:
            refusal += ", none at " + ", ".join(f"{x:g}" for x in empty_heads)
    # A cell that waits for runs will not be empty, and seeds of a setting that lost never ran.
    is_emptied = any(cell.dropped and not cell.count("running", "planned") for cell in empty)
    pruned_inside = any(cell.dropped and not cell.is_whole for cell in done)
    qualifications, warnings = [], []
    cells = len({cell.x for cell in counts}) * len({cell.by for cell in counts})
    if absent := cells - len(counts):
        qualifications.append(f"{absent} of {cells} cells of the grid are not in the table")
    if len(sizes := {cell.read for cell in done}) > 1:
        warnings.append(f"cells hold between {min(sizes)} and {max(sizes)} full-budget runs")
    if pruned_inside:
        qualifications.append(
            "runs were stopped early inside cells: survivors are the better ones, so the typical"
            " reading is optimistic and the attainable reading leads"
        )
        if len({cell.started for cell in done}) > 1:
            qualifications.append(
                "cells started different numbers of runs, so their best runs are not comparable"
            )
    if note := _chance_note(table, counts):
        # The answer does not rest on runs at chance whose setting does not compete.
        rests_on_them = bool(table.frame["status"].eq(AT_CHANCE).any())
        (qualifications if rests_on_them else warnings).append(note)
    if still_open := sum(cell.count("running", "planned") > 0 for cell in counts):
        qualifications.append(
            f"{still_open} of {len(counts)} cells have runs that have not ended yet; the answer may"
            " change"
        )
    return Coverage(
        x=table.x,
        by=table.by,
        counts=counts,
        refusal=refusal,
        pruned_out=bool(refusal) and is_emptied,
        pruned_inside=pruned_inside,
        qualifications=tuple(qualifications),
        warnings=tuple(warnings),
    )


def _chance_note(table: RunTable, counts: Sequence[CellCounts]) -> str:
    places = losses_named(
        (cell.label(table.x, table.by), Losses(cell.complete, at_chance=cell.count(AT_CHANCE)))
        for cell in counts
    )
    runs = counted(sum(cell.count(AT_CHANCE) for cell in counts), "full-budget run")
    return places and f"{runs} learned no more than a constant predictor: {places}"


def missing_runs(coverage: Coverage, needs: Need) -> tuple[Missing, ...]:
    """Return the runs that meet the need of an open answer."""
    match needs:
        case "cells":
            return _empty_cells(coverage)
        case "seeds":
            return _more_seeds(coverage)
        case "below":
            why = "one value below the drop cannot tell a collapse from diminishing returns"
            return _at(coverage, coverage.crossed(_values_below(coverage.xs)), why)
        case "heads":
            xs = coverage.xs
            step = xs[-1] - xs[-2] if len(xs) > 1 else 1
            larger = [number(xs[-1] + step * k) for k in range(1, FEWEST_FOR_A_BREAK - len(xs) + 1)]
            why = f"too few values of {coverage.x}"
            return _more_seeds(coverage, least=2) + _at(coverage, coverage.crossed(larger), why)
    return ()


def _empty_cells(coverage: Coverage) -> tuple[Missing, ...]:
    """Return runs for the cells without a run.

    Where the other cells mostly hold a single run, they get further seeds too: otherwise the noise
    between seeds would not be measured.
    """
    read = {(cell.x, cell.by): cell.read for cell in coverage.counts}
    further_seeds: tuple[Missing, ...] = ()
    if np.median([number for number in read.values() if number] or [0]) < 2:
        further_seeds = _more_seeds(coverage)
    lacking = [
        place
        for place in coverage.crossed(coverage.xs)
        if not read.get(place) and not (further_seeds and place in read)
    ]
    return further_seeds + _at(coverage, lacking, "no full-budget run")


def _more_seeds(coverage: Coverage, least: int = _SEEDS_A_CELL) -> tuple[Missing, ...]:
    """Return the runs that bring cells with fewer than ``least`` seeds to three."""
    why = "too few seeds to measure their noise"
    return tuple(
        Missing(
            axis_values(coverage.x, coverage.by, (cell.x, cell.by)), _SEEDS_A_CELL - cell.read, why
        )
        for cell in coverage.counts
        if cell.read < least
    )


def _values_below(xs: Sequence[Number]) -> list[Number]:
    """Return a whole head count between the first two and one below both, where there are such.

    With two head counts below it, a drop can be told from diminishing returns.
    """
    first, second = xs[:2]
    if not all(float(x).is_integer() for x in (first, second)):
        return []
    between = {int(first + second) // 2, int(first) // 2} - {0, first, second}
    return sorted(number(x) for x in between if x > 0)


def _at(coverage: Coverage, places: Iterable[Place], why: str) -> tuple[Missing, ...]:
    """Return runs for these cells: as many seeds as the other cells hold, and three where those
    hold one."""
    sizes = [cell.read for cell in coverage.counts if cell.read]
    usual = int(np.median(sizes)) if sizes else 0
    seeds = usual if usual > 1 else _SEEDS_A_CELL
    lacks = {(cell.x, cell.by): cell.setting.lacks for cell in coverage.counts if cell.setting}
    return tuple(
        Missing(axis_values(coverage.x, coverage.by, place) | (lacks.get(place) or {}), seeds, why)
        for place in places
    )


def _counts(table: RunTable) -> tuple[CellCounts, ...]:
    frame = table.frame if table.aside is None else pd.concat([table.frame, table.aside])
    read = Counter(_places(table.frame.loc[table.frame["complete"]]))
    ended: dict[Place, Counter[str]] = {}
    for place, status in zip(_places(frame), frame["status"].tolist(), strict=True):
        ended.setdefault(place, Counter())[status] += 1
    return tuple(
        CellCounts(
            *place,
            ended=dict(sorted(ended[place].items())),
            read=read[place],
            setting=tuned.setting if (tuned := table.tuned_at(*place)) else None,
        )
        for place in sorted(ended, key=lambda place: (place[0], place[1] or 0))
    )


def _places(frame: pd.DataFrame) -> list[Place]:
    """Return the cell of each run."""
    return [
        (number(x), None if np.isnan(by) else number(by))
        for x, by in zip(frame["x"].tolist(), frame["by"].tolist(), strict=True)
    ]
