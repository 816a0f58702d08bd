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

from hsweep import Asha, Budget, SizeBand, UserError, epochs
from hsweep.coordination.rungs import StratifiedAsha, Verdict
from hsweep.design.early_stopping import PROTECTED

CLAIM = settings(deadline=None, derandomize=True, max_examples=100)
BUDGET = epochs(9)
UNITS = range(BUDGET.amount)
UNUSABLE = (None, math.nan, math.inf, -math.inf)


@dataclass(frozen=True)
class Race:
    """Trials with their values after each of the budget's units, and the order they report in."""

    settings: Asha
    strata: dict[str, str]
    values: dict[str, list[float | None]]
    order: list[str]

    def scheduler(self, goal: Literal["min", "max"] = "min") -> StratifiedAsha:
        scheduler = StratifiedAsha(self.settings, BUDGET, goal)
        for key, stratum in self.strata.items():
            scheduler.add(key, stratum)
        return scheduler

    def run(
        self,
        scheduler: StratifiedAsha,
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
            verdict = scheduler.decide(
                key, stratum, done[key], None if value is None else sign * value
            )
            decisions.append((key, done[key], verdict))
            if verdict.stop:
                stopped.add(key)
                scheduler.leave(key, stratum)
        return decisions


@st.composite
def races(draw: st.DrawFn) -> Race:
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
    return Race(asha, strata, values, order)


class TestFairness:
    @CLAIM
    @given(races())
    def test_every_stratum_keeps_its_survivors_to_the_end(self, race: Race) -> None:
        stopped: set[str] = set()
        race.run(race.scheduler(), stopped=stopped)
        for stratum in set(race.strata.values()):
            members = {key for key, label in race.strata.items() if label == stratum}
            to_the_end = members - stopped
            assert len(to_the_end) >= min(race.settings.min_survivors, len(members))

    @CLAIM
    @given(races())
    def test_strata_never_influence_each_other(self, race: Race) -> None:
        together = race.run(race.scheduler())
        for stratum in set(race.strata.values()):
            alone = race.run(race.scheduler(), only=stratum)
            assert alone == [d for d in together if race.strata[d[0]] == stratum]

    @CLAIM
    @given(races())
    def test_the_best_so_far_is_never_stopped(self, race: Race) -> None:
        rungs: dict[tuple[str, int], list[float]] = defaultdict(list)
        for key, unit, verdict in race.run(race.scheduler()):
            value = race.values[key][unit - 1]
            if value is None or not math.isfinite(value):
                assert not verdict.stop
                continue
            rung = rungs[race.strata[key], unit]
            rung.append(value)
            if value == min(rung):
                assert not verdict.stop

    @CLAIM
    @given(races())
    def test_stops_happen_at_milestones_only(self, race: Race) -> None:
        milestones = race.settings.milestones(BUDGET)
        decisions = race.run(race.scheduler())
        assert all(unit in milestones for _, unit, verdict in decisions if verdict.stop)

    @CLAIM
    @given(races())
    def test_goals_are_mirror_images(self, race: Race) -> None:
        smaller = race.run(race.scheduler("min"))
        larger = race.run(race.scheduler("max"), sign=-1)
        assert smaller == larger

    def test_without_settings_nothing_is_stopped(self) -> None:
        scheduler = StratifiedAsha(None, BUDGET, "min")
        for number in range(20):
            scheduler.add(f"t{number}", "")
            assert not scheduler.decide(f"t{number}", "", 3, float(number)).stop

    def test_of_nine_the_worse_are_stopped_and_the_reason_says_why(self) -> None:
        scheduler = StratifiedAsha(
            Asha(grace=3, min_survivors=1, decide="on_arrival"), BUDGET, "min"
        )
        keys = [f"t{number}" for number in range(9)]
        for key in keys:
            scheduler.add(key, "heads=1")
        verdicts = [scheduler.decide(key, "heads=1", 3, float(i)) for i, key in enumerate(keys)]
        assert [verdict.stop for verdict in verdicts] == [False] + [True] * 8
        assert verdicts[-1].reason == (
            "rank 9 of 9 at rung 3 of stratum [heads=1]; the best 3 go on"
        )


class TestRungs:
    @CLAIM
    @given(races())
    def test_only_finite_values_enter_and_only_at_their_own_rung(self, race: Race) -> None:
        scheduler = race.scheduler()
        expected: dict[tuple[str, int], int] = defaultdict(int)
        for key, unit, _ in race.run(scheduler):
            value = race.values[key][unit - 1]
            if unit in race.settings.milestones(BUDGET) and value is not None:
                expected[race.strata[key], unit] += math.isfinite(value)
        for stratum in set(race.strata.values()):
            sizes = scheduler.rung_sizes(stratum)
            for unit in race.settings.milestones(BUDGET):
                assert sizes.get(unit, 0) == expected[stratum, unit]

    def test_a_late_report_never_enters_an_early_rung(self) -> None:
        scheduler = StratifiedAsha(Asha(grace=2, reduction_factor=2), BUDGET, "min")
        assert scheduler.decide("t", "", 3, 0.5) == Verdict(False)
        assert scheduler.rung_sizes("") == {}

    def test_the_first_value_of_a_trial_at_a_rung_stays(self) -> None:
        scheduler = StratifiedAsha(
            Asha(grace=3, min_survivors=1, decide="on_arrival"), BUDGET, "min"
        )
        for key in "ab":
            scheduler.add(key, "")
        scheduler.record("a", "", 3, 1.0)
        scheduler.record("a", "", 3, 9.0)
        assert scheduler.decide("b", "", 3, 2.0).stop
        assert scheduler.rung_sizes("") == {3: 2}

    @CLAIM
    @given(races(), st.data())
    def test_a_replayed_record_decides_as_the_original_would_have(
        self, race: Race, data: st.DataObject
    ) -> None:
        cut = data.draw(st.integers(0, len(race.order)))
        done: dict[str, int] = defaultdict(int)
        stopped: set[str] = set()
        original = race.scheduler()
        before = race.run(original, done=done, stopped=stopped, order=race.order[:cut])
        rebuilt = race.scheduler()
        for key in stopped:
            rebuilt.leave(key, race.strata[key])
        for key, unit, _ in before:
            rebuilt.record(key, race.strata[key], unit, race.values[key][unit - 1])
        rest: dict[str, Any] = {"order": race.order[cut:]}
        assert race.run(original, done=done.copy(), stopped=set(stopped), **rest) == race.run(
            rebuilt, done=done.copy(), stopped=set(stopped), **rest
        )


class TestPointsCompete:
    """With ``compete="points"`` the contender is a shape, by the mean of its replicates."""

    def scheduler(self, points: str, stratum: str = "") -> StratifiedAsha:
        settings = Asha(grace=3, min_survivors=1, compete="points", decide="on_arrival")
        scheduler = StratifiedAsha(settings, BUDGET, "min")
        for point in points:
            for replicate in (0, 1):
                scheduler.add(f"{point}{replicate}", stratum, point)
        return scheduler

    def test_an_unlucky_seed_is_not_stopped_while_its_shape_is_best(self) -> None:
        scheduler = self.scheduler("ab")
        scheduler.record("a0", "", 3, 0.1, "a")
        scheduler.record("b0", "", 3, 0.6, "b")
        assert not scheduler.decide("a1", "", 3, 0.9, "a").stop
        assert scheduler.rung_sizes("") == {3: 2}

    def test_a_lucky_seed_goes_with_its_shape_at_its_next_milestone(self) -> None:
        scheduler = self.scheduler("abc")
        for key, value in (("a0", 0.1), ("b0", 0.2)):
            scheduler.record(key, "", 3, value, key[0])
        lost = scheduler.decide("c0", "", 3, 0.9, "c")
        assert lost.stop
        scheduler.leave("c0", "", "c", stopped=lost.reason)
        assert scheduler.lost("c1", "", "c") == lost.reason
        assert not scheduler.decide("c1", "", 2, 0.0, "c").stop
        assert scheduler.decide("c1", "", 3, 0.0, "c") == lost

    def test_survivors_are_shapes(self) -> None:
        scheduler = self.scheduler("ab")
        scheduler.record("a0", "", 3, 0.1, "a")
        scheduler.leave("a1", "", "a")
        assert not scheduler.decide("b0", "", 3, 0.9, "b").stop

    def test_nobody_of_the_protected_stratum_is_stopped(self) -> None:
        scheduler = self.scheduler("abc", PROTECTED)
        values = {"a0": 0.1, "b0": 0.2, "c0": 0.9}
        verdicts = [scheduler.decide(k, PROTECTED, 3, v, k[0]) for k, v in values.items()]
        assert not any(verdict.stop for verdict in verdicts)


def decided_together(
    race: Race, order: list[str], contenders: dict[str, str] | None = None
) -> dict[str, tuple[str, int]]:
    """Let the trials train in any order, each waiting where it must; return how each ended."""
    settings = replace(race.settings, decide="together")
    scheduler = StratifiedAsha(settings, BUDGET, "min")
    competes_as = dict.fromkeys(race.strata) | (contenders or {})
    for key, stratum in race.strata.items():
        scheduler.add(key, stratum, competes_as[key])
    done: dict[str, int] = dict.fromkeys(race.strata, 0)
    ended: dict[str, tuple[str, int]] = {}
    paused: dict[str, int] = {}

    def end(key: str, how: str) -> None:
        ended[key] = how, done[key]
        scheduler.end(key, race.strata[key])
        if how != "finished":
            reason = "lost" if how == "stopped" else ""
            if reason or competes_as[key] is None:
                scheduler.leave(key, race.strata[key], competes_as[key], stopped=reason)

    def release() -> None:
        for key, unit in list(paused.items()):
            verdict = scheduler.verdict(key, race.strata[key], unit, competes_as[key])
            if not verdict.wait:
                del paused[key]
                if verdict.stop:
                    end(key, "stopped")

    while len(ended) < len(race.strata):
        moved = False
        for key in order:
            if key in ended or key in paused:
                continue
            moved = True
            value = race.values[key][done[key]]
            done[key] += 1
            if value is None:
                end(key, "diverged")
            elif done[key] == BUDGET.amount:
                end(key, "finished")
            else:
                verdict = scheduler.decide(
                    key, race.strata[key], done[key], value, competes_as[key]
                )
                assert not (verdict.stop and verdict.wait)
                if verdict.stop:
                    end(key, "stopped")
                elif verdict.wait:
                    paused[key] = done[key]
        before = dict(paused)
        release()
        assert moved or paused != before, "everybody waits for somebody"
    return ended


class TestDecidedTogether:
    @CLAIM
    @given(races(), st.randoms(use_true_random=False), st.booleans())
    def test_who_is_stopped_does_not_depend_on_the_order(
        self, race: Race, rng: Random, by_points: bool
    ) -> None:
        contenders = {key: f"{race.strata[key]}/{key[-1]}" for key in race.strata}
        competing = contenders if by_points else None
        first = decided_together(race, race.order, competing)
        shuffled = list(race.order)
        rng.shuffle(shuffled)
        one_after_another = sorted(race.order)
        assert decided_together(race, shuffled, competing) == first
        assert decided_together(race, one_after_another, competing) == first

    @CLAIM
    @given(races())
    def test_the_best_of_a_full_rung_go_on_and_no_fewer_than_the_survivors(
        self, race: Race
    ) -> None:
        ended = decided_together(race, race.order)
        for unit in race.settings.milestones(BUDGET):
            for stratum in set(race.strata.values()):
                there = {
                    key: race.values[key][unit - 1]
                    for key, (how, reached) in ended.items()
                    if race.strata[key] == stratum
                    and reached >= unit
                    and not (how == "diverged" and reached == unit)
                }
                numbers = {k: v for k, v in there.items() if v is not None and math.isfinite(v)}
                stopped = {key for key in there if ended[key] == ("stopped", unit)}
                kept = max(
                    1, len(numbers) // race.settings.reduction_factor, race.settings.min_survivors
                )
                assert len(stopped) == max(0, len(numbers) - kept)
                worst_kept = max((numbers[key] for key in numbers.keys() - stopped), default=0.0)
                assert all(numbers[key] >= worst_kept for key in stopped)

    def test_nobody_waits_where_nobody_can_be_stopped(self) -> None:
        scheduler = StratifiedAsha(Asha(grace=3, min_survivors=3), BUDGET, "min")
        for key in "abc":
            scheduler.add(key, "")
        assert scheduler.decide("a", "", 3, 0.5) == Verdict(False)

    def test_the_one_that_waits_is_told_where(self) -> None:
        scheduler = StratifiedAsha(Asha(grace=3, min_survivors=1), BUDGET, "min")
        for key in "abc":
            scheduler.add(key, "heads=1")
        reason = "waits at rung 3 of stratum [heads=1] for the others"
        assert scheduler.decide("a", "heads=1", 3, 0.5) == Verdict(False, reason, wait=True)
        scheduler.end("b", "heads=1")
        assert scheduler.decide("c", "heads=1", 3, 0.1) == Verdict(False)
        verdict = scheduler.verdict("a", "heads=1", 3)
        assert verdict.stop
        assert verdict.reason == "rank 2 of 2 at rung 3 of stratum [heads=1]; the best 1 go on"

    def test_a_trial_with_a_promise_goes_on_and_is_no_survivor_to_count_on(self) -> None:
        scheduler = StratifiedAsha(Asha(grace=3, min_survivors=1), BUDGET, "min")
        for key in "abc":
            scheduler.add(key, "")
        scheduler.exempt("a", "")
        assert scheduler.decide("a", "", 3, 0.9) == Verdict(False)
        assert scheduler.decide("b", "", 3, 0.5).wait
        assert scheduler.decide("c", "", 3, 0.7).stop
        assert scheduler.verdict("b", "", 3) == Verdict(False)

    def test_a_search_that_does_not_know_who_comes_decides_on_arrival(self) -> None:
        settings = Asha(grace=3, min_survivors=1)
        scheduler = StratifiedAsha(settings, BUDGET, "min", knows_all=False)
        for key in "abc":
            scheduler.add(key, "")
        assert scheduler.decide("a", "", 3, 0.5) == Verdict(False)
        assert scheduler.decide("b", "", 3, 0.9).stop


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
        (lambda: Asha(grace=0), "grace period .* not 0"),
        (lambda: Asha(grace=2.5), "grace period .* not 2.5"),
        (lambda: Asha(grace=1, reduction_factor=1), "reduction factor .* not 1"),
        (lambda: Asha(grace=1, reduction_factor=2.5), "reduction factor .* not 2.5"),
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
