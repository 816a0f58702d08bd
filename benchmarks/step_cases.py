"""The shapes of which training steps are measured: ours, and the same from a library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.baselines import steps as theirs
from models.base import ModelConfig
from models.decoder import Decoder
from models.encoder import CrammedBert
from models.rank_encoder import RankEncoder
from models.retrieval import RetrievalTransformer
from models.vit import ViT

if TYPE_CHECKING:
    from torch import Tensor, nn

Loss = Literal["cross_entropy", "mse"]
NO_SLOWER = 1 / 1.05
TORCH = "torch's MultiheadAttention over all tokens"


@dataclass(frozen=True, slots=True)
class Case:
    """A shape, a batch and a loss.

    Attributes:
        name: the family and its size.
        config: our model.
        library: what theirs is.
        theirs: makes the library's model.
        batch: examples of a step.
        loss: see ``benchmarks.steps.training_step``.
        bar: how many times as long the library's step must take at least.
        tokens_below: ids of tokens are below this; None where the input is real numbers.
        input_shape: of one example.
    """

    name: str
    config: ModelConfig
    library: str
    theirs: "Callable[[], nn.Module]"
    batch: int
    input_shape: tuple[int, ...]
    loss: Loss = "cross_entropy"
    bar: float = NO_SLOWER
    tokens_below: int | None = None

    def ours(self) -> "nn.Module":
        """Return our model."""
        return self.config.build()

    def inputs(self) -> "Tensor":
        """Return a batch drawn at random."""
        import torch

        shape = (self.batch, *self.input_shape)
        if self.tokens_below is None:
            return torch.randn(shape)
        return torch.randint(1, self.tokens_below, shape)


def _retrieval(seq_len: int, bar: float) -> Case:
    return Case(
        f"retrieval, T = {seq_len}",
        RetrievalTransformer(heads=4, head_dim=8, seq_len=seq_len, input_dim=4),
        TORCH,
        lambda: theirs.RetrievalOverAllTokens(heads=4, head_dim=8, input_dim=4),
        batch=256,
        input_shape=(seq_len, 4),
        loss="mse",
        bar=bar,
    )


def _vit(name: str, batch: int, *, image_size: int, patch_size: int, **shape: Any) -> Case:
    images: dict[str, Any] = {"patch_size": patch_size, "num_classes": 10}
    return Case(
        name,
        ViT(**shape, image_size=image_size, in_chans=3, **images),
        "timm",
        lambda: theirs.timm_vit(
            img_size=image_size,
            embed_dim=shape["embed_dim"],
            depth=shape["depth"],
            num_heads=shape["heads"],
            **images,
        ),
        batch,
        (3, image_size, image_size),
    )


def _bert(name: str, batch: int, *, seq_len: int, vocab_size: int, **shape: Any) -> Case:
    return Case(
        name,
        CrammedBert(**shape, seq_len=seq_len, vocab_size=vocab_size),
        "transformers' ModernBERT without rotation and head map",
        lambda: theirs.modern_bert(**shape, vocab_size=vocab_size),
        batch,
        (seq_len,),
        tokens_below=vocab_size,
    )


def _gpt2(name: str, batch: int, *, dropout: float = 0.0, **shape: Any) -> Case:
    return Case(
        name,
        Decoder(**shape, qkv_bias=True, tied=True, dropout=dropout, attention_dropout=dropout),
        "transformers",
        lambda: theirs.gpt2(**shape, tied=True, dropout=dropout),
        batch,
        (shape["seq_len"],),
        tokens_below=shape["vocab_size"],
    )


def _rank_encoder(name: str, batch: int, *, mlp_dim: int, **shape: Any) -> Case:
    width = shape["embed_dim"]
    return Case(
        name,
        RankEncoder(**shape, mlp_ratio=mlp_dim / width, seq_len=16, norm="layer"),
        "torch's TransformerEncoder",
        lambda: theirs.torch_encoder(**shape, mlp_dim=mlp_dim),
        batch,
        (16, width),
        loss="mse",
    )


CASES: tuple[Case, ...] = (
    _retrieval(8, bar=3),
    _retrieval(32, bar=3),
    _retrieval(128, bar=10),
    _vit("ViT, small", 64, embed_dim=48, depth=4, heads=4, image_size=8, patch_size=2),
    _vit("ViT, larger", 16, embed_dim=192, depth=4, heads=6, image_size=32, patch_size=4),
    _vit("DeiT", 4, embed_dim=192, depth=2, heads=3, image_size=224, patch_size=16),
    _bert("Crammed BERT, small", 128, embed_dim=64, depth=2, heads=4, seq_len=16, vocab_size=512),
    _bert("Crammed BERT, larger", 8, embed_dim=256, depth=4, heads=4, seq_len=128,
          vocab_size=4096),
    _gpt2("GPT-2, small", 16, embed_dim=64, depth=2, heads=4, seq_len=64, vocab_size=2048),
    _gpt2("GPT-2, dropout 0.2", 16, dropout=0.2, embed_dim=64, depth=2, heads=4, seq_len=64,
          vocab_size=2048),
    _gpt2("GPT-2, larger", 8, embed_dim=256, depth=4, heads=8, seq_len=128, vocab_size=4096),
    _rank_encoder("rank encoder, small", 128, embed_dim=8, depth=2, heads=2, mlp_dim=64),
    _rank_encoder("rank encoder, larger", 64, embed_dim=64, depth=2, heads=4, mlp_dim=512),
)  # fmt: skip
