"""Telling whether two documents read byte by byte are related: citations in the ACL Anthology."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.base import not_in_key
from tasks.lra.spec import BYTE_VOCABULARY, BytesTask, TokenSpec, token_metrics
from tasks.metrics import even_shares
from tasks.sources.digest import definition_digest, sampled_digest
from tasks.sources.hub import resolved

if TYPE_CHECKING:
    from tasks.lra.texts import Examples, Texts

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class DocumentPairs(BytesTask):
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

    name = "document_pairs"
    metrics = token_metrics(even_shares(2))

    def __post_init__(self) -> None:
        self.settle({"data": _folder})

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, BYTE_VOCABULARY, num_classes=2, num_texts=2)

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the files' names and sizes, and of samples of their
        contents.

        Not all is read, as it is gigabytes; a change between the samples that leaves the size as
        it was goes unnoticed.

        Raises:
            DataError: a file is missing or empty, or its first line is unusable.
        """
        from tasks.lra.document_pairs_data import pair_files

        files = {path.name: path for path in pair_files(self.data).values()}
        return definition_digest(self, _VERSION, sampled_digest(files))

    def examples(self, data_seed: int) -> "tuple[Texts, dict[str, Examples]]":
        """See ``tasks.lra.document_pairs_data.examples``."""
        from tasks.lra.document_pairs_data import examples

        del data_seed  # the data come with their splits
        return examples(self)


def _folder(name: str, data: Any) -> str:
    if not data:
        raise ValueError(f"{name} must be the folder with the files of pairs, not empty")
    return resolved(data)
