"""What makes two trials the same: content hashes of all that determines a result.

A key covers the model, the task and its data, the recipe, the budget, the seeds and the code that
a trial runs (``hsweep.planning.code``). It does not cover the axis names of the point: two points
that lead to the same model and training are one trial. Nor does it cover fields that are declared
as changing no result (``tasks.base.not_in_key``), or versions of installed packages.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

from hsweep.design.origin import Origin, versions_of
from hsweep.design.own_training import TRAINING_PARTS, OwnTask
from hsweep.planning.code import Code, code_of, own_training_code, training_code
from hsweep.planning.content import content_hash

_KEY_FORMAT: Final = 1
CONTENT_PARTS: Final = (
    *("model", "task", "data", "recipe", "budget", "seeds"),
    *("point", *TRAINING_PARTS),
)
CODE_PARTS: Final = ("model_code", "task_code", "training_code", *TRAINING_PARTS.values())
"""The parts of a key: what is trained, and the code that trains it. A trial has those that its kind
of training has."""

Accepted = Mapping[str, str]
"""Digests of code that a study accepts as doing the same, each with that of the code whose keys
its trials have."""


def key_of(parts: Mapping[str, str], accepted: Accepted | None = None) -> str:
    """Return the key of the trial with these parts: ``t`` and 20 hexadecimal digits (a leading
    letter, since trackers take all-digit names for numbers).

    Args:
        parts: content hashes by name, but for ``data``, which is the task's fingerprint.
        accepted: code that is taken for other code.
    """
    taken = {name: parts[name] for name in CONTENT_PARTS if name in parts}
    code = {name: parts[name] for name in CODE_PARTS if name in parts}
    if accepted:
        code = {name: accepted.get(digest, digest) for name, digest in code.items()}
    return "t" + content_hash({"format": _KEY_FORMAT, **taken, **code})


_hash_for_key = partial(content_hash, for_key=True)


def parts_of(
    model: Any,
    task: Any,
    recipe: Any,
    budget: Any,
    fingerprint: str,
    *,
    hashed: Callable[[Any], str] = _hash_for_key,
    sweep_module: str = "",
) -> tuple[dict[str, str], str]:
    """Return what the keys of a point's trials are made of, part by part, but for their seeds.

    Returns:
        The parts, and what the trials are trained with in this process as a text (see
        ``hsweep.design.origin``).

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
    model_code, task_code = code_of(model, sweep_module), code_of(task, sweep_module)
    content = {
        "model": hashed(model),
        "task": hashed(task),
        "data": fingerprint,
        "recipe": hashed(recipe),
        "budget": hashed(budget),
    }
    return content | _code_parts(model_code, task_code), _origin_text(model_code, task_code)


def own_parts_of(
    task: OwnTask,
    point: Mapping[str, Any],
    budget: Any,
    fingerprint: str,
    code: Code,
    *,
    hashed: Callable[[Any], str] = _hash_for_key,
) -> tuple[dict[str, str], str]:
    """Return the same of a point that one's own training trains; ``code`` is that of the training.

    The point, with the names of its axes, stands for the model: it is all that the training is
    given of it.
    """
    content = {
        "point": hashed(dict(point)),
        task.part: hashed(task),
        "data": fingerprint,
        "budget": hashed(budget),
    }
    return content | _own_code_parts(code, task.part), _own_origin_text(code, task.part)


def _code_parts(model_code: Code, task_code: Code) -> dict[str, str]:
    return {
        "model_code": model_code.digest,
        "task_code": task_code.digest,
        "training_code": training_code().digest,
    }


@cache
def _origin_text(model_code: Code, task_code: Code) -> str:
    versions = versions_of(model_code.libraries | task_code.libraries)
    return Origin(_code_parts(model_code, task_code), versions).text()


def _own_code_parts(code: Code, part: str) -> dict[str, str]:
    return {TRAINING_PARTS[part]: code.digest, "training_code": own_training_code().digest}


@cache
def _own_origin_text(code: Code, part: str) -> str:
    return Origin(_own_code_parts(code, part), versions_of(code.libraries)).text()
