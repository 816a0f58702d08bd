"""A trial is updated as by torch's own optimizers, to the bit, without loading its compiler."""

import subprocess
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_optimizer import SOAP
from stepped_trial import to_the_end
from task_contract import measured
from tiny import TinyModel, TinyTask, tiny_sweep
from tiny_runs import assignment_of, planned
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from hsweep import Recipe, epochs, grid
from hsweep.seeding import derived_seed
from hsweep.training.optimizers import ALSO_TIMMS, build_optimizer
from models.retrieval import RetrievalTransformer
from models.torchvision_compat import make_torchvision_importable
from models.vit import ViT
from tasks.synthetic.retrieval import Retrieval
from tasks.vision.images import Images

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
RECIPES = {
    "plain": Recipe(lr=0.01, batch_size=16, warmup_fraction=0.1),
    "decay": Recipe(lr=0.01, batch_size=16, weight_decay=0.1),
    "clipped": Recipe(lr=0.01, batch_size=16, weight_decay=0.1, clip_norm=0.05),
    "clipped sgd": Recipe(
        lr=0.01, batch_size=16, optimizer="sgd", weight_decay=0.1, clip_norm=0.05
    ),
    "bfloat16": Recipe(lr=0.01, batch_size=16, precision="bfloat16", clip_norm=1.0),
}
OF_LIBRARIES = {
    "torch's": Recipe(
        lr=0.01, batch_size=16, optimizer="NAdam", weight_decay=0.1,
        optimizer_args={"betas": (0.8, 0.9), "decoupled_weight_decay": True},
    ),
    "timm's": Recipe(
        lr=0.01, batch_size=16, optimizer="lamb", weight_decay=0.1, optimizer_args={"eps": 1e-5}
    ),
    "pytorch-optimizer's": Recipe(
        lr=0.01, batch_size=16, optimizer="soap", weight_decay=0.1,
        optimizer_args={"betas": (0.9, 0.95), "precondition_frequency": 2},
    ),
    "timm's where torch's takes matrices alone": Recipe(lr=0.01, batch_size=16, optimizer="muon"),
    "arguments": Recipe(
        lr=0.01, batch_size=16, optimizer="sgd", optimizer_args={"nesterov": True}
    ),
    "by layer": Recipe(lr=0.01, batch_size=16, weight_decay=0.1, layer_decay=0.6, clip_norm=0.1),
    "averaged": Recipe(lr=0.01, batch_size=16, ema=0.7),
    "scaled": Recipe(lr=0.01, batch_size=16, precision="float16", clip_norm=0.1),
}  # fmt: skip
"""Recipes, each trained as with the libraries' own parts."""


@dataclass(frozen=True)
class Learned:
    """A task and a model to train on it."""

    task: Any
    model: Any


