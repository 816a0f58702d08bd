"""Early stopping is fair: strata do not meet, survivors are kept, and a record replays exactly.

Decided together, it also depends on the trials' values alone, never on their order.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_sweep
from tiny_runs import planned

from hsweep import Asha, Budget, Point, SizeBand, UserError, epochs, grid
from hsweep.coordination.asha import StratifiedAsha
from hsweep.coordination.gate import GO_ON, Gate, Verdict
from hsweep.design.early_stopping import PROTECTED
from hsweep.design.trial import Trial, TrialStatus

CLAIM = settings(deadline=None, derandomize=True, max_examples=100)
BUDGET = epochs(9)
UNITS = range(BUDGET.amount)
UNUSABLE = (None, math.nan, math.inf, -math.inf)


(TRIAL,) = planned(tiny_sweep(space=grid(width=[1]), budget=BUDGET))


@dataclass
class Entered:
    """A planned trial, and how far it is."""

    trial: Trial
    is_exempt: bool = False
    unit: int = 0


def row_of(key: str, stratum: str = "", point: str | None = None, **how: bool) -> Entered:
    """A planned trial, of a point of its own unless one is given."""
    trial = replace(TRIAL, key=key, stratum=stratum, point=Point({"name": point or key}))
    return Entered(trial, **how)


class Rungs:
    """A scheduler and the trials it was told of, by key."""

    def __init__(self, settings: Asha, goal: Literal["min", "max"] = "min", **how: Any):
        self.asha = StratifiedAsha(settings, BUDGET, goal, **how)
        self.rows: dict[str, Entered] = {}
        self.units: dict[str, int] = {}

    def enter(self, *rows: Entered) -> "Rungs":
        for row in rows:
            self.rows[row.trial.key] = row
            if not row.is_exempt:
                self.asha.enter(row.trial)
        return self

    def record(self, key: str, unit: int, value: float | None) -> None:
        self.units[key] = unit
        self.asha.record(self.rows[key].trial, unit, value)

    def verdict(self, key: str, unit: int) -> Verdict:
        return self.asha.verdict(self.rows[key].trial, unit)

    def report(self, key: str, unit: int, value: float | None) -> Verdict:
        self.record(key, unit, value)
        return self.verdict(key, unit)

    def end(self, key: str, status: TrialStatus, reason: str = "") -> None:
        self.asha.end(self.rows[key].trial, status, reason, self.units.get(key, 0))


@dataclass(frozen=True)
class Field:
    """Trials with their values after each of the budget's units, and the order they report in."""

    settings: Asha
    strata: dict[str, str]
    values: dict[str, list[float | None]]
    order: list[str]

    def rungs(self, goal: Literal["min", "max"] = "min") -> Rungs:
        rows = (row_of(key, stratum) for key, stratum in self.strata.items())
        return Rungs(self.settings, goal).enter(*rows)

    def run(
        self,
        rungs: Rungs,
        *,
        only: str | None = None,
        sign: int = 1,
        done: dict[str, int] | None = None,
        stopped: set[str] | None = None,
        order: list[str] | None = None,
    ) -> list[tuple[str, int, Verdict]]:
        """Let the trials report in their order until each has ended; return every decision."""
        done = defaultdict(int) if done is None else done
        stopped = set() if stopped is None else stopped
        decisions = []
        for key in self.order if order is None else order:
            stratum = self.strata[key]
            if key in stopped or done[key] == BUDGET.amount or only not in (None, stratum):
                continue
            value = self.values[key][done[key]]
            done[key] += 1
            verdict = rungs.report(key, done[key], None if value is None else sign * value)
            decisions.append((key, done[key], verdict))
            if verdict.stop:
                stopped.add(key)
                rungs.end(key, TrialStatus.STOPPED_EARLY, verdict.reason)
        return decisions


@st.composite
def fields(draw: st.DrawFn) -> Field:
    # One seed instead of hundreds of draws, which would take a hundred times as long.
    rng = Random(draw(st.integers(0, 2**32)))
    strata = {f"t{i}": f"heads={rng.randint(1, 2)}" for i in range(rng.randint(1, 14))}
    values: dict[str, list[float | None]] = {
        key: [rng.choice(UNUSABLE) if rng.random() < 0.15 else rng.randint(0, 9) / 3 for _ in UNITS]
        for key in strata
    }
    order = [key for key in strata for _ in UNITS]
    rng.shuffle(order)
    asha = Asha(
        grace=rng.randint(1, 4),
        reduction_factor=rng.randint(2, 4),
        min_survivors=rng.randint(1, 4),
        decide="on_arrival",
    )
    return Field(asha, strata, values, order)


