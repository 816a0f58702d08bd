"""How a trial is optimised: a frozen value, and its learning-rate schedule."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from hsweep.errors import UserError, check_choice, check_whole, is_number, make_plain, shown

Schedule = Literal["cosine", "linear", "constant", "wsd"]
Precision = Literal["float32", "tf32", "bfloat16", "float16"]
Compile = Literal["off", "on", "graphs"]

_BETAS: Final = (0.9, 0.999)
_ROUNDING: Final = 1e-9
_Rule = tuple[Callable[[float], bool], str]
_NOT_NEGATIVE: Final[_Rule] = (lambda value: value >= 0, "a number of at least 0")
_SHARE: Final[_Rule] = (lambda value: 0 <= value < 1, "a number in [0, 1)")
_BETWEEN: Final[_Rule] = (lambda value: 0 < value < 1, "a number between 0 and 1")
_POSITIVE: Final[_Rule] = (lambda value: value > 0, "a positive number")
_RULES: Final[dict[str, _Rule]] = {
    **dict.fromkeys(("lr", "clip_norm"), _POSITIVE),
    **dict.fromkeys(("weight_decay", "warmup_lr", "min_lr", "mixup", "cutmix"), _NOT_NEGATIVE),
    **dict.fromkeys(("warmup_fraction", "label_smoothing"), _SHARE),
    **dict.fromkeys(("decay_fraction", "ema"), _BETWEEN),
    "layer_decay": (lambda value: 0 < value <= 1, "a number in (0, 1]"),
}
"""The rule of each number of a recipe: a test, and the rule in words."""
_WORDS: Final = {
    "schedule": get_args(Schedule),
    "precision": get_args(Precision),
    "compile": get_args(Compile),
}
_FIELD_OF: Final = {"params": "", "lr": "lr", "weight_decay": "weight_decay"}
"""Arguments that every optimizer is given by the recipe, and the field that each one is."""
BETAS_ARE: Final = {"adamw": "betas", "sgd": "momentum"}
"""The argument that ``betas`` become, by the optimizers that are given them."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Optimizer, learning-rate schedule, batch and precision of one trial.

    Attributes:
        lr: peak learning rate.
        batch_size: examples an optimizer step (the effective batch).
        optimizer: ``adamw``, ``sgd``, any other of ``torch.optim`` by the name of its class in
            small letters, or one of timm's (``timm.optim.list_optimizers()``) or of the package
            pytorch-optimizer's, such as ``soap``. Where several have one, the first of them is
            meant, but for ``muon``, of which torch's takes matrices alone.
        optimizer_args: further arguments of that optimizer, by their names there.
        betas: Adam's moment decay rates; for ``sgd`` the first is the momentum. Other optimizers
            have theirs in ``optimizer_args``.
        weight_decay: as the optimizer defines it (decoupled for ``adamw``); vectors and scalars
            (norms, biases) are exempt.
        layer_decay: the learning rate of each block over that of the next deeper one, in (0, 1];
            what comes after the last block has the whole rate (Bao et al. 2022, arXiv 2106.08254,
            appendix). None for one rate.
        warmup_fraction: share of all steps over which the rate rises linearly.
        warmup_steps: optimizer steps over which it does, however long the training is; in place of
            ``warmup_fraction``.
        warmup_lr: the rate that the warm-up starts from.
        schedule: ``cosine`` (to ``min_lr``), ``linear`` (to ``min_lr``), ``constant`` or ``wsd``
            (warm-up, stable, decay; Hu et al. 2024, arXiv 2404.06395, section 4): the rate stays
            ``lr`` and falls to ``min_lr`` at the end, by 1 - sqrt of the share of the decay that is
            done (Haegele et al. 2024, arXiv 2405.18392, section 3, who find it better than a
            linear one). Trainings of different lengths then have their beginning in common, unless
            ``warmup_fraction`` spreads the warm-up over all steps.
        decay_fraction: share of all steps over which a ``wsd`` schedule falls, in (0, 1).
        min_lr: the rate that the schedule would reach one step after the last.
        clip_norm: largest gradient norm, or None for no clipping.
        accumulate: parts that each batch is computed in, one after another, their gradients added
            up: the same update up to rounding in the memory of one part. Divides ``batch_size``.
            Dropout draws other masks, and batch norm takes its statistics of each part. Several
            processes compute each part together.
        ema: decay of an exponential moving average of the weights, in (0, 1): after each update
            the average moves by 1 - ``ema`` of the way to the weights. Every metric and the
            latency are then of the averaged weights; batch norm's statistics, averages already,
            are those of the model. None for no average.
        precision: ``float32``; ``tf32`` for matrix products of float32 in TensorFloat-32, on CUDA
            alone; ``bfloat16`` or ``float16`` for autocast, the latter with a scaled loss
            (``torch.amp.GradScaler``): updates whose gradients are not finite are left out.
        compile: ``on`` compiles the model for training (``torch.compile``), ``graphs`` also has its
            steps replayed as CUDA graphs, which spares small models the time between kernels (on
            the CPU it is the same as ``on``). Weights differ by rounding, and dropout draws other
            masks, so this is part of what makes two trials the same, like ``precision``.
        label_smoothing: share of the target spread evenly over the classes, in [0, 1).
        mixup: alpha of mixup (Zhang et al. 2018, arXiv 1710.09412), 0 for none.
        cutmix: alpha of CutMix (Yun et al. 2019, arXiv 1905.04899), 0 for none; with both, each
            batch takes either at random. These three are settings of the task, which must have
            them: given here, they replace the task's own, and None leaves those as they are.

    Raises:
        UserError: a value outside its range.
    """

    lr: float = 1e-3
    batch_size: int = 256
    optimizer: str = "adamw"
    optimizer_args: Mapping[str, Any] = field(default_factory=dict, hash=False)
    betas: tuple[float, float] = _BETAS
    weight_decay: float = 0.0
    layer_decay: float | None = None
    warmup_fraction: float = 0.0
    warmup_steps: int = 0
    warmup_lr: float = 0.0
    schedule: Schedule = "cosine"
    decay_fraction: float = 0.2
    min_lr: float = 0.0
    clip_norm: float | None = None
    accumulate: int = 1
    ema: float | None = None
    precision: Precision = "float32"
    compile: Compile = "off"
    label_smoothing: float | None = None
    mixup: float | None = None
    cutmix: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        for name, (holds, rule) in _RULES.items():
            value = getattr(self, name)
            may_be_none = type(self).__dataclass_fields__[name].default is None
            if not (value is None and may_be_none) and not (is_number(value) and holds(value)):
                rule += " or None" if may_be_none else ""
                raise UserError(f"{name} must be {rule}, not {shown(value)}")
        for name, least in (("batch_size", 1), ("accumulate", 1), ("warmup_steps", 0)):
            check_whole(name, getattr(self, name), least)
        for name, choices in _WORDS.items():
            check_choice(name, getattr(self, name), choices)
        if self.batch_size % self.accumulate:
            raise UserError(
                f"accumulate must divide batch_size into equal parts; {self.batch_size} examples "
                f"do not come in {self.accumulate} of them"
            )
        betas: object = self.betas
        are_two = isinstance(betas, tuple | list) and len(betas) == 2
        if not are_two or not all(is_number(beta) and 0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas must be two numbers in [0, 1), not {shown(betas)}")
        self._check_schedule()
        self._settle_optimizer()

    def _check_schedule(self) -> None:
        steps, warmup, decay = self.warmup_steps, self.warmup_fraction, self.decay_fraction
        if steps and warmup:
            raise UserError(
                f"the warm-up takes a number of steps or a share of all, not both; got "
                f"warmup_steps={steps} and warmup_fraction={warmup:g}"
            )
        if self.schedule == "wsd" and warmup + decay > 1:
            raise UserError(
                "warm-up and decay must fit into the training: warmup_fraction="
                f"{warmup:g} and decay_fraction={decay:g} are more than the whole"
            )

    def _settle_optimizer(self) -> None:
        """Check the optimizer's settings as far as that needs no library of optimizers."""
        name, arguments = self.optimizer, self.optimizer_args
        if not isinstance(name, str) or not name:
            raise UserError(f"optimizer must be the name of one, not {shown(name)}")
        if not isinstance(arguments, Mapping) or not all(isinstance(a, str) for a in arguments):
            raise UserError(
                f"optimizer_args must be arguments by their names, such as {{'eps': 1e-6}}, not "
                f"{shown(arguments)}"
            )
        name = name.lower()
        object.__setattr__(self, "optimizer", name)
        object.__setattr__(self, "optimizer_args", dict(arguments))
        fields = dict(_FIELD_OF)
        if name in BETAS_ARE:
            fields[BETAS_ARE[name]] = "betas"
        elif tuple(self.betas) != _BETAS:
            raise UserError(
                f"betas belong to {' and '.join(BETAS_ARE)}; give the optimizer {name!r} what it "
                f"calls them, as in optimizer_args={{'betas': {self.betas!r}}}"
            )
        for argument in arguments:
            if argument in fields:
                advice = f"set {fields[argument]}" if fields[argument] else "leave it out"
                raise UserError(
                    f"optimizer_args must not hold {argument!r}, which is given by the recipe: "
                    f"{advice}"
                )

    @property
    def at_once(self) -> int | None:
        """Number of examples to compute at once; None for whole batches."""
        return None if self.accumulate == 1 else self.batch_size // self.accumulate

    @property
    def length_dependence(self) -> str:
        """Why trainings of different lengths have no beginning in common; empty if they have."""
        if self.schedule not in ("constant", "wsd"):
            return f"the {self.schedule} schedule spreads the learning rate over the whole budget"
        if self.warmup_fraction:
            return f"the warm-up takes {self.warmup_fraction:.3g} of the whole budget"
        return ""

    def shared(self, length: int) -> int:
        """Return the part of a training of this length with which every longer training also
        begins, in the unit of ``length`` (steps, or units of whole steps)."""
        if self.length_dependence:
            return 0
        if self.schedule == "constant":
            return length
        # No later than the step at which the rate begins to fall, however many a unit has.
        return length - math.ceil(self.decay_fraction * length - _ROUNDING)

    def lr_at(self, step: int, num_steps: int) -> float:
        """Return the learning rate of the update numbered ``step`` (from 0) of ``num_steps``.

        A pure function of the position, so a resumed trial needs no scheduler state.
        """
        warmup = self.warmup_steps or round(self.warmup_fraction * num_steps)
        if step < warmup:
            return self._warming_up((step + 1) / warmup)
        decay = round(self.decay_fraction * num_steps)
        return self._after_warmup(step, warmup, decay, num_steps)

    def lr_at_share(self, share: float) -> float:
        """Return the learning rate when this share of the budget, from 0 to 1, is used up."""
        if share < self.warmup_fraction:
            return self._warming_up(share / self.warmup_fraction)
        return self._after_warmup(share, self.warmup_fraction, self.decay_fraction, 1)

    def _warming_up(self, done: float) -> float:
        return self.warmup_lr + (self.lr - self.warmup_lr) * done

    def _after_warmup(self, at: float, warmup: float, decay: float, end: float) -> float:
        first = max(warmup, end - decay) if self.schedule == "wsd" else warmup
        if self.schedule == "constant" or at <= first:
            return self.lr
        fraction = (at - first) / (end - first)
        if self.schedule == "wsd":
            share = 1 - math.sqrt(fraction)
        elif self.schedule == "linear":
            share = 1 - fraction
        else:
            share = 0.5 * (1 + math.cos(math.pi * fraction))
        return self.min_lr + (self.lr - self.min_lr) * share
