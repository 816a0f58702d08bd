"""The settings of the task of masked text, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tasks.language.subwords import Kind, Role
from tasks.language.text_task import TextTask
from tasks.settings import share

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class MaskedTextConfig(TextTask):
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
    version: ClassVar[str] = "1"
    trained: ClassVar[Kind] = "wordpiece"

    def _settle(self) -> None:
        masked = share("masked_share", self.masked_share)
        if not masked:
            raise ValueError("masked_share must lie in (0, 1), not 0")
        object.__setattr__(self, "masked_share", masked)

    @property
    def roles(self) -> tuple[Role, ...]:
        """A mask, and what separates documents."""
        return ("mask", "separator")

    @property
    def predicted(self) -> int:
        """Positions of a sequence that are predicted, at least one."""
        return max(1, round(self.masked_share * self.seq_len))
