from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import strategies as st
from model_contract import ModelContract, trained_a_little
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import MultiHeadAttention
from models.counts import checked_build
from models.nystrom_attention import NystromAttention, iterative_pseudo_inverse, nystrom_heads
from models.nystromformer import Nystromformer, lra
from models.torchvision_compat import make_torchvision_importable

SMALL = Nystromformer(
    embed_dim=12,
    depth=2,
    heads=3,
    head_dim=5,
    seq_len=12,
    vocab_size=20,
    num_classes=4,
    landmarks=4,
    conv_kernel=3,
)


@st.composite
def configs(draw: st.DrawFn) -> Nystromformer:
    heads, landmarks = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    coupled = draw(st.booleans())
    attention = draw(st.sampled_from(["nystrom", "nystrom", "softmax"]))
    with_conv = attention == "nystrom" and draw(st.booleans())
    return Nystromformer(
        embed_dim=heads * draw(st.integers(1, 6)) if coupled else draw(st.integers(1, 24)),
        depth=draw(st.integers(1, 3)),
        heads=heads,
        head_dim=None if coupled else draw(st.integers(1, 10)),
        mlp_ratio=draw(st.floats(1.0, 4.0)),
        seq_len=landmarks * draw(st.integers(1, 6)),
        vocab_size=draw(st.integers(1, 30)),
        num_classes=draw(st.integers(1, 6)),
        landmarks=landmarks,
        conv_kernel=draw(st.sampled_from([1, 3, 7])) if with_conv else None,
        attention=attention,
        inverse_scale=draw(st.sampled_from(["batch", "matrix"])),
        pair=draw(st.booleans()),
        head_hidden=draw(st.integers(1, 12)),
        dropout=draw(st.sampled_from([0.0, 0.1])),
    )


def texts(config: Nystromformer, batch_size: int) -> Tensor:
    return torch.randint(0, config.vocab_size, (batch_size, *config.input_shape))


class TestNystromformer(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {
        "listops": (lra("listops"), 32),
        "text, lean": (lra("text", depth=1, heads=4), 32),
        "retrieval": (lra("retrieval", conv_kernel=35), 32),
        "exact": (lra("image", attention="softmax"), 64),
        "exact by landmarks": (lra("image", landmarks=1024, dropout=0), 64),
    }
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"heads": (3, 3)}, r"heads must be a whole number of at least 1, not \(3, 3\)"),
        ({"heads": 5}, "12 is not a multiple of 5; give head_dim to decouple"),
        ({"vocab_size": 2.5}, "^vocab_size must be "),
        ({"dropout": 1}, "^dropout must lie in "),
        ({"pair": 1}, "^pair must be True or False"),
        ({"mlp_ratio": 0}, "^mlp_ratio must be positive"),
        ({"landmarks": 5}, "12 is not a multiple of 5; pad the sequence, choose landmarks that"),
        ({"landmarks": 24}, "12 is not a multiple of 24; use at most 12 landmarks"),
        ({"conv_kernel": 4}, "^conv_kernel must be odd, so that a token is in its middle, not 4"),
        ({"attention": "softmax"}, "^conv_kernel must be None with softmax attention, not 3"),
        ({"attention": "linear"}, "^attention must be one of 'nystrom', 'softmax', not"),
        ({"inverse_scale": "original"}, "^inverse_scale must be one of "),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(texts)

    @staticmethod
    def group_of(parameter: str) -> str:
        parts = parameter.split(".")
        if parts[0] in ("token_embedding", "positions"):
            return "embedding"
        if parts[0] == "blocks":
            return {"attention": "attention", "feed_forward": "mlp"}.get(parts[2], "norm")
        return parts[0]


