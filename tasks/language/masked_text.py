"""Masked language modelling: the hidden tokens of a text, from those around them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.language.masked_text_config import MaskedTextConfig

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class MaskedText(MaskedTextConfig):
    """The task that ``MaskedTextConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``masked_text``."""
        return "masked_text"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Validation loss over masked positions (main), accuracy there, and token counts."""
        return (
            Metric("masked_loss", "min", "loss", "cross-entropy in nats, masked positions"),
            Metric("masked_accuracy", "max", "accuracy", "top-1 accuracy, masked positions"),
            Metric(
                "train_masked_loss",
                "min",
                "loss",
                "the same loss on the training text",
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

        The data seed decides nothing: all replicates have the same text, and validate on the same
        masks.

        Raises:
            DataError: the data or the tokenizer are missing or unusable, or a part of the text is
                shorter than a sequence.
            ValueError: a batch size below 1.
        """
        from tasks.language.masked_text_data import MaskedTextData

        return MaskedTextData(self, sampling_seed, batch_size, device)
