"""The settings of the task of stories, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tasks.language.subwords import Kind, Role
from tasks.language.text_data import HoldOut
from tasks.language.text_task import TextTask
from tasks.settings import one_of

if TYPE_CHECKING:
    pass

_BYTES = 256


@dataclass(frozen=True, slots=True)
class StoriesConfig(TextTask):
    """Predict each token of a text from those before it, for example on TinyStories.

    Batches are tokens (batch, seq_len + 1), int64: inputs and, shifted by one, targets. A model
    maps tokens (batch, seq_len) to the next ones' logits, (batch, seq_len, vocab_size).

    The fields are those of ``TextTask`` and one more. Without a ``tokenizer``, for example GPT-2's
    with its 50,257 tokens, a byte-level BPE is trained. A share of the stories that is held out is
    evenly spread over them; with ``windows`` it is the last ones by characters, a tenth unless
    ``validation`` says otherwise.

    Attributes:
        layout: ``packed`` cuts the line of all stories, each followed by an end-of-text token,
            into sequences and shows them in another order every epoch. ``windows`` is the
            published variant (see ``published_stories``): stories joined by newlines, and windows
            that begin anywhere, drawn at random; an epoch has as many tokens as the text.

    Raises:
        ValueError: a setting out of its range.
    """

    layout: Literal["packed", "windows"] = "packed"
    version: ClassVar[str] = "1"
    trained: ClassVar[Kind] = "bpe"

    def _settle(self) -> None:
        one_of("layout", self.layout, ("packed", "windows"))
        if self.tokenizer is None and self.vocab_size <= _BYTES:
            raise ValueError(
                f"vocab_size must be at least {_BYTES + 1} where a byte-level tokenizer is "
                f"trained, the bytes and an end of text, not {self.vocab_size}"
            )

    @property
    def roles(self) -> tuple[Role, ...]:
        """An end of text, where stories are packed."""
        return ("end of text",) if self.layout == "packed" else ()

    @property
    def predicted(self) -> int:
        """Every token of a sequence."""
        return self.seq_len

    @property
    def hold_out(self) -> HoldOut:
        """Those spread over the text, or its tail where windows are drawn."""
        return "spread" if self.layout == "packed" else "tail"
