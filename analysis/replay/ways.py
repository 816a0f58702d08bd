"""What ways to run a study cost, and how often they keep its answer."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np

from analysis.adaptive.planned import FrontSearch, Searches, TransitionSearch, study_search
from analysis.charts import palette
from analysis.charts.axes import row_axis
from analysis.charts.chart import Axis, Chart, Mark, Series
from analysis.replay.record import Record
from analysis.statistics.bounds import share_of
from analysis.statistics.values import Interval
from analysis.text.tables import Table
from analysis.values import describe
from hsweep.coordination.asha import StratifiedAsha
from hsweep.design.budget import Budget
from hsweep.design.early_stopping import PROTECTED, Asha
from hsweep.design.search import BASELINE_MORE, BY_ROUNDS, SEARCH_SEEDS, searched_length
from hsweep.design.space import parse_values
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError, unknown_name

KEPT: Final = 0.95
"""Share of draws in which a way has to keep the answer to be recommended."""
_RUNGS: Final = ("grace", "reduction_factor", "min_survivors", "compete")


class Played(NamedTuple):
    """What became of a way.

    Attributes:
        share: of the record's budget units, the mean and the ends of 90 % of the draws.
        draws: that were played; ``short`` of them asked for seeds that are not on record.
        same: share of the others with the record's answer, with its 95 % Wilson interval: one of
            the draws, not of further studies. None where there are no others.
    """

    way: str
    share: Interval
    draws: int
    short: int
    same: Interval | None

    @property
    def is_kept(self) -> bool:
        """Whether enough of all draws had the record's answer, for less training."""
        same = self.same.estimate if self.same else 0.0
        return same * (1 - self.short / self.draws) >= KEPT and self.share.estimate < 1


