"""The model families as their libraries have them, of a given shape: timm's and transformers' own
models, and torch's MultiheadAttention and TransformerEncoder put together as its documentation
does. Every one returns a tensor of outputs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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


class ImagesOverAllTokens(nn.Module):
    """A ViT on torch's TransformerEncoder, whose attention is torch's MultiheadAttention."""

    def __init__(
        self, *, embed_dim: int, depth: int, heads: int, image_size: int, patch_size: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, embed_dim, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        tokens = (image_size // patch_size) ** 2 + 1
        self.positions = nn.Parameter(torch.randn(1, tokens, embed_dim) * 0.02)
        self.encoder = torch_encoder(
            embed_dim=embed_dim, depth=depth, heads=heads, mlp_dim=4 * embed_dim, norm_first=True
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, (batch, 10), for (batch, 1, height, width)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patches], dim=1)
        logits: Tensor = self.head(self.norm(self.encoder(tokens + self.positions)[:, 0]))
        return logits


def torch_encoder(
    *,
    embed_dim: int,
    depth: int,
    heads: int,
    mlp_dim: int,
    norm_first: bool = False,
    activation: str = "gelu",
) -> nn.TransformerEncoder:
    """Return torch's encoder without dropout, as its other models here have none either."""
    layer = nn.TransformerEncoderLayer(
        embed_dim,
        heads,
        dim_feedforward=mlp_dim,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=norm_first,
    )
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class UnitLength(nn.Module):
    """Every token brought to one learned length, by torch's own ``normalize``."""

    def __init__(self) -> None:
        super().__init__()
        self.length = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` scaled along its last axis."""
        return self.length * F.normalize(x, dim=-1)


def encoder_of_unit_lengths(
    *, embed_dim: int, depth: int, heads: int, mlp_dim: int
) -> nn.TransformerEncoder:
    """Return torch's post-norm encoder with ReLU whose layer norms are replaced."""
    encoder = torch_encoder(
        embed_dim=embed_dim, depth=depth, heads=heads, mlp_dim=mlp_dim, activation="relu"
    )
    for layer in encoder.layers:
        layer.norm1, layer.norm2 = UnitLength(), UnitLength()
    return encoder


class CandidateScores(nn.Module):
    """torch's pre-norm encoder between a projection of frozen features and one score each."""

    def __init__(self, *, heads: int, embed_dim: int, input_dim: int, depth: int) -> None:
        super().__init__()
        self.projection = nn.Linear(input_dim, embed_dim)
        self.encoder = torch_encoder(
            embed_dim=embed_dim, depth=depth, heads=heads, mlp_dim=4 * embed_dim, norm_first=True
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores, (batch, candidates)."""
        scores: Tensor = self.head(self.norm(self.encoder(self.projection(x)))).squeeze(-1)
        return scores


def timm_vit(**settings: Any) -> nn.Module:
    """Return timm's vision transformer."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(**settings)


def timm_xcit(**settings: Any) -> nn.Module:
    """Return timm's XCiT."""
    from timm.models.xcit import Xcit

    return Xcit(**settings)


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


def nystromformer(
    *,
    embed_dim: int,
    depth: int,
    heads: int,
    mlp_ratio: int,
    seq_len: int,
    vocab_size: int,
    landmarks: int,
    conv_kernel: int,
    dropout: float,
    num_labels: int,
) -> nn.Module:
    """Return transformers' Nyströmformer for the classification of sequences."""
    from transformers import NystromformerConfig, NystromformerForSequenceClassification

    return Logits(
        NystromformerForSequenceClassification(
            NystromformerConfig(  # type: ignore[call-arg]  # it takes num_labels
                vocab_size=vocab_size,
                hidden_size=embed_dim,
                num_hidden_layers=depth,
                num_attention_heads=heads,
                intermediate_size=mlp_ratio * embed_dim,
                max_position_embeddings=seq_len,
                segment_means_seq_len=seq_len,
                num_landmarks=landmarks,
                conv_kernel_size=conv_kernel,
                hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=0.0,
                num_labels=num_labels,
                hidden_act="gelu",
                pad_token_id=0,
            )
        )
    )
