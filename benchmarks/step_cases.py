"""The shapes of which training steps are measured: ours, and the same from a library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.baselines import steps as theirs
from models.base import ModelConfig
from models.decoder import Decoder
from models.encoder import CrammedBert
from models.nystromformer import Nystromformer
from models.rank_encoder import RankEncoder
from models.ranker import Ranker
from models.retrieval import RetrievalTransformer
from models.vit import ViT
from models.xcit import XCiT

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


def _one_block(side: int, bar: float) -> Case:
    return Case(
        f"ViT of one block, T = {(side // 2) ** 2}",
        ViT(embed_dim=48, depth=1, heads=4, image_size=side, patch_size=2, in_chans=1,
            num_classes=10),
        TORCH,
        lambda: theirs.ImagesOverAllTokens(
            embed_dim=48, depth=1, heads=4, image_size=side, patch_size=2
        ),
        batch=64,
        input_shape=(1, side, side),
        bar=bar,
    )  # fmt: skip


def _vit(name: str, batch: int, *, class_token: bool = True, **shape: Any) -> Case:
    return Case(
        name,
        ViT(**shape, in_chans=3, num_classes=10, class_token=class_token),
        "timm",
        lambda: theirs.timm_vit(
            img_size=shape["image_size"],
            patch_size=shape["patch_size"],
            num_classes=10,
            embed_dim=shape["embed_dim"],
            depth=shape["depth"],
            num_heads=shape["heads"],
            class_token=class_token,
            global_pool="token" if class_token else "avg",
        ),
        batch,
        (3, shape["image_size"], shape["image_size"]),
    )


def _xcit(name: str, batch: int, *, image_size: int, **shape: Any) -> Case:
    return Case(
        name,
        XCiT(**shape, image_size=image_size, patch_size=8, num_classes=10, layer_scale=1.0),
        "timm",
        lambda: theirs.timm_xcit(
            img_size=image_size,
            patch_size=8,
            num_classes=10,
            embed_dim=shape["embed_dim"],
            depth=shape["depth"],
            num_heads=shape["heads"],
            eta=1.0,
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


def _nystromformer(name: str, batch: int, *, dropout: float, **shape: Any) -> Case:
    return Case(
        name,
        Nystromformer(
            **shape, mlp_ratio=2, conv_kernel=35, num_classes=10, dropout=dropout,
            head_hidden=shape["embed_dim"],
        ),
        "transformers",
        lambda: theirs.nystromformer(
            **shape, mlp_ratio=2, conv_kernel=35, num_labels=10, dropout=dropout
        ),
        batch,
        (shape["seq_len"],),
        tokens_below=shape["vocab_size"],
    )  # fmt: skip


def _rank_encoder(name: str, batch: int, *, embed_dim: int, heads: int, mlp_dim: int,
                  scalar: bool) -> Case:  # fmt: skip
    shape: dict[str, Any] = {"embed_dim": embed_dim, "depth": 2, "heads": heads}
    return Case(
        name,
        RankEncoder(
            **shape,
            mlp_ratio=mlp_dim / embed_dim,
            seq_len=16,
            norm="scalar" if scalar else "layer",
        ),
        "torch's TransformerEncoder" + (", norms replaced" if scalar else ""),
        lambda: (
            theirs.encoder_of_unit_lengths(**shape, mlp_dim=mlp_dim)
            if scalar
            else theirs.torch_encoder(**shape, mlp_dim=mlp_dim, activation="relu")
        ),
        batch,
        (16, embed_dim),
        loss="mse",
    )


def _ranker(name: str, batch: int, *, heads: int, embed_dim: int, seq_len: int) -> Case:
    return Case(
        name,
        Ranker(heads=heads, embed_dim=embed_dim, seq_len=seq_len, input_dim=384),
        "torch's TransformerEncoder",
        lambda: theirs.CandidateScores(heads=heads, embed_dim=embed_dim, input_dim=384, depth=2),
        batch,
        (seq_len, 384),
    )


CASES: tuple[Case, ...] = (
    _retrieval(8, bar=3),
    _retrieval(32, bar=3),
    _retrieval(128, bar=10),
    _one_block(6, bar=NO_SLOWER),
    _one_block(22, bar=NO_SLOWER),
    _vit("ViT, small", 64, embed_dim=48, depth=4, heads=4, image_size=8, patch_size=2),
    _vit("ViT, larger", 16, embed_dim=192, depth=4, heads=6, image_size=32, patch_size=4),
    _vit("DeiT", 4, embed_dim=192, depth=2, heads=3, image_size=224, patch_size=16),
    _vit("ViT, mean over patches", 64, class_token=False, embed_dim=48, depth=4, heads=4,
         image_size=8, patch_size=2),
    _xcit("XCiT, small", 64, embed_dim=32, depth=2, heads=4, image_size=32),
    _xcit("XCiT, larger", 16, embed_dim=128, depth=4, heads=4, image_size=64),
    _bert("Crammed BERT, small", 128, embed_dim=64, depth=2, heads=4, seq_len=16, vocab_size=512),
    _bert("Crammed BERT, larger", 8, embed_dim=256, depth=4, heads=4, seq_len=128,
          vocab_size=4096),
    _gpt2("GPT-2, small", 16, embed_dim=64, depth=2, heads=4, seq_len=64, vocab_size=2048),
    _gpt2("GPT-2, dropout 0.2", 16, dropout=0.2, embed_dim=64, depth=2, heads=4, seq_len=64,
          vocab_size=2048),
    _gpt2("GPT-2, larger", 8, embed_dim=256, depth=4, heads=8, seq_len=128, vocab_size=4096),
    _nystromformer("Nyströmformer, small", 32, dropout=0.1, embed_dim=32, depth=2, heads=2,
                   seq_len=64, vocab_size=32, landmarks=8),
    _nystromformer("Nyströmformer, larger", 4, dropout=0.1, embed_dim=64, depth=2, heads=2,
                   seq_len=1024, vocab_size=256, landmarks=64),
    _rank_encoder("rank encoder, small", 128, embed_dim=8, heads=2, mlp_dim=64, scalar=False),
    _rank_encoder("rank encoder, scalar norm", 128, embed_dim=8, heads=2, mlp_dim=64,
                  scalar=True),
    _rank_encoder("rank encoder, larger", 64, embed_dim=64, heads=4, mlp_dim=512, scalar=True),
    _ranker("ranker, small", 64, heads=4, embed_dim=16, seq_len=16),
    _ranker("ranker, larger", 16, heads=8, embed_dim=128, seq_len=64),
)  # fmt: skip
