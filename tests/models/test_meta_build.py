"""Building without numbers: the shapes of the model, and nothing of its weights."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from models.base import ModelConfig
from models.davit import DaViT
from models.meta_build import build_on_meta
from models.vit import ViT

ROOT = Path(__file__).parents[2]
CONFIGS: list[ModelConfig] = [
    ViT(embed_dim=12, depth=2, heads=3, image_size=8, patch_size=4),
    DaViT(embed_dim=(4, 8, 8, 8), depth=1, heads=2, image_size=32),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_a_model_on_the_meta_device_has_the_names_and_shapes_of_the_real_one(
    config: ModelConfig,
) -> None:
    real, built = config.build().state_dict(), build_on_meta(config).state_dict()
    assert {name: value.shape for name, value in built.items()} == {
        name: value.shape for name, value in real.items()
    }
    assert all(value.is_meta for value in built.values())


def test_it_draws_no_random_numbers_and_leaves_real_tensors_alone() -> None:
    counted = torch.zeros(1)

    @dataclass(frozen=True)
    class Counting:
        def build(self) -> nn.Module:
            counted.add_(1)
            return nn.Linear(3, 3)

    state = torch.get_rng_state()
    build_on_meta(Counting())  # type: ignore[arg-type]  # it is only built
    assert torch.equal(torch.get_rng_state(), state)
    assert counted.item() == 1


def test_what_a_model_draws_by_itself_has_its_shape_and_imports_no_compiler() -> None:
    program = """
import sys
import torch
from models.meta_build import without_numbers
with without_numbers():
    drawn = torch.randn(2, 3, generator=None), torch.rand((4,), dtype=torch.float64)
    real = torch.randn(5, device="cpu")
assert [(tuple(each.shape), each.dtype, each.is_meta) for each in drawn] == [
    ((2, 3), torch.float32, True), ((4,), torch.float64, True)
]
assert not real.is_meta and real.abs().sum() > 0
assert "sympy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


class _Drawn(TorchDispatchMode):
    """Writes down what is asked of torch's kernels, but for making tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if "empty" not in str(func) and "detach" not in str(func):
            self.asked.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "initialise",
    [
        nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_, nn.init.kaiming_normal_,
        nn.init.zeros_, nn.init.ones_, nn.init.trunc_normal_, partial(nn.init.constant_, val=2.0),
    ],
    ids=lambda each: getattr(each, "__name__", "constant_"),
)  # fmt: skip
def test_no_kernel_is_asked_to_set_what_is_not_there(
    initialise: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    @dataclass(frozen=True)
    class Initialising:
        def build(self) -> nn.Module:
            linear = nn.Linear(3, 3)
            with torch.no_grad():
                assert initialise(linear.weight) is linear.weight
            return linear

    with _Drawn() as drawn:
        build_on_meta(Initialising())  # type: ignore[arg-type]  # it is only built
    assert drawn.asked == []


def test_afterwards_weights_are_initialised_again() -> None:
    build_on_meta(CONFIGS[0])
    assert nn.init.zeros_(torch.ones(2)).tolist() == [0, 0]
