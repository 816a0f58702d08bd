"""Which trials ended how, whether that allows an answer, and which trials would."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.questions.transition.result import CellCounts, Need
from analysis.questions.transition.run_table import RunTable
from analysis.runs.losses import losses_named
from analysis.runs.statuses import AT_CHANCE, NOT_NEEDED
from analysis.values import AxisValue, Number, number
from hsweep.design.question import Missing

_MOST_NAMED = 6
_SEEDS_A_CELL = 3
"""Seeds that an untested answer asks for in every cell."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a sweep reached its full budget.

    Attributes:
        x, by: the searched axis and the modulating one, which may be None.
        lacking: cells of the h x T grid without a full-budget run, named by the table or not.
        refusal: why no verdict may be given; empty when one may.
        pruned_out: refused because early stopping emptied cells, so what is left is selected.
        pruned_inside: some cell holds runs stopped early beside its full-budget runs.
    """

    x: str
    by: str | None
    counts: tuple[CellCounts, ...]
    lacking: tuple[tuple[Number, Number | None], ...]
    refusal: str
    pruned_out: bool
    pruned_inside: bool
    qualifications: tuple[str, ...]
    warnings: tuple[str, ...]


def audit(table: RunTable, min_cell_share: float) -> Coverage:
    """Return what a table covers.

    A sweep is refused when fewer than ``min_cell_share`` of its cells, or any head count not at
    all, have a full-budget run. Cells that the table does not name were never part of the sweep:
    they are reported, not held against it.
    """
    counts = _counts(table)
    named = {(cell.x, cell.by): cell for cell in counts}
    xs = sorted({cell.x for cell in counts})
    bys = sorted({cell.by for cell in counts}, key=lambda by: -np.inf if by is None else by)
    lacking = tuple(
        (x, by) for x in xs for by in bys if (x, by) not in named or named[(x, by)].read == 0
    )
    unfinished = [cell for cell in counts if cell.read == 0]
    done = [cell for cell in counts if cell.read > 0]
    empty_heads = [x for x in xs if all(cell.read == 0 for cell in counts if cell.x == x)]
    share = len(done) / len(counts)
    refusal = ""
    if share < min_cell_share or empty_heads:
        refusal = f"only {len(done)} of {len(counts)} cells have a full-budget run"
        if empty_heads:
            refusal += ", none at " + ", ".join(f"{x:g}" for x in empty_heads)
    # A cell that waits for runs will not be empty, and seeds of a setting that lost never ran.
    pruned_out = bool(refusal) and any(
        cell.dropped and not cell.running + cell.planned for cell in unfinished
    )
    pruned_inside = any(cell.dropped and not cell.is_whole for cell in done)
    qualifications, warnings = [], []
    absent = len(xs) * len(bys) - len(counts)
    if absent:
        qualifications.append(
            f"{absent} of {len(xs) * len(bys)} cells of the grid are not in the table"
        )
    if len({cell.read for cell in done}) > 1:
        sizes = [cell.read for cell in done]
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
    lost = sum(cell.losses.total for cell in counts)
    if lost:
        lossy = losses_named([(_cell_name(cell, table), cell.losses) for cell in counts])
        warnings.append(
            f"{lost} run{'' if lost == 1 else 's'} gave no number, and a cell is read from those"
            f" that are left: {lossy}"
        )
    if note := _chance_note(table, counts):
        # Where their setting does not compete, the answer does not rest on them.
        rests_on_them = bool(table.frame["status"].eq(AT_CHANCE).any())
        (qualifications if rests_on_them else warnings).append(note)
    if still_open := sum(cell.running + cell.planned > 0 for cell in counts):
        qualifications.append(
            f"{still_open} of {len(counts)} cells have runs that have not ended yet; the answer may"
            " change"
        )
    return Coverage(
        x=table.x,
        by=table.by,
        counts=counts,
        lacking=lacking,
        refusal=refusal,
        pruned_out=pruned_out,
        pruned_inside=pruned_inside,
        qualifications=tuple(qualifications),
        warnings=tuple(warnings),
    )


def _chance_note(table: RunTable, counts: Sequence[CellCounts]) -> str:
    cells = [cell for cell in counts if cell.at_chance]
    if not cells:
        return ""
    total = sum(cell.at_chance for cell in cells)
    places = [
        f"{cell.at_chance} of {cell.complete} at {_cell_name(cell, table)}"
        for cell in cells[:_MOST_NAMED]
    ]
    if len(cells) > _MOST_NAMED:
        places.append(f"and {len(cells) - _MOST_NAMED} more cells")
    return (
        f"{total} full-budget run{'' if total == 1 else 's'} at chance (learned no more than a"
        f" constant predictor): {'; '.join(places)}"
    )


def _cell_name(cell: CellCounts, table: RunTable) -> str:
    by = f", {table.by}={cell.by:g}" if cell.by is not None else ""
    return f"{table.x}={cell.x:g}{by}"


def missing_runs(coverage: Coverage, needs: Need) -> tuple[Missing, ...]:
    """Return the runs that give an open answer what it needs."""
    num_heads = len({cell.x for cell in coverage.counts})
    match needs:
        case "cells":
            return _lacking(coverage)
        case "seeds":
            return _repeated(coverage)
        case "below":
            return _below(coverage)
        case "heads":
            return (*_repeated(coverage, least=2), *_more_heads(coverage, 4 - num_heads))
    return ()


def _lacking(coverage: Coverage) -> tuple[Missing, ...]:
    """Return the runs of the cells without any; where the others mostly hold a single one, more
    seeds of these too, as the noise between seeds would not be measured."""
    rest = set(coverage.lacking)
    repeated: tuple[Missing, ...] = ()
    if np.median([cell.read for cell in coverage.counts if cell.read] or [0]) < 2:
        repeated = _repeated(coverage)
        rest -= {(cell.x, cell.by) for cell in coverage.counts}
    seeds = _usual_seeds(coverage)
    absent = [
        _missing(coverage, x, by, seeds, "no full-budget run")
        for x, by in coverage.lacking
        if (x, by) in rest
    ]
    return (*repeated, *absent)


def _missing(coverage: Coverage, x: Number, by: Number | None, trials: int, why: str) -> Missing:
    at: dict[str, AxisValue] = {coverage.x: x}
    if coverage.by is not None and by is not None:
        at[coverage.by] = by
    return Missing(at, trials, why)


def _repeated(coverage: Coverage, least: int = _SEEDS_A_CELL) -> tuple[Missing, ...]:
    """Return the runs that bring cells with fewer than ``least`` seeds to three, which measure the
    noise between them.

    Two are enough to be tested; three make a median, and show runs that get stuck.
    """
    why = "too few seeds to measure their noise"
    return tuple(
        _missing(coverage, cell.x, cell.by, _SEEDS_A_CELL - cell.read, why)
        for cell in coverage.counts
        if cell.read < least
    )


def _below(coverage: Coverage) -> tuple[Missing, ...]:
    """Return trials at whole head counts below the second: between the first two, and below both.

    With two head counts below it a drop can be told from diminishing returns. None where no whole
    number is left there.
    """
    first, second = sorted({cell.x for cell in coverage.counts})[:2]
    if not all(float(x).is_integer() for x in (first, second)):
        return ()
    wanted = {int(first + second) // 2, int(first) // 2} - {0, first, second}
    why = "one value below the drop cannot tell a collapse from diminishing returns"
    return _crossed(coverage, sorted(number(x) for x in wanted if x > 0), why)


def _more_heads(coverage: Coverage, needed: int) -> tuple[Missing, ...]:
    xs = sorted({cell.x for cell in coverage.counts})
    step = xs[-1] - xs[-2] if len(xs) > 1 else 1
    more = [number(xs[-1] + step * ahead) for ahead in range(1, needed + 1)]
    return _crossed(coverage, more, f"too few values of {coverage.x}")


def _crossed(coverage: Coverage, xs: list[Number], why: str) -> tuple[Missing, ...]:
    usual = _usual_seeds(coverage)
    lengths = dict.fromkeys(cell.by for cell in coverage.counts)
    return tuple(_missing(coverage, x, by, usual, why) for x in xs for by in lengths)


def _usual_seeds(coverage: Coverage) -> int:
    """Return how many full-budget runs other cells hold, or how many are enough if it is one."""
    sizes = [cell.read for cell in coverage.counts if cell.read > 0]
    usual = int(np.median(sizes)) if sizes else 0
    return usual if usual > 1 else _SEEDS_A_CELL


def _counts(table: RunTable) -> tuple[CellCounts, ...]:
    frame = table.frame if table.aside is None else pd.concat([table.frame, table.aside])
    standing = _cells_of(table.frame.loc[table.frame["complete"]])
    cells: dict[tuple[float, float | None], Counter[str]] = {}
    counted = frame.groupby(["x", "by", "status"], sort=False, dropna=False).size()
    for (x, by, status), number_of in zip(counted.index.tolist(), counted.tolist(), strict=True):
        cells.setdefault((x, None if np.isnan(by) else by), Counter())[status] += number_of
    return tuple(
        CellCounts(
            x=number(x),
            by=None if by is None else number(by),
            started=ended.total() - ended["planned"] - ended[NOT_NEEDED],
            complete=ended["finished"] + ended[AT_CHANCE],
            pruned=ended["stopped_early"],
            failed=ended["failed"],
            diverged=ended["diverged"],
            running=ended["running"],
            planned=ended["planned"],
            too_large=ended["too_large"],
            at_chance=ended[AT_CHANCE],
            not_needed=ended[NOT_NEEDED],
            setting=each.setting if (each := table.tuned_at(x, by)) else None,
            tuned=standing[x, by] if table.nuisance else None,
        )
        for (x, by), ended in sorted(cells.items(), key=lambda item: (item[0][0], item[0][1] or 0))
    )


def _cells_of(rows: pd.DataFrame) -> Counter[tuple[float, float | None]]:
    return Counter(
        (x, None if np.isnan(by) else by)
        for x, by in zip(rows["x"].tolist(), rows["by"].tolist(), strict=True)
    )
