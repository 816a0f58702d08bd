from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from models.attention import (
    ClassTokenAttention,
    MultiHeadAttention,
    attended,
    attended_in_parts,
    softmax_over_few,
    split_heads,
)


def torch_twin(ours: MultiHeadAttention, embed_dim: int) -> nn.MultiheadAttention:
    """Return torch's attention with the weights of ``ours``; torch couples the head width."""
    twin = nn.MultiheadAttention(embed_dim, ours.heads, batch_first=True)
    with torch.no_grad():
        twin.in_proj_weight.copy_(ours.qkv.weight)
        twin.in_proj_bias.copy_(ours.qkv.bias)
        twin.out_proj.weight.copy_(ours.proj.weight)
        twin.out_proj.bias.copy_(ours.proj.bias)
    return twin


@pytest.mark.parametrize(("embed_dim", "heads"), [(24, 1), (24, 4), (32, 8), (6, 6)])
def test_attention_equals_torchs_where_the_head_width_is_coupled(
    embed_dim: int, heads: int
) -> None:
    torch.manual_seed(0)
    ours = MultiHeadAttention(embed_dim, heads, embed_dim // heads, bias=True)
    twin = torch_twin(ours, embed_dim)
    x = torch.randn(3, 7, embed_dim)
    torch.testing.assert_close(ours(x), twin(x, x, x)[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("embed_dim", "heads"), [(24, 1), (24, 4), (32, 8), (6, 6)])
def test_the_class_tokens_attention_equals_torchs_with_one_query(
    embed_dim: int, heads: int, shared: bool
) -> None:
    torch.manual_seed(0)
    ours = ClassTokenAttention(embed_dim, heads, embed_dim // heads, bias=True)
    twin = torch_twin(ours, embed_dim)
    tokens = torch.randn(5, 9, embed_dim)
    class_token = torch.randn(embed_dim) if shared else torch.randn(5, embed_dim)
    query = class_token.expand(5, embed_dim).unsqueeze(1)
    expected = twin(query, tokens, tokens)[0].squeeze(1)
    torch.testing.assert_close(ours(class_token, tokens), expected, atol=1e-6, rtol=0)


SIZES = st.integers(1, 9)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    embed_dim=SIZES,
    heads=SIZES,
    head_dim=SIZES,
    tokens=SIZES,
    batch=st.integers(1, 4),
    bias=st.booleans(),
    temperature=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_the_class_tokens_attention_is_that_over_all_tokens_outputs_and_gradients(
    embed_dim: int,
    heads: int,
    head_dim: int,
    tokens: int,
    batch: int,
    bias: bool,
    temperature: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    kinds = [
        kind(embed_dim, heads, head_dim, bias=bias, learnable_temperature=temperature).double()
        for kind in (MultiHeadAttention, ClassTokenAttention)
    ]
    every, one = kinds
    if every.log_temperature is not None:
        nn.init.normal_(every.log_temperature)
    one.load_state_dict(every.state_dict())
    x = torch.randn(batch, tokens + 1, embed_dim, dtype=torch.float64)

    from_all = every(x, query_only=1)[:, 0]
    from_one = one(x[:, 0], x[:, 1:])
    torch.testing.assert_close(from_one, from_all)
    target = torch.randn_like(from_all)
    for output in (from_all, from_one):
        F.mse_loss(output, target).backward()
    for (name, parameter), twin in zip(every.named_parameters(), one.parameters(), strict=True):
        assert parameter.grad is not None
        assert twin.grad is not None
        torch.testing.assert_close(twin.grad, parameter.grad, msg=name)


def test_a_linear_map_left_to_the_read_gives_what_mapping_the_tokens_first_gives() -> None:
    torch.manual_seed(0)
    attention = ClassTokenAttention(12, 3, 5, bias=True).double()
    token_map = nn.Linear(7, 12).double()
    features = torch.randn(4, 6, 7, dtype=torch.float64)
    for class_token in (torch.randn(12).double(), torch.randn(4, 12).double()):
        torch.testing.assert_close(
            attention(class_token, features, token_map=token_map),
            attention(class_token, token_map(features)),
        )


def test_tokens_that_only_ask_do_not_influence_the_others() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, 3)
    x = torch.randn(2, 5, 8)
    changed = x.clone()
    changed[:, 0] += 1.0
    torch.testing.assert_close(attention(changed, query_only=1)[:, 1:], attention(x[:, 1:]))
    assert not torch.allclose(attention(changed)[:, 1:], attention(x)[:, 1:])


def test_causal_attention_does_not_look_ahead() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, 3)
    x = torch.randn(2, 5, 8)
    changed = x.clone()
    changed[:, -1] += 1.0
    before, after = attention(x, causal=True), attention(changed, causal=True)
    torch.testing.assert_close(after[:, :-1], before[:, :-1])
    assert not torch.allclose(after[:, -1], before[:, -1])


def test_attention_of_more_sequences_than_a_device_takes_is_computed_in_parts() -> None:
    torch.manual_seed(0)
    parts = tuple(torch.randn(7, 2, 5, 3, requires_grad=True) for _ in range(3))
    found = []
    for result in (attended(*parts), attended_in_parts(3, *parts)):
        found.append((result, *torch.autograd.grad(result.square().sum(), parts)))
    for whole, cut in zip(*found, strict=True):
        torch.testing.assert_close(cut, whole)
    sizes = []

    class Sizes(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is F.scaled_dot_product_attention:
                sizes.append(len(args[0]))
            return func(*args, **(kwargs or {}))

    many = torch.empty(140_000, 1, 2, 4, device="meta")
    with Sizes():
        assert attended(many, many, many).shape == many.shape
    assert sizes == [65_535, 65_535, 8_930]


def test_a_masked_token_is_not_attended_to() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, 3)
    x = torch.randn(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:, -1] = False
    torch.testing.assert_close(attention(x, mask=mask)[:, :-1], attention(x[:, :-1]))


@pytest.mark.parametrize("kind", [MultiHeadAttention, ClassTokenAttention])
def test_a_large_learned_temperature_makes_attention_pick_one_token(
    kind: type[MultiHeadAttention],
) -> None:
    torch.manual_seed(0)
    attention = kind(4, 1, 4, learnable_temperature=True)
    assert attention.log_temperature is not None
    with torch.no_grad():
        attention.log_temperature.fill_(20.0)
        attention.qkv.weight.copy_(torch.eye(4).repeat(3, 1))
        attention.proj.weight.copy_(torch.eye(4))
        attention.proj.bias.zero_()
    x = torch.randn(1, 6, 4)
    query = x[:, 0]
    output: Tensor = attention(query, x) if kind is ClassTokenAttention else attention(x)[:, 0]
    picked = x[0, (x[0] @ query[0]).argmax()]
    torch.testing.assert_close(output[0], picked)


@pytest.mark.parametrize(("embed_dim", "heads", "head_dim"), [(32, 4, 8), (768, 16, 64)])
def test_reading_the_class_token_alone_takes_a_small_share_of_the_operations(
    embed_dim: int, heads: int, head_dim: int
) -> None:
    def operations(attention: nn.Module, *inputs: Tensor) -> int:
        with FlopCounterMode(display=False) as counter:
            attention(*inputs)
        return int(counter.get_total_flops())

    with torch.device("meta"):
        x = torch.empty(1, 65, embed_dim)
        every = operations(MultiHeadAttention(embed_dim, heads, head_dim), x)
        one = operations(ClassTokenAttention(embed_dim, heads, head_dim), x[:, 0], x[:, 1:])
    assert one * 8 < every


def test_attention_without_an_output_bias_is_that_with_a_bias_of_zero() -> None:
    torch.manual_seed(0)
    without = MultiHeadAttention(8, 2, 3, out_bias=False)
    ordinary = MultiHeadAttention(8, 2, 3)
    assert without.proj.bias is None
    ordinary.load_state_dict({**without.state_dict(), "proj.bias": torch.zeros(8)})
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(without(x), ordinary(x))


def test_attention_weights_are_dropped_in_training_only() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, 3, dropout=0.5)
    ordinary = MultiHeadAttention(8, 2, 3)
    ordinary.load_state_dict(attention.state_dict())
    x = torch.randn(2, 5, 8)
    assert not torch.equal(attention(x), attention(x))
    assert torch.equal(attention.eval()(x), ordinary(x))


def test_the_class_tokens_attention_refuses_to_drop_weights() -> None:
    with pytest.raises(ValueError, match=r"dropout must be 0, not 0\.1"):
        ClassTokenAttention(8, 2, 3, dropout=0.1)


@pytest.mark.parametrize("parts", [1, 3])
def test_heads_are_split_as_they_lie_in_the_projection(parts: int) -> None:
    torch.manual_seed(0)
    projected = torch.randn(2, 5, parts * 3 * 4, requires_grad=True)
    split = split_heads(projected, parts, heads=3)
    expected = projected.view(2, 5, parts, 3, 4).permute(2, 0, 3, 1, 4).unbind(0)
    weights = torch.randn(parts, 2, 3, 5, 4)
    results = []
    for found in (split, expected):
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        total = sum((part * weight).sum() for part, weight in zip(found, weights, strict=True))
        results.append(torch.autograd.grad(total, projected))  # type: ignore[arg-type]
    assert torch.equal(results[0][0], results[1][0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("map_bias", [True, False])
def test_a_map_left_to_the_class_tokens_attention_is_as_if_it_came_before(
    bias: bool, map_bias: bool
) -> None:
    torch.manual_seed(0)
    attention = ClassTokenAttention(6, 3, 4, bias=bias).double()
    token_map = nn.Linear(5, 6, bias=map_bias).double()
    features = torch.randn(4, 7, 5, dtype=torch.float64, requires_grad=True)
    class_token = torch.randn(6, dtype=torch.float64, requires_grad=True)
    before = attention(class_token, token_map(features))
    left = attention(class_token, features, token_map=token_map)
    torch.testing.assert_close(left, before)
    wanted = [features, class_token, *attention.parameters(), *token_map.parameters()]
    weights = torch.randn_like(before)
    gradients = [torch.autograd.grad((output * weights).sum(), wanted) for output in (left, before)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-9)


def test_a_softmax_over_few_is_the_softmax_over_the_last_axis() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 4, 7, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(logits)
    results = []
    for found in (softmax_over_few(logits), logits.softmax(-1)):
        results.append((found, *torch.autograd.grad((found * weights).sum(), logits)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("tokens", [3, 15, 16, 40])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("temperature", [True, False])
def test_one_query_has_the_outputs_and_gradients_of_full_attention_whatever_the_tokens(
    tokens: int, shared: bool, temperature: bool
) -> None:
    torch.manual_seed(0)
    attention = ClassTokenAttention(6, 3, 4, bias=True, learnable_temperature=temperature).double()
    x = torch.randn(4, tokens, 6, dtype=torch.float64, requires_grad=True)
    class_token = torch.randn(*(() if shared else (4,)), 6, dtype=torch.float64).requires_grad_()
    sequence = torch.cat((class_token.expand(4, 6)[:, None], x), dim=1)
    outputs = (
        attention(class_token, x),
        MultiHeadAttention.forward(attention, sequence, query_only=1)[:, 0],
    )
    torch.testing.assert_close(*outputs)
    wanted, weights = [x, class_token, *attention.parameters()], torch.randn(4, 6).double()
    gradients = [torch.autograd.grad((each * weights).sum(), wanted) for each in outputs]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-8)
