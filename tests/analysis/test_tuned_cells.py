"""Cells of a transition stand at their best setting, and gain nothing by having many to choose
from; runs that learned nothing are counted as at chance."""

import numpy as np
import pandas as pd
import pytest
import report_examples as examples
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.questions.transition.cells import read_cells, seed_noise
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.table import build_grid, canonical
from analysis.questions.transition.text import cells_table
from analysis.runs.chance import learned_nothing, with_at_chance
from analysis.runs.losses import Losses
from analysis.runs.rows import RunRows
from analysis.runs.scale import THRESHOLDS
from analysis.runs.table import Runs
from analysis.runs.tuned import TunedSetting, tuned_runs
from benchmarks.outcomes import transition_outcome
from benchmarks.table_fits import fit_lean
from benchmarks.table_fits import fit_transition as fit

QUICK = TransitionSettings(B=100, n_mc=99)
RATES = (0.001, 0.01, 0.1)


def noise(cells: int, rates: int, seeds: int, draw: int) -> pd.DataFrame:
    """Cells of settings that are equally good: y has mean 0 and sd 1."""
    rng = np.random.default_rng(draw)
    at = pd.MultiIndex.from_product(
        [range(cells), range(rates), range(seeds)], names=["cell", "lr", "replicate"]
    )
    return pd.DataFrame(
        {"y": rng.standard_normal(len(at)), "complete": True, "status": "finished"}, index=at
    ).reset_index()


@settings(deadline=None, derandomize=True, max_examples=4)
@given(rates=st.integers(2, 8), seeds=st.integers(2, 5), draw=st.integers(0, 10**6))
def test_a_choice_among_equal_settings_lowers_no_error(rates: int, seeds: int, draw: int) -> None:
    cells = 80
    frame = noise(cells, rates, seeds, draw)
    rows = RunRows(frame[["cell", "lr"]], pd.DataFrame(index=frame.index), frame)
    kept, tuned, _ = tuned_runs(
        rows, config=["cell"], nuisance=["lr"], goal="min", value="y", noun="cell"
    )
    assert len(kept.runs) == cells * seeds
    found = kept.runs.groupby("cell")["y"].mean()
    # No seed chose its own setting.
    assert abs(found.mean()) <= 4 * found.std() / np.sqrt(cells)
    flattered = frame.groupby(["cell", "lr"])["y"].mean().groupby("cell").min()
    assert flattered.mean() < -4 * flattered.std() / np.sqrt(cells)
    # The variance that is reported is no smaller than that which the cells' means really have.
    fits = [each.fit for each in tuned.values() if each.fit]
    reported = [each.variance * each.inflation / seeds for each in fits]
    assert np.mean(reported) >= 0.7 * found.var()


def sweep(seeds: int = 3, sd: float = 0.03, **changes: float) -> pd.DataFrame:
    """A collapse at four heads at rates of which the middle one is best; ``changes`` put the error
    at heads=H, lr=R to a value: ``h5_r2=1.0``."""
    rng = np.random.default_rng(0)
    rows = []
    for heads in range(1, 7):
        for length in (8, 32):
            for at, lr in enumerate(RATES):
                for seed in range(seeds):
                    y = -0.6 - 0.5 * min(heads, 4) - 1.5 * (heads >= 4) + (0, -0.5, -0.3)[at]
                    nmse = changes.get(f"h{heads}_r{at}_s{seed}")
                    nmse = nmse or changes.get(f"h{heads}_r{at}")
                    nmse = nmse or 10 ** (y + sd * rng.standard_normal())
                    rows.append((heads, length, lr, seed, nmse, "finished"))
    return pd.DataFrame(rows, columns=["heads", "seq_len", "lr", "seed", "nmse", "status"])


def tuned(frame: pd.DataFrame) -> TransitionResult:
    return fit(frame, metric="nmse", nuisance=["lr"], settings=QUICK)


def test_a_cell_says_which_setting_it_stands_at_and_whether_that_is_at_the_edge() -> None:
    found = tuned(sweep(h6_r2=1e-5))
    assert (found.verdict, found.h_star, found.nuisance) == ("collapse", 4, ("lr",))
    at = {(cell.x, cell.by): cell for cell in found.counts}
    assert at[4, 8].setting == TunedSetting({"lr": 0.01}, 3, 0, 0, (), False)
    assert at[6, 32].setting == TunedSetting({"lr": 0.1}, 3, 0, 0, ("lr",), False)
    assert (at[4, 8].started, at[4, 8].complete, at[4, 8].read) == (9, 9, 3)
    assert len(found.runs) == 12 * 3
    assert "Each cell is taken at its best lr." in examples.sentence(found)
    edge = "the best lr of 2 of 12 cells is the smallest or largest tried"
    assert any(edge in note for note in found.qualifications)
    table = cells_table(found)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert rows[0]["best lr"] == "lr=0.01 (of 3)"
    assert rows[-1]["best lr"] == "lr=0.1 (of 3, lr at the edge)"
    assert (rows[0]["started"], rows[0]["read"]) == ("9", "3")


