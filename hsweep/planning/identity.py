"""What makes two trials the same: content hashes of all that determines a result.

A key covers the model, the task and its data, the recipe, the budget, the seeds and the code that
trains. It does not cover the axis names of the point: two points that lead to the same model and
training are one trial.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import textwrap
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from hsweep.errors import UserError, shown

_KEY_FORMAT: Final = 1
_CODE_PACKAGES: Final = ("models", "tasks")
_TRAINING_MODULES: Final = (
    *("hsweep.training.train", "hsweep.training.trial_state", "hsweep.training.micro_batches"),
    *("hsweep.training.evaluation", "hsweep.design.recipe", "hsweep.seeding"),
)


def describe(value: Any) -> Any:
    """Return ``value`` as plain JSON content: equal configurations give equal descriptions.

    Raises:
        UserError: a part with no content to compare, such as a function.
    """
    if isinstance(value, float) and value.is_integer():
        # A rate written 1 or 1.0 trains the same.
        return int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Enum):
        return describe(value.value)
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        content = {field.name: describe(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__qualname__, **content}
    if isinstance(value, Mapping):
        return {str(name): describe(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [describe(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((describe(part) for part in value), key=repr)
    raise UserError(
        "a model, task or recipe is a frozen dataclass of plain values, so that equal trials can "
        f"be recognised; found {shown(value)} of type {type(value).__name__}"
    )


def content_hash(value: Any) -> str:
    """Return 20 hexadecimal digits that depend on the description of ``value`` alone.

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
    try:
        content = describe(value)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"a model, task or recipe holds finite numbers only; found {shown(value)}"
        ) from error
    except RecursionError as error:
        raise UserError("a model, task or recipe holds itself, or nests without end") from error
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def code_version(value: Any) -> str:
    """Return a hash of the source code behind a model or task.

    For a class of this project: its module and every module of ``models`` or ``tasks`` that it
    imports, directly or not. For a class of the user's: the source of the class itself.
    """
    module = type(value).__module__
    if module.split(".")[0] in _CODE_PACKAGES:
        return _modules_hash((module,))
    return _source_hash(cast(Hashable, type(value)))


def training_code_version() -> str:
    """Return a hash of the code that every trial runs, whatever its model and task."""
    return _modules_hash(_TRAINING_MODULES)


def trial_key(
    *, model: Any, task: Any, fingerprint: str, recipe: Any, budget: Any, seeds: Any
) -> str:
    """Return a trial's key: ``t`` and 20 hexadecimal digits (a leading letter, since trackers
    take all-digit names for numbers)."""
    return "t" + content_hash(
        {
            "format": _KEY_FORMAT,
            "model": describe(model),
            "task": describe(task),
            "data": fingerprint,
            "recipe": describe(recipe),
            "budget": describe(budget),
            "seeds": describe(seeds),
            "model_code": code_version(model),
            "task_code": code_version(task),
            "training_code": training_code_version(),
        }
    )


def key_parts(
    *, model: Any, task: Any, fingerprint: str, recipe: Any, budget: Any, seeds: Any
) -> dict[str, str]:
    """Return what a trial's key is made of, part by part, so that two keys can be compared.

    Each part is a content hash, but ``data``, which is the task's fingerprint as it is.
    """
    return {
        "model": content_hash(model),
        "task": content_hash(task),
        "data": fingerprint,
        "recipe": content_hash(recipe),
        "budget": content_hash(budget),
        "seeds": content_hash(seeds),
        "model_code": code_version(model),
        "task_code": code_version(task),
        "training_code": training_code_version(),
    }


@cache
def _source_hash(of: Hashable) -> str:
    assert isinstance(of, type)
    try:
        source = _code_alone(ast.parse(textwrap.dedent(inspect.getsource(of))))
    except (OSError, TypeError):
        source = of.__qualname__
    return hashlib.sha256(source.encode()).hexdigest()[:20]


@cache
def _modules_hash(names: tuple[str, ...]) -> str:
    found: dict[str, str] = {}
    queue = list(names)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        tree = ast.parse(_module_file(name).read_bytes())
        queue.extend(filter(_is_module, _project_imports(tree)))
        found[name] = _code_alone(tree)
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\0{found[name]}\0".encode())
    return digest.hexdigest()[:20]


def _code_alone(tree: ast.Module) -> str:
    """Return a module's code without comments, docstrings and layout: these train nothing."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body[0] = ast.Pass()
    return ast.unparse(tree)


def _module_file(name: str) -> Path:
    module = sys.modules.get(name) or importlib.import_module(name)
    assert module.__file__ is not None, f"{name} has no file"
    return Path(module.__file__)


def _is_module(name: str) -> bool:
    package, _, _ = name.rpartition(".")
    if package and not hasattr(importlib.import_module(package), "__path__"):
        return False
    return importlib.util.find_spec(name) is not None


def _project_imports(tree: ast.Module) -> list[str]:
    """Return what of ``models`` and ``tasks`` a module imports anywhere in it: modules, and names
    that may be modules or be in one."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
    return [name for name in names if name.split(".")[0] in _CODE_PACKAGES]
