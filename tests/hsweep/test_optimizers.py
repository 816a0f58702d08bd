"""A trial is updated as by torch's own optimizers, to the bit, without loading its compiler."""

import subprocess
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TinyModel, TinyTask, tiny_sweep
from tiny_runs import assignment_of, planned
from torch import nn

from hsweep import Recipe, epochs, grid
from hsweep.seeding import derived_seed
from hsweep.training.train import train
from models.retrieval import RetrievalTransformer
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
    learned = LEARNED[name]
    sweep = tiny_sweep(
        space=grid(width=[4]),
        task=learned.task,
        model=lambda _: learned.model,
        metric=learned.task.metrics[0].name,
        goal=learned.task.metrics[0].goal,
        recipe=RECIPES[recipe],
        budget=epochs(3),
    )
    (trial,) = planned(sweep)
    reports = list(train(assignment_of(trial, tmp_path), CPU))
    assert [dict(report.metrics) for report in reports] == plain_loop(trial)


def plain_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The library's optimizer, as it is."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    lr, decay = recipe.lr, recipe.weight_decay
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr, momentum=recipe.betas[0], weight_decay=decay)
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
    enabled = recipe.precision == "bfloat16"
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)
    num_steps = trial.budget.amount * data.steps_per_epoch
    batches, step, found = data.batches(0), 0, []
    for _ in range(trial.budget.amount):
        torch.manual_seed(derived_seed(trial.seeds.sampling, step))
        model.train()
        for batch in islice(batches, data.steps_per_epoch):
            lr = recipe.lr_at(step, num_steps)
            optimizer.zero_grad()
            with autocast:
                loss = data.loss(model, batch)
            loss.backward()
            if recipe.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
            step += 1
        model.eval()
        with torch.no_grad(), autocast:
            found.append(dict(data.evaluate(model)))
    return found


def test_a_whole_trial_does_not_import_torchs_compiler(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned
from hsweep import Recipe
from hsweep.training.train import train
trial = planned(tiny_sweep(recipe=Recipe(batch_size=8, clip_norm=1.0)))[0]
reports = list(train(assignment_of(trial, Path({str(tmp_path)!r})), torch.device("cpu")))
assert reports[-1].is_last
assert not {{"torch._dynamo", "torch._inductor"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
