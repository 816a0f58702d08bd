"""Language modelling: the next token of a story."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.base import Metric, TaskData
from tasks.language.stories_config import StoriesConfig

if TYPE_CHECKING:
    import torch

_PUBLISHED_STORIES = 12_000


@dataclass(frozen=True, slots=True)
class Stories(StoriesConfig):
    """The task that ``StoriesConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``stories``."""
        return "stories"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Validation loss in nats a token (main), perplexity, training loss, and token counts."""
        return (
            Metric("validation_loss", "min", "loss", "cross-entropy in nats a token, validation"),
            Metric("perplexity", "min", "error", "exp of the validation loss"),
            Metric(
                "train_loss",
                "min",
                "loss",
                "cross-entropy in nats a token, training text",
                of_training=True,
            ),
            *self.token_counts,
        )

    def open(
        self,
        *,
        data_seed: int,  # noqa: ARG002
        sampling_seed: int,
        batch_size: int,
        device: "torch.device",
    ) -> TaskData:
        """Map the tokens into memory, after making them if no trial has before.

        The data seed decides nothing: all replicates have the same text.

        Raises:
            DataError: the data or the tokenizer are missing or unusable, or a part of the text is
                shorter than a sequence.
            ValueError: a batch size below 1.
        """
        from tasks.language.story_data import StoryData

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
