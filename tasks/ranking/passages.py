"""Finding the passage that answers a query among hard candidates: MS MARCO and its like."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tasks.base import DataError, Metric, TaskData
from tasks.ranking.passages_config import VERSION, PassagesConfig
from tasks.sources.digest import definition_digest

if TYPE_CHECKING:
    import torch

_RANKS: Final = 10
"""Ranks that MRR@10 looks at."""


def _metrics(seq_len: int) -> tuple[Metric, ...]:
    """Return the metrics among ``seq_len`` candidates; chance is that of any order of them."""
    top1 = 1 / seq_len
    mrr = sum(1 / rank for rank in range(1, min(_RANKS, seq_len) + 1)) / seq_len
    loss = math.log(seq_len)
    return (
        Metric(
            "top1", "max", "accuracy", "validation queries whose positive is ranked first", top1
        ),
        Metric("mrr", "max", "accuracy", "validation MRR@10: mean of 1/rank, 0 below rank 10", mrr),
        Metric(
            "train_top1",
            "max",
            "accuracy",
            "training queries whose positive is first",
            top1,
            of_training=True,
        ),
        Metric("train_mrr", "max", "accuracy", "training MRR@10", mrr, of_training=True),
        Metric("validation_loss", "min", "loss", "cross entropy over the candidates, nats", loss),
        Metric(
            "train_loss",
            "min",
            "loss",
            "cross entropy over the candidates, nats, in training",
            loss,
            of_training=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class Passages(PassagesConfig):
    """The task that ``PassagesConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``passages``."""
        return "passages"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 (main) and MRR@10 on validation and training queries, and losses."""
        return _metrics(self.seq_len)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's and the encoder's files.

        Raises:
            DataError: the data or the encoder are missing or unusable, or the pool is smaller
                than ``seq_len``.
        """
        from tasks.ranking.passage_pool import judged, pool_size

        judged(self)
        passages = pool_size(self)
        if passages < self.mined + 1:
            raise DataError(
                f"the pool of {self.data!r} has {passages} passages, fewer than the {self.mined} "
                "mined negatives and a positive; lower mined and seq_len"
            )
        return definition_digest(self, VERSION, *self._content())

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read candidates and vectors; mined and embedded by the first to come.

        Raises:
            DataError: the data or the encoder are missing or unusable.
            ValueError: a batch size below 1.
        """
        from tasks.ranking.passage_data import PassageData, load

        del data_seed  # the data come with their splits
        return PassageData(self, load(self, self.fingerprint(), device), sampling_seed, batch_size)