class Replay:
    """Plays ways to run a study with the values on record.

    A way is ``adaptive``, or parts with commas between: ``seeds=2`` of each cell, every second
    value of an axis by ``every=AXIS/2``, and fields of `Asha` (``grace=5,reduction_factor=4``).

    Attributes:
        answer: of the whole record.

    Raises:
        UserError: each run has one report.
    """

    def __init__(self, record: Record) -> None:
        self.record, (_, _, seed) = record, record.columns
        if len(record.last) == len(record.reports):
            raise UserError("a replay needs the histories of runs, and each run has one report")
        self.rows = record.frame.loc[record.last.index].to_dict("records")
        self._units: dict[int, float] = dict(enumerate(record.last["unit"]))
        axes = *record.cells, *record.nuisance
        self._points = [{name: row[name] for name in axes} for row in self.rows]
        self._cells = [tuple(row[name] for name in record.cells) for row in self.rows]
        self._seed_of = [row[seed] for row in self.rows]
        self._seeds: dict[Any, list[Any]] = {cell: [] for cell in self._cells}
        for cell, at in dict.fromkeys(zip(self._cells, self._seed_of, strict=True)):
            self._seeds[cell] += [] if at in range(record.scouts) else [at]
        base = dict(record.question.get("baseline") or {}).items()
        self._is_base = [bool(base) and base <= row.items() for row in self.rows]
        self.answer, self._known = record.answer(self._units), dict[Any, str]()

    def rate(
        self, texts: Sequence[str], draws: int, show: Callable[[float], object]
    ) -> list[Played]:
        """Play ways with the seeds in random orders; those that fit, where none is named.

        Raises:
            UserError: a way that the record cannot play.
        """
        rated, total = [], sum(self._units.values())
        ways = {text: self._read(text) for text in texts or self._usual()}
        for place, (text, way) in enumerate(ways.items()):
            rng, told, shares = np.random.default_rng(0), [], []
            # Rungs alone have all runs, in any order.
            is_drawn = not way["asha"] or "seeds" in way or way["every"]
            for number in range(draws if is_drawn else 1):
                show((place + number / draws) / len(ways))
                said, kept = self._play(way, rng)
                told += [] if said is None else [said == self.answer]
                shares.append(sum(kept.values()) / total)
            share = Interval(float(np.mean(shares)), *map(float, np.quantile(shares, (0.05, 0.95))))
            same = share_of(sum(told), len(told)) if told else None
            rated.append(Played(text, share, len(shares), len(shares) - len(told), same))
        return rated

    def _usual(self) -> list[str]:
        most, whole = max(map(len, self._seeds.values())), max(self._units.values())
        ways = [] if self._why_not("adaptive") else ["adaptive"]
        ways += [f"seeds={few}" for few in (1, 2, 3, 5, 8) if few < most]
        for axis in self.record.cells:
            values = {row[axis] for row in self.rows}
            is_ordered = not any(isinstance(value, str) for value in values)
            ways += [f"every={axis}/2"] if is_ordered and len(values) > 3 else []
        rungs = () if self._why_not("") else ((9, 3), (4, 4), (2, 2))
        return ways + [f"grace={-int(-whole // k)},reduction_factor={rf}" for k, rf in rungs]

    def _why_not(self, text: str) -> str:
        """Return why the adaptive search, or rungs, cannot be replayed."""
        record = self.record
        if text != "adaptive":
            return "the settings that scouts left are not on record" if record.scouts else ""
        is_asked = record.question and (record.scouts or not record.nuisance)
        return "" if is_asked else "it needs a question of transition or lean, and scouts for rates"

    def _read(self, text: str) -> dict[str, Any]:
        way: dict[str, Any] = dict(part.partition("=")[::2] for part in text.split(","))
        for name in () if text == "adaptive" else way:
            if name not in (known := ("seeds", "every", *_RUNGS)):
                raise unknown_name("part of a way", name, ("adaptive", *known))
        axis, _, step = way.get("every", "").partition("/")
        if axis and axis not in self.record.cells:
            raise unknown_name("axis in every=AXIS/2", axis, self.record.cells)
        numbers = way.get("seeds", "1"), step if axis else "1"
        if not all(number.isdecimal() and int(number) for number in numbers):
            raise UserError(f"seeds=2 and every=AXIS/2 take whole numbers above 0, not {text!r}")
        rungs: dict[str, Any] = {name: parse_values(way[name])[0] for name in _RUNGS if name in way}
        if (rungs or text == "adaptive") and (why := self._why_not(text)):
            raise UserError(f"{text!r} cannot be replayed: {why}")
        is_transition = self.record.question.get("type") == "Transition"
        usual = {"strata": tuple(self.record.cells)} if is_transition else {"compete": "points"}
        asha = Asha(**{**usual, **rungs}) if rungs else None
        return {**way, "every": (axis, int(step)) if axis else None, "asha": asha}

    def _play(
        self, way: Mapping[str, Any], rng: np.random.Generator
    ) -> tuple[str | None, Mapping[int, float]]:
        """Return the answer of a way with the seeds of each cell in a random order, and what it
        trains; no answer where seeds that it asks for are not on record."""
        scouts, kept = [*range(self.record.scouts)], self._units
        order = {cell: scouts + rng.permutation(at).tolist() for cell, at in self._seeds.items()}
        if "adaptive" in way:
            return self._adaptive(order)
        if way["every"]:
            axis, step = way["every"]
            some = sorted({row[axis] for row in self.rows})[int(rng.integers(step)) :: step]
            kept = {k: kept[k] for k in kept if self.rows[k][axis] in some or self._is_base[k]}
        if "seeds" in way:
            few = len(scouts) + int(way["seeds"])
            kept = {k: kept[k] for k in kept if self._seed_of[k] in order[self._cells[k]][:few]}
        if way["asha"]:
            kept = self._halve(way["asha"], kept)
        if (key := tuple(kept.items())) not in self._known:
            self._known[key] = self.record.answer(kept)
        return self._known[key], kept

    def _halve(self, asha: Asha, kept: dict[int, float]) -> dict[int, float]:
        """Return what runs train until a rung stops them, or their record ends: all at one pace; a
        run without a report at a rung has the one before it."""
        reports, full = self.record.reports, round(max(self._units.values()))
        gap = round(float(reports.groupby("run")["unit"].diff().median()))
        budget = Budget(full, "steps", max(1, gap))
        rungs, ended, trials = StratifiedAsha(asha, budget, self.record.goal), {**kept}, {}
        for k in kept:
            point = self._points[k]
            trial: Any = SimpleNamespace(key=str(k), point=point, replicate=0, previous="")
            trial.stratum = PROTECTED if self._is_base[k] else asha.stratum(point, None)
            trials[k], trial.budget = trial, budget
            rungs.enter(trial)
        for unit in asha.milestones(budget):
            values = reports[reports["unit"] <= unit].groupby("run")["value"].last()
            for k in [k for k in trials if kept[k] < unit]:
                rungs.end(trials.pop(k), TrialStatus.FAILED, "")
            for k, trial in trials.items():
                rungs.record(trial, unit, values.get(k))
            for k in [k for k, trial in trials.items() if rungs.verdict(trial, unit).stop]:
                rungs.end(trials.pop(k), TrialStatus.STOPPED_EARLY, "")
                ended[k] = unit
        return ended

    def _adaptive(self, order: Mapping[Any, list[Any]]) -> tuple[str | None, dict[int, float]]:
        """Play the design of rounds that asks the question. It takes the seeds of a cell in their
        order; a run that is not on record has no value."""
        record, plan, ends = self.record, dict[str, Any](), self.record.last["value"].tolist()
        question, by = record.question, record.question.get("by")
        method = question["type"].lower()
        lengths = sorted({row[by] for row in self.rows}) if by else [None]
        searched = lengths[searched_length(len(lengths))]
        names = [json.dumps(point, default=str) for point in self._points]
        runs = {at: k for k, at in enumerate(zip(names, self._seed_of, strict=True))}
        for name, k in {name: k for k, name in enumerate(names)}.items():
            is_searched = by is None or self.rows[k][by] == searched
            more = max(SEARCH_SEEDS, BASELINE_MORE) if is_searched else 0
            for number in range(record.scouts + BY_ROUNDS[method] + more):
                row: Any = SimpleNamespace(key=f"{name} {number}", replicate=number, budget=1)
                row.point, row.counts, row.run = self._points[k], self.rows[k], k
                plan[row.key] = row
        asked = question, record.goal, 1, record.scouts, method
        search = study_search([*plan.values()], *asked)
        assert not isinstance(search, Searches | FrontSearch)  # such a record is refused
        values, kept, is_short = dict[str, float | None](), dict[int, float](), False
        while keys := search.next_round(values):
            for row in map(plan.__getitem__, keys):
                seed = dict(enumerate(order[self._cells[row.run]])).get(row.replicate)
                found = runs.get((names[row.run], seed))
                is_short |= seed is None
                values[row.key] = None
                if found is not None:
                    kept[found] = self._units[found]
                    values[row.key] = ends[found] if np.isfinite(ends[found]) else None
        end: Any = search.played.answer
        if isinstance(search, TransitionSearch):
            is_found = end.verdict == "collapse"
            said = f"h* = {search.heads[end.star]:g}" if is_found else end.verdict
        else:
            outcomes = {each.shape: each.outcome for raced in end for each in raced}
            best = [shape for shape, outcome in outcomes.items() if outcome == "established"]
            said = "excluded" if {*outcomes.values()} == {"excluded"} else "undecided"
            if best:
                said = describe({name: search.shapes[best[0]][name] for name in record.cells})
        return None if is_short else said, kept


