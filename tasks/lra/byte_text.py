"""Classifying texts read byte by byte: film reviews (IMDB) in the Long Range Arena."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, not_in_key
from tasks.lra.spec import BYTE_VOCABULARY, BytesTask, TokenSpec, token_metrics
from tasks.metrics import even_shares
from tasks.settings import at_least, split_or_share
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest, place

if TYPE_CHECKING:
    from tasks.lra.texts import Examples, Texts

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class ByteText(BytesTask):
    """Classify texts by their UTF-8 bytes, as the Long Range Arena (arXiv 2011.04006) does with
    the IMDB reviews.

    The benchmark has no development set and chooses models by the test set. Here a share of each
    class of the training split is held out instead; the data seed decides which texts, so that all
    shapes of a replicate share them.

    Batches are pairs (x, y): x of shape (batch, seq_len), int64, each byte plus one and 0 for
    padding, and labels y of shape (batch,), int64. A model maps x to logits (batch, num_classes).

    Attributes:
        data: a folder in a hub layout, or a hub name (downloaded only if HSWEEP_HUB is 1).
        num_classes: classes; compared with the data's labels.
        validation: share of each class of the training split to validate on, in (0, 1), or the
            name of a split.
        test: name of the test split; None for no test accuracy.
        config: configuration (subset) name of the data set.
        text_column: column of texts.
        label_column: column of labels.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key("stanfordnlp/imdb")
    num_classes: int = 2
    validation: str | float = 0.1
    test: str | None = "test"
    config: str | None = None
    text_column: str = "text"
    label_column: str = "label"

    name = "byte_text"

    def __post_init__(self) -> None:
        rules = {"data": place(), "num_classes": at_least(2), "validation": split_or_share}
        self.settle(rules)

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, BYTE_VOCABULARY, self.num_classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation texts (main), on test and training ones, and losses."""
        return token_metrics(even_shares(self.num_classes), with_test=self.test is not None)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Raises:
            DataError: the data are missing, or lack a split or column, or a split has no rows, or a
                text is missing, empty or not UTF-8, or a label is out of range, or a share held out
                leaves no text.
        """
        from tasks.lra.byte_text_data import splits_in_use

        splits_in_use(self)
        return definition_digest(self, _VERSION, content_digest(self.data, self.config))

    def examples(self, data_seed: int) -> "tuple[Texts, dict[str, Examples]]":
        """See ``tasks.lra.byte_text_data.examples``."""
        from tasks.lra.byte_text_data import examples

        return examples(self, data_seed)