LEARNED = {
    "linear": Learned(TinyTask(), TinyModel(width=4, dropout=0.3)),
    "retrieval": Learned(
        Retrieval(seq_len=8, dim=2, num_train=96, num_validation=16),
        RetrievalTransformer(heads=1, head_dim=8, seq_len=8, input_dim=2),
    ),
    "digits": Learned(
        Images(max_train=64, max_validation=32),
        ViT(
            embed_dim=16, depth=2, heads=2, mlp_ratio=2.0,
            image_size=8, patch_size=4, in_chans=1, num_classes=10,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", LEARNED)
def test_a_trial_is_that_of_the_loop_that_everybody_writes(
    tmp_path: Path, name: str, recipe: str
) -> None:
    assert_as_everybodys_loop(LEARNED[name], RECIPES[recipe], tmp_path)


@pytest.mark.parametrize("recipe", OF_LIBRARIES)
def test_what_libraries_have_is_used_as_they_have_it(tmp_path: Path, recipe: str) -> None:
    assert_as_everybodys_loop(LEARNED["digits"], OF_LIBRARIES[recipe], tmp_path)


@pytest.mark.parametrize(("weight_decay", "groups"), [(0.0, 1), (0.1, 2)])
def test_weights_are_as_few_groups_as_their_decay_needs(weight_decay: float, groups: int) -> None:
    model = LEARNED["digits"].model.build()
    optimizer = build_optimizer(model, Recipe(lr=0.01, weight_decay=weight_decay))
    assert len(optimizer.param_groups) == groups
    ordered = [each for group in optimizer.param_groups for each in group["params"]]
    matrices = [each for each in model.parameters() if each.ndim > 1]
    assert all(ours is theirs for ours, theirs in zip(ordered, matrices, strict=False))
    assert len(ordered) == len(list(model.parameters()))


def assert_as_everybodys_loop(learned: Learned, recipe: Recipe, folder: Path) -> None:
    sweep = tiny_sweep(
        space=grid(width=[4]),
        task=learned.task,
        model=lambda _: learned.model,
        metric=learned.task.metrics[0].name,
        goal=learned.task.metrics[0].goal,
        recipe=recipe,
        budget=epochs(3),
    )
    (trial,) = planned(sweep)
    reports = to_the_end(assignment_of(trial, folder))
    assert [dict(report.metrics) for report in reports] == plain_loop(trial)


def plain_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The library's optimizer, as it is."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    lr, decay, more = recipe.lr, recipe.weight_decay, dict(recipe.optimizer_args)
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr, momentum=recipe.betas[0], weight_decay=decay, **more)
    if recipe.optimizer == "nadam":
        return torch.optim.NAdam(groups, lr, weight_decay=decay, **more)
    if recipe.optimizer == "soap":
        for group in groups:
            group.setdefault("weight_decay", decay)
        return SOAP(groups, lr, **more)
    make_torchvision_importable()
    import timm.optim

    timms: Any = timm.optim
    if recipe.layer_decay is not None:
        groups = timms.param_groups_layer_decay(model, decay, layer_decay=recipe.layer_decay)
    elif recipe.optimizer != "adamw":
        for group in groups:
            group.setdefault("weight_decay", decay)
        found: torch.optim.Optimizer = timms.create_optimizer_v2(
            groups, recipe.optimizer, lr, **more
        )
        return found
    return torch.optim.AdamW(groups, lr, betas=recipe.betas, weight_decay=decay, fused=True)


def plain_loop(trial: Any) -> list[dict[str, float]]:
    """The training loop with nothing taken out of it."""
    recipe = trial.recipe
    data = trial.task.open(
        data_seed=trial.seeds.data,
        sampling_seed=trial.seeds.sampling,
        batch_size=recipe.batch_size,
        device=CPU,
    )
    torch.manual_seed(trial.seeds.init)
    model = trial.model.build()
    data.warm_start(model)
    optimizer = plain_optimizer(model, recipe)
    enabled = recipe.precision != "float32"
    narrow = torch.float16 if recipe.precision == "float16" else torch.bfloat16
    autocast = torch.autocast("cpu", dtype=narrow, enabled=enabled)
    scaler = torch.amp.GradScaler("cpu", enabled=recipe.precision == "float16")
    average = None
    if recipe.ema is not None:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema))
    num_steps = trial.budget.amount * data.steps_per_epoch
    batches, step, found = data.batches(0), 0, []
    for epoch in range(trial.budget.amount):
        torch.manual_seed(derived_seed(trial.seeds.sampling, step))
        model.train()
        for batch in islice(batches, data.steps_per_epoch):
            lr = recipe.lr_at(step, num_steps)
            optimizer.zero_grad()
            with autocast:
                loss = data.loss(model, batch)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if recipe.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            for group in optimizer.param_groups:
                group["lr"] = lr * group.get("lr_scale", 1.0)
            scaler.step(optimizer)
            scaler.update()
            if average is not None:
                average.update_parameters(model)
            step += 1
        evaluated = model if average is None else average.module
        evaluated.eval()
        with torch.no_grad(), autocast:
            is_last = epoch + 1 == trial.budget.amount
            found.append(measured(data, evaluated) if is_last else dict(data.evaluate(evaluated)))
    return found


def test_a_whole_trial_does_not_import_torchs_compiler(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from pytorch_optimizer import SOAP
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned
from hsweep import Recipe
from stepped_trial import to_the_end
trial = planned(tiny_sweep(recipe=Recipe(batch_size=8, clip_norm=1.0)))[0]
reports = to_the_end(assignment_of(trial, Path({str(tmp_path)!r})))
assert reports[-1].is_last
assert not {{"torch._dynamo", "torch._inductor"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_name_that_two_libraries_have_means_one_of_them_everywhere() -> None:
    """Whether timm is installed or not: without it, the name is refused, not another's."""
    make_torchvision_importable()
    import pytorch_optimizer
    import timm.optim

    both = {*timm.optim.list_optimizers()} & {*pytorch_optimizer.get_supported_optimizers()}
    of_torch = {name.lower() for name in vars(torch.optim)} - {"muon"}
    assert both - of_torch == ALSO_TIMMS