class TestFairness:
    @CLAIM
    @given(fields())
    def test_every_stratum_keeps_its_survivors_to_the_end(self, field: Field) -> None:
        stopped: set[str] = set()
        field.run(field.rungs(), stopped=stopped)
        for stratum in set(field.strata.values()):
            members = {key for key, label in field.strata.items() if label == stratum}
            to_the_end = members - stopped
            assert len(to_the_end) >= min(field.settings.min_survivors, len(members))

    @CLAIM
    @given(fields())
    def test_strata_never_influence_each_other(self, field: Field) -> None:
        together = field.run(field.rungs())
        for stratum in set(field.strata.values()):
            alone = field.run(field.rungs(), only=stratum)
            assert alone == [d for d in together if field.strata[d[0]] == stratum]

    @CLAIM
    @given(fields())
    def test_the_best_so_far_is_never_stopped(self, field: Field) -> None:
        rungs: dict[tuple[str, int], list[float]] = defaultdict(list)
        for key, unit, verdict in field.run(field.rungs()):
            value = field.values[key][unit - 1]
            if value is None or not math.isfinite(value):
                assert not verdict.stop
                continue
            rung = rungs[field.strata[key], unit]
            rung.append(value)
            if value == min(rung):
                assert not verdict.stop

    @CLAIM
    @given(fields())
    def test_stops_happen_at_milestones_only(self, field: Field) -> None:
        milestones = field.settings.milestones(BUDGET)
        decisions = field.run(field.rungs())
        assert all(unit in milestones for _, unit, verdict in decisions if verdict.stop)

    @CLAIM
    @given(fields())
    def test_goals_are_mirror_images(self, field: Field) -> None:
        smaller = field.run(field.rungs("min"))
        larger = field.run(field.rungs("max"), sign=-1)
        assert smaller == larger

    def test_without_settings_nothing_is_stopped(self) -> None:
        keys = [f"t{number}" for number in range(20)]
        gate = Gate()
        for number, key in enumerate(keys):
            trial = row_of(key).trial
            gate.enter(trial)
            gate.record(trial, 3, float(number))
            assert gate.verdict(trial, 3) == GO_ON

    def test_of_nine_the_worse_are_stopped_and_the_reason_says_why(self) -> None:
        keys = [f"t{number}" for number in range(9)]
        rungs = Rungs(Asha(grace=3, min_survivors=1, decide="on_arrival"))
        rungs.enter(*(row_of(key, "heads=1") for key in keys))
        verdicts = [rungs.report(key, 3, float(i)) for i, key in enumerate(keys)]
        assert [verdict.stop for verdict in verdicts] == [False] + [True] * 8
        assert verdicts[-1].reason == (
            "rank 9 of 9 at rung 3 of stratum [heads=1]; the best 3 go on"
        )


class TestRungs:
    @CLAIM
    @given(fields())
    def test_a_rank_is_among_the_finite_values_that_reached_this_very_rung(
        self, field: Field
    ) -> None:
        there: dict[tuple[str, int], int] = defaultdict(int)
        for key, unit, verdict in field.run(field.rungs()):
            value = field.values[key][unit - 1]
            there[field.strata[key], unit] += value is not None and math.isfinite(value)
            if verdict.stop:
                assert f"of {there[field.strata[key], unit]} at rung {unit}" in verdict.reason

    def test_a_late_report_never_enters_an_early_rung(self) -> None:
        asha = Asha(grace=2, reduction_factor=2, min_survivors=1, decide="on_arrival")
        rungs = Rungs(asha).enter(row_of("late"), row_of("b"))
        assert rungs.report("late", 3, 0.5) == Verdict(False)
        assert rungs.report("b", 2, 0.9) == Verdict(False)

    def test_the_first_value_of_a_trial_at_a_rung_stays(self) -> None:
        asha = Asha(grace=3, min_survivors=1, decide="on_arrival")
        rungs = Rungs(asha).enter(row_of("a"), row_of("b"))
        rungs.record("a", 3, 1.0)
        rungs.record("a", 3, 9.0)
        assert rungs.report("b", 3, 2.0).reason.startswith("rank 2 of 2 ")

    @CLAIM
    @given(fields(), st.data())
    def test_a_replayed_record_decides_as_the_original_would_have(
        self, field: Field, data: st.DataObject
    ) -> None:
        cut = data.draw(st.integers(0, len(field.order)))
        done: dict[str, int] = defaultdict(int)
        stopped: set[str] = set()
        original = field.rungs()
        before = field.run(original, done=done, stopped=stopped, order=field.order[:cut])
        rebuilt = field.rungs()
        for key, unit, verdict in before:
            if verdict.stop:
                rebuilt.end(key, TrialStatus.STOPPED_EARLY, verdict.reason)
            rebuilt.record(key, unit, field.values[key][unit - 1])
        rest: dict[str, Any] = {"order": field.order[cut:]}
        assert field.run(original, done=done.copy(), stopped=set(stopped), **rest) == field.run(
            rebuilt, done=done.copy(), stopped=set(stopped), **rest
        )


