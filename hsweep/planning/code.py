"""Which code a trial runs: found by following imports, never listed by hand.

A model's or task's code is every module that its classes lead to by imports, relative ones and
those inside functions included, as far as it is the user's or this project's: what is neither of
the standard library nor installed (``hsweep.errors.is_installed``; code of an editable install
counts as the user's). Modules count whole, but for the sweep file itself, of which only what trials
can reach counts (``hsweep.planning.source.source_of_part``). An extension module without source
counts with its bytes. Modules whose names are computed when the program runs are not found.

A script that a command names is followed in the same way, from beside itself first.

``hsweep`` itself is not followed from there: a sweep file imports it to say what to run. What of it
trains is the same for every trial, and is found in the same way from the module that opens them.
"""

import functools
import hashlib
import importlib.machinery
import importlib.util
import itertools
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeAlias

from hsweep.design.template import fill
from hsweep.design.user_training import Command, captured
from hsweep.errors import NESTED, UserError, is_installed
from hsweep.planning.source import definition_of, source_of, source_of_part
from hsweep.reporting import SEED_VARIABLE
from hsweep.user_packages import PACKAGES, SHARED, SWEEP_MODULE, inits_of_user, is_of_user

SWEEP_FILE: Final = "the sweep file"
"""What the sweep file is called among the files of a trial's code, wherever it lies."""