def attention_of(**settings: Any) -> NystromAttention:
    return NystromAttention(**{"embed_dim": 24, "heads": 3, "head_dim": 8, **settings})


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("conv_kernel", [None, 5])
@pytest.mark.parametrize("scale", ["batch", "matrix"])
def test_attention_equals_the_librarys(heads: int, conv_kernel: int | None, scale: Any) -> None:
    make_torchvision_importable()
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import (
        NystromformerSelfAttention,
    )

    torch.manual_seed(0)
    library = NystromformerSelfAttention(
        NystromformerConfig(
            hidden_size=32,
            num_attention_heads=heads,
            num_landmarks=8,
            segment_means_seq_len=48,
            conv_kernel_size=conv_kernel or 65,
        )
    ).eval()
    if conv_kernel is None:
        library.conv_kernel_size = None  # what its configuration no longer takes
    if scale == "matrix":
        library.init_option = "exact"  # the setting that should choose it raises a TypeError
    ours = NystromAttention(
        32, heads, 32 // heads, landmarks=8, conv_kernel=conv_kernel, inverse_scale=scale
    )

    def take_over_weights() -> None:
        projections = (library.query, library.key, library.value)
        with torch.no_grad():
            ours.qkv.weight.copy_(torch.cat([each.weight for each in projections]))
            ours.qkv.bias.copy_(torch.cat([each.bias for each in projections]))
            if ours.conv is not None:
                ours.conv.weight.copy_(library.conv.weight)

    take_over_weights()
    x = torch.randn(2, 48, 32)
    torch.testing.assert_close(ours(x), ours.proj(library(x)[0]), atol=1e-6, rtol=0)

    ours, library, x = ours.double(), trained_a_little(library.double(), 0.5), x.double()
    take_over_weights()
    torch.testing.assert_close(ours(x), ours.proj(library(x)[0]), atol=1e-12, rtol=0)