class TestPointsCompete:
    """With ``compete="points"`` the contender is a shape, by the mean of its replicates."""

    def rungs(self, points: str, stratum: str = "") -> Rungs:
        asha = Asha(grace=3, min_survivors=1, compete="points", decide="on_arrival")
        rows = [row_of(f"{point}{seed}", stratum, point) for point in points for seed in (0, 1)]
        return Rungs(asha).enter(*rows)

    def test_an_unlucky_seed_is_not_stopped_while_its_shape_is_best(self) -> None:
        rungs = self.rungs("ab")
        rungs.record("a0", 3, 0.1)
        rungs.record("b0", 3, 0.6)
        assert not rungs.report("a1", 3, 0.9).stop

    def test_a_lucky_seed_goes_with_its_shape_at_its_next_milestone(self) -> None:
        rungs = self.rungs("abc")
        rungs.record("a0", 3, 0.1)
        rungs.record("b0", 3, 0.2)
        lost = rungs.report("c0", 3, 0.9)
        assert lost.stop
        rungs.end("c0", TrialStatus.STOPPED_EARLY, lost.reason)
        assert rungs.asha.lost(rungs.rows["c1"].trial) == lost.reason
        assert not rungs.report("c1", 2, 0.0).stop
        assert rungs.report("c1", 3, 0.0) == lost

    def test_a_shape_whose_replicate_failed_goes_on_with_the_others(self) -> None:
        rungs = self.rungs("ab")
        rungs.record("a0", 3, 0.1)
        rungs.end("a1", TrialStatus.FAILED)
        assert rungs.report("b0", 3, 0.9).stop, "the other shape is still there to survive"

    def test_survivors_are_shapes(self) -> None:
        rungs = self.rungs("ab")
        rungs.record("a0", 3, 0.1)
        rungs.end("a1", TrialStatus.STOPPED_EARLY, "rank 2 of 2")
        assert not rungs.report("b0", 3, 0.9).stop

    def test_a_trial_of_the_protected_stratum_is_never_stopped(self) -> None:
        rungs = self.rungs("abc", PROTECTED)
        values = {"a0": 0.1, "b0": 0.2, "c0": 0.9}
        assert not any(rungs.report(key, 3, value).stop for key, value in values.items())


def ends_of(
    field: Field, order: list[str], points: dict[str, str] | None = None
) -> dict[str, tuple[str, int]]:
    """Let the trials train in any order, each waiting where it must; return how each ended."""
    settings = replace(field.settings, decide="together")
    if points is not None:
        settings = replace(settings, compete="points")
    rows = (row_of(key, label, (points or {}).get(key)) for key, label in field.strata.items())
    rungs = Rungs(settings).enter(*rows)
    ended: dict[str, tuple[str, int]] = {}
    waiting: set[str] = set()

    def end(key: str, status: TrialStatus) -> None:
        ended[key] = status, rungs.rows[key].unit
        rungs.end(key, status, "lost" if status is TrialStatus.STOPPED_EARLY else "")

    while len(ended) < len(field.strata):
        before = (len(ended), len(waiting))
        moved = False
        for key in order:
            if key in ended or key in waiting:
                continue
            moved = True
            row = rungs.rows[key]
            value = field.values[key][row.unit]
            row.unit += 1
            if value is None:
                end(key, TrialStatus.DIVERGED)
            elif row.unit == BUDGET.amount:
                end(key, TrialStatus.FINISHED)
            else:
                verdict = rungs.report(key, row.unit, value)
                assert not (verdict.stop and verdict.wait)
                if verdict.stop:
                    end(key, TrialStatus.STOPPED_EARLY)
                elif verdict.wait:
                    rungs.asha.wait(row.trial, row.unit)
                    waiting.add(key)
        for stratum in set(field.strata.values()):
            for trial, verdict in rungs.asha.release(stratum):
                waiting.remove(trial.key)
                if verdict.stop:
                    end(trial.key, TrialStatus.STOPPED_EARLY)
        assert moved or (len(ended), len(waiting)) != before, "each waits for another"
    return ended


