"""Studies that compare shapes each at its own learning rate: what they plan."""

import pytest
from shipped_plans import planned

from hsweep import Lean
from hsweep.training.rehearsal import check_trials
from hsweep.workspace import shipped_sweeps

TUNED = {
    "cifar10_heads": "tuned",
    "crammed_bert": "tuned",
    "gpt2_tinystories": "tuned",
    "lra_nystromformer": "tuned",
    "msmarco_heads": "tuned",
    "nearest_neighbor_rank": "quick",
    "vision_families": "tuned",
    "vision_large": "tuned",
    "vit_lean": "tuned",
}


@pytest.mark.parametrize("name", TUNED)
def test_budgets_share_their_beginning_and_other_seeds_confirm_each_rate(name: str) -> None:
    plan = planned(name, TUNED[name])
    assert plan.data_problems == ()
    assert plan.why_not_shared == ""
    longest = [
        trial.budget.amount
        for trial in plan.trials
        if trial.budget == trial.budget.of(plan.sweep.budget.amount)
    ]
    assert (plan.totals()["budget"] or 0) < 1.3 * sum(longest)
    asked, stopping = plan.sweep.question, plan.sweep.early_stopping
    assert asked is not None
    assert asked.nuisance == ("lr",)
    assert stopping is not None
    assert stopping.scouts == (2 if isinstance(asked, Lean) else 1)
    assert plan.sweep.replicates >= stopping.scouts + 2
    assert len({trial.recipe.lr for trial in plan.trials}) in (3, 4)


@pytest.mark.parametrize("name", shipped_sweeps())
def test_a_default_needs_no_data_and_few_runs_and_trains_two_budgets(name: str) -> None:
    plan = planned(name)
    assert plan.data_problems == ()
    assert len(plan.trials) <= 300
    # A search for a transition decides by its budget alone.
    fewest = 0 if plan.sweep.search.is_sequential and plan.sweep.question.is_by_scale else 2
    assert len(plan.sweep.budget.ladder) >= fewest


@pytest.mark.parametrize("name", TUNED)
def test_what_repeats_a_publication_keeps_one_rate_and_one_budget(name: str) -> None:
    plan = planned(name, "paper")
    assert plan.sweep.budget.ladder == ()
    assert len({trial.recipe.lr for trial in plan.trials}) == 1
    assert {trial.recipe.schedule for trial in plan.trials} < {"constant", "cosine", "linear"}


@pytest.mark.parametrize("name", shipped_sweeps())
def test_a_smoke_preset_trains_a_step_of_its_smallest_and_largest_shape(name: str) -> None:
    """And has more steps than its warm-up: what is to show that all works must be able to run."""
    trials = planned(name, "smoke").trials
    assert check_trials(trials).unchecked == ()
