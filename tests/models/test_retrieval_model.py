import copy
import pickle
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_contract import ModelContract
from torch import Tensor, nn
from torch.nn import functional as F

from models import retrieval
from models.attention import MultiHeadAttention
from models.base import ModelConfig
from models.counts import checked_build
from models.retrieval import RetrievalTransformer

SMALL = RetrievalTransformer(heads=3, head_dim=8, seq_len=8, input_dim=4)
GROUPS = {
    "embedding": ("encoder.", "to_tokens.", "class_token"),
    "attention": ("layers.", "last_layer."),
    "mlp": (),
    "norm": (),
    "head": ("readout",),
}


def sizes(largest: int) -> st.SearchStrategy[int]:
    return st.integers(1, largest)


CONFIGS = st.builds(
    RetrievalTransformer,
    heads=sizes(6),
    head_dim=sizes(10),
    seq_len=sizes(12),
    input_dim=sizes(6),
    output_dim=sizes(3),
    depth=sizes(3),
    embed_dim=st.none() | sizes(40),
    encoder_hidden=sizes(40),
    readout_hidden=sizes(40),
    residual=st.booleans(),
    learnable_temperature=st.booleans(),
)


def example_of(config: RetrievalTransformer, batch_size: int = 1) -> torch.Tensor:
    return torch.randn(batch_size, config.seq_len, config.input_dim)


class TestRetrievalTransformer(ModelContract):
    coupled = replace(SMALL, head_dim=None, embed_dim=12)
    decoupled = replace(SMALL, embed_dim=12)
    realistic: ClassVar = {
        "one layer": (RetrievalTransformer(heads=4, head_dim=8, seq_len=128, input_dim=4), 256),
        "two layers": (
            RetrievalTransformer(heads=4, head_dim=8, seq_len=128, input_dim=4, depth=2),
            256,
        ),
    }
    impossible: ClassVar = [
        ({"embed_dim": None}, "^embed_dim and head_dim cannot both be None"),
        ({"embed_dim": 13}, "13 is not a multiple of 3; give head_dim to decouple"),
        ({"heads": 2.5}, "^heads must be a whole number"),
        ({"residual": 1}, "^residual must be True or False"),
    ]
    inputs = staticmethod(example_of)

    @staticmethod
    def configs() -> st.SearchStrategy[RetrievalTransformer]:
        return CONFIGS

    @staticmethod
    def group_of(parameter: str) -> str:
        (group,) = [group for group, starts in GROUPS.items() if parameter.startswith(starts)]
        return group

    @staticmethod
    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        output: Tensor = model(*batch)
        return output.square().mean()


@settings(deadline=None, derandomize=True, max_examples=40)
@given(config=CONFIGS)
def test_a_training_step_gives_every_parameter_a_finite_gradient(
    config: RetrievalTransformer,
) -> None:
    torch.manual_seed(0)
    model = config.build()
    output = model(example_of(config, batch_size=5))
    assert output.shape == ((5,) if config.output_dim == 1 else (5, config.output_dim))
    output.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("embed_dim", [None, 32])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("residual", [False, True])
def test_the_model_is_its_textbook_form(depth: int, embed_dim: int | None, residual: bool) -> None:
    """Every token mapped, every layer over all tokens, then the class token picked."""
    torch.manual_seed(0)
    config = replace(SMALL, depth=depth, embed_dim=embed_dim, residual=residual)
    model = config.build().double()
    x = example_of(config, batch_size=5).double()

    tokens = model.to_tokens(F.gelu(model.encoder(x)))
    sequence = torch.cat((model.class_token.expand(5, 1, -1), tokens), dim=1)
    for layer in [*model.layers, model.last_layer]:
        update = MultiHeadAttention.forward(layer, sequence, query_only=1)
        sequence = sequence + update if residual else update
    expected = model.readout(F.gelu(model.readout_hidden(sequence[:, 0]))).squeeze(-1)
    torch.testing.assert_close(model(x), expected)


def test_predictions_do_not_depend_on_the_order_of_the_tokens() -> None:
    torch.manual_seed(0)
    for depth in (1, 2):
        model = replace(SMALL, depth=depth).build()
        x = example_of(SMALL, batch_size=4)
        torch.testing.assert_close(model(x), model(x.flip(1)), atol=1e-6, rtol=1e-5)


def test_the_readouts_bias_shifts_every_prediction() -> None:
    torch.manual_seed(0)
    model = SMALL.build()
    x = example_of(SMALL, batch_size=4)
    before = model(x)
    with torch.no_grad():
        model.readout_bias.add_(3.0)
    torch.testing.assert_close(model(x), before + 3.0)


def test_a_fixed_width_keeps_the_readout_while_the_heads_vary() -> None:
    widths = {
        replace(SMALL, heads=heads, head_dim=32 // heads, embed_dim=32).build().readout_hidden
        for heads in (1, 2, 3, 4, 5)
    }
    assert {layer.in_features for layer in widths} == {32}


def test_building_repeats_with_the_seed_and_leaves_the_seed_alone_on_meta() -> None:
    torch.manual_seed(7)
    first = SMALL.build().state_dict()
    torch.manual_seed(7)
    checked_build(SMALL)
    second = SMALL.build().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_configuration_is_a_picklable_model_config() -> None:
    assert isinstance(SMALL, ModelConfig)
    assert pickle.loads(pickle.dumps(SMALL)) == SMALL
    assert hash(replace(SMALL)) == hash(SMALL)


@pytest.mark.parametrize(
    ("field", "value"),
    [("heads", 0), ("head_dim", 2.5), ("depth", True), ("embed_dim", -1), ("residual", 1)],
)
def test_an_impossible_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be "):
        replace(SMALL, **{field: value})  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 12), st.integers(1, 9), st.integers(1, 5), st.integers(1, 7), st.integers(0, 99)
)
def test_a_linear_map_of_few_inputs_is_the_usual_one(
    inputs: int, outputs: int, rows: int, tokens: int, seed: int
) -> None:
    torch.manual_seed(seed)
    usual = torch.nn.Linear(inputs, outputs)
    few = copy.deepcopy(usual)
    x = torch.randn(rows, tokens, inputs)
    weight = torch.randn(rows, tokens, outputs)
    expected, found = usual(x), retrieval._few_inputs(x, few)
    torch.testing.assert_close(found, expected)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    for one, other in zip(few.parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
