"""Runs that were stopped early: bounds, who competed, and what the answer owes to them."""

import numpy as np
import pandas as pd
import pytest

from analysis.questions.transition.fit import fit
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.table import canonical
from analysis.runs.table import Runs
from benchmarks.sweeps import Sweep, transition_sweep
from hsweep.errors import UserError

QUICK = TransitionSettings(B=100, n_mc=99)


def answer(sweep: Sweep, frame: pd.DataFrame | None = None, **changes: object) -> TransitionResult:
    table = sweep.frame if frame is None else frame
    options = {"settings": QUICK, "history": sweep.history, **sweep.options, **changes}
    return fit(table, **options)


@pytest.mark.parametrize(
    ("family", "competition"), [("asha_cell", "within_cells"), ("asha_global", "across_x")]
)
def test_the_history_shows_against_whom_runs_were_compared(family: str, competition: str) -> None:
    for seed in range(5):
        result = answer(transition_sweep(family, seed))
        assert result.pruning is not None
        assert result.pruning.competition == competition
        warned = any("comparing them across heads" in text for text in result.warnings)
        assert warned == (competition == "across_x")


def test_stopping_without_regard_to_the_metric_shows_no_competition() -> None:
    sweep = transition_sweep("asha_cell", 0)
    assert sweep.history is not None
    history = sweep.history.copy()
    rng = np.random.default_rng(0)
    history["nmse"] = rng.permutation(history["nmse"].to_numpy())
    result = answer(sweep, history=history)
    assert result.pruning is not None
    assert result.pruning.competition == "unclear"


def test_a_stopped_run_is_bounded_by_its_last_value_and_the_largest_fall_seen() -> None:
    sweep = transition_sweep("asha_cell", 1)
    assert sweep.history is not None
    result = answer(sweep)
    pruning = result.pruning
    assert pruning is not None
    y = sweep.history.assign(y=np.log10(sweep.history["nmse"]))
    table = y.pivot(index=["heads", "seq_len", "seed"], columns="epoch", values="y")
    falls = {b: (table[b] - table[27]).max() for b in (3, 9)}
    assert [rung.budget for rung in pruning.rungs] == [3, 9]
    assert [rung.improvement for rung in pruning.rungs] == pytest.approx([falls[3], falls[9]])
    assert [rung.stopped for rung in pruning.rungs] == [90, 90]
    assert len(pruning.bounds) == 180
    for bound in pruning.bounds[:20]:
        last = table.loc[(bound.x, bound.by, int(bound.replicate)), bound.budget]
        assert bound.high == pytest.approx(last)
        assert bound.low == pytest.approx(last - falls[bound.budget])


def test_the_answer_is_that_of_the_full_budget_runs_alone() -> None:
    sweep = transition_sweep("asha_cell", 2)
    told, untold = answer(sweep), answer(sweep, history=None)
    assert (told.verdict, told.h_star, told.p_abrupt) == (
        untold.verdict, untold.h_star, untold.p_abrupt,
    )  # fmt: skip
    assert untold.pruning is None


def test_runs_that_only_the_history_knows_are_counted() -> None:
    sweep = transition_sweep("asha_cell", 3)
    survivors = sweep.frame[sweep.frame["status"] == "COMPLETE"]
    result = answer(sweep, survivors)
    assert result.counts == answer(sweep).counts
    assert result.reading == "attainable"
    assert any("180 runs are known from the history alone" in text for text in result.warnings)


def test_survivors_of_whole_sweep_pruning_are_refused_once_the_history_is_known() -> None:
    sweep = transition_sweep("asha_null_global", 0)
    survivors = sweep.frame[sweep.frame["status"] == "COMPLETE"].drop(columns=["status"])
    options = {"budget_column": "epoch", "target_budget": 27}
    result = fit(survivors, metric="nmse", history=sweep.history, settings=QUICK, **options)
    assert result.verdict == "inconclusive"


def test_the_budget_may_stand_in_the_history_alone() -> None:
    sweep = transition_sweep("asha_cell", 4)
    plain = sweep.frame.drop(columns=["status", "epoch"])
    result = fit(plain, metric="nmse", budget_column="epoch", history=sweep.history, settings=QUICK)
    assert result.counts == answer(sweep).counts


def test_a_named_run_is_looked_up_in_the_table() -> None:
    sweep = transition_sweep("asha_cell", 5)
    assert sweep.history is not None
    keys = ["heads", "seq_len", "seed"]

    def named(frame: pd.DataFrame) -> pd.Series:
        return frame[keys].astype(str).agg("-".join, axis=1)

    frame = sweep.frame.assign(trial=named(sweep.frame))
    history = sweep.history.assign(trial=named(sweep.history)).drop(columns=keys)
    assert answer(sweep, frame, history=history).pruning == answer(sweep).pruning


def test_an_answer_that_hangs_on_stopped_runs_is_warned_of() -> None:
    """Full runs fell late and far, so a stopped run below h* might have done the same."""
    sweep = transition_sweep("asha_cell", 6)
    assert sweep.history is not None
    assert not any("had the stopped runs" in text for text in answer(sweep).warnings)
    early = sweep.history["epoch"] < 27
    late = sweep.history.assign(nmse=np.where(early, 0.1, sweep.history["nmse"]))
    result = answer(sweep, history=late)
    assert result.verdict == "transition"
    assert result.pruning is not None
    assert result.pruning.at_low is not None
    assert result.pruning.at_low.verdict != "transition"
    assert any("as low as full runs fell from there on" in text for text in result.warnings)


def test_slopes_of_two_lengths_know_that_survivors_lie_closer_than_their_runs_did() -> None:
    """With two lengths nothing but the seeds can tell how far a slope may be off."""
    inside = []
    for seed in range(12):
        sweep = transition_sweep("asha_null_cell", seed)
        ends = sweep.frame[sweep.frame["seq_len"].isin([8, 128])]
        result = fit(ends, settings=TransitionSettings(B=2, n_mc=1), **sweep.options)
        inside += [
            interval.low <= sweep.slopes[int(head)] <= interval.high
            for head, interval in result.gamma.items()
        ]
    assert np.mean(inside) >= 0.88


def test_a_history_that_cannot_be_matched_says_why() -> None:
    sweep = transition_sweep("asha_cell", 0)
    assert sweep.history is not None
    for history, changes, message in (
        (sweep.history.iloc[:0], {}, "the history is empty"),
        (sweep.history, {"budget_column": None}, "name of its budget column"),
        (sweep.history, {"replicate": None}, "column of the seeds"),
        (sweep.history.drop(columns="epoch"), {}, "the history has no column 'epoch'"),
        (sweep.history.drop(columns="heads"), {}, "no column 'heads', and none that names"),
        (pd.concat([sweep.history, sweep.history]), {}, "two rows of one run at one epoch"),
        (sweep.history, {"nuisance": ["status"]}, "competing settings"),
    ):
        with pytest.raises(UserError, match=message):
            answer(sweep, history=history, **changes)


def test_a_history_without_pruning_says_nothing() -> None:
    sweep = transition_sweep("sharp", 0)
    history = pd.concat([sweep.frame.assign(epoch=epoch) for epoch in (3, 9)])
    table = canonical(
        Runs(sweep.frame.assign(epoch=9), "nmse", {"budget_column": "epoch"}),
        x="heads", by="seq_len", goal="min", scale="error", history=history,
    )  # fmt: skip
    result = fit(table, settings=QUICK)
    assert result.pruning is None
    assert result.warnings == ()
