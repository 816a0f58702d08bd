import math
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_contract import ModelContract, trained_a_little
from model_costs import bytes_kept_per_example, flops_of, peak_training_bytes
from torch import Tensor, nn
from torch.nn import functional as F

from models.counts import checked_build, train_memory_bytes
from models.encoder import (
    CrammedBert,
    EncoderNetwork,
    crammed_bert,
    sinusoidal_positions,
)
from models.torchvision_compat import make_torchvision_importable

SMALL = CrammedBert(
    embed_dim=24, depth=2, heads=3, head_dim=5, seq_len=9, vocab_size=11, dropout=0.1
)


@st.composite
def configs(draw: st.DrawFn) -> CrammedBert:
    heads, coupled = draw(st.integers(1, 5)), draw(st.booleans())
    return CrammedBert(
        embed_dim=heads * draw(st.integers(1, 8)) if coupled else draw(st.integers(1, 40)),
        depth=draw(st.integers(1, 3)),
        heads=heads,
        head_dim=None if coupled else draw(st.integers(1, 12)),
        mlp_ratio=draw(st.floats(1.0, 4.0)),
        seq_len=draw(st.integers(1, 12)),
        vocab_size=draw(st.integers(2, 40)),
        dropout=draw(st.sampled_from([0.0, 0.2])),
        # Attention weights are not dropped here: the CPU has no fused kernel for it, and keeps
        # them, which is not what is counted.
    )


def tokens_of(config: CrammedBert, batch_size: int = 1) -> Tensor:
    return torch.randint(config.vocab_size, (batch_size, config.seq_len))


class TestCrammedBert(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {
        "as published, all tokens read": (crammed_bert(predicted_share=1), 16),
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
        ({"predicted_share": 0}, r"predicted_share must lie in \(0, 1\], not 0"),
        ({"predicted_share": 1.5}, r"predicted_share must lie in \(0, 1\], not 1.5"),
    ]
    published: ClassVar = [
        (crammed_bert(), 119.590),
        (crammed_bert(head_dim=64), 119.590),
        (crammed_bert(depth=10, heads=24), 84.182),
        (crammed_bert(depth=10, heads=24, head_dim=64), 107.775),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(tokens_of)

    @staticmethod
    def group_of(parameter: str) -> str:
        if "norm" in parameter:
            return "norm"
        if parameter.startswith("blocks."):
            return "attention" if ".attention." in parameter else "mlp"
        return "embedding"


class ReadsThoseMasked(nn.Module):
    """A model as training uses it: it reads out the first tokens alone."""

    def __init__(self, config: CrammedBert) -> None:
        super().__init__()
        self.model, self.read = config.build(), config.predicted_tokens

    def forward(self, tokens: Tensor) -> Tensor:
        where = torch.arange(self.read, device=tokens.device).expand(len(tokens), -1)
        logits: Tensor = self.model(tokens, read_at=where.contiguous())
        return logits


@pytest.mark.parametrize("share", [0.01, 0.25, 0.6])
def test_operations_activations_and_outputs_are_counted_for_the_tokens_predicted(
    share: float,
) -> None:
    config = CrammedBert(
        embed_dim=24, depth=2, heads=3, seq_len=16, vocab_size=100, predicted_share=share
    )
    counts, tokens = config.counts(), tokens_of(config)
    assert config.predicted_tokens == {0.01: 1, 0.25: 4, 0.6: 10}[share]
    with torch.device("meta"):
        model = ReadsThoseMasked(config)
    assert counts.forward_flops == flops_of(model, tokens.to("meta"))
    assert counts.output_elements == model(tokens.to("meta")).numel()
    kept = bytes_kept_per_example(ReadsThoseMasked(config), tokens) / 4
    assert counts.activation_elements == pytest.approx(kept, rel=0.15)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_estimated_memory_is_that_of_pretraining_which_reads_a_quarter(precision: str) -> None:
    config = crammed_bert(depth=10, heads=24, head_dim=64, dropout=0.1)

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        where = torch.zeros(len(batch[0]), config.predicted_tokens, dtype=torch.long)
        logits = model(*batch, read_at=where).flatten(0, 1)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))

    measured = peak_training_bytes(
        config, lambda: (tokens_of(config, 64),), loss, bfloat16=precision == "bfloat16"
    )
    estimate = train_memory_bytes(
        config.counts(), batch_size=64, optimizer="adamw", precision=precision
    )
    assert estimate == pytest.approx(measured, rel=0.15)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(config=configs(), seed=st.integers(0, 2**31), marked=st.booleans())
