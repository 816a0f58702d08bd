"""The settings of the task of texts read byte by byte, and what follows from them alone."""

from dataclasses import dataclass
from typing import Final

from tasks.base import not_in_key
from tasks.lra.spec import TokenSpec, bytes_kept, settle
from tasks.lra.token_config import BytesConfig
from tasks.settings import share
from tasks.sources.hub import resolved

BYTE_VOCABULARY: Final = 257
"""Padding, and each byte plus one."""


@dataclass(frozen=True, slots=True)
class ByteTextConfig(BytesConfig):
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

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError("data must be a folder or a hub name, not empty")
        object.__setattr__(self, "data", resolved(self.data))
        settle(self, seq_len=1, max_bytes=1, num_classes=2)
        bytes_kept(self.seq_len, self.max_bytes)
        if not isinstance(self.validation, str) and not share("validation", self.validation):
            raise ValueError("validation must be a split or a share in (0, 1), not 0")

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, BYTE_VOCABULARY, self.num_classes)
