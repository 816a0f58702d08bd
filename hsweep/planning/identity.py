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
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from hsweep.errors import UserError, shown

_KEY_FORMAT: Final = 1
_CODE_PACKAGES: Final = ("models", "tasks")
_TRAINING_MODULES: Final = (
    *("hsweep.training.train", "hsweep.training.trial_state", "hsweep.training.micro_batches"),
    *("hsweep.training.evaluation", "hsweep.training.update", "hsweep.training.compiled"),
    *("hsweep.training.process_state", "hsweep.design.recipe", "hsweep.seeding"),
    *("hsweep.training.together", "hsweep.training.stack"),
    *("hsweep.training.stacked_batches", "hsweep.training.stacked_updates"),
)
_PLAIN_KINDS: Final = frozenset({bool, int, str})
_ONE_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def describe(value: Any) -> Any:
    """Return ``value`` as plain JSON content: equal configurations give equal descriptions.

    Raises:
        UserError: a part with no content to compare, such as a function.
    """
    if value is None or type(value) in _PLAIN_KINDS:
        return value
    if isinstance(value, float) and value.is_integer():
        # A rate written 1 or 1.0 trains the same.
        return int(value)
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, Enum):
        return describe(value.value)
    if isinstance(value, Path):
        return str(value)
    names = _field_names(cast(Hashable, type(value)))
    if names is not None:
        content = {name: describe(getattr(value, name)) for name in names}
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


@cache
def _field_names(kind: Hashable) -> tuple[str, ...] | None:
    assert isinstance(kind, type)
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


@dataclass(frozen=True, slots=True)
class Content:
    """What a value's description comes to.

    Attributes:
        text: the description as JSON in one form: sorted names, no spaces.
        digest: 20 hexadecimal digits of it.
    """

    text: str
    digest: str


def content_of(value: Any) -> Content:
    """Return what depends on the description of ``value`` alone.

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
    try:
        text = _ONE_FORM.encode(describe(value))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"a model, task or recipe holds finite numbers only; found {shown(value)}"
        ) from error
    except RecursionError as error:
        raise UserError("a model, task or recipe holds itself, or nests without end") from error
    return Content(text, _digest(text))


def content_hash(value: Any) -> str:
    """Return 20 hexadecimal digits that depend on the description of ``value`` alone.

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
    return content_of(value).digest


def _digest(text: str) -> str:
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


@dataclass(frozen=True, slots=True)
class Identity:
    """All that determines the results of a point's trials but their seeds, described once.

    Attributes:
        fingerprint: of the task's data.
        model_code, task_code: see ``code_version``.
    """

    model: Content
    task: Content
    recipe: Content
    budget: Content
    fingerprint: str
    model_code: str
    task_code: str

    def key(self, seeds: Content) -> str:
        """Return the key of the trial with these seeds: ``t`` and 20 hexadecimal digits (a leading
        letter, since trackers take all-digit names for numbers)."""
        # Names in order, no spaces: what describing all of it together would be written as.
        return "t" + _digest(
            f'{{"budget":{self.budget.text},"data":{content_of(self.fingerprint).text}'
            f',"format":{_KEY_FORMAT},"model":{self.model.text},"model_code":"{self.model_code}"'
            f',"recipe":{self.recipe.text},"seeds":{seeds.text},"task":{self.task.text}'
            f',"task_code":"{self.task_code}","training_code":"{training_code_version()}"}}'
        )

    def parts(self, seeds: Content) -> dict[str, str]:
        """Return what that key is made of, part by part, so that two keys can be compared.

        Each part is a content hash, but ``data``, which is the task's fingerprint as it is.
        """
        return {
            "model": self.model.digest,
            "task": self.task.digest,
            "data": self.fingerprint,
            "recipe": self.recipe.digest,
            "budget": self.budget.digest,
            "seeds": seeds.digest,
            "model_code": self.model_code,
            "task_code": self.task_code,
            "training_code": training_code_version(),
        }


def trial_key(
    *, model: Any, task: Any, fingerprint: str, recipe: Any, budget: Any, seeds: Any
) -> str:
    """Return a trial's key (see ``Identity.key``)."""
    identity = Identity(
        model=content_of(model),
        task=content_of(task),
        recipe=content_of(recipe),
        budget=content_of(budget),
        fingerprint=fingerprint,
        model_code=code_version(model),
        task_code=code_version(task),
    )
    return identity.key(content_of(seeds))


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
