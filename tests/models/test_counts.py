from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from model_costs import bytes_kept_per_example, flops_of
from torch import Tensor, nn

from models.base import PARAM_GROUPS, Counts
from models.counts import (
    Cost,
    attention_core,
    batch_norm,
    checked_build,
    conv2d,
    counts_of,
    layer_norm,
    linear,
    self_attention,
    total,
    train_memory_bytes,
)
from models.retrieval import RetrievalTransformer
from models.shape import Stage
from models.vit import ViT

COUNTS = Counts(
    params={"mlp": 1000}, forward_flops=0, activation_elements=50, float32_activation_elements=10
)


def test_a_linear_map_costs_two_operations_a_weight_and_row() -> None:
    cost = linear(7, 3, 5)
    model = nn.Linear(3, 5)
    assert cost.params == sum(parameter.numel() for parameter in model.parameters())
    assert cost.flops == flops_of(nn.Linear(3, 5, device="meta"), torch.empty(7, 3, device="meta"))
    assert linear(7, 3, 5, bias=False).params == 15
    assert linear(7, 3, 5, keeps_input=False).kept == 0


def test_attention_costs_twice_queries_times_keys_for_scores_and_again_for_mixing() -> None:
    assert attention_core(2, 4, queries=3, keys=5).flops == 2 * 2 * (3 * 5 * 4) * 2


def test_attention_keeps_no_scores_so_its_memory_grows_linearly_with_the_sequence() -> None:
    stage = Stage(embed_dim=8, depth=1, heads=2, seq_len=100)
    short, long = (
        self_attention(replace(stage, seq_len=n), qkv_bias=True).kept for n in (100, 200)
    )
    assert long == 2 * short


def test_a_layer_norm_has_a_gain_and_a_bias_and_keeps_its_input_in_float32() -> None:
    cost = layer_norm(3, 10)
    assert (cost.params, cost.flops) == (20, 0)
    assert cost.kept == cost.kept_float32
    measured = bytes_kept_per_example(
        nn.Sequential(nn.Linear(10, 10), nn.LayerNorm(10)), torch.randn(1, 3, 10)
    )
    assert (cost.kept + linear(3, 10, 10).kept) * 4 == measured


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_costs_a_linear_map_of_what_lies_under_the_kernel(groups: int) -> None:
    first = nn.Conv2d(4, 4, 1)
    second = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=groups, bias=False)
    cost = conv2d(16, 4, 6, 3, kept=64 * 4, groups=groups, bias=False)
    assert cost.params == sum(parameter.numel() for parameter in second.parameters())
    image = torch.randn(1, 4, 8, 8)
    assert cost.flops == flops_of(second.to("meta"), image.to("meta"))
    both = nn.Sequential(first, nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=groups))
    measured = bytes_kept_per_example(both, image)
    assert (cost + conv2d(64, 4, 4, 1, kept=64 * 4)).kept * 4 == measured


def test_a_batch_norm_keeps_its_input() -> None:
    convolution, norm = nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6)
    cost = batch_norm(64, 6)
    assert cost.params == sum(parameter.numel() for parameter in norm.parameters())
    measured = bytes_kept_per_example(nn.Sequential(convolution, norm), torch.randn(1, 4, 8, 8))
    assert (cost + conv2d(64, 4, 6, 1, kept=64 * 4)).kept * 4 == measured


def test_costs_add_and_repeat() -> None:
    assert Cost(1, 2, 3, 4) * 3 + Cost(1, 1, 1, 1) == Cost(4, 7, 10, 13)


def test_a_total_has_every_group_and_the_sum_of_the_rest() -> None:
    counts = total(outputs=5, mlp=Cost(1, 2, 3, 1), norm=Cost(10, 20, 30, 30))
    assert set(counts.params) == set(PARAM_GROUPS)
    assert (counts.num_params, counts.forward_flops, counts.train_flops) == (11, 22, 66)
    assert (counts.activation_elements, counts.float32_activation_elements) == (33, 31)


@pytest.mark.parametrize(
    ("optimizer", "precision", "expected"),
    [
        # weights, gradients and two moments of 4 bytes, and 2 * 50 activations of 4 bytes
        ("adamw", "float32", 4 * 4 * 1000 + 2 * 50 * 4),
        ("sgd", "float32", 3 * 4 * 1000 + 2 * 50 * 4),
        # the weights' bfloat16 copy, 40 activations of 2 bytes and 10 of 4
        ("adamw", "bfloat16", (4 * 4 + 2) * 1000 + 2 * (40 * 2 + 10 * 4)),
        ("adamw", "float16", (4 * 4 + 2) * 1000 + 2 * (40 * 2 + 10 * 4)),
        ("lamb", "tf32", 4 * 4 * 1000 + 2 * 50 * 4),
    ],
)
def test_training_memory_is_weights_gradients_optimizer_state_and_activations(
    optimizer: str, precision: str, expected: int
) -> None:
    assert (
        train_memory_bytes(COUNTS, batch_size=2, optimizer=optimizer, precision=precision)
        == expected
    )


