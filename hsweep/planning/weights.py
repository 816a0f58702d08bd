"""Final weights before any is trained: whether they can be kept, and what they take."""

import sys
from collections.abc import Iterable
from typing import Any, Final

from hsweep.design.best_trials import groups_of
from hsweep.design.configuration import decoded, encoded
from hsweep.design.function_model import FunctionModel
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial
from hsweep.errors import UserError, format_error
from hsweep.planning.content import describe
from models.meta_build import build_on_meta

_BYTES: Final = 4
"""Of a parameter; precision says in what is computed, not in what weights are held."""


def check_can_be_kept(model: Any, sweep_module: str) -> None:
    """Refuse a model whose weights could not be loaded again: its configuration must make it from
    JSON, and its state must be tensors.

    Raises:
        UserError: with what is in the way.
    """
    from hsweep.training.weights import plain_tensors

    if isinstance(model, FunctionModel):  # the study's sweep builds it again
        plain_tensors(build_on_meta(model).state_dict())
        return
    content = encoded(model)
    try:
        is_same = decoded(content, sys.modules.get(sweep_module)) == model
        problem = "" if is_same else "what is made again is not equal to it"
    except Exception as error:  # of a user's class: any
        problem = format_error(error)
    if problem:
        raise UserError(
            f"weights are kept with the model's configuration, and {type(model).__qualname__} "
            f"cannot be made again from its fields ({problem}): it must be a dataclass at the top "
            'level of its module, whose fields say all. Change it, or leave keep="none"'
        )
    plain_tensors(build_on_meta(model).state_dict())


def planned_weights(sweep: Sweep, trials: Iterable[Trial]) -> dict[str, Any] | None:
    """Return how many trials' weights are kept at most, and their bytes (None: not known); None
    where none are kept."""
    if sweep.keep == "none":
        return None
    sizes: dict[Any, list[int | None]] = {}
    question = describe(sweep.question)
    for trial in trials:
        size = None if trial.counts is None else _BYTES * trial.counts.num_params
        best_of = groups_of(question, trial.stratum, trial.point)
        for group in [trial.key] if sweep.keep == "last" else best_of:
            sizes.setdefault(group, []).append(size)
    known = [[size for size in group if size is not None] for group in sizes.values()]
    is_known = [*known] == [*sizes.values()]
    total = sum(map(max, known)) if is_known else None
    return {"keep": sweep.keep, "trials": len(sizes), "bytes": total}
