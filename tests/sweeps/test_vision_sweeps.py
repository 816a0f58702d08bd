"""The studies of tables 4 and 5: the paper's models, each against the original of its family."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from published_models import ROWS, model_of
from shipped_plans import planned

from hsweep import UserError
from hsweep.planning.plan import Plan
from models.shape import Stage

FILES = {"vision_families": "T4", "vision_large": "T5"}


def by_family(plan: Plan) -> dict[str, dict[str, Any]]:
    """Each family's first trial of every variant."""
    found: dict[str, dict[str, Any]] = {}
    for trial in plan.trials:
        found.setdefault(trial.point.family, {}).setdefault(trial.point.variant, trial)
    return found


def stages(model: Any) -> tuple[Stage, ...]:
    return model.stages if hasattr(model, "stages") else (model.stage,)


@pytest.mark.parametrize(("name", "table"), FILES.items())
def test_the_paper_preset_plans_the_models_of_its_table(name: str, table: str) -> None:
    rows = [row for row in ROWS if row["table"] == table]
    published = {model_of(row) for row in rows}
    models: set[Any] = {trial.model for trial in planned(name, "paper").trials}
    assert {replace(model, drop_path=0.0) for model in models} == published
    assert {model.drop_path for model in models} == {0.1}


@pytest.mark.parametrize(("name", "batch_size"), [("vision_families", 1024), ("vision_large", 512)])
def test_the_paper_preset_trains_by_table_6(name: str, batch_size: int) -> None:
    recipe = planned(name, "paper").trials[0].recipe
    assert (recipe.batch_size, recipe.lr, recipe.weight_decay) == (batch_size, 3e-3, 0.3)
    assert (recipe.warmup_lr, round(300 * recipe.warmup_fraction)) == (1e-5, 20)
    assert planned(name, "paper").sweep.budget.amount == 300


@pytest.mark.parametrize("name", FILES)
def test_deit_is_vit_and_not_trained_twice(name: str) -> None:
    plan = planned(name, "paper")
    assert plan.merged == 2 * plan.sweep.replicates
    assert "deit" not in by_family(plan)
    assert set(by_family(planned(name, "paper", (("family", ("deit",)),)))) == {"deit"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("preset", [None, "paper"])
def test_every_lean_shape_has_more_heads_fewer_layers_and_fewer_parameters(
    name: str, preset: str | None
) -> None:
    for variants in by_family(planned(name, preset)).values():
        original, lean = variants["original"], variants["lean"]
        before, after = (stages(each.model) for each in (original, lean))
        assert sum(stage.depth for stage in after) < sum(stage.depth for stage in before)
        assert max(stage.heads for stage in before) <= max(stage.heads for stage in after)
        assert original.model.heads != lean.model.heads
        assert lean.counts.num_params < original.counts.num_params


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("preset", [None, "paper"])
def test_both_kinds_of_heads_can_be_tried_in_every_family(name: str, preset: str | None) -> None:
    variants = ("original", "lean_coupled", "lean_decoupled")
    plan = planned(name, preset, (("variant", variants),))
    # 30 heads cannot share a width of 1024.
    impossible = {"vit", "deit"} if (name, preset) == ("vision_large", "paper") else set()
    assert {(point.family, point.variant) for point in plan.skipped} == {
        (family, "lean_coupled") for family in impossible
    }
    for family, found in by_family(plan).items():
        if family in impossible:
            continue
        assert set(found) == set(variants)
        coupled, decoupled = found["lean_coupled"].model, found["lean_decoupled"].model
        assert coupled.head_dim is None
        assert decoupled.head_dim is not None
        assert decoupled.counts().params["attention"] > coupled.counts().params["attention"]


@pytest.mark.parametrize("name", FILES)
def test_every_scaled_down_model_reads_the_enlarged_digits(name: str) -> None:
    for variants in by_family(planned(name)).values():
        for trial in variants.values():
            assert trial.model.build().eval()(torch.zeros(2, 1, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(
    ("axis", "message"),
    [("family", "family must be one of vit, xcit"), ("variant", "variant must be one of original")],
)
def test_an_unknown_name_is_refused_with_the_known_ones(axis: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        planned("vision_families", None, ((axis, ("nothing",)),))
