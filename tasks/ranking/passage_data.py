"""Candidates on the training device, and learning to rank them.

Shapes: Q queries, B queries in a batch, T candidates, M mined negatives, P passages, F width.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.division import own_slices, summed
from tasks.ranking.passage_pool import candidates
from tasks.sampling import EpochData, generator, of_shape
from tasks.sources.kept import kept
from tasks.transfer import to_device

if TYPE_CHECKING:
    from tasks.ranking.passages import Passages

_CHUNK = 256
"""Queries handled at once outside training."""

_RANK_CUTOFF = 10
"""MRR@10: what is ranked lower counts nothing."""

_MOST_BYTES_ON_DEVICE = 1 << 30
"""Larger tables of passages stay memory-mapped, and the rows of a batch are copied."""

_ORDER = 1
"""Keeps a step's order of candidates apart from an epoch's order of queries."""


class Tables(NamedTuple):
    """Vectors and candidate lists.

    Attributes:
        queries: (Q, F), float32.
        passages: (P, F), float32.
        lists: (Q, T), int64: rows of ``passages``, the relevant one first.
        num_train: the first so many queries are for training.
        device: where batches are wanted; ``passages`` may lie elsewhere.
    """

    queries: Tensor
    passages: Tensor
    lists: Tensor
    num_train: int
    device: torch.device


@kept(most=2)
def load(task: "Passages", fingerprint: str, device: torch.device) -> Tables:  # noqa: ARG001
    """Return the tables of ``task``; the last two are kept for reuse.

    Args:
        task: what to read.
        fingerprint: of the task's data, so that data that change are read again.
        device: where batches are wanted.

    Raises:
        DataError: the data or the encoder are missing or unusable.
    """
    found = candidates(task, task.mining_digest())
    lists = torch.cat(
        (
            torch.from_numpy(found.positives)[:, None],
            torch.from_numpy(found.negatives[:, : task.seq_len - 1]),
        ),
        dim=1,
    )
    passages = torch.from_numpy(found.passages)
    if passages.nbytes <= _MOST_BYTES_ON_DEVICE:
        passages = passages.to(device)
    queries = torch.from_numpy(found.queries).to(device)
    return Tables(queries, passages, lists, found.num_train, device)


class PassageData(EpochData):
    """Queries opened for one trial: batches, cross entropy over candidates, top-1 and MRR@10."""

    def __init__(
        self, task: "Passages", tables: Tables, sampling_seed: int, batch_size: int
    ) -> None:
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
        """Return the same of the training queries, of the first ones where they are limited."""
        num_train = self._tables.num_train
        most = self._task.max_train_eval or num_train
        top1, mrr, loss = self._scored(model, torch.arange(min(most, num_train)))
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
            for here in own_slices(len(chunk), len(chunk)):
                x, y = gathered[0][here], gathered[1][here]
                scores = scores_of(model, x).float()
                own = scores.gather(1, y[:, None])
                # Ties count against the model: a constant score is no ranking.
                rank = 1 + ((scores >= own).sum(1) - 1)
                loss = functional.cross_entropy(scores, y, reduction="none").double()
                reciprocal = torch.where(rank <= _RANK_CUTOFF, 1.0 / rank.double(), 0.0)
                total = total.to(x.device) + torch.stack(
                    ((rank == 1).sum().double(), reciprocal.sum(), loss.sum())
                )
        top1, mrr, loss = (summed(total) / len(rows)).tolist()
        return top1, mrr, loss


def scores_of(model: nn.Module, x: Tensor) -> Tensor:
    """Return the model's scores, (B, T).

    Raises:
        ValueError: the model returns another shape.
    """
    shape = tuple(x.shape[:2])
    return of_shape(model(x), shape, f"one score a candidate, of shape {shape}")