def advice(played: Sequence[Played]) -> tuple[str | None, str]:
    """Return the cheapest way that kept the answer, and a sentence that names it."""
    best = min((each for each in played if each.is_kept), key=lambda one: one.share, default=None)
    which = f"way that kept the answer in at least {KEPT:.0%} of the draws"
    if best is None:
        return None, f"There is no cheaper {which}."
    share = best.share.estimate
    return best.way, f"The cheapest {which}: --way {best.way}, with {share:.0%} of the training."


def ways_table(played: Sequence[Played]) -> Table:
    """Return the ways as a table."""
    rows = []
    for way, share, draws, short, same in played:
        kept = "not known" if same is None else _percent(same)
        if draws == 1 and same is not None:
            kept = "yes" if same.estimate else "no"
        rows.append((way, _percent(share), kept, f"{short} of {draws}" if short else ""))
    header = "way", "share of the training", "same answer", "draws that lack seeds"
    return Table(header, tuple(rows))


def _percent(share: Interval) -> str:
    return "{:.0f} % ({:.0f} to {:.0f})".format(*(100 * value for value in share))


def ways_chart(played: Sequence[Played], name: str) -> Chart:
    """Return the chart of cost and agreement, a row a way."""

    def series(title: str, shade: palette.Shade, shares: Sequence[Interval | None]) -> Series:
        drawn = [
            (k, one, one if played[k].draws > 1 else None) for k, one in enumerate(shares) if one
        ]
        marks = tuple(Mark(one.estimate, k, interval) for k, one, interval in drawn)
        return Series(marks, shade, title, interval="x")

    cost = series("training", palette.GREY, [each.share for each in played])
    kept = series("draws with the same answer", palette.BLUE, [each.same for each in played])
    title = "What a way costs, and how often it keeps the answer"
    x = "share of the training (grey), of the draws with the same answer (blue)"
    rows = row_axis([each.way for each in played])
    return Chart(name, title, "", Axis(x, range=(-0.03, 1.03)), rows, (cost, kept))