@pytest.mark.parametrize("conv_kernel", [None, 3])
def test_attention_is_its_published_formula_with_padding(conv_kernel: int | None) -> None:
    torch.manual_seed(0)
    model = attention_of(head_dim=5, landmarks=4, conv_kernel=conv_kernel).double()
    x = torch.randn(2, 12, 24, dtype=torch.float64)
    keep = torch.rand(2, 12) > 0.4

    def heads_of(part: Tensor) -> Tensor:
        return part.view(2, 12, 3, 5).transpose(1, 2)

    query, key, value = (heads_of(part) for part in model.qkv(x).chunk(3, dim=-1))
    keeps = keep[:, None, :, None]
    query, key = query * keeps / 5**0.25, key * keeps / 5**0.25
    query_means = query.reshape(2, 3, 4, 3, 5).mean(-2)
    key_means = key.reshape(2, 3, 4, 3, 5).mean(-2)
    first = (query @ key_means.mT).softmax(-1)
    second = (query_means @ key_means.mT).softmax(-1)
    third = (query_means @ key.mT - 1e9 * ~keep[:, None, None]).softmax(-1)
    inverse = second.mT / second.sum(-2).max()
    one = torch.eye(4)
    for _ in range(6):
        product = second @ inverse
        polynomial = 13 * one - product @ (15 * one - product @ (7 * one - product))
        inverse = inverse @ polynomial / 4
    mixed = first @ inverse @ third @ value
    if model.conv is not None:
        for head in range(3):
            kept_value = value[:, head : head + 1] * keeps
            taps = model.conv.weight[head : head + 1]
            mixed[:, head] += F.conv2d(kept_value, taps, padding=(1, 0))[:, 0]
    expected = model.proj(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(model(x, keep_BT=keep), expected)


def test_with_as_many_landmarks_as_tokens_attention_is_the_exact_one() -> None:
    torch.manual_seed(0)
    model = attention_of(landmarks=16)
    exact = MultiHeadAttention(24, 3, 8, bias=True)
    exact.load_state_dict(model.state_dict())
    x = torch.randn(2, 16, 24)
    torch.testing.assert_close(model(x), exact(x), atol=1e-6, rtol=0)


def query_key_value(tokens: int, seed: int = 0) -> list[Tensor]:
    """Neighbours are alike, as in a sequence that a mean of neighbours can stand for."""
    generator = torch.Generator().manual_seed(seed)
    knots = torch.randn(3, 16, 9, generator=generator, dtype=torch.float64)
    smooth = F.interpolate(knots, tokens, mode="linear", align_corners=True)
    return list(smooth.view(3, 1, 2, 8, tokens).mT)


def test_the_formula_with_as_many_landmarks_as_tokens_is_exact_once_the_inverse_has_converged() -> (
    None
):
    torch.manual_seed(0)
    query, key, value = 3 * torch.randn(3, 1, 2, 8, 8, dtype=torch.float64)
    exact = F.scaled_dot_product_attention(query, key, value)

    def error(steps: int) -> float:
        found = nystrom_heads(query, key, value, landmarks=8, inverse_steps=steps)
        return float((found - exact).norm() / exact.norm())

    assert error(30) < 1e-6
    assert error(6) > 1e-3  # the published six are not enough for kernels far from low rank


def test_more_landmarks_come_closer_to_softmax_attention() -> None:
    query, key, value = query_key_value(tokens=96)
    exact = F.scaled_dot_product_attention(query, key, value)
    errors = [
        float((nystrom_heads(query, key, value, landmarks=n) - exact).norm() / exact.norm())
        for n in (1, 4, 16, 48)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


@pytest.mark.parametrize("scale", ["batch", "matrix"])
def test_the_iteration_approaches_the_inverse(scale: Any) -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 6, 6, dtype=torch.float64) + 4 * torch.eye(6)
    matrices = logits.softmax(-1)
    errors = [
        float(
            (
                iterative_pseudo_inverse(matrices, steps=n, scale=scale) @ matrices - torch.eye(6)
            ).norm()
        )
        for n in (0, 1, 2, 3, 4)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4


def test_the_published_scale_lets_examples_of_a_batch_touch_each_other_and_the_other_does_not() -> (
    None
):
    torch.manual_seed(0)
    x = 3 * torch.randn(4, 24, 24, dtype=torch.float64)
    for scale, differs in (("batch", True), ("matrix", False)):
        torch.manual_seed(1)
        model = attention_of(landmarks=6, inverse_scale=scale).double()
        alone, together = model(x[:1]), model(x)[:1]
        assert torch.allclose(alone, together, atol=1e-10) is not differs


@pytest.mark.parametrize("kind", ["nystrom", "softmax"])
def test_padding_reaches_no_output(kind: Any) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, attention=kind, conv_kernel=3 if kind == "nystrom" else None)
    model = config.build().eval()
    tokens = texts(config, 4).clamp_min(1)
    tokens[:, 7:] = 0
    before = model(tokens)
    assert not torch.allclose(model(tokens.clamp_min(1)), before)
    with torch.no_grad():
        model.positions[7:] += 5.0
        model.token_embedding.weight[0] -= 3.0
    torch.testing.assert_close(model(tokens), before)


@pytest.mark.parametrize("kind", ["nystrom", "softmax"])
def test_an_example_of_padding_alone_gives_finite_logits_and_gradients(kind: Any) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, attention=kind, conv_kernel=None)
    model = config.build()
    tokens = texts(config, 3)
    tokens[1] = 0
    logits = model(tokens)
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_mean_is_over_the_full_length() -> None:
    torch.manual_seed(0)
    model = SMALL.build().eval()
    tokens = texts(SMALL, 2).clamp_min(1)
    tokens[:, 3:] = 0
    seen: list[Tensor] = []
    model.norm.register_forward_hook(lambda module, args, output: seen.append(output))
    torch.testing.assert_close(model.encode(tokens), seen[0][:, :3].sum(1) / 12)


def test_a_pair_is_two_texts_through_one_encoder() -> None:
    torch.manual_seed(0)
    config = replace(SMALL, pair=True, inverse_scale="matrix")
    model = config.build().eval()
    tokens = texts(config, 3)
    a, b = model.encode(tokens[:, 0]), model.encode(tokens[:, 1])
    expected = model.head(torch.cat([a, b, a * b, a - b], dim=1))
    torch.testing.assert_close(model(tokens), expected)


