"""How a trial is optimised: a frozen value, and its learning-rate schedule."""

import math
from dataclasses import dataclass
from typing import Literal

from hsweep.errors import UserError, check_choice
from tasks.base import not_in_key


@dataclass(frozen=True, slots=True)
class Recipe:
    """Optimizer, learning-rate schedule, batch and precision of one trial.

    Attributes:
        lr: peak learning rate.
        batch_size: examples an optimizer step (the effective batch).
        optimizer: ``adamw`` or ``sgd``.
        betas: Adam's moment decay rates; for ``sgd`` the first is the momentum.
        weight_decay: decoupled weight decay; vectors and scalars (norms, biases) are exempt.
        warmup_fraction: share of all steps over which the rate rises linearly.
        warmup_lr: the rate that the warm-up starts from.
        schedule: ``cosine`` (to ``min_lr``), ``linear`` (to ``min_lr``) or ``constant``.
        min_lr: the rate that the schedule would reach one step after the last.
        clip_norm: largest gradient norm, or None for no clipping.
        precision: ``float32``, or ``bfloat16`` for autocast.
        compile: ``on`` compiles the model for training (``torch.compile``), ``graphs`` also has its
            steps replayed as CUDA graphs, which spares small models the time between kernels (on
            the CPU it is the same as ``on``). Weights differ by rounding, and dropout draws other
            masks, so this is part of what makes two trials the same, like ``precision``.
        sharding: ``full`` spreads weights, gradients and moments over the processes of a trial
            (FSDP2), for models that do not fit one device; ``none`` has all of them in each. One
            process trains the plain model. Weights differ by rounding alone, so this is no part of
            what makes two trials the same.

    Raises:
        UserError: a value outside its range, or sharded weights in a compiled model.
    """

    lr: float = 1e-3
    batch_size: int = 256
    optimizer: Literal["adamw", "sgd"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    warmup_fraction: float = 0.0
    warmup_lr: float = 0.0
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    min_lr: float = 0.0
    clip_norm: float | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: Literal["off", "on", "graphs"] = "off"
    sharding: Literal["none", "full"] = not_in_key("none")

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise UserError(f"lr must be a positive number, not {self.lr!r}")
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise UserError(
                f"batch_size must be a whole number of at least 1, not {self.batch_size!r}"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas must lie in [0, 1), not {self.betas!r}")
        for name in ("weight_decay", "warmup_lr", "min_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"{name} must be a number of at least 0, not {value!r}")
        if not 0 <= self.warmup_fraction < 1:
            raise UserError(f"warmup_fraction must lie in [0, 1), not {self.warmup_fraction!r}")
        for name, choices in (
            ("optimizer", ("adamw", "sgd")),
            ("schedule", ("cosine", "linear", "constant")),
            ("precision", ("float32", "bfloat16")),
            ("compile", ("off", "on", "graphs")),
            ("sharding", ("none", "full")),
        ):
            check_choice(name, getattr(self, name), choices)
        if self.sharding != "none" and self.compile != "off":
            raise UserError(
                f"sharding={self.sharding!r} gathers weights block by block, and a compiled step "
                f"has no blocks: leave one of it and compile={self.compile!r} out"
            )
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise UserError(f"clip_norm must be positive or None, not {self.clip_norm!r}")

    @property
    def length_dependence(self) -> str:
        """Why the learning rate depends on how long the training is; empty if it does not."""
        if self.schedule != "constant":
            return f"the {self.schedule} schedule spreads the learning rate over the whole budget"
        if self.warmup_fraction:
            return f"the warm-up takes {self.warmup_fraction:.3g} of the whole budget"
        return ""

    def lr_at(self, step: int, num_steps: int) -> float:
        """Return the learning rate of the update numbered ``step`` (from 0) of ``num_steps``.

        A pure function of the position, so a resumed trial needs no scheduler state.
        """
        warmup = round(self.warmup_fraction * num_steps)
        if step < warmup:
            return self._warming_up((step + 1) / warmup)
        return self._after_warmup((step - warmup) / max(1, num_steps - warmup))

    def lr_at_share(self, share: float) -> float:
        """Return the learning rate when this share of the budget, from 0 to 1, is used up."""
        if share < self.warmup_fraction:
            return self._warming_up(share / self.warmup_fraction)
        return self._after_warmup((share - self.warmup_fraction) / (1 - self.warmup_fraction))

    def _warming_up(self, done: float) -> float:
        return self.warmup_lr + (self.lr - self.warmup_lr) * done

    def _after_warmup(self, done: float) -> float:
        if self.schedule == "constant":
            return self.lr
        share = 1 - done if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return self.min_lr + (self.lr - self.min_lr) * share
