"""Building without numbers: the shapes of the model, and nothing of its weights."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from models.base import ModelConfig
from models.davit import DaViT
from models.meta_build import build_on_meta
from models.vit import ViT

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


def test_afterwards_weights_are_initialised_again() -> None:
    build_on_meta(CONFIGS[0])
    assert nn.init.zeros_(torch.ones(2)).tolist() == [0, 0]