class TestDecidedTogether:
    @CLAIM
    @given(fields(), st.randoms(use_true_random=False), st.booleans())
    def test_which_are_stopped_does_not_depend_on_the_order(
        self, field: Field, rng: Random, by_points: bool
    ) -> None:
        points = {key: f"{field.strata[key]}/{key[-1]}" for key in field.strata}
        competing = points if by_points else None
        first = ends_of(field, field.order, competing)
        shuffled = list(field.order)
        rng.shuffle(shuffled)
        assert ends_of(field, shuffled, competing) == first
        assert ends_of(field, sorted(field.order), competing) == first

    @CLAIM
    @given(fields())
    def test_the_best_of_a_full_rung_go_on_and_no_fewer_than_the_survivors(
        self, field: Field
    ) -> None:
        ended = ends_of(field, field.order)
        for unit in field.settings.milestones(BUDGET):
            for stratum in set(field.strata.values()):
                there = {
                    key: field.values[key][unit - 1]
                    for key, (how, reached) in ended.items()
                    if field.strata[key] == stratum
                    and reached >= unit
                    and not (how == "diverged" and reached == unit)
                }
                numbers = {k: v for k, v in there.items() if v is not None and math.isfinite(v)}
                stopped = {key for key in there if ended[key] == ("stopped_early", unit)}
                kept = max(
                    1, len(numbers) // field.settings.reduction_factor, field.settings.min_survivors
                )
                assert len(stopped) == max(0, len(numbers) - kept)
                worst_kept = max((numbers[key] for key in numbers.keys() - stopped), default=0.0)
                assert all(numbers[key] >= worst_kept for key in stopped)

    def test_no_trial_waits_where_none_can_be_stopped(self) -> None:
        rungs = Rungs(Asha(grace=3, min_survivors=3)).enter(*map(row_of, "abc"))
        assert rungs.report("a", 3, 0.5) == Verdict(False)

    def test_the_one_that_waits_is_told_where(self) -> None:
        rungs = Rungs(Asha(grace=3, min_survivors=1))
        rungs.enter(*(row_of(key, "heads=1") for key in "abc"))
        reason = "waits at rung 3 of stratum [heads=1] for the others"
        assert rungs.report("a", 3, 0.5) == Verdict(False, reason, wait=True)
        rungs.end("b", TrialStatus.FAILED)
        assert rungs.report("c", 3, 0.1) == Verdict(False)
        verdict = rungs.verdict("a", 3)
        assert verdict.stop
        assert verdict.reason == "rank 2 of 2 at rung 3 of stratum [heads=1]; the best goes on"

    def test_a_trial_that_is_exempt_goes_on_and_is_no_survivor_to_count_on(self) -> None:
        rungs = Rungs(Asha(grace=3, min_survivors=1))
        rungs.enter(row_of("a", is_exempt=True), row_of("b"), row_of("c"))
        assert rungs.report("a", 3, 0.9) == Verdict(False)
        assert rungs.report("b", 3, 0.5).wait
        assert rungs.report("c", 3, 0.7).stop
        assert rungs.verdict("b", 3) == Verdict(False)

    def test_a_search_that_does_not_know_which_will_come_decides_on_arrival(self) -> None:
        rungs = Rungs(Asha(grace=3, min_survivors=1), knows_all=False).enter(*map(row_of, "abc"))
        assert rungs.report("a", 3, 0.5) == Verdict(False)
        assert rungs.report("b", 3, 0.9).stop