def test_the_noise_of_a_cell_is_that_between_seeds_of_one_setting_and_of_the_choice() -> None:
    frame = sweep(sd=0.1)
    # Settings as good as each other: what the seeds choose is noise, and they choose together.
    frame["nmse"] *= 10 ** (0.5 * (frame["lr"] == 0.01) + 0.3 * (frame["lr"] == 0.1))
    table = canonical(
        Runs(frame, "nmse"), x="heads", by="seq_len", goal="min", scale="error", nuisance=["lr"]
    )
    grid = build_grid(table)
    assert grid.inflation.max() > 1.1
    limits = THRESHOLDS["error"]
    spread = seed_noise(grid, limits, None)
    assert spread.sd == pytest.approx(np.full(6, 0.1), rel=0.5)
    cells = read_cells(grid, spread, None)
    alone = 1.57 * spread.sd[:, None] ** 2 / grid.counts
    np.testing.assert_allclose(cells.variance, alone * grid.inflation)


def test_a_setting_that_lost_runs_or_stayed_at_chance_in_one_does_not_compete() -> None:
    frame = sweep()
    best = frame["heads"].eq(5) & frame["lr"].eq(0.01) & frame["seed"].eq(0)
    for word, error in (("diverged", np.nan), ("at_chance", 1.0), ("stopped_early", 0.1)):
        lost = frame.assign(
            status=frame["status"].mask(best, word), nmse=frame["nmse"].mask(best, error)
        )
        found = tuned(lost)
        (cell, _) = (each for each in found.counts if each.x == 5)
        assert cell.setting == TunedSetting({"lr": 0.1}, 3, 0, 1, ("lr",), False)
        assert (cell.read, cell.losses.total) == (3, 0)
        assert cell.count("at_chance") == (word == "at_chance")
        # What was set aside is not held against the cells.
        assert (found.reading, found.h_star) == ("typical", 4)
        assert all(run.value < 0.5 for run in found.runs)


def test_seeds_that_chose_a_setting_do_not_confirm_it() -> None:
    frame = sweep(seeds=4)
    frame = frame.loc[frame["seed"].eq(0) | frame["lr"].eq(0.01)]
    found = tuned(frame)
    assert {run.replicate for run in found.runs} == {"1", "2", "3"}
    assert {cell.read for cell in found.counts} == {3}
    # One more is too few to stand alone, and so all count.
    few = tuned(frame.loc[frame["seed"] < 2])
    assert {run.replicate for run in few.runs} == {"0", "1"}


def test_one_seed_a_setting_establishes_nothing() -> None:
    found = tuned(sweep(seeds=1))
    assert found.suggested
    assert any("12 cells have no two seeds" in note for note in found.qualifications)


def test_a_cell_whose_settings_were_all_stopped_in_part_is_read_from_what_is_left() -> None:
    frame = sweep()
    stopped = frame["heads"].eq(5) & frame["seed"].eq(2)
    found = tuned(frame.assign(status=frame["status"].mask(stopped, "stopped_early")))
    (cell, _) = (each for each in found.counts if each.x == 5)
    assert cell.setting is not None
    assert (cell.setting.competed, cell.read, cell.count("stopped_early")) == (False, 6, 3)
    assert found.reading == "attainable"


@pytest.mark.parametrize("family", ["tuned_null_uneven", "tuned_null_power"])
def test_settings_that_compete_make_no_transition_of_noise(family: str) -> None:
    outcomes = [transition_outcome(family, seed, QUICK) for seed in range(6)]
    assert not any(outcome.positive for outcome in outcomes)


def test_settings_that_compete_hide_no_transition() -> None:
    outcomes = [transition_outcome("tuned_sharp", seed, QUICK) for seed in range(4)]
    assert all(outcome.positive and outcome.exact for outcome in outcomes)


# --- at chance ------------------------------------------------------------------------------------