def test_reading_some_tokens_gives_their_logits_and_gradients(
    config: CrammedBert, seed: int, marked: bool
) -> None:
    torch.manual_seed(seed)
    model = trained_a_little(replace(config, dropout=0.0).build().double())
    tokens = tokens_of(config, 3)
    read_at = torch.rand(tokens.shape).argsort(1)[:, : config.predicted_tokens // 2 + 1]
    every = model(tokens)
    if marked:
        marks = torch.zeros(tokens.shape, dtype=torch.bool).scatter(1, read_at, True)
        read, wanted = model(tokens, read_at=marks), every[marks]
    else:
        rows = torch.arange(3)[:, None]
        read, wanted = model(tokens, read_at=read_at), every[rows, read_at]
    torch.testing.assert_close(read, wanted)
    parameters = list(model.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(read.square().sum(), parameters),
        torch.autograd.grad(wanted.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_features_are_what_the_read_out_reads() -> None:
    torch.manual_seed(0)
    model = trained_a_little(SMALL.build().eval())
    tokens = tokens_of(SMALL, 3)
    features = model.features(tokens)
    assert features.shape == (3, 9, 24)
    torch.testing.assert_close(features @ model.token_embedding.weight.T, model(tokens))


@pytest.mark.parametrize("dtype", [torch.bool, torch.long])
def test_padding_changes_nothing_in_the_text(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = trained_a_little(SMALL.build().eval())
    tokens, lengths = tokens_of(SMALL, 3), torch.tensor([9, 4, 1])
    mask = (torch.arange(9) < lengths[:, None]).to(dtype)
    padded = model(tokens, mask=mask)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length])
        torch.testing.assert_close(padded[row, :length], alone[0], atol=1e-6, rtol=1e-5)
    assert not torch.allclose(padded[1, :4], model(tokens)[1, :4])
    torch.testing.assert_close(
        model.features(tokens, mask)[:, 0] @ model.token_embedding.weight.T, padded[:, 0]
    )


def test_a_longer_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="at most seq_len = 9 tokens, not 10"):
        SMALL.build()(torch.zeros(1, 10, dtype=torch.long))


def test_positions_are_sines_and_cosines_of_every_position_at_falling_frequencies() -> None:
    positions = sinusoidal_positions(50, 7)
    assert positions.shape == (50, 7)
    for position, column in ((0, 0), (3, 0), (3, 1), (49, 4), (49, 5), (17, 6)):
        angle = position / 10000 ** ((column - column % 2) / 7)
        expected = math.cos(angle) if column % 2 else math.sin(angle)
        assert positions[position, column].item() == pytest.approx(expected, abs=1e-6)


def test_fresh_weights_have_a_deviation_of_a_fiftieth_and_positions_the_size_of_a_token() -> None:
    torch.manual_seed(0)
    model = crammed_bert(depth=1, vocab_size=300).build()
    assert model.position_scale.item() == pytest.approx(1 / math.sqrt(768))
    for name, parameter in model.named_parameters():
        assert "norm" in name or not name.endswith("bias"), name
        if "norm" not in name and name != "position_scale":
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name


class NoRotation(nn.Module):
    """A rotary embedding that turns nothing: cosines of 1, sines of 0."""

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
        angles = torch.zeros(1, position_ids.shape[1], 8)
        return angles.cos(), angles.sin()


@pytest.mark.parametrize("padded", [False, True])
def test_a_coupled_model_equals_modernbert_with_its_positions_and_head_taken_out(
    padded: bool,
) -> None:
    make_torchvision_importable()
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    torch.manual_seed(0)
    config = CrammedBert(embed_dim=24, depth=3, heads=3, seq_len=9, vocab_size=50)
    theirs = ModernBertForMaskedLM(
        ModernBertConfig(
            vocab_size=50,
            hidden_size=24,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=3,
            layer_types=["full_attention"] * 3,
            norm_eps=1e-12,
            norm_bias=True,
            decoder_bias=False,
            pad_token_id=0,
        )
    ).eval()
    theirs.model.rotary_emb = NoRotation()
    theirs.model.layers[0].attn_norm = nn.LayerNorm(24, eps=1e-12)
    theirs.head = nn.Identity()
    ours = trained_a_little(config.build().eval())
    load_modernbert(theirs, ours)

    tokens, lengths = tokens_of(config, 4), torch.tensor([9, 5, 1, 9])
    mask = torch.arange(9) < lengths[:, None] if padded else None
    embedded = ours.token_embedding(tokens) + ours.position_scale * ours.positions_TE
    expected = theirs(inputs_embeds=embedded, attention_mask=mask).logits
    text = slice(None) if mask is None else mask
    torch.testing.assert_close(ours(tokens, mask=mask)[text], expected[text], atol=1e-6, rtol=0)


def load_modernbert(theirs: nn.Module, ours: EncoderNetwork) -> None:
    """Give transformers' model our weights; every one of its parameters must get one."""
    names = {
        "attn_norm": "norm1",
        "attn.Wqkv": "attention.qkv",
        "attn.Wo": "attention.proj",
        "mlp_norm": "norm2",
        "mlp.Wi": "feed_forward.fc1",
        "mlp.Wo": "feed_forward.fc2",
    }
    modules = {
        "decoder": ours.token_embedding,
        "model.embeddings.tok_embeddings": ours.token_embedding,
        "model.embeddings.norm": ours.embedding_norm,
        "model.final_norm": ours.norm,
    }
    for number, block in enumerate(ours.blocks):
        for their_name, name in names.items():
            modules[f"model.layers.{number}.{their_name}"] = block.get_submodule(name)
    theirs.load_state_dict(
        {
            f"{their_name}.{name}": value
            for their_name, module in modules.items()
            for name, value in module.state_dict().items()
        }
    )


def test_fine_tuning_takes_the_weights_of_a_pretraining_without_dropout() -> None:
    torch.manual_seed(0)
    pretrained = replace(SMALL, dropout=0.0).build()
    tuned = replace(SMALL, dropout=0.5, attention_dropout=0.5, predicted_share=0.25).build()
    tuned.load_state_dict(pretrained.state_dict())
    tokens = tokens_of(SMALL, 2)
    assert not torch.equal(tuned(tokens), pretrained(tokens))
    assert torch.equal(tuned.eval()(tokens), pretrained(tokens))


def test_a_ratio_of_two_is_1536_hidden_numbers_after_gating() -> None:
    part = checked_build(crammed_bert(depth=1)).get_submodule("blocks.0.feed_forward")
    shapes = {name: tuple(parameter.shape) for name, parameter in part.named_parameters()}
    assert shapes == {"fc1.weight": (3072, 768), "fc2.weight": (768, 1536)}
