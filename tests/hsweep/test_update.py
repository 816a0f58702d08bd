"""An update that looks once at what stays the same is the library's own update, to the bit."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TinyModel, TinyTask, tiny_sweep
from tiny_runs import assert_equal_to_the_bit, assignment_of, planned
from torch import Tensor, nn

from hsweep import Recipe, epochs, grid
from hsweep.seeding import derived_seed
from hsweep.training.optimizers import AdamW
from hsweep.training.train import build_optimizer, train
from hsweep.training.update import Update
from models.retrieval import RetrievalTransformer
from models.vit import ViT
from tasks.synthetic.retrieval import Retrieval
from tasks.vision.images import Images

CPU = torch.device("cpu")
RECIPES = {
    "plain": Recipe(lr=0.01, batch_size=16, warmup_fraction=0.1),
    "decay": Recipe(lr=0.01, batch_size=16, weight_decay=0.1),
    "clipped": Recipe(lr=0.01, batch_size=16, weight_decay=0.1, clip_norm=0.05),
    "clipped sgd": Recipe(lr=0.01, batch_size=16, optimizer="sgd", clip_norm=0.05),
    "bfloat16": Recipe(lr=0.01, batch_size=16, precision="bfloat16", clip_norm=1.0),
}


def reference_update(model: nn.Module, optimizer: Any, recipe: Recipe) -> Callable[[float], None]:
    """Clipping and an update as everybody writes them."""

    def update(lr: float) -> None:
        if recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()

    return update


def our_update(model: nn.Module, optimizer: Any, recipe: Recipe) -> Callable[[float], None]:
    update = Update(model, optimizer, recipe)

    def both(lr: float) -> None:
        update.clip()
        update.step(lr)

    return both


def trained(
    model: nn.Module,
    recipe: Recipe,
    losses: Iterator[Callable[[nn.Module], Tensor]],
    make_update: Callable[..., Callable[[float], None]],
) -> tuple[nn.Module, dict[str, Any]]:
    model = copy.deepcopy(model)
    optimizer = build_optimizer(model, recipe)
    update = make_update(model, optimizer, recipe)
    for number, loss in enumerate(losses):
        for parameter in model.parameters():
            parameter.grad = None
        loss(model).backward()
        update(recipe.lr_at(number, 8))
    return model, optimizer.state_dict()


def assert_the_same(
    model: nn.Module, recipe: Recipe, losses: list[Callable[[nn.Module], Tensor]]
) -> None:
    ours, state = trained(model, recipe, iter(losses), our_update)
    theirs, reference = trained(model, recipe, iter(losses), reference_update)
    before = model.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(ours.parameters(), before, strict=True))
    assert_equal_to_the_bit(dict(ours.state_dict()), dict(theirs.state_dict()))
    assert_equal_to_the_bit(state, reference)


class Oddities(nn.Module):
    """A frozen matrix, one that gets a gradient at some updates only, and a tied one."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4)
        self.frozen.weight.requires_grad = False
        self.sometimes = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4, bias=False)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, *, is_used: bool) -> Tensor:
        x = self.tied(torch.tanh(self.tied(self.frozen(x)))) * self.gain
        return self.sometimes(x) if is_used else x


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("first_used", [True, False])
def test_of_a_model_whose_parameters_do_not_all_have_gradients(name: str, first_used: bool) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(5, 4) for _ in range(8)]

    def loss_at(number: int) -> Callable[[nn.Module], Tensor]:
        is_used = (number % 3 == 0) is first_used
        return lambda model: model(inputs[number], is_used=is_used).square().mean()

    assert_the_same(Oddities(), RECIPES[name], [loss_at(number) for number in range(8)])


@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_of_a_model_with_two_kinds_of_numbers(clip_norm: float | None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2).double())
    inputs = [torch.randn(5, 4) for _ in range(4)]

    def loss_of(x: Tensor) -> Callable[[Any], Tensor]:
        return lambda parts: parts[1](parts[0](x).double()).square().mean()

    recipe = Recipe(lr=0.01, clip_norm=clip_norm, weight_decay=0.1)
    assert_the_same(model, recipe, [loss_of(x) for x in inputs])


def test_of_a_model_without_vectors() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 4, bias=False)
    inputs = [torch.randn(5, 4) for _ in range(4)]
    losses: list[Any] = [lambda layer, x=x: layer(x).square().mean() for x in inputs]
    assert_the_same(model, RECIPES["clipped"], losses)


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
    optimizer = build_optimizer(model, recipe)
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
            reference_update(model, optimizer, recipe)(lr)
            step += 1
        model.eval()
        with torch.no_grad(), autocast:
            found.append(dict(data.evaluate(model)))
    return found


def test_a_resumed_trial_updates_what_its_checkpoint_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trial,) = planned(tiny_sweep(space=grid(width=[4]), budget=epochs(6)))
    whole = [report.metrics for report in train(assignment_of(trial, tmp_path / "a"), CPU)]
    generator = train(assignment_of(trial, tmp_path / "b"), CPU)
    assert [next(generator).metrics for _ in range(3)] == whole[:3]
    generator.close()
    resumed = assignment_of(trial, tmp_path / "b", attempt=2, recorded_through=3)
    assert [report.metrics for report in train(resumed, CPU)] == whole[3:]
    # Both do what they do without the library's own step, but for the first.
    stepped: list[int] = []
    step = AdamW.step
    monkeypatch.setattr(AdamW, "step", lambda self: (stepped.append(1), step(self))[1])
    list(train(assignment_of(trial, tmp_path / "c"), CPU))
    assert len(stepped) == 1
