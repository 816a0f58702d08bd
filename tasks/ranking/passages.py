"""Finding the passage that answers a query among hard candidates: MS MARCO and its like.

Shapes: Q queries, B queries in a batch, T candidates, P passages, F width.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.fields import at_least, positive_share, settle
from tasks.base import DataError, Metric
from tasks.division import own_slices, sum_over_processes
from tasks.metrics import accuracy, loss
from tasks.ranking.passage_pool import Mining, candidates, judged, pool_size
from tasks.ranking.passage_vectors import WORDS, embedding_width, encoder_digest
from tasks.sampling import EpochData, generator, of_shape, to_device
from tasks.sources.digest import definition_digest
from tasks.sources.docstrings import DOCSTRINGS, docstrings_digest
from tasks.sources.hub import content_digest, place
from tasks.sources.memory import keep_last

_VERSION: Final = "1"
"""Where things lie does not matter, only what they contain."""
_RANKS: Final = 10
"""Ranks that MRR@10 looks at; what is ranked lower counts nothing."""
_CHUNK: Final = 256
"""Queries handled at once outside training."""
_MOST_BYTES_ON_DEVICE: Final = 1 << 30
"""Larger tables of passages stay memory-mapped, and the rows of a batch are copied."""
_ORDER: Final = 1
"""Keeps a step's order of candidates apart from an epoch's order of queries."""


@dataclass(frozen=True, slots=True)
class Passages(Mining):
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

    The fields are those of ``Mining`` and these.

    Attributes:
        seq_len: candidates of a query, the relevant one included.
        max_train_eval: compute the training metrics on this many training queries only.

    Raises:
        ValueError: a setting out of its range.
    """

    seq_len: int
    max_train_eval: int | None = 2_048

    name = "passages"

    def __post_init__(self) -> None:
        settle(
            self,
            seq_len=at_least(2),
            held_out=positive_share,
            data=place(DOCSTRINGS),
            encoder=place(WORDS),
        )
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
        """Return a hash of the settings and of the data's and the encoder's files."""
        judged(self)
        passages = pool_size(self)
        if passages < self.mined + 1:
            raise DataError(
                f"the pool of {self.data!r} has {passages} passages, fewer than the {self.mined} "
                "mined negatives and a positive; lower mined and seq_len"
            )
        return definition_digest(self, _VERSION, *self._content())

    def input_dim(self) -> int:
        """Return the width of a candidate: twice that of the encoder's embeddings."""
        return 2 * embedding_width(self.encoder)

    def mining_digest(self) -> str:
        """Return a hash of all that decides the mined lists and the vectors: not ``seq_len``.

        Raises:
            DataError: the data or the encoder are missing or unusable.
        """
        leave_out = ("seq_len", "max_train_eval")
        return definition_digest(self, _VERSION, *self._content(), leave_out=leave_out)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "PassageData":
        """Read candidates and vectors; mined and embedded by the first to come."""
        del data_seed  # the data come with their splits
        return PassageData(self, load(self, self.fingerprint(), device), sampling_seed, batch_size)

    def _content(self) -> tuple[str, ...]:
        if self.data == DOCSTRINGS:
            return encoder_digest(self.encoder), docstrings_digest()
        tables = (content_digest(self.data, config) for config in (None, "corpus", "queries"))
        return encoder_digest(self.encoder), *tables


class Tables(NamedTuple):
    """Vectors and candidate lists of a task.

    Attributes:
        queries: (Q, F), float32.
        passages: (P, F), float32.
        lists: (Q, T), int64: rows of ``passages``, the relevant one first.
        num_train: the first so many queries are for training.
        device: of the batches; ``passages`` may lie elsewhere.
    """

    queries: Tensor
    passages: Tensor
    lists: Tensor
    num_train: int
    device: torch.device


