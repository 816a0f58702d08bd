"""Masked language modelling: the hidden tokens of a text, from those around them.

Shapes: B sequences in a batch, T tokens a sequence, M positions to predict, V logits.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models.fields import positive_share
from tasks.division import own_slices, sum_over_processes
from tasks.language.subwords import Kind, Role
from tasks.language.text_data import Part
from tasks.language.text_task import TOKEN_COUNTS, SequenceData, TextTask
from tasks.metrics import accuracy, loss
from tasks.sampling import generator, of_shape, to_device

_SHOWN_AS_MASK, _SHOWN_AS_ANOTHER = 0.8, 0.1
_MASKS: Final = 1
"""Keeps a step's masks apart from an epoch's order."""
_EVALUATED: Final[dict[Part, int]] = {"train": 2, "validation": 3}
"""Seeds of the masks under which a part of the text is evaluated, the same in every trial."""

MaskedBatch = tuple[Tensor, Tensor, Tensor]


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
        self.settle(masked_share=positive_share)

    @property
    def roles(self) -> tuple[Role, ...]:
        """A mask, and what separates documents."""
        return ("mask", "separator")

    @property
    def predicted(self) -> int:
        """Positions of a sequence that are predicted, at least one."""
        return max(1, round(self.masked_share * self.seq_len))

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "MaskedTextData":
        """Map the tokens into memory, after making them if no trial has before.

        The data seed decides nothing: all replicates have the same text, and validate on the same
        masks.
        """
        del data_seed
        return MaskedTextData(self, sampling_seed, batch_size, device)


class Masking(NamedTuple):
    """How tokens are hidden.

    Attributes:
        predicted: positions of a sequence that are predicted.
        mask: the token that stands for a hidden one.
        ordinary: (n,), int64: tokens that are not special.
        special: (V,), bool: which tokens are.
    """

    predicted: int
    mask: int
    ordinary: Tensor
    special: Tensor

    def hide(self, tokens: Tensor, random: torch.Generator) -> MaskedBatch:
        """Return the tokens with some hidden, the positions to predict and what was there.

        Args:
            tokens: (B, T), int64, on the CPU.
            random: a CPU generator.
        """
        chances = torch.rand(tokens.shape, generator=random) + self.special[tokens].float()
        positions = chances.topk(self.predicted, dim=1, largest=False).indices
        targets = tokens.gather(1, positions)
        masked = round(_SHOWN_AS_MASK * self.predicted)
        replaced = min(round(_SHOWN_AS_ANOTHER * self.predicted), self.predicted - masked)
        replacements = torch.randint(len(self.ordinary), (len(tokens), replaced), generator=random)
        inputs = targets.clone()
        inputs[:, :masked] = self.mask
        inputs[:, masked : masked + replaced] = self.ordinary[replacements]
        return tokens.scatter(1, positions, inputs), positions, targets


class MaskedTextData(SequenceData[MaskedBatch]):
    """A text opened for one trial: batches, cross-entropy at hidden positions, and scores.

    A batch is tokens (B, T), positions to predict and what was there, (B, M) each.
    """

    def __init__(
        self, task: MaskedText, sampling_seed: int, batch_size: int, device: torch.device
    ) -> None:
        super().__init__(
            task,
            beyond=0,
            end="separator",
            sampling_seed=sampling_seed,
            batch_size=batch_size,
            device=device,
        )
        special = torch.zeros(self._subwords.size, dtype=torch.bool)
        special[list(self._subwords.tokenizer.get_added_tokens_decoder())] = True
        ordinary = (~special).nonzero().flatten()
        mask = self._subwords.special("mask")
        self._masking = Masking(task.predicted, mask, ordinary, special)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return loss and accuracy on held-out text, and the tokens seen.

        The masks are the same at every call and in every trial.
        """
        loss, accuracy = self._evaluated(model, "validation")
        return {"masked_loss": loss, "masked_accuracy": accuracy, **self._token_counts()}

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the loss on the training text, with masks that are the same at every call, too."""
        return {"train_masked_loss": self._evaluated(model, "train")[0]}

    def _batches_from(self, start_step: int) -> Iterator[MaskedBatch]:
        for step, rows in self.rows_from(start_step):
            random = generator(self._sampling_seed, step, _MASKS)
            yield self._hidden("train", rows.numpy(), random)

    def _blank(self) -> MaskedBatch:
        tokens = torch.zeros(1, self._seq_len, dtype=torch.int64, device=self._device)
        positions = torch.arange(self._predicted, device=self._device)[None]
        return tokens, positions, torch.zeros_like(positions)

    def _tokens_of(self, batch: MaskedBatch) -> Tensor:
        return batch[0]

    def _mean_loss(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        logits = self._logits(model, batch)
        return functional.cross_entropy(logits.flatten(0, 1).float(), batch[2].flatten())

    def _hidden(self, part: Part, rows: NDArray[np.int64], random: torch.Generator) -> MaskedBatch:
        tokens = self._at(part, rows * self._seq_len, self._seq_len)
        inputs, positions, targets = self._masking.hide(tokens, random)
        inputs, positions = to_device(inputs, self._device), to_device(positions, self._device)
        return inputs, positions, to_device(targets, self._device)

    def _evaluated(self, model: nn.Module, part: Part) -> tuple[float, float]:
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        random = generator(_EVALUATED[part])
        rows = self._to_evaluate(part)
        for start in range(0, len(rows), self._at_once):
            # Masks are drawn for all rows, so that they do not depend on whose rows these are.
            hidden = self._hidden(part, rows[start : start + self._at_once], random)
            for own_rows in own_slices(len(hidden[0]), self._at_once):
                batch = hidden[0][own_rows], hidden[1][own_rows], hidden[2][own_rows]
                logits = self._logits(model, batch).flatten(0, 1).float()
                targets = batch[2].flatten()
                loss = functional.cross_entropy(logits, targets, reduction="sum")
                right = (logits.argmax(1) == targets).sum()
                total += torch.stack((loss.double(), right.double()))
        loss_sum, hits = sum_over_processes(total).tolist()
        predictions = len(self._to_evaluate(part)) * self._predicted
        return loss_sum / predictions, hits / predictions

    def _logits(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        """Return the logits at the positions to predict, (B, M, V)."""
        tokens, positions, _ = batch
        logits: Tensor
        if "read_at" in inspect.signature(model.forward).parameters:
            logits = model(tokens, read_at=positions)
        else:
            logits = model(tokens)
            if logits.shape[:2] == tokens.shape:
                logits = logits.take_along_dim(positions[:, :, None], dim=1)
        shape = (*positions.shape, self._vocab_size)
        expected = (
            f"logits of shape {shape} for the {positions.shape[1]} positions of tokens of shape "
            f"{tuple(tokens.shape)}"
        )
        return of_shape(logits, shape, expected)