_TRAINING: Final = "hsweep.training.train"
_USER_TRAINING: Final = ("hsweep.training.own.function", "hsweep.training.own.script")
_TOOL: Final = "hsweep"
_MESSAGES: Final = "hsweep.errors"
"""Words that a training may say; no number depends on them."""
Definition: TypeAlias = type | FunctionType
_PLAIN: Final = frozenset({bool, int, float, str, type(None)})
_LARGEST: Final = 1 << 20
"""Bytes of a file that a command names, above which it is data."""
_KNOWN: Final[dict[str, Mapping[str, str]]] = {}
_FILE: Final = re.compile(r"""['"]([^'"\n]+\.(?:py|ya?ml|json|toml))['"]""")
_NAMED: Final[dict[str, frozenset[str]]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """The code behind a model, a task or the training.

    Attributes:
        digest: 20 hexadecimal digits of it.
        files: the digest of each file, by its name as a module has it: ``package/module.py``.
        libraries: import names of the installed packages that it imports, without those of the
            standard library.
    """

    digest: str
    files: Mapping[str, str]
    libraries: frozenset[str]


def code_of(value: Any, sweep_module: str = "") -> Code:
    """Return the code behind a model, a task or a training function: the files of its class and
    base classes, and of the classes of all values in its fields.

    Statements of the sweep file that act on import count even where none of its classes is used.

    Raises:
        UserError: one of the classes stands in no file, or the value holds itself.
    """
    kinds: set[Definition] = set()
    try:
        _add_definitions(value, kinds)
    except RecursionError as error:
        raise UserError(NESTED) from error
    file = getattr(sys.modules.get(sweep_module), "__file__", None)
    return _code_of_definitions(frozenset(kinds), sweep_module, file)


def named_code(command: Command, folder: Path, point: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files that a command names at a point, by their paths from the folder where it
    runs, and the modules (``-m NAME``), as ``-m NAME``.

    Files of more than 1 MiB are data, and an absolute path of the program is not the user's.
    """
    parts = shlex.split(command.template)
    words = [word for part in parts for word in _filled(part, point)]
    names = []
    for number, word in enumerate(words):
        if words[number - 1 : number] == ["-m"]:
            names.append(f"-m {word}")
        elif number or not Path(word).is_absolute():
            files = (folder / name for name in {word, word.partition("=")[2]} - {""})
            sizes = ((file, file.stat().st_size) for file in files if file.is_file())
            names += [os.path.relpath(file, folder) for file, size in sizes if size <= _LARGEST]
    return tuple(names)


def _filled(word: str, point: Mapping[str, Any]) -> list[str]:
    """Fill the axes of a point in a word of a command; a word with other fields stays as it is."""
    try:
        return fill(shlex.quote(word), point)
    except UserError:
        return [word]


def code_of_script(named: Iterable[str], folder: Path) -> Code:
    """Return the code of the files that a command names (see ``named_code``) and of the modules
    that they import, from their own folder first."""
    imports = _Imports()
    for name in named:
        if name.startswith("-m "):
            parts = [*name.removeprefix("-m ").split("."), "__main__"]
            imports.places = (str(folder),)
            imports.follow(*itertools.accumulate(parts, "{}.{}".format))
        else:
            imports.places = (str((folder / name).parent),)
            imports.follow(*imports.add(name, folder / name))
    return imports.code()


@functools.cache
def training_code(*, of_user: bool = False) -> Code:
    """Return the code of this project that runs in every trial: of its own loop, or of a user's
    training."""
    imports = _Imports(follows_tool=True, without=() if of_user else _USER_TRAINING)
    imports.follow(*(_USER_TRAINING if of_user else (_TRAINING,)))
    return imports.code()


def users_modules(file: Path, folder: Path) -> set[str]:
    """Return the user's modules that a Python file imports, directly or not, those in ``folder``
    first."""
    imports = _Imports()
    imports.places = (str(folder),)
    imports.follow(*imports.add(file.name, file))
    return {
        name
        for name, path in imports.modules.items()
        if name.split(".")[0] not in PACKAGES or is_of_user(name, path)
    }


def look_again() -> None:
    """Forget which code classes lead to: files may have changed since."""
    _code_of_definitions.cache_clear()


def files_of(digest: str) -> Mapping[str, str] | None:
    """Return the files of code that this process has looked at; None if it has not."""
    return _KNOWN.get(digest)


def texts_named_in(digest: str) -> frozenset[str]:
    """Return the texts in code that this process has looked at which may name further code (a
    program that is executed, a configuration), or the seed of a script."""
    return _NAMED.get(digest, frozenset())


def changed_files(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the files that differ between two codes or are in one alone, the sweep file first."""
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return sorted(names, key=lambda name: (name != SWEEP_FILE, name))


def _add_definitions(value: Any, kinds: set[Definition]) -> None:
    """Add the classes and functions that a value is made of."""
    kind = type(value)
    parts: Iterable[Any] = ()
    if kind in _PLAIN:
        return
    if isinstance(value, FunctionType | type):
        kinds.add(value)
        parts = captured(value).values() if isinstance(value, FunctionType) else ()
    elif isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, tuple | list | set | frozenset):
        parts = value
    else:
        kinds.add(kind)
        if is_dataclass(value):
            parts = [getattr(value, field.name) for field in fields(value)]
    for part in parts:
        _add_definitions(part, kinds)


@functools.lru_cache(maxsize=256)
def _code_of_definitions(
    kinds: frozenset[Definition], sweep_module: str, _file_now: str | None
) -> Code:
    imports = _Imports()
    in_sweep: dict[str, set[str]] = {sweep_module: set()} if sweep_module else {}
    with_bases = (kind.__mro__ if isinstance(kind, type) else (kind,) for kind in kinds)
    for kind in {base for bases in with_bases for base in bases}:
        name = kind.__module__
        _refuse_without_file(kind)
        if name in ("__main__", SWEEP_MODULE):
            # What a decorator made may stand in an assignment, ``train = decorator(function)``.
            named = vars(sys.modules[name]).items() if hasattr(kind, "__wrapped__") else ()
            names = {other for other, value in named if value is kind}
            in_sweep.setdefault(name, set()).update({definition_of(kind), *names})
        else:
            imports.follow(name)
    for name, definitions in in_sweep.items():
        imports.follow_sweep(name, definitions)
    return imports.code()


def _refuse_without_file(kind: Definition) -> None:
    """Refuse a class or function without a file, such as one typed into a console: changes of it
    would go unseen."""
    name = kind.__module__
    has_file = getattr(sys.modules.get(name), "__file__", None) is not None
    is_pythons = name in sys.stdlib_module_names and name != "builtins"
    members = vars(kind).values() if isinstance(kind, type) else (kind,)
    has_code = any(isinstance(member, FunctionType) for member in members)
    if has_code and not (has_file or is_pythons):
        raise UserError(
            f"the code of a model, task or training stands in a file, so that a change makes other "
            f"trials; {kind.__qualname__} stands in none. Define it in the sweep file or in a "
            "module beside it"
        )


class _Imports:
    """Files that lead to one another by imports.

    Args:
        follows_tool: also into ``hsweep``, whose ``__init__`` only says what to run.
        without: modules that are not entered.

    Attributes:
        places: folders in which modules are looked for first, as a script does beside itself.
        modules: the file of each module that was added.
    """

    def __init__(self, *, follows_tool: bool = False, without: Collection[str] = ()) -> None:
        self._follows_tool = follows_tool
        self._files: dict[str, str] = {}
        self._libraries: set[str] = set()
        self._named: set[str] = set()
        self._seen = set(without)
        self.places: tuple[str, ...] = ()
        self.modules: dict[str, Path] = {}

    def code(self) -> Code:
        """Return the code of all added files, and remember the files by the code's digest."""
        names = "".join(f"{name}\0{self._files[name]}\0" for name in sorted(self._files))
        code = Code(_digest(names.encode()), self._files, frozenset(self._libraries))
        _KNOWN[code.digest], _NAMED[code.digest] = code.files, frozenset(self._named)
        return code

    def follow(self, *names: str) -> None:
        """Add modules and all that they import, as far as they are the user's or this project's."""
        queue = list(names)
        while queue:
            name = queue.pop()
            if name in self._seen:
                continue
            self._seen.add(name)
            spec = self._spec(name)
            if spec is not None:
                queue += self._add_module(name, spec)
            elif name.count(".") == 1 and name.split(".")[0] in SHARED:
                # No module: the user's packages of that name may define it.
                for init in inits_of_user(name.split(".")[0]):
                    self._seen.add(init.name)
                    queue += self._add_module(init.name, init)

    def follow_sweep(self, module: str, definitions: set[str]) -> None:
        """Add the definitions of a sweep file that trials use, and the modules they import."""
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None or not Path(file).is_file():
            return
        text, names = source_of_part(Path(file), definitions)
        if text:
            self._files[SWEEP_FILE] = _digest(text.encode())
        self._named.update(_FILE.findall(text))
        self.follow(*names)

    def add(self, label: str, file: Path, package: str = "") -> Collection[str]:
        """Add a file; return the modules that it imports, none for a file in another language."""
        names: Collection[str] = ()
        if file.suffix == ".py":
            text, names = source_of(file, package)
            self._named.update(_FILE.findall(text))
            content = text.encode()
        else:
            content = file.read_bytes()
        if SEED_VARIABLE.encode() in content:
            self._named.add(SEED_VARIABLE)
        self._files[label] = _digest(content)
        return names

    def _add_module(self, name: str, spec: ModuleSpec) -> Collection[str]:
        path = None if spec.origin is None else Path(spec.origin)
        if path is None or not path.is_file():  # a namespace package
            return ()
        self.modules[name] = path
        is_package = spec.submodule_search_locations is not None
        label = f"{name.replace('.', '/')}{'/__init__' if is_package else ''}{path.suffix}"
        if name.rpartition(".")[2].startswith("__init__"):
            label += " of yours"
        return self.add(label, path, name if is_package else name.rpartition(".")[0])

    def _spec(self, name: str) -> ModuleSpec | None:
        """Return where a module lies if its code counts, else None."""
        local_spec = _find_spec(name, self.places) if self.places else None
        if local_spec is not None and local_spec.origin is not None:
            return local_spec
        top = name.split(".")[0]
        if top in sys.stdlib_module_names:
            return None
        if top == _TOOL:
            return (
                _find_spec(name) if self._follows_tool and name not in (_TOOL, _MESSAGES) else None
            )
        if top not in PACKAGES:
            spec = _find_spec(top)
            folders = None if spec is None else spec.submodule_search_locations
            place = spec.origin if spec and spec.has_location else next(iter(folders or ()), None)
            if place is None:
                return None
            if is_installed(Path(place)):
                self._libraries.add(top)
                return None
        return _find_spec(name)


def _find_spec(name: str, places: Sequence[str] | None = None) -> ModuleSpec | None:
    """Find a module in ``places`` (default: Python's path) without importing anything; None if
    there is no module of that name."""
    module = sys.modules.get(name) if places is None else None
    if isinstance(spec := getattr(module, "__spec__", None), ModuleSpec):
        return spec
    package, _, _ = name.rpartition(".")
    if not package and places is None:
        try:
            return importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
    if package:
        above = _find_spec(package, places)
        folders = None if above is None else above.submodule_search_locations
        if folders is None:
            return None
        imported = sys.modules.get(package) if places is None else None
        places = list(getattr(imported, "__path__", folders))
    # By its last name alone: a folder without __init__.py, as a module of a package, would ask for
    # that package among the imported modules.
    return importlib.machinery.PathFinder.find_spec(name.rpartition(".")[2], places)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]
