"""The settings of the task of texts read byte by byte, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tasks.base import not_in_key
from tasks.lra.spec import TokenSpec, bytes_kept, keep_whole_numbers
from tasks.settings import share
from tasks.sources.hub import resolved

if TYPE_CHECKING:
    pass

BYTE_VOCABULARY: Final = 257
"""Padding, and each byte plus one."""


@dataclass(frozen=True, slots=True)
class ByteTextConfig:
    """Classify texts by their UTF-8 bytes, as the Long Range Arena (arXiv 2011.04006) does with
    the IMDB reviews.

    The benchmark has no development set and chooses models by the test set. Here a share of each
    class of the training split is held out instead; the data seed decides which texts, so that all
    shapes of a replicate share them.

    Batches are pairs (x, y): x of shape (batch, seq_len), int64, each byte plus one and 0 for
    padding, and labels y of shape (batch,), int64. A model maps x to logits (batch, num_classes).

    Attributes:
        data: a folder in a hub layout, or a hub name (downloaded only if HSWEEP_HUB is 1).
        seq_len: tokens a model is given.
        max_bytes: longer texts are cut; None for ``seq_len``. The published recipe cuts at 4,000
            and pads to 4,096.
        num_classes: classes; compared with the data's labels.
        validation: share of each class of the training split to validate on, in (0, 1), or the
            name of a split.
        test: name of the test split; None for no test accuracy.
        config: configuration (subset) name of the data set.
        text_column: column of texts.
        label_column: column of labels.
        max_train: use this many training texts only.
        max_validation: use this many validation texts only.
        max_test: use this many test texts only.
        max_train_eval: compute the training metrics on this many training texts only.
        steps_per_epoch: batches that count as an epoch; None for one pass over the training set.
            Published recipes are counted in batches, differently for every task.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key("stanfordnlp/imdb")
    seq_len: int = 4096
    max_bytes: int | None = None
    num_classes: int = 2
    validation: str | float = 0.1
    test: str | None = "test"
    config: str | None = None
    text_column: str = "text"
    label_column: str = "label"
    max_train: int | None = None
    max_validation: int | None = None
    max_test: int | None = None
    max_train_eval: int | None = 2_000
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError("data must be a folder or a hub name, not empty")
        object.__setattr__(self, "data", resolved(self.data))
        keep_whole_numbers(self, seq_len=1, max_bytes=1, num_classes=2)
        bytes_kept(self.seq_len, self.max_bytes)
        if not isinstance(self.validation, str) and not share("validation", self.validation):
            raise ValueError("validation must be a split or a share in (0, 1), not 0")

    @property
    def bytes_kept(self) -> int:
        """Bytes of a text that a model sees at most."""
        return bytes_kept(self.seq_len, self.max_bytes)

    @property
    def vocab_size(self) -> int:
        """Ids that tokens have: 0 to ``vocab_size - 1``."""
        return self.spec().vocab_size

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, BYTE_VOCABULARY, self.num_classes)