@pytest.mark.parametrize(
    ("precision", "params", "expected"),
    [
        # gradients of the step before, outputs and log-probabilities of 4 bytes
        ("float32", 1000, 4 * 1000 + 2 * 7 * (4 + 4)),
        # outputs of 2 bytes, their float32 copy, and log-probabilities
        ("bfloat16", 1000, 4 * 1000 + 2 * 7 * (2 + 4 + 4)),
        # no gradients to speak of: log-probabilities and two gradients of the outputs
        ("float32", 1, 3 * 2 * 7 * 4),
    ],
)
def test_the_outputs_take_memory_in_the_loss(precision: str, params: int, expected: int) -> None:
    def memory(outputs: int) -> int:
        counts = Counts({"mlp": params}, 0, 0, output_elements=outputs)
        return train_memory_bytes(counts, batch_size=2, optimizer="adamw", precision=precision)

    weights_and_moments = params * (3 * 4 + (2 if precision == "bfloat16" else 0))
    assert memory(7) == weights_and_moments + expected


def test_several_processes_divide_the_batch() -> None:
    def memory(**settings: Any) -> int:
        return train_memory_bytes(COUNTS, optimizer="adamw", precision="float32", **settings)

    whole = 4 * 4 * 1000
    assert memory(batch_size=5, processes=2) == whole + 3 * 50 * 4
    with pytest.raises(ValueError, match="processes must be a whole number of at least 1, not 0"):
        memory(batch_size=5, processes=0)


def test_an_average_of_the_weights_takes_as_much_as_the_weights() -> None:
    one, other = (
        train_memory_bytes(
            COUNTS, batch_size=2, optimizer="sgd", precision="float32", averaged=averaged
        )
        for averaged in (False, True)
    )
    assert other - one == 4 * COUNTS.num_params


def test_unknown_settings_of_training_memory_are_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"precision must be one of .*, not 'float8'"):
        train_memory_bytes(COUNTS, batch_size=2, optimizer="sgd", precision="float8")
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, not 0"):
        train_memory_bytes(COUNTS, batch_size=0, optimizer="sgd", precision="float32")


class Plain(nn.Module):
    """A small classifier with one layer of every kind that groups are guessed from."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(11, 8)
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 8))
        self.norm = nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, scale: float = 1.0) -> Tensor:
        x = self.token_embedding(tokens) + self.pos_embed
        normed = self.norm(x)
        x = x + self.attn(normed, normed, normed, need_weights=False)[0] * scale
        logits: Tensor = self.head((x + self.mlp(x)).mean(1))
        return logits


@dataclass(frozen=True)
class PlainConfig:
    """What a user writes who has a model and no counts."""

    arguments: object

    def build(self) -> nn.Module:
        return Plain()

    def example_input(self) -> object:
        return self.arguments


TOKENS = torch.zeros(1, 5, dtype=torch.long)


@pytest.mark.parametrize("arguments", [TOKENS, (TOKENS,), [TOKENS, 1.0], {"tokens": TOKENS}])
def test_a_configuration_without_counts_is_traced(arguments: object) -> None:
    counts = counts_of(PlainConfig(arguments))
    assert counts.params == {
        "embedding": 11 * 8 + 5 * 8,
        "attention": 4 * (8 * 8 + 8),
        "mlp": 8 * 16 + 16 + 16 * 8 + 8,
        "norm": 16,
        "head": 8 * 3 + 3,
    }
    projections_and_attention = 5 * 2 * (4 * 8 * 8) + 2 * 2 * 5 * 5 * 8
    assert counts.forward_flops == projections_and_attention + 5 * 2 * (2 * 8 * 16) + 2 * 8 * 3
    assert counts.num_params == sum(parameter.numel() for parameter in Plain().parameters())


@dataclass(frozen=True)
class WithoutCounts:
    """Hides a configuration's own counts."""

    config: RetrievalTransformer | ViT
    example: Tensor

    def build(self) -> nn.Module:
        return self.config.build()

    def example_input(self) -> Tensor:
        return self.example


@pytest.mark.parametrize(
    ("config", "example"),
    [
        (
            RetrievalTransformer(heads=3, head_dim=8, seq_len=8, input_dim=4, depth=2),
            torch.zeros(1, 8, 4),
        ),
        (
            ViT(embed_dim=24, depth=2, heads=3, image_size=16, patch_size=4, num_classes=6),
            torch.zeros(1, 3, 16, 16),
        ),
    ],
)
def test_traced_counts_agree_with_counted_ones(
    config: RetrievalTransformer | ViT, example: Tensor
) -> None:
    traced, counted = counts_of(WithoutCounts(config, example)), counts_of(config)
    assert traced.params == counted.params
    assert traced.forward_flops == counted.forward_flops
    assert traced.output_elements == counted.output_elements
    # Taken-apart attention keeps its weights, and copies of what it reads: more, never less.
    assert counted.activation_elements <= traced.activation_elements
    assert traced.activation_elements < 2 * counted.activation_elements


def test_counts_of_something_else_are_refused_with_what_is_missing() -> None:
    with pytest.raises(ValueError, match="either counts\\(\\) or example_input\\(\\), which str"):
        counts_of("vit")


def test_counts_that_are_wrong_do_not_survive_a_checked_build() -> None:
    @dataclass(frozen=True)
    class Miscounted:
        def build(self) -> nn.Module:
            return nn.Linear(3, 5)

        def counts(self) -> Counts:
            return total(outputs=5, head=Cost(params=21))

    with pytest.raises(AssertionError, match="counts 21 parameters, but builds 20"):
        checked_build(Miscounted())
