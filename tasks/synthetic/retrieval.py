"""Sum of maxima: the synthetic retrieval task of the head-count paper.

y = sum_{i=1..D} max_{t=1..T} a_i . x_t with x_t ~ N(0, I): each of D features has to be found at
its own position of the sequence ("The Effect of Attention Head Count on Transformer
Approximation", arXiv 2510.06662, synthetic experiment; the paper uses D = 4 in 4 dimensions,
8,000 sequences for training and 2,000 for validation). Its theory is about the larger class
y = F_0(z_1, ..., z_D) with z_i = max_{t in S_i} a_i . x_t, of which ``outer`` and ``sets`` choose.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.sources.digest import definition_digest
from tasks.synthetic.retrieval_config import RetrievalConfig

if TYPE_CHECKING:
    import torch

_VERSION = "1"
_METRICS = (
    Metric(
        "nmse",
        "min",
        "error",
        "mean squared error over the variance of the target, validation sequences",
        1.0,
    ),
    Metric(
        "train_nmse",
        "min",
        "error",
        "mean squared error over the variance of the target, training sequences",
        1.0,
        of_training=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Retrieval(RetrievalConfig):
    """The task that ``RetrievalConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``retrieval``."""
        return "retrieval"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """NMSE on validation (main) and on training sequences."""
        return _METRICS

    def fingerprint(self) -> str:
        """Return a hash of the definition; the data follow from it and the data seed."""
        return definition_digest(self, _VERSION)

    def example_input(self) -> "torch.Tensor":
        """Return a sequence of zeros as a batch of one, (1, seq_len, token_dim)."""
        import torch

        return torch.zeros(1, self.seq_len, self.token_dim)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Generate the sequences, whole on ``device``; kept for the next trial of this process.

        Raises:
            ValueError: a batch size below 1.
        """
        from tasks.synthetic.retrieval_data import RetrievalData, generate

        data = generate(self, data_seed, device)
        return RetrievalData(self, data, data_seed, sampling_seed, batch_size)
