"""Fine-tuning a copy of a text encoder, with a head on its first token.

Shapes: n examples, B in a batch, T tokens, E the encoder's width.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.language.glue_tasks import Examples
from tasks.sampling import epochs_from, stream_seed, to_device, whole_batches

_POOLED = 1024
_DEVIATION = 0.02
_WARMUP = 0.1
_BETAS, _EPS = (0.9, 0.98), 1e-6
_EXAMPLES_AT_ONCE = 128
"""Outside training."""

_ORDER, _CHANCE = 1, 2
"""Independent streams of a seed: the order of examples; the head's weights and dropout."""


class Classifier(nn.Module):
    """An encoder, its first token pooled, and what is read from that.

    Args:
        encoder: has ``features(tokens, mask)``, (B, T) to (B, T, E).
        width: the encoder's E.
        num_outputs: classes, or 1 for a number.
        dropout: of the pooled token.
    """

    def __init__(self, encoder: nn.Module, width: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = nn.Linear(width, _POOLED)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(_POOLED, num_outputs)
        for layer in (self.pooler, self.head):
            nn.init.normal_(layer.weight, std=_DEVIATION)
            nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return (B, num_outputs)."""
        features: Any = self.encoder.features
        pooled = self.pooler(features(tokens, mask)[:, 0]).tanh()
        outputs: Tensor = self.head(self.dropout(pooled))
        return outputs


@dataclass(frozen=True, slots=True)
class FineTuning:
    """How encoders are fine-tuned.

    Attributes:
        epochs: passes over the examples.
        batch_size: examples a step.
        lr: peak learning rate.
        dropout: the rate of every dropout, that of attention weights included.
        padding: the token that fills up shorter examples; any will do, since it is masked.
        device: where to train.
    """

    epochs: int
    batch_size: int
    lr: float
    dropout: float
    padding: int
    device: torch.device

    def check_encoder(self, model: nn.Module, longest: int) -> None:
        """See to it that a model can be fine-tuned on examples of up to ``longest`` tokens.

        Raises:
            ValueError: it has no ``features(tokens, mask)``, or that does not take so many tokens
                or return (batch, tokens, width).
        """
        if not callable(getattr(model, "features", None)):
            raise ValueError(
                "a model to be fine-tuned must have features(tokens, mask), which returns (batch, "
                f"tokens, width); {type(model).__name__} has not"
            )
        tokens = torch.full((1, longest), self.padding, device=self.device)
        was_training = model.training
        model.eval()
        with torch.no_grad():
            features: Any = model.features
            outputs = features(tokens, torch.ones_like(tokens, dtype=torch.bool))
        model.train(was_training)
        if outputs.ndim != 3 or outputs.shape[:2] != tokens.shape:
            raise ValueError(
                "features(tokens, mask) of a model to be fine-tuned must return (1, "
                f"{longest}, width) for tokens of shape (1, {longest}), not {tuple(outputs.shape)}"
            )

    def predictions(
        self,
        model: nn.Module,
        num_classes: int,
        train: Examples,
        validation: Mapping[str, Examples],
        seed: int,
    ) -> dict[str, NDArray[np.generic]]:
        """Return what a fine-tuned copy of ``model`` predicts for several sets of examples.

        The model and torch's random generators are left as they are. An autocast that is on stays
        on.

        Args:
            model: the encoder, on the device.
            num_classes: classes; 0 for a number, learned by squared error.
            train: examples to fine-tune on.
            validation: sets of examples by name.
            seed: decides the head's first weights, the order of examples and what is dropped.

        Returns:
            Classes (n,), int64, or numbers (n,), float32, of each set.
        """
        device = self.device
        devices = [] if device.type == "cpu" else [device]
        # A cache of cast weights would outlive the steps that change them.
        autocast = torch.autocast(
            device.type,
            dtype=torch.get_autocast_dtype(device.type),
            enabled=torch.is_autocast_enabled(device.type),
            cache_enabled=False,
        )
        with torch.random.fork_rng(devices, device_type=device.type), autocast:
            chance = stream_seed(seed, _CHANCE)
            torch.default_generator.manual_seed(chance)
            if devices:
                torch.get_device_module(device).manual_seed(chance)
            with torch.enable_grad():
                tuned = self._tuned(model, num_classes, train, seed)
            tuned.eval()
            with torch.no_grad():
                return {
                    name: self._predicted(tuned, num_classes, examples)
                    for name, examples in validation.items()
                }

    def _tuned(self, model: nn.Module, num_classes: int, train: Examples, seed: int) -> Classifier:
        encoder = copy.deepcopy(model)
        _set_dropout(encoder, self.dropout)
        encoder.requires_grad_(True)
        with torch.no_grad():
            features: Any = encoder.features
            width = features(*self._batch(train, np.zeros(1, dtype=np.int64))).shape[-1]
        tuned = Classifier(encoder, width, max(1, num_classes), self.dropout).to(self.device)
        optimizer = torch.optim.AdamW(
            tuned.parameters(), lr=self.lr, betas=_BETAS, eps=_EPS, weight_decay=0.0
        )
        dtype = torch.get_autocast_dtype(self.device.type)
        is_half = torch.is_autocast_enabled(self.device.type) and dtype == torch.float16
        # Gradients in float16 would vanish; an update that overflows is left out.
        scaler = torch.amp.GradScaler(self.device.type, enabled=is_half)
        tuned.train()
        count = len(train.labels)
        _, steps_per_epoch = whole_batches(count, self.batch_size)
        num_steps = self.epochs * steps_per_epoch
        labels = torch.from_numpy(train.labels)
        for step, rows in zip(range(num_steps), self._orders(count, seed), strict=False):
            for group in optimizer.param_groups:
                group["lr"] = _lr_at(self.lr, step, num_steps)
            outputs = tuned(*self._batch(train, rows.numpy())).float()
            truth = to_device(labels[rows], self.device)
            if num_classes:
                loss = functional.cross_entropy(outputs, truth)
            else:
                loss = functional.mse_loss(outputs[:, 0], truth)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
        return tuned

    def _orders(self, count: int, seed: int) -> Iterator[Tensor]:
        for part in epochs_from(0, count, self.batch_size, stream_seed(seed, _ORDER)):
            yield from torch.split(part.order, self.batch_size)

    def _predicted(
        self, tuned: Classifier, num_classes: int, examples: Examples
    ) -> NDArray[np.generic]:
        answers = []
        for start in range(0, len(examples.labels), _EXAMPLES_AT_ONCE):
            rows = np.arange(start, min(start + _EXAMPLES_AT_ONCE, len(examples.labels)))
            outputs = tuned(*self._batch(examples, rows)).float()
            answers.append(outputs.argmax(1) if num_classes else outputs[:, 0])
        return torch.cat(answers).cpu().numpy()

    def _batch(self, examples: Examples, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return tokens (B, T), int64, and which of them are no padding, (B, T), bool; T is the
        longest example's length."""
        ends = np.asarray(examples.ends)[rows]
        starts = np.where(rows > 0, np.asarray(examples.ends)[rows - 1], 0)
        lengths = ends - starts
        offsets = np.arange(lengths.max())
        mask = offsets < lengths[:, None]
        at = np.minimum(starts[:, None] + offsets, len(examples.tokens) - 1)
        tokens = np.where(mask, examples.tokens[at].astype(np.int64), self.padding)
        return (
            to_device(torch.from_numpy(tokens), self.device),
            to_device(torch.from_numpy(mask), self.device),
        )


def _lr_at(peak: float, step: int, num_steps: int) -> float:
    """Return the learning rate of the update numbered ``step`` (from 0) of ``num_steps``: up
    linearly over the first tenth, then down to 0 as half a cosine."""
    warmup = round(_WARMUP * num_steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, num_steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


def _set_dropout(encoder: nn.Module, rate: float) -> None:
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
        elif isinstance(getattr(module, "dropout", None), float):
            # Attention drops its weights inside a function, as torch's own module does.
            setattr(module, "dropout", rate)  # noqa: B010  no field of nn.Module itself
