from typing import ClassVar

import torch
from hypothesis import strategies as st
from model_contract import ModelContract
from torch import Tensor

from models.ranker import Ranker


class TestRanker(ModelContract):
    coupled = Ranker(heads=3, seq_len=6, input_dim=7, embed_dim=12)
    decoupled = Ranker(heads=3, head_dim=5, seq_len=6, input_dim=7, embed_dim=12)
    realistic: ClassVar = {
        "8 heads": (Ranker(heads=8, head_dim=32, seq_len=64, input_dim=1536), 64),
        "12 heads": (Ranker(heads=12, head_dim=32, seq_len=64, input_dim=1536, embed_dim=256), 64),
    }
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be a whole number"),
        ({"embed_dim": 1.5}, "^embed_dim must be a whole number"),
        ({"embed_dim": None}, "^embed_dim and head_dim cannot both be None"),
        ({"embed_dim": 13}, "13 is not a multiple of 3; give head_dim to decouple"),
        ({"mlp_ratio": 0}, "^mlp_ratio must be positive"),
    ]

    @staticmethod
    def configs() -> st.SearchStrategy[Ranker]:
        sizes = st.integers(1, 12)
        coupled = st.builds(
            Ranker,
            heads=st.sampled_from([1, 2, 4]),
            embed_dim=st.just(8),
            seq_len=sizes,
            input_dim=sizes,
        )
        return coupled | st.builds(
            Ranker,
            heads=st.integers(1, 5),
            head_dim=sizes,
            seq_len=st.integers(2, 12),
            input_dim=sizes,
            depth=st.integers(1, 3),
            embed_dim=st.none() | st.integers(4, 24),
            mlp_ratio=st.floats(1.0, 4.0),
        )

    @staticmethod
    def inputs(config: Ranker, batch_size: int) -> Tensor:
        return torch.randn(batch_size, config.seq_len, config.input_dim)

    @staticmethod
    def group_of(parameter: str) -> str:
        if "norm" in parameter:
            return "norm"
        if parameter.startswith("projection."):
            return "embedding"
        if parameter.startswith("head."):
            return "head"
        return "attention" if ".attention." in parameter else "mlp"


def test_scores_follow_their_candidates_when_these_change_places() -> None:
    torch.manual_seed(0)
    config = TestRanker.decoupled
    model = config.build()
    x = TestRanker.inputs(config, 2)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(model(x[:, order]), model(x)[:, order])
