"""Seeds that agree exactly, copied rows or a metric of few examples, measure no noise: they are
three runs, not one, and establish nothing."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from simulated_shapes import analysed

from analysis.questions.effects.fit import fit as effects
from analysis.questions.effects.text import effects_sentences
from analysis.questions.pareto.text import pareto_sentences
from analysis.questions.transition.result import TransitionSettings
from analysis.questions.transition.text import transition_sentences
from analysis.statistics.moderated import moderate
from benchmarks.table_fits import fit_lean as lean
from benchmarks.table_fits import fit_pareto as pareto
from benchmarks.table_fits import fit_transition as transition

QUICK = TransitionSettings(B=100, n_mc=99)


def collapsing(noise: float, copies: int = 3) -> pd.DataFrame:
    """Runs whose error collapses at 4 heads; seed s > 0 is ``noise`` decades from seed 0."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            (heads, length, seed, 10 ** (base + noise * rng.normal()), 100 * heads)
            for heads in range(1, 7)
            for length in (8, 32, 128)
            for base in [-0.1 * heads - 1.4 * (heads >= 4) + 0.02 * np.sin(heads * length)]
            for seed in range(copies)
        ],
        columns=["heads", "seq_len", "seed", "nmse", "num_params"],
    )


def test_one_seed_copied_three_times_establishes_no_collapse() -> None:
    copied = transition(collapsing(0.0).round(4), metric="nmse", by="seq_len", settings=QUICK)
    assert (copied.verdict, copied.suggested) == ("open", True)
    assert copied.noise_gap == "no spread between seeds, which agree exactly"
    assert (copied.h_set, copied.missing) == ((1, 2, 3, 4, 5, 6), ())
    assert "Seeds that differ would test it." in transition_sentences(copied)
    real = transition(collapsing(0.03), metric="nmse", by="seq_len", settings=QUICK)
    assert (real.verdict, real.h_star) == ("collapse", 4)


def test_a_cell_without_errors_does_not_hide_the_spread_of_the_others() -> None:
    frame = collapsing(0.03)
    frame.loc[frame["heads"] >= 4, "nmse"] = 0.0
    result = transition(frame, metric="nmse", by="seq_len", eval_size=500, settings=QUICK)
    assert (result.verdict, result.h_star) == ("collapse", 4)
    # Neither side of the drop tells of noise.
    frame.loc[frame["heads"] == 3, "nmse"] = 0.5
    beside = transition(frame, metric="nmse", by="seq_len", eval_size=500, settings=QUICK)
    assert beside.suggested
    assert beside.noise_gap == "no spread between the seeds at 3 and 4"


def shapes(seed_step: float) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (heads, depth, seed, 0.5 + 0.1 * heads + 0.05 * depth + seed_step * seed, heads * depth)
            for heads in (1, 2, 3)
            for depth in (2, 4)
            for seed in range(3)
        ],
        columns=["heads", "depth", "seed", "top1", "num_params"],
    )


ASKED: dict[str, Any] = {"config": ["heads", "depth"], "metric": "top1"}


@pytest.mark.parametrize("seed_step", [0.0, 0.01])
def test_gains_that_agree_between_seeds_are_not_tested(seed_step: float) -> None:
    result = analysed(effects, shapes(seed_step), **ASKED)
    assert [axis.verdict for axis in result.axes] == ["untested"] * 2
    assert result.noise_gap == "no spread between seeds"
    assert "single run" not in " ".join([" ".join(effects_sentences(result)), *result.warnings])


def test_shapes_whose_seeds_agree_are_shown_and_not_tested() -> None:
    front = pareto(shapes(0.0), **ASKED)
    assert front.noise_gap == "no spread between seeds"
    assert front.front == (
        "heads=1, depth=2",
        "heads=1, depth=4",
        "heads=3, depth=2",
        "heads=3, depth=4",
    )
    assert "not measured (no spread between seeds)" in " ".join(pareto_sentences(front))
    result = lean(shapes(0.0), baseline={"heads": 3, "depth": 4}, margin=0.2, **ASKED)
    assert result.verdict == "unsupported"
    assert "no spread between the seeds" in result.reason
    assert result.sd is None
    assert not any(row.accepted for row in result.table)


def test_a_front_of_single_runs_is_shown_as_one_that_is_not_tested() -> None:
    front = pareto(shapes(0.01).query("seed == 0"), **ASKED)
    assert {row.class_ for row in front.table} == {"untested_on", "untested_off"}
    assert front.to_json()["front"] == list(front.front)
    assert (front.front_size, front.noise_gap) == (0, "single runs")


def test_a_configuration_without_spread_has_what_the_others_lend_it() -> None:
    rng = np.random.default_rng(1)
    groups = [rng.normal(0, 1, 5) for _ in range(20)]
    alone = moderate(groups)
    result = moderate([*groups, np.full(5, 0.7)])
    assert result.prior_sd == pytest.approx(alone.prior_sd)
    assert result.sd[-1] == pytest.approx(result.prior_sd)
    assert np.isnan(moderate([np.full(3, 0.1), np.full(3, 0.7)]).sd).all()
