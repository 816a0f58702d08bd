"""Language modelling: the next token of a story.

Shapes: B sequences in a batch, T tokens a sequence, V logits.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.division import sum_over_processes
from tasks.language.subwords import Kind, Role
from tasks.language.text_data import Part
from tasks.language.text_task import TOKEN_COUNTS, SequenceData, TextTask
from tasks.metrics import error, loss
from tasks.sampling import generator, of_shape, to_device

_BYTES: Final = 256
_PUBLISHED_STORIES: Final = 12_000
_LARGEST_EXPONENT: Final = 700.0
"""Of a float64, nearly."""
_WINDOWS: Final = 1
"""Keeps a step's windows apart from an epoch's order."""


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
        self.settle()
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
    def holds_out_tail(self) -> bool:
        """Whether windows are drawn."""
        return self.layout == "windows"

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "StoryData":
        """Map the tokens into memory, after making them if no trial has before.

        The data seed decides nothing: all replicates have the same text.
        """
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


class StoryData(SequenceData[Tensor]):
    """Stories opened for one trial: batches, cross-entropy, and losses of both parts.

    A batch is tokens (B, T + 1).
    """

    def __init__(
        self, task: Stories, sampling_seed: int, batch_size: int, device: torch.device
    ) -> None:
        self._is_packed = task.layout == "packed"
        super().__init__(
            task,
            beyond=1,
            end="end of text" if self._is_packed else None,
            ending="" if self._is_packed else "\n",
            sampling_seed=sampling_seed,
            batch_size=batch_size,
            device=device,
        )

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return loss and perplexity on held-out text, and how many tokens were trained on."""
        validation = self._evaluated(model, "validation")
        return {
            "validation_loss": validation,
            "perplexity": math.exp(validation) if validation < _LARGEST_EXPONENT else math.inf,
            **self._token_counts(),
        }

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the loss on the training text."""
        return {"train_loss": self._evaluated(model, "train")}

    def _batches_from(self, start_step: int) -> Iterator[Tensor]:
        starts = self._packed if self._is_packed else self._windows
        return (self._read("train", first) for first in starts(start_step))

    def _blank(self) -> Tensor:
        return torch.zeros(1, self._seq_len + 1, dtype=torch.int64, device=self._device)

    def _tokens_of(self, batch: Tensor) -> Tensor:
        return batch

    def _mean_loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return self._cross_entropy(model, batch, "mean")

    def _packed(self, start_step: int) -> Iterator[NDArray[np.int64]]:
        for _, rows in self.rows_from(start_step):
            yield rows.numpy() * self._seq_len

    def _windows(self, start_step: int) -> Iterator[NDArray[np.int64]]:
        positions = len(self._lines["train"]) - self._seq_len
        step = start_step
        while True:
            random = generator(self._sampling_seed, step, _WINDOWS)
            yield torch.randint(positions, (self._batch_size,), generator=random).numpy()
            step += 1

    def _read(self, part: Part, first: NDArray[np.int64]) -> Tensor:
        """Return the tokens (B, T + 1) that begin at positions ``first``, (B,)."""
        return to_device(self._at(part, first, self._seq_len + 1), self._device)

    def _evaluated(self, model: nn.Module, part: Part) -> float:
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for rows in self._evaluated_at_once(part):
            tokens = self._read(part, rows * self._seq_len)
            total += self._cross_entropy(model, tokens, "sum").double()
        return float(sum_over_processes(total)) / (len(self._to_evaluate(part)) * self._predicted)

    def _cross_entropy(
        self, model: nn.Module, tokens: Tensor, reduction: Literal["mean", "sum"]
    ) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        shape = (*targets.shape, self._vocab_size)
        expected = f"logits of shape {shape} for tokens of shape {tuple(inputs.shape)}"
        logits = of_shape(model(inputs), shape, expected)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), reduction=reduction
        )
