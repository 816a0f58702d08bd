"""Training our own fast model as an expert writes it: no loader and no scheduler object."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.baselines.study_data import (
    BATCH_SIZE,
    BETAS,
    HEAD_DIM,
    LEARNING_RATE,
    WARMUP_SHARE,
    read,
)
from models.retrieval import RetrievalTransformer


class Training:
    """One trial: ask for its epochs, one after another.

    Args:
        folder: of the data.
        heads: of the model.
        seq_len: T.
        seed: of weights, order and data.
        epochs: in all.
    """

    def __init__(
        self, folder: str | Path, *, heads: int, seq_len: int, seed: int, epochs: int
    ) -> None:
        self.data = read(folder, seq_len, seed)
        torch.manual_seed(seed)
        self.model = RetrievalTransformer(
            heads=heads,
            head_dim=HEAD_DIM,
            seq_len=seq_len,
            input_dim=self.data.train_x.shape[-1],
        ).build()
        with torch.no_grad():
            self.model.readout.bias.fill_(self.data.train_y.mean().item())
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=0.0, fused=True
        )
        self.steps_per_epoch = len(self.data.train_y) // BATCH_SIZE
        self.num_steps = epochs * self.steps_per_epoch
        self.step = 0

    def epoch(self) -> dict[str, float]:
        """Train one epoch and return its mean loss, the NMSE on validation data, and after the last
        epoch that on training data."""
        self.model.train()
        losses = []
        for x, y in self._batches():
            for group in self.optimizer.param_groups:
                group["lr"] = LEARNING_RATE * self._rate()
            self.optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.step += 1
            losses.append(loss.detach())
        self.model.eval()
        metrics = {
            "running_loss": torch.stack(losses).mean().item(),
            "nmse": self._nmse(self.data.validation_x, self.data.validation_y),
        }
        if self.step == self.num_steps:
            metrics["train_nmse"] = self._nmse(self.data.train_x, self.data.train_y)
        return metrics

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.data.train_y))[: self.steps_per_epoch * BATCH_SIZE]
        x, y = self.data.train_x[order], self.data.train_y[order]
        return zip(x.split(BATCH_SIZE), y.split(BATCH_SIZE), strict=True)

    def _rate(self) -> float:
        warmup = round(WARMUP_SHARE * self.num_steps)
        if self.step < warmup:
            return (self.step + 1) / warmup
        done = (self.step - warmup) / (self.num_steps - warmup)
        return 0.5 * (1 + math.cos(math.pi * done))

    @torch.no_grad()
    def _nmse(self, x: Tensor, y: Tensor) -> float:
        squared_error = sum(
            (self.model(some_x) - some_y).square().sum().item()
            for some_x, some_y in zip(x.split(1000), y.split(1000), strict=True)
        )
        return squared_error / len(y) / y.var(correction=0).item()