class TestMilestones:
    def test_they_grow_by_the_reduction_factor_and_end_before_the_budget(self) -> None:
        assert Asha(grace=1).milestones(epochs(100)) == [1, 3, 9, 27, 81]
        assert Asha(grace=1).milestones(epochs(81)) == [1, 3, 9, 27]
        assert Asha(grace=15).milestones(epochs(150, report_every=5)) == [15, 45, 135]

    def test_they_move_up_to_the_next_report(self) -> None:
        assert Asha(grace=4).milestones(epochs(100, report_every=10)) == [10, 20, 40]

    def test_a_grace_of_the_whole_budget_leaves_none(self) -> None:
        assert Asha(grace=10).milestones(epochs(10)) == []

    @CLAIM
    @given(st.integers(1, 300), st.integers(1, 50), st.integers(1, 300), st.integers(2, 5))
    def test_each_is_the_first_report_that_reaches_its_target(
        self, amount: int, every: int, grace: int, factor: int
    ) -> None:
        budget = Budget(amount, "epochs", every)
        reports = budget.report_units()
        targets = [grace * factor**k for k in range(20) if grace * factor**k < amount]
        reached = [min(unit for unit in reports if unit >= target) for target in targets]
        expected = sorted({unit for unit in reached if unit < amount})
        milestones = Asha(grace=grace, reduction_factor=factor).milestones(budget)
        assert milestones == expected
        assert all(type(unit) is int for unit in milestones)


class TestStrata:
    def test_axes_make_a_label(self) -> None:
        asha = Asha(grace=1, strata=("seq_len", "heads"))
        assert asha.stratum({"heads": 4, "seq_len": 8, "lr": 0.1}, 100) == "seq_len=8,heads=4"
        assert Asha(grace=1).stratum({"heads": 4}, 100) == ""

    def test_an_axis_that_the_space_lacks_is_an_error(self) -> None:
        with pytest.raises(UserError, match="Did you mean 'heads'"):
            Asha(grace=1, strata=("head",)).stratum({"heads": 4}, 100)

    @CLAIM
    @given(st.floats(1.05, 10), st.integers(1, 10**12), st.integers(1, 10**12))
    def test_models_of_a_band_differ_by_less_than_the_factor(
        self, factor: float, one: int, other: int
    ) -> None:
        band = SizeBand(factor)
        if band.label(one) == band.label(other):
            assert max(one, other) / min(one, other) <= factor * (1 + 1e-6)

    @CLAIM
    @given(st.integers(2, 10), st.integers(0, 7))
    def test_an_exact_power_opens_its_band(self, factor: int, power: int) -> None:
        band = SizeBand(float(factor))
        size = factor**power
        assert band.label(size) == band.label(size * factor - 1)
        if size > 1:
            assert band.label(size) != band.label(size - 1)

    def test_a_label_names_the_ends(self) -> None:
        assert SizeBand(2.0).label(1500) == "num_params=1.02e+03..2.05e+03"
        assert Asha(grace=1, strata=SizeBand(10.0)).stratum({}, 50) == "num_params=10..100"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Asha(grace=0), "grace must .* not 0"),
        (lambda: Asha(grace=2.5), "grace must .* not 2.5"),
        (lambda: Asha(grace=1, reduction_factor=1), "reduction_factor .* not 1"),
        (lambda: Asha(grace=1, reduction_factor=2.5), "reduction_factor .* not 2.5"),
        (lambda: Asha(grace=1, min_survivors=0), "min_survivors .* not 0"),
        (lambda: Asha(grace=1, compete="seeds"), "'trials' or 'points', not 'seeds'"),
        (lambda: Asha(grace=1, decide="later"), "'together' or 'on_arrival', not 'later'"),
        (lambda: SizeBand(1.0), "above 1, not 1.0"),
        (lambda: SizeBand(math.nan), "above 1, not nan"),
        (lambda: Asha(grace=1, strata="heads"), r"strata .*\('heads',\)"),
    ],
)
def test_settings_out_of_range_say_so(build: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build()


def test_who_has_lost_at_a_rung_is_no_rival_at_the_next() -> None:
    """Results of other studies bring losers the values of later rungs, too."""
    rungs = Rungs(Asha(grace=3, reduction_factor=2, min_survivors=1)).enter(*map(row_of, "abcd"))
    for unit, values in ((3, (1, 2, 3, 4)), (6, (1, 2, 0.5, 0))):
        for key, value in zip("abcd", values, strict=True):
            rungs.record(key, unit, value)
    assert [rungs.verdict(key, 6).stop for key in "abcd"] == [False, True, True, True]
    assert rungs.verdict("c", 6).reason.startswith("rank 3 of 4 at rung 3")