def test_at_chance_is_what_a_constant_predictor_could_have_scored() -> None:
    nmse = np.array([0.93, 0.94, 0.92, 1.002, 0.998, 1.0, 40.0, 0.9995, 1e-5, 2e-5])
    point = np.array([0, 0, 0, 1, 1, 1, 2, 3, 3, 3])
    none = learned_nothing(1 - nmse, point)
    assert none.tolist() == [False] * 3 + [True] * 5 + [False] * 2
    # With seeds that scatter more, less can be reported.
    wide = np.array([0.90, 0.98, 0.94, 1.05, 0.97, 1.0, 1.1, 0.95, 1e-5, 2e-5])
    assert learned_nothing(1 - wide, point)[[3, 4, 5, 6, 7]].all()
    assert learned_nothing(np.array([-0.01, 0.0, -0.2]), np.zeros(3, int)).all()


def test_chance_is_that_of_each_trials_own_task() -> None:
    trials = pd.DataFrame(
        {
            "task": ["even", "even", "odd", "odd", "odd"],
            "width": [1, 2, 1, 2, 3],
            "fit": [0.5, 0.9, 0.5, 0.9, np.nan],
            "status": ["finished"] * 4 + ["failed"],
        }
    )
    data = [
        {"chance": {"fit": 0.5}, "at": {"task": "even"}},
        {"chance": {"fit": 0.2}, "at": {"task": "odd"}},
    ]
    asked = {"metric": "fit", "goal": "max", "axes": ["task", "width"]}
    found = with_at_chance(trials, data, **asked)["status"].tolist()
    assert found == ["at_chance", "finished", "finished", "finished", "failed"]
    assert with_at_chance(trials, [{}], **asked) is trials


def test_a_run_at_chance_is_a_measurement_of_a_cell_and_counted() -> None:
    frame = sweep().query("lr == 0.001")
    low, high = frame["heads"].eq(1), frame["heads"].eq(5) & frame["seed"].eq(0)
    frame = frame.assign(
        nmse=frame["nmse"].mask(low | high, 1.0),
        status=frame["status"].mask(low | high, "at_chance"),
    )
    found = fit(frame, metric="nmse", settings=QUICK)
    at = {(cell.x, cell.by): cell for cell in found.counts}
    assert (at[1, 8].ended, at[1, 8].complete, at[1, 8].read) == ({"at_chance": 3}, 3, 3)
    assert at[5, 8].ended == {"at_chance": 1, "finished": 2}
    # Above h* it is a run that is stuck.
    assert (found.reading, found.h_star) == ("attainable", 4)
    named = "8 full-budget runs learned no more than a constant predictor: 3 of 3 at chance at"
    assert any(named in note for note in found.qualifications)
    table = cells_table(found)
    assert dict(zip(table.header, table.rows[0], strict=True))["of these at chance"] == "3"


def test_a_run_at_chance_is_in_no_mean_of_a_shape_that_learned() -> None:
    frame = pd.DataFrame(
        {
            "shape": ["small"] * 3 + ["base"] * 3,
            "seed": [0, 1, 2] * 2,
            "top1": [0.1, 0.8, 0.81, 0.1, 0.1, 0.101],
            "num_params": [1.0] * 3 + [2.0] * 3,
            "status": ["at_chance", "finished", "finished"] + ["at_chance"] * 3,
        }
    )
    found = fit_lean(
        frame, metric="top1", baseline={"shape": "base"}, margin=0.02, config=["shape"]
    )
    (row,) = found.table
    assert (row.n, row.lost) == (2, Losses(3, at_chance=1))
    assert row.lost.text == "1 of 3 at chance"
    # Where all did, that is what the shape can do.
    assert (found.baseline_n, found.baseline_lost.total) == (3, 0)


@pytest.mark.parametrize("eval_size", [397, None])
def test_an_accuracy_above_what_the_evaluation_tells_from_chance_is_not_at_chance(
    eval_size: int | None,
) -> None:
    right = np.array([83, 38, 120, 36, 110, 41, 380, 381, 377, 42, 95, 43])
    trials = pd.DataFrame(
        {"heads": np.repeat([1, 2, 4, 3], 3), "status": "finished", "top1": right / 397}
    )
    found = with_at_chance(
        trials,
        [{"chance": {"top1": 0.1}}],
        metric="top1",
        goal="max",
        axes=["heads"],
        eval_size=eval_size,
    )
    told = found["status"].eq("at_chance").tolist()
    # 83 of 397 are far above 40, however far the seeds of one point lie apart.
    assert told == (right < 50).tolist()
