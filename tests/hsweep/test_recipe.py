"""What a recipe asks for is checked when it is planned, and trained the same wherever it stops."""

import itertools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stepped_trial import to_the_end, train_stepwise
from tiny import TinyData, TinyTask, tiny_sweep
from tiny_runs import (
    assert_equal_to_the_bit,
    assignment_of,
    content,
    planned,
    saved,
    trained_with_stops,
)
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from hsweep import Recipe, UserError, epochs, grid, steps
from hsweep.design.trial import Report, Trial
from hsweep.training.batches import made_ahead
from hsweep.training.loop import products_in
from hsweep.training.optimizers import layers_of
from models.decoder import gpt2_tiny_stories
from models.meta_build import build_on_meta
from models.retrieval import RetrievalTransformer
from models.vit import ViT
from tasks.vision.images import Images

CPU = torch.device("cpu")
VIT = ViT(
    embed_dim=8, depth=2, heads=2, mlp_ratio=2.0, image_size=8, patch_size=4, in_chans=1,
    num_classes=10,
)  # fmt: skip
DIGITS: dict[str, Any] = {
    "task": Images(max_train=32, max_validation=16), "model": lambda _: VIT, "metric": "top1",
    "goal": "max",
}  # fmt: skip


def one_trial(recipe: Recipe, **changes: Any) -> Trial:
    settings = {"space": grid(width=[4]), "budget": epochs(6)} | changes
    return planned(tiny_sweep(recipe=recipe, **settings))[0]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"optimizer": "lambb"}, r"unknown optimizer 'lambb'; .*Did you mean 'lamb'\?"),
        ({"optimizer": "adahessian"}, "'adahessian' cannot be used: RuntimeError"),
        ({"optimizer": "schedulefreeadamw"}, "evaluates other weights than it trains"),
        ({"optimizer": "soap", "optimizer_args": {"beta": 0.9}}, "unknown argument"),
        ({"optimizer": "sparseadam"}, "does not support dense gradients"),
        ({"optimizer": "bnbadam"}, "cannot be used here"),
        (
            {"optimizer": "lamb", "optimizer_args": {"epss": 1}},
            r"unknown argument of the optimizer 'lamb' 'epss'.*Did you mean 'eps'\?",
        ),
        ({"optimizer_args": {"eps": -1.0}}, "Invalid epsilon value: -1.0"),
        ({"optimizer_args": {"betas": (0.9, 0.9)}}, "given by the recipe: set betas"),
        ({"optimizer_args": ["eps"]}, "optimizer_args must be arguments by their names"),
        ({"optimizer": "lamb", "betas": (0.9, 0.95)}, "betas belong to adamw and sgd"),
        ({"optimizer": "rprop", "weight_decay": 0.1}, "'rprop' has no weight decay"),
        ({"layer_decay": 0.7}, "Sequential has no list of them"),
        ({"layer_decay": 1.5}, r"layer_decay must be a number in \(0, 1\] or None, not 1.5"),
        ({"precision": "tf32"}, "the trial trains on the CPU"),
        ({"mixup": 0.8}, "the recipe says mixup=0.8, and the task 'tiny' has no such setting"),
        ({"accumulate": 3}, "8 examples do not come in 3"),
        ({"ema": 1.0}, "ema must be a number between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_trained(
    recipe: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        one_trial(Recipe(batch_size=8, **recipe))


def test_settings_of_the_task_are_the_same_trial_whoever_says_them() -> None:
    by_recipe = one_trial(Recipe(batch_size=8, mixup=0.8, label_smoothing=0.1), **DIGITS)
    mixed = replace(DIGITS["task"], mixup=0.8, label_smoothing=0.1)
    assert by_recipe.key == one_trial(Recipe(batch_size=8), **DIGITS | {"task": mixed}).key
    assert by_recipe.key != one_trial(Recipe(batch_size=8), **DIGITS).key


RESUMED = {
    "averaged and scaled": one_trial(
        Recipe(
            lr=0.02, batch_size=8, optimizer="adopt", accumulate=2, ema=0.8, precision="float16",
            clip_norm=0.5,
        ),
        space=grid(width=[6], dropout=[0.3]),
    ),
    "mixed": one_trial(
        Recipe(
            lr=0.02, batch_size=8, mixup=0.8, cutmix=1.0, label_smoothing=0.1, layer_decay=0.7,
        ),
        **DIGITS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("lost", [False, True])
def test_a_trial_ends_the_same_to_the_bit_wherever_it_stopped(
    tmp_path: Path, name: str, lost: bool
) -> None:
    trial = RESUMED[name]
    whole = trained_with_stops(trial, tmp_path / "whole", [], 0.0, lost=False)
    resumed = trained_with_stops(trial, tmp_path / "resumed", [1, 4], 0.0, lost=lost)
    assert [content(each) for each in resumed] == [content(each) for each in whole]
    figures = [[(each.learning_rate, each.grad_norm) for each in some] for some in (whole, resumed)]
    assert figures[0] == figures[1]
    one, other = saved(tmp_path / "whole", trial), saved(tmp_path / "resumed", trial)
    for part in one.keys() - {"history"}:
        assert_equal_to_the_bit(one[part], other[part])
    assert {"average", "scaler"} <= one.keys() or name == "mixed"


class Overflows(torch.autograd.Function):
    """Passes its input on; its gradient is too large once it is scaled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 1e36


class SteepData(TinyData):
    def loss(self, model: nn.Module, batch: tuple[int, Tensor, Tensor]) -> Tensor:
        loss = super().loss(model, batch)
        steep: Tensor = Overflows.apply(loss)  # type: ignore[no-untyped-call]
        return steep if batch[0] == 3 else loss


@dataclass(frozen=True)
class SteepTask(TinyTask):
    """The gradient of the third update is not finite in float16."""

    def open(self, **where: Any) -> SteepData:
        return SteepData(self, *where.values())


def test_an_update_whose_gradient_is_not_finite_is_left_out_in_float16(tmp_path: Path) -> None:
    recipe = Recipe(lr=0.02, batch_size=8, precision="float16")
    trial = one_trial(recipe, task=SteepTask(), budget=steps(4, report_every=1))
    weights, scales = [], []
    generator = train_stepwise(assignment_of(trial, tmp_path, checkpoint_seconds=0))
    norms = []
    for report in generator:
        assert isinstance(report, Report)
        assert report.diverged_at is None
        norms.append(report.grad_norm)
        if report.is_last:
            generator.close()
        state = saved(tmp_path, trial)
        weights.append(state["model"]["0.weight"])
        scales.append(state["scaler"]["scale"])
    assert [norm is None for norm in norms] == [False, False, True, False]
    assert [torch.equal(*pair) for pair in itertools.pairwise(weights)] == [False, True, False]
    assert scales == [2.0**16, 2.0**16, 2.0**15, 2.0**15]


@pytest.mark.parametrize("clip_norm", [None, 1e-3])
def test_a_report_says_rate_norm_and_speed_of_its_last_update(
    tmp_path: Path, clip_norm: float | None
) -> None:
    recipe = Recipe(lr=0.03, batch_size=8, clip_norm=clip_norm, warmup_fraction=0.2)
    trial = one_trial(recipe, budget=epochs(2))
    task, model_config = trial.built
    reports = to_the_end(assignment_of(trial, tmp_path, checkpoint_seconds=0))
    assert [each.learning_rate for each in reports] == [recipe.lr_at(step, 8) for step in (3, 7)]
    assert all(each.examples_per_second and each.examples_per_second > 0 for each in reports)

    data = task.open(
        data_seed=trial.seeds.data, sampling_seed=trial.seeds.sampling, batch_size=8, device=CPU
    )
    torch.manual_seed(trial.seeds.init)
    model = model_config.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    for step, batch in enumerate(itertools.islice(data.batches(0), 4)):
        optimizer.zero_grad()
        data.loss(model, batch).backward()
        norm = get_total_norm([each.grad for each in model.parameters() if each.grad is not None])
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.param_groups[0]["lr"] = recipe.lr_at(step, 8)
        optimizer.param_groups[0]["weight_decay"] = 0.0
        optimizer.step()
    assert reports[0].grad_norm == pytest.approx(float(norm), rel=1e-4)


def test_products_are_in_tensorfloat_for_a_trial_that_asks_and_not_after() -> None:
    before = torch.get_float32_matmul_precision()
    with products_in(Recipe(precision="tf32")):
        assert torch.get_float32_matmul_precision() == "high"
    with products_in(Recipe()):
        assert torch.get_float32_matmul_precision() == before


def test_batches_made_ahead_are_the_same_and_an_error_comes_when_it_is_asked_for() -> None:
    made: list[int] = []

    def batches() -> Iterator[Any]:
        for number in range(3):
            made.append(number)
            yield number, torch.full((2,), number)
        raise RuntimeError("the disk is gone")

    ahead = made_ahead(batches(), CPU)
    assert made == []
    found = [next(ahead)]
    assert made == [0, 1]
    found += [next(ahead), next(ahead)]
    assert [(number, rows.tolist()) for number, rows in found] == [(n, [n, n]) for n in range(3)]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        next(ahead)
    empty: Iterator[Any] = made_ahead(iter(()), CPU)
    with pytest.raises(StopIteration):
        next(empty)


def test_what_was_made_of_a_batch_that_does_not_fit_is_given_up_at_once() -> None:
    held: list[weakref.ref[Tensor]] = []

    def batches() -> Iterator[Any]:
        yield torch.zeros(2)
        part = torch.ones(2)
        held.append(weakref.ref(part))
        raise torch.OutOfMemoryError("Tried to allocate 512.00 MiB.")

    ahead = made_ahead(batches(), CPU)
    next(ahead)
    assert [reference() for reference in held] == [None]
    with pytest.raises(torch.OutOfMemoryError):
        next(ahead)


@pytest.mark.parametrize(
    ("config", "depth"),
    [
        (VIT, 2),
        (gpt2_tiny_stories(depth=3), 3),
        (RetrievalTransformer(heads=1, head_dim=8, seq_len=8, input_dim=2, depth=3), 2),
    ],
)
def test_layers_are_the_stem_the_blocks_and_what_comes_after(config: Any, depth: int) -> None:
    model = build_on_meta(config)
    layers = layers_of(model)
    assert layers.keys() == {name for name, _ in model.named_parameters()}
    assert set(layers.values()) == set(range(depth + 2))
    # Deeper is never shallower than what was registered before it.
    assert list(layers.values()) == sorted(layers.values())
