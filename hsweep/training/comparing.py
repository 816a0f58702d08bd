"""Whether trials can be trained as one program, and whether that computes the same."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from hsweep.design.trial import Trial
from hsweep.training.micro_batches import has_batch_statistics
from hsweep.training.stacked_batches import CannotTrainTogetherError

_MOST_APART: Final = {"float32": 1e-3, "bfloat16": 5e-2}
"""How far gradients may be apart, as a share of the largest: rounding, and nothing else."""


def can_train_together(trial: Trial) -> str | None:
    """Return why a trial can only be trained separately, None if nothing is known against it.

    The model is built without memory to be looked at.
    """
    if trial.budget.unit == "seconds":
        return "how many updates a budget of seconds holds is each trial's own"
    try:
        with torch.device("meta"):
            model = trial.model.build()
    except Exception:
        # What cannot be built there may well be built on a device.
        return None
    return _randomness(model)


def _randomness(model: nn.Module) -> str | None:
    if has_batch_statistics(model):
        return "batch norm keeps statistics of the batches"
    for part in model.modules():
        rate = getattr(part, "p", None) if isinstance(part, nn.modules.dropout._DropoutNd) else None
        rate = getattr(part, "drop_prob", rate)
        if isinstance(rate, int | float) and rate > 0:
            return f"{type(part).__name__} draws random numbers in training"
    return None


def check_equal(trials: Sequence[Trial]) -> None:
    """See to it that trials differ in seeds, learning rate and weight decay alone.

    Raises:
        CannotTrainTogetherError: they differ in more.
    """
    first = trials[0]
    if first.recipe.compile != "off":
        raise CannotTrainTogetherError("a compiled model is trained by itself")
    for other in trials[1:]:
        for what, is_equal in (
            ("models", other.model == first.model),
            ("tasks", other.task == first.task),
            ("budgets", other.budget == first.budget),
            ("resources", other.resources == first.resources),
            ("recipes", other.recipe.without_rates == first.recipe.without_rates),
        ):
            if not is_equal:
                raise CannotTrainTogetherError(f"their {what} differ")


def check_gradients(
    loss: Tensor,
    gradients: dict[str, Tensor],
    other_loss: Tensor,
    others: dict[str, Tensor],
    precision: str,
) -> None:
    """See to it that a loss and its gradients are the same when computed in another way.

    Args:
        loss: a scalar.
        gradients: by parameter.
        other_loss: as computed otherwise.
        others: gradients as computed otherwise.
        precision: ``float32`` or ``bfloat16``, of which the rounding is expected.

    Raises:
        CannotTrainTogetherError: they are apart by more than rounding.
    """
    most = _MOST_APART[precision]
    if not torch.isfinite(loss):
        return
    largest = max((float(each.norm()) for each in gradients.values()), default=0.0)
    is_equal = gradients.keys() == others.keys() and all(
        float((gradients[name] - others[name]).norm()) <= most * largest for name in gradients
    )
    if not is_equal or float((loss - other_loss).abs()) > most * max(1.0, float(loss.abs())):
        raise CannotTrainTogetherError("together, losses or gradients are others")