def test_examples_of_another_length_are_refused() -> None:
    model = SMALL.build()
    with pytest.raises(ValueError, match=r"of shape \(12,\), padded with 0, not \(10,\)"):
        model(torch.ones(2, 10, dtype=torch.long))
    with pytest.raises(ValueError, match=r"of shape \(2, 12\), padded with 0, not \(12,\)"):
        replace(SMALL, pair=True).build()(torch.ones(2, 12, dtype=torch.long))


def test_under_autocast_the_nystrom_attention_stays_in_float32() -> None:
    torch.manual_seed(0)
    model = SMALL.build()
    seen: dict[str, torch.dtype] = {}

    def note(name: str, module: nn.Module) -> None:
        module.register_forward_pre_hook(lambda _, args: seen.update({f"{name} in": args[0].dtype}))
        module.register_forward_hook(lambda _, args, out: seen.update({f"{name} out": out.dtype}))

    attention = model.blocks[0].attention
    note("qkv", attention.qkv)
    note("conv", attention.conv)
    note("proj", attention.proj)
    with torch.autocast("cpu", torch.bfloat16):
        model(texts(SMALL, 2))
    assert seen["qkv out"] == seen["proj out"] == torch.bfloat16
    assert seen["conv in"] == seen["conv out"] == seen["proj in"] == torch.float32


def test_embeddings_start_small() -> None:
    torch.manual_seed(0)
    model = lra("listops").build()
    for table in (model.token_embedding.weight, model.positions):
        assert table.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("task", "original", "lean"),
    [
        ("listops", 209_802, 192_906),
        ("text", 370_562, 353_666),
        ("retrieval", 395_138, 378_242),
        ("image", 174_986, 158_090),
        ("pathfinder", 173_954, 157_058),
    ],
)
def test_the_long_range_arena_models_have_their_parameter_counts(
    task: Any, original: int, lean: int
) -> None:
    for shape, params in (({"depth": 2, "heads": 2}, original), ({"depth": 1, "heads": 4}, lean)):
        config = lra(task, **shape)
        assert config.counts().num_params == params
        assert replace(config, attention="softmax").counts().num_params == params
        convolved = replace(config, conv_kernel=35).counts().num_params
        assert convolved == params + 35 * config.heads * config.depth
        checked_build(config)


@pytest.mark.parametrize(
    ("task", "depth", "thousands"),
    [
        ("listops", 2, (209.8, 243.0, 276.1, 309.3)),
        ("listops", 1, (176.3, 192.9, 209.5, 226.1)),
        ("text", 2, (370.6, 403.7, 436.9, 470.0)),
        ("text", 1, (337.1, 353.7, 370.2, 386.8)),
    ],
)
def test_the_grid_of_heads_has_the_known_parameter_counts(
    task: Any, depth: int, thousands: tuple[float, ...]
) -> None:
    row = (lra(task, depth=depth, heads=heads).counts().num_params for heads in (2, 4, 6, 8))
    assert tuple(round(params / 1e3, 1) for params in row) == thousands


def test_twice_the_tokens_cost_twice_the_operations_but_for_the_landmarks_own() -> None:
    short, long, longer = (
        lra("listops", seq_len=length).counts().forward_flops for length in (1024, 2048, 3072)
    )
    assert longer - long == long - short
    exact_short, exact_long = (
        lra("listops", seq_len=length, attention="softmax").counts().forward_flops
        for length in (1024, 2048)
    )
    assert exact_long > 2.5 * exact_short


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"task must be one of \('listops', 'text', .*not 'pathx'"):
        lra("pathx")  # type: ignore[arg-type]


def test_the_compiled_model_computes_the_same() -> None:
    torch.manual_seed(0)
    model = SMALL.build().eval()
    tokens = texts(SMALL, 2)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(tokens), model(tokens))
