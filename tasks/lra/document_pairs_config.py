"""The settings of the task of pairs of documents, and what follows from them alone."""

from dataclasses import dataclass

from tasks.base import not_in_key
from tasks.lra.byte_text_config import BYTE_VOCABULARY
from tasks.lra.spec import TokenSpec, bytes_kept, settle
from tasks.lra.token_config import BytesConfig
from tasks.sources.hub import resolved


@dataclass(frozen=True, slots=True)
class DocumentPairsConfig(BytesConfig):
    """Tell whether one of two papers cites the other, from the bytes of both.

    The document retrieval of the Long Range Arena (arXiv 2011.04006) on the ACL Anthology Network.
    Its files come with the benchmark's release and may not be passed on; their folder is given by
    path. It holds one file each that ends in ``.train.tsv``, ``.eval.tsv`` and ``.test.tsv``
    (``new_aan_pairs.train.tsv`` and so on). A line is label (0 or 1), the papers' numbers and their
    texts, between tabs, without header or quotes.

    The files are read once. What a model can see of each document is kept under HSWEEP_CACHE, every
    document once, however many pairs it is part of.

    Batches are pairs (x, y): x of shape (batch, 2, seq_len), int64, each byte plus one and 0 for
    padding, and labels y of shape (batch,), int64. A model maps x to logits (batch, 2).

    Attributes:
        data: the folder with the files.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key("aan")

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError("data must be the folder with the files of pairs, not empty")
        object.__setattr__(self, "data", resolved(self.data))
        settle(self, seq_len=1, max_bytes=1)
        bytes_kept(self.seq_len, self.max_bytes)

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, BYTE_VOCABULARY, num_classes=2, num_texts=2)
