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
from hsweep.design.own_training import OwnTask
from hsweep.planning.code import Code, code_of, code_of_own, own_training_code, training_code
from hsweep.planning.content import content_hash

_KEY_FORMAT: Final = 1
CONTENT_PARTS: Final = ("model", "task", "data", "recipe", "budget", "seeds")
CODE_PARTS: Final = ("model_code", "task_code", "training_code")
"""The parts of a key: what is trained, and the code that trains it."""

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
    taken = {name: parts[name] for name in CONTENT_PARTS}
    code = {name: parts[name] for name in CODE_PARTS}
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
    *,
    hashed: Callable[[Any], str] = _hash_for_key,
    sweep_module: str = "",
) -> tuple[dict[str, str], str]:
    """Return the same of a point that one's own training trains.

    The point, with the names of its axes, stands for the model: it is all that the training is
    given of it. Code is that of the function, and of what hands it its runs.
    """
    task_code = code_of_own(task, sweep_module)
    content = {
        "model": hashed(dict(point)),
        "task": hashed(task),
        "data": fingerprint,
        "recipe": "",
        "budget": hashed(budget),
    }
    digests = ("", task_code.digest, own_training_code().digest)
    code = dict(zip(CODE_PARTS, digests, strict=True))
    return content | code, _own_origin_text(task_code)


def _code_parts(model_code: Code, task_code: Code) -> dict[str, str]:
    digests = (model_code.digest, task_code.digest, training_code().digest)
    return dict(zip(CODE_PARTS, digests, strict=True))


@cache
def _origin_text(model_code: Code, task_code: Code) -> str:
    versions = versions_of(model_code.libraries | task_code.libraries)
    return Origin(_code_parts(model_code, task_code), versions).text()


@cache
def _own_origin_text(task_code: Code) -> str:
    digests = ("", task_code.digest, own_training_code().digest)
    code = dict(zip(CODE_PARTS, digests, strict=True))
    return Origin(code, versions_of(task_code.libraries)).text()
