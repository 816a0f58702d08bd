"""Language modelling: the next token of a story."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tasks.base import TaskData
from tasks.language.subwords import Kind, Role
from tasks.language.text_data import HoldOut
from tasks.language.text_task import TOKEN_COUNTS, TextTask
from tasks.metrics import error, loss
from tasks.settings import choice

if TYPE_CHECKING:
    import torch

_BYTES = 256
_PUBLISHED_STORIES = 12_000


@dataclass(frozen=True, slots=True)
class Stories(TextTask):
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
    trained: ClassVar[Kind] = "bpe"
    name = "stories"
    metrics = (
        loss("validation_loss", "cross-entropy in nats a token, validation"),
        error("perplexity", "exp of the validation loss"),
        loss("train_loss", "cross-entropy in nats a token, training text"),
        *TOKEN_COUNTS,
    )

    def __post_init__(self) -> None:
        self.settle({"layout": choice("packed", "windows")})
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

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Map the tokens into memory, after making them if no trial has before.

        The data seed decides nothing: all replicates have the same text.
        """
        from tasks.language.story_data import StoryData

        del data_seed
        return StoryData(self, sampling_seed, batch_size, device)


def published_stories(**settings: Any) -> Stories:
    """Return the data of paper L's GPT-2 run ("Leaner Transformers: More Heads, Less Depth", arXiv
    2505.20802, table 2; the code is Tiny-Stories-GPT): the first 12,000 stories joined by newlines,
    the last tenth held out, random windows of 64 tokens.

    The published losses are means over 200 batches of random windows; here every token of the held
    out text counts once, which has the same expectation and no noise.

    Args:
        settings: fields of ``Stories``, to begin with ``data`` and ``tokenizer``.
    """
    published: dict[str, Any] = {
        "seq_len": 64,
        "vocab_size": 50257,
        "layout": "windows",
        "validation": 0.1,
        "max_documents": _PUBLISHED_STORIES,
    }
    return Stories(**{**published, **settings})
