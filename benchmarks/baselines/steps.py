"""The model families as their libraries have them, of a given shape: timm's and transformers' own
models, and torch's MultiheadAttention and TransformerEncoder put together as its documentation
does. Every one returns a tensor of outputs.
"""

from typing import Any

import torch
from torch import Tensor, nn


class RetrievalOverAllTokens(nn.Module):
    """A token encoder, torch's MultiheadAttention over a class token and all tokens, and a
    read-out of the class token."""

    def __init__(self, heads: int, head_dim: int, input_dim: int, hidden: int = 32) -> None:
        super().__init__()
        width = heads * head_dim
        self.encoder = nn.Sequential(
            nn.Linear(input_dim, hidden), nn.GELU(), nn.Linear(hidden, width)
        )
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
        self.readout = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions, (batch,), for (batch, tokens, input_dim)."""
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), self.encoder(x)], dim=1)
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        predictions: Tensor = self.readout(mixed[:, 0]).squeeze(-1)
        return predictions


def torch_encoder(*, embed_dim: int, depth: int, heads: int, mlp_dim: int) -> nn.Module:
    """Return torch's post-norm encoder with ReLU, without dropout, as the others here have none."""
    layer = nn.TransformerEncoderLayer(embed_dim, heads, mlp_dim, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


def timm_vit(**settings: Any) -> nn.Module:
    """Return timm's vision transformer."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(**settings)


class Logits(nn.Module):
    """A model of transformers, called for its logits.

    Args:
        model: the model.
        arguments: what it is called with beside the tokens.
    """

    def __init__(self, model: nn.Module, **arguments: Any) -> None:
        super().__init__()
        self.model = model
        self.arguments = arguments

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.model(input_ids=tokens, **self.arguments).logits
        return logits


def gpt2(
    *,
    embed_dim: int,
    depth: int,
    heads: int,
    seq_len: int,
    vocab_size: int,
    activation: str = "relu",
    dropout: float = 0.0,
    tied: bool = False,
) -> nn.Module:
    """Return transformers' GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=seq_len,
        n_embd=embed_dim,
        n_layer=depth,
        n_head=heads,
        activation_function=activation,
        embd_pdrop=0.0,
        resid_pdrop=dropout,
        attn_pdrop=dropout,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=0,
    )
    # Keys and values are kept for generating text only.
    return Logits(GPT2LMHeadModel(config), use_cache=False)


class NoRotation(nn.Module):
    """Cosines of 1 and sines of 0 instead of rotary positions."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def forward(self, x: Tensor, position_ids: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of no rotation."""
        angles = x.new_zeros(1, position_ids.shape[1], self.head_dim)
        return angles.cos(), angles.sin()


def modern_bert(*, embed_dim: int, depth: int, heads: int, vocab_size: int) -> nn.Module:
    """Return transformers' ModernBERT for masked language modelling, attention everywhere full and
    without rotary positions and the map before the read-out: the encoder of Crammed BERT but for
    its positions."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    model = ModernBertForMaskedLM(
        ModernBertConfig(
            vocab_size=vocab_size,
            hidden_size=embed_dim,
            intermediate_size=2 * embed_dim,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            layer_types=["full_attention"] * depth,
            norm_bias=True,
            decoder_bias=False,
            pad_token_id=0,
            embedding_dropout=0.0,
            attention_dropout=0.0,
            mlp_dropout=0.0,
        )
    )
    model.model.rotary_emb = NoRotation(embed_dim // heads)
    model.head = nn.Identity()  # type: ignore[assignment]
    return Logits(model)