@keep_last(2)
def load(
    task: Passages,
    fingerprint: str,  # noqa: ARG001  data that change are read again
    device: torch.device,
) -> Tables:
    """Return the tables of ``task`` for batches on ``device``.

    Raises:
        DataError: the data or the encoder are missing or unusable.
    """
    mined = candidates(task, task.mining_digest())
    lists = torch.cat(
        (
            torch.from_numpy(mined.positives)[:, None],
            torch.from_numpy(mined.negatives[:, : task.seq_len - 1]),
        ),
        dim=1,
    )
    passages = torch.from_numpy(mined.passages)
    if passages.nbytes <= _MOST_BYTES_ON_DEVICE:
        passages = passages.to(device)
    queries = torch.from_numpy(mined.queries).to(device)
    return Tables(queries, passages, lists, mined.num_train, device)


class PassageData(EpochData):
    """Queries opened for one trial: batches, cross entropy over candidates, top-1 and MRR@10."""

    def __init__(self, task: Passages, tables: Tables, sampling_seed: int, batch_size: int) -> None:
        num_validation = len(tables.lists) - tables.num_train
        super().__init__(tables.num_train, num_validation, sampling_seed, batch_size)
        self._task = task
        self._tables = tables

    def batches(self, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) without end: x (B, T, 2 F), y (B,), beginning with ``start_step``."""
        for step, rows in self.rows_from(start_step):
            yield self._gathered(rows, generator(self._sampling_seed, step, _ORDER))

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean cross entropy over the candidates, in nats."""
        x, y = batch
        return functional.cross_entropy(scores_of(model, x), y)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return top-1, MRR@10 and loss on the validation queries."""
        queries = torch.arange(self._tables.num_train, len(self._tables.lists))
        top1, mrr, loss = self._scored(model, queries)
        return {"top1": top1, "mrr": mrr, "validation_loss": loss}

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return top-1, MRR@10 and loss on training queries, at most ``max_train_eval``."""
        num_train = self._tables.num_train
        count = self._task.max_train_eval or num_train
        top1, mrr, loss = self._scored(model, torch.arange(min(count, num_train)))
        return {"train_top1": top1, "train_mrr": mrr, "train_loss": loss}

    def _gathered(self, rows: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the examples of these queries, their candidates in an order drawn."""
        tables = self._tables
        lists = tables.lists[rows]
        order = torch.rand(lists.shape, generator=random).argsort(1)
        lists = lists.gather(1, order)
        positions = (order == 0).int().argmax(1)
        passages = to_device(
            tables.passages[to_device(lists, tables.passages.device)], tables.device
        )
        queries = tables.queries[to_device(rows, tables.device)]
        x = torch.cat((queries[:, None].expand_as(passages), passages), dim=2)
        return x, to_device(positions, tables.device)

    def _scored(self, model: nn.Module, rows: Tensor) -> tuple[float, float, float]:
        total = torch.zeros(3, dtype=torch.float64)
        for number, chunk in enumerate(torch.split(rows, _CHUNK)):
            # A fixed order other than the positive first: a model with positions cannot use it.
            gathered = self._gathered(chunk, generator(number, _ORDER))
            for own_rows in own_slices(len(chunk), len(chunk)):
                x, y = gathered[0][own_rows], gathered[1][own_rows]
                scores = scores_of(model, x).float()
                positive_scores = scores.gather(1, y[:, None])
                # Ties count against the model: a constant score is no ranking.
                rank = 1 + ((scores >= positive_scores).sum(1) - 1)
                loss = functional.cross_entropy(scores, y, reduction="none").double()
                reciprocal = torch.where(rank <= _RANKS, 1.0 / rank.double(), 0.0)
                total = total.to(x.device) + torch.stack(
                    ((rank == 1).sum().double(), reciprocal.sum(), loss.sum())
                )
        top1, mrr, loss = (sum_over_processes(total) / len(rows)).tolist()
        return top1, mrr, loss


def scores_of(model: nn.Module, x: Tensor) -> Tensor:
    """Return the model's scores, (B, T).

    Raises:
        ValueError: the model returns another shape.
    """
    shape = tuple(x.shape[:2])
    return of_shape(model(x), shape, f"one score a candidate, of shape {shape}")
