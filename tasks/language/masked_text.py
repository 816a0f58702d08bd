"""Masked language modelling: the hidden tokens of a text, from those around them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tasks.base import TaskData
from tasks.language.subwords import Kind, Role
from tasks.language.text_task import TOKEN_COUNTS, TextTask
from tasks.metrics import accuracy, loss
from tasks.settings import positive_share

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class MaskedText(TextTask):
    """Predict masked tokens, as BERT's pre-training does (Devlin et al. 2019, section 3.1).

    The setting is that of Cramming (Geiping and Goldstein 2023), which paper L ("Leaner
    Transformers: More Heads, Less Depth", arXiv 2505.20802), table 1, uses: all documents form one
    line of tokens, each followed by a separator, which is cut into full sequences, so nothing is
    padded. Exactly ``masked_share`` of the positions of every sequence are to be predicted, others
    at each step: 80 % of them (rounded) show the mask, 10 % (rounded) a token drawn from the
    vocabulary, the rest themselves. The loss is over these positions only. Separators are chosen
    last, which means never unless a sequence hardly has anything else.

    Batches are tuples (tokens, positions, targets), int64: (batch, seq_len) with the masks in it,
    and twice (batch, predicted). A model maps tokens to logits, (batch, seq_len, vocab_size); if
    its ``forward`` takes ``read_at``, it is asked for the logits at those positions alone, (batch,
    predicted, vocab_size), which spares most of the read-out.

    The fields are those of ``TextTask`` and one more. A ``tokenizer`` must have a mask, as BERT's
    has; without one a lower-case WordPiece is trained. A share of the documents that is held out is
    evenly spread over them.

    Attributes:
        masked_share: share of the positions to predict, in (0, 1).

    Raises:
        ValueError: a setting out of its range.
    """

    masked_share: float = 0.25
    trained: ClassVar[Kind] = "wordpiece"
    name = "masked_text"
    metrics = (
        loss("masked_loss", "cross-entropy in nats, masked positions"),
        accuracy("masked_accuracy", "top-1 accuracy, masked positions"),
        loss("train_masked_loss", "the same loss on the training text"),
        *TOKEN_COUNTS,
    )

    def __post_init__(self) -> None:
        self.settle({"masked_share": positive_share})

    @property
    def roles(self) -> tuple[Role, ...]:
        """A mask, and what separates documents."""
        return ("mask", "separator")

    @property
    def predicted(self) -> int:
        """Positions of a sequence that are predicted, at least one."""
        return max(1, round(self.masked_share * self.seq_len))

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Map the tokens into memory, after making them if no trial has before.

        The data seed decides nothing: all replicates have the same text, and validate on the same
        masks.
        """
        from tasks.language.masked_text_data import MaskedTextData

        del data_seed
        return MaskedTextData(self, sampling_seed, batch_size, device)
