from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from hypothesis import strategies as st
from model_contract import ModelContract
from torch import Tensor

from models.decoder import Decoder, DecoderNetwork, gpt2_tiny_stories
from models.torchvision_compat import make_torchvision_importable

SMALL = Decoder(
    embed_dim=24, depth=2, heads=3, head_dim=5, seq_len=9, vocab_size=11, dropout=0.1, qkv_bias=True
)


@st.composite
def configs(draw: st.DrawFn) -> Decoder:
    heads, coupled = draw(st.integers(1, 5)), draw(st.booleans())
    return Decoder(
        embed_dim=heads * draw(st.integers(1, 8)) if coupled else draw(st.integers(1, 40)),
        depth=draw(st.integers(1, 3)),
        heads=heads,
        head_dim=None if coupled else draw(st.integers(1, 12)),
        mlp_ratio=draw(st.floats(1.0, 4.0)),
        seq_len=draw(st.integers(1, 12)),
        vocab_size=draw(st.integers(2, 40)),
        activation=draw(st.sampled_from(["gelu", "relu"])),
        qkv_bias=draw(st.booleans()),
        tied=draw(st.booleans()),
        dropout=draw(st.sampled_from([0.0, 0.2])),
        # Attention weights are not dropped here: the CPU has no fused kernel for it, and keeps
        # them, which is not what is counted.
    )


def tokens_of(config: Decoder, batch_size: int = 1) -> Tensor:
    return torch.randint(config.vocab_size, (batch_size, config.seq_len))


class TestDecoder(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {
        "as published": (gpt2_tiny_stories(), 128),
        "small batch": (gpt2_tiny_stories(depth=4, heads=16, head_dim=42), 16),
        "tied": (replace(gpt2_tiny_stories(depth=2), tied=True, attention_dropout=0.0), 128),
    }
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"heads": (3, 3)}, r"heads must be a whole number of at least 1, not \(3, 3\)"),
        ({"heads": 7}, "24 is not a multiple of 7; give head_dim to decouple"),
        ({"vocab_size": 2.5}, "^vocab_size must be "),
        ({"seq_len": 0}, "^seq_len must be "),
        ({"dropout": 1.0}, "^dropout must lie in "),
        ({"attention_dropout": -0.1}, "^attention_dropout must lie in "),
        ({"mlp_ratio": 0}, "^mlp_ratio must be positive"),
        ({"activation": "tanh"}, "activation must be one of .*'gelu', 'relu'.*, not 'tanh'"),
        ({"tied": "yes"}, "^tied must be "),
        ({"qkv_bias": 1}, "^qkv_bias must be "),
    ]
    published: ClassVar = [
        (gpt2_tiny_stories(), 89.161),
        (gpt2_tiny_stories(head_dim=42), 89.161),
        (gpt2_tiny_stories(depth=4, heads=16), 64.151),
        (gpt2_tiny_stories(depth=4, heads=16, head_dim=42), 65.461),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(tokens_of)

    @staticmethod
    def group_of(parameter: str) -> str:
        if "norm" in parameter:
            return "norm"
        if parameter.startswith("blocks."):
            return "attention" if ".attention." in parameter else "mlp"
        return "head" if parameter.startswith("head.") else "embedding"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_coupled_model_equals_transformers_gpt2(
    activation: str, qkv_bias: bool, tied: bool
) -> None:
    make_torchvision_importable()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = Decoder(
        embed_dim=24,
        depth=3,
        heads=3,
        seq_len=9,
        vocab_size=50,
        activation=activation,  # type: ignore[arg-type]
        qkv_bias=qkv_bias,
        tied=tied,
    )
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=50,
            n_positions=9,
            n_embd=24,
            n_layer=3,
            n_head=3,
            n_inner=96,
            activation_function=activation,
            tie_word_embeddings=tied,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
            if name.endswith("c_attn.bias") and not qkv_bias:
                parameter.zero_()
    ours = config.build().eval()
    load_gpt2(ours, theirs.state_dict())
    for length in (9, 4):
        tokens = torch.randint(50, (4, length))
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, atol=1e-6, rtol=0)


def load_gpt2(ours: DecoderNetwork, theirs: dict[str, Tensor]) -> None:
    """Load transformers' weights: their maps are stored transposed, their read-out has no bias."""
    names = {
        "attn.c_attn": "attention.qkv",
        "attn.c_proj": "attention.proj",
        "mlp.c_fc": "feed_forward.fc1",
        "mlp.c_proj": "feed_forward.fc2",
        "ln_1": "norm1",
        "ln_2": "norm2",
    }
    state = {
        "token_embedding.weight": theirs["transformer.wte.weight"],
        "position_embedding.weight": theirs["transformer.wpe.weight"],
        "norm.weight": theirs["transformer.ln_f.weight"],
        "norm.bias": theirs["transformer.ln_f.bias"],
    }
    for number, block in enumerate(ours.blocks):
        for their_name, name in names.items():
            for kind in ("weight", "bias"):
                value = theirs[f"transformer.h.{number}.{their_name}.{kind}"]
                if f"{name}.{kind}" in block.state_dict():
                    state[f"blocks.{number}.{name}.{kind}"] = value.T if value.dim() == 2 else value
    if ours.head is not None:
        state["head.weight"] = theirs["lm_head.weight"]
        state["head.bias"] = torch.zeros_like(ours.head.bias)
    ours.load_state_dict(state)


def test_a_token_is_predicted_from_itself_and_earlier_ones_alone() -> None:
    torch.manual_seed(0)
    model = SMALL.build().eval()
    tokens = tokens_of(SMALL, 2)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % SMALL.vocab_size
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert (after[:, 5:] != before[:, 5:]).any(-1).all()


def test_a_shorter_sequence_gets_the_logits_it_would_get_as_a_beginning() -> None:
    torch.manual_seed(0)
    model = SMALL.build().eval()
    tokens = tokens_of(SMALL, 2)
    torch.testing.assert_close(model(tokens[:, :4]), model(tokens)[:, :4])


def test_a_longer_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="at most seq_len = 9 tokens, not 10"):
        SMALL.build()(torch.zeros(1, 10, dtype=torch.long))


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout"])
def test_each_dropout_changes_training_and_leaves_evaluation_alone(kind: str) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, **{"dropout": 0.0, kind: 0.5})
    model = config.build()
    tokens = tokens_of(config, 2)
    assert not torch.equal(model(tokens), model(tokens))
    without = replace(SMALL, dropout=0.0).build()
    without.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(tokens), without(tokens))


def test_fresh_weights_have_a_deviation_of_a_fiftieth_and_biases_are_zero() -> None:
    torch.manual_seed(0)
    model = gpt2_tiny_stories(depth=1, vocab_size=300).build()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            continue
        if name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name


def test_a_compiled_model_computes_the_same() -> None:
    torch.manual_seed(0)
    model = SMALL.build().eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    tokens = tokens_of(SMALL, 3)
    expected = model(tokens)
    expected.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    output = compiled(tokens)
    output.square().sum().backward()
    torch.testing.assert_close(output, expected)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_twelve_heads_share_512_numbers_as_the_published_code_does() -> None:
    assert gpt2_tiny_stories().head_dim == 42
    assert gpt2_tiny_stories(heads=16).head_dim is None
    with pytest.raises(ValueError, match="heads must be a whole number of at least 1, not 0"):
        gpt2_tiny_stories(heads=0)
