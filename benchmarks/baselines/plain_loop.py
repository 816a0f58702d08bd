"""A training loop as everybody writes it: nothing of it is taken out of the step."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import nn


def seconds_a_step(
    model: nn.Module,
    batches: Iterator[Any],
    loss_of: Callable[[nn.Module, Any], torch.Tensor],
    *,
    lr: float,
    clip_norm: float | None,
    steps: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Train a model for some steps and return the time of each, data included.

    Args:
        model: to be trained.
        batches: without end.
        loss_of: a model's mean loss on a batch.
        lr: peak of the learning rate, which falls along a cosine.
        clip_norm: largest norm of the gradients; None for no clipping.
        steps: how many.
        clock: seconds, from any start.
    """
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": 0.0},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    model.train()
    started = clock()
    for batch in islice(batches, steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            loss = loss_of(model, batch)
        loss.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return (clock() - started) / steps
