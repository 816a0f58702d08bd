"""The studies of tables 1 and 2: what they plan without their data."""

from pathlib import Path

import pytest
from shipped_plans import planned

from hsweep.planning.plan import Plan

SHARED = Path(__file__).parents[3] / "shared" / "data"
NAMES = ["gpt2_tinystories", "crammed_bert"]
NEEDS_DATA = [
    ("gpt2_tinystories", "paper"),
    ("gpt2_tinystories", "full"),
    ("crammed_bert", "glue"),
    ("crammed_bert", "paper"),
    ("crammed_bert", "equal_tokens"),
]


def params(plan: Plan) -> dict[tuple[int, int], int]:
    """Parameters by depth and heads."""
    return {(t.point["depth"], t.point["heads"]): t.counts.num_params for t in plan.trials}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", [None, "decoupled", "smoke"])
def test_what_runs_on_a_laptop_needs_no_data(name: str, preset: str | None) -> None:
    plan = planned(name, preset)
    assert plan.data_problems == ()
    assert plan.skipped == {}
    assert plan.totals()["max_params"] < 10**6


@pytest.mark.parametrize("name", NAMES)
def test_more_heads_are_more_parameters_only_where_their_width_is_kept(name: str) -> None:
    coupled, decoupled = params(planned(name)), params(planned(name, "decoupled"))
    assert coupled[2, 2] == coupled[2, 4] == decoupled[2, 4]
    assert decoupled[2, 2] < decoupled[2, 4] < decoupled[2, 8]


@pytest.mark.parametrize(("name", "preset"), NEEDS_DATA)
def test_data_that_are_missing_are_listed_beside_the_whole_plan(name: str, preset: str) -> None:
    plan = planned(name, preset)
    assert len(plan.data_problems) == 1
    assert "HSWEEP_HUB=1" in plan.data_problems[0]
    assert len(plan.trials) == 3 * len(params(plan)) if preset == "glue" else plan.trials


def test_the_paper_presets_plan_the_published_models() -> None:
    gpt2 = params(planned("gpt2_tinystories", "paper"))
    assert (round(gpt2[12, 12], -3), round(gpt2[4, 16], -3)) == (89_161_000, 64_151_000)
    bert = params(planned("crammed_bert", "paper"))
    assert (round(bert[16, 12], -3), round(bert[10, 24], -3)) == (119_590_000, 84_182_000)
    assert params(planned("crammed_bert", "equal_tokens")) == bert


def test_the_published_learning_rate_peaks_at_three_quarters_of_the_time() -> None:
    plan = planned("crammed_bert", "paper")
    recipe = plan.trials[0].recipe
    rates = [recipe.lr_at_share(share) for share in (0.0, 0.375, 0.75, 0.875, 1.0)]
    assert rates == pytest.approx([2.5e-4, 6.25e-4, 1e-3, 5e-4, 0.0])
    assert plan.sweep.budget.unit == "seconds"
    assert planned("crammed_bert", "equal_tokens").sweep.budget.unit == "steps"


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the data sets in {SHARED}")
def test_real_texts_are_found_where_they_are_said_to_be() -> None:
    stories = ("data", (str(SHARED / "tinystories"),))
    for name in NAMES:
        assert planned(name, None, (stories,)).data_problems == ()
    glue = ("glue", (str(SHARED / "glue"),))
    assert planned("crammed_bert", "glue", (stories, glue)).data_problems == ()
    problems = planned("crammed_bert", "paper", (stories, glue)).data_problems
    assert len(problems) == 1
    assert "configuration 'qqp'" in problems[0]
