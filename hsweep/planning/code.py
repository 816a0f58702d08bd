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
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeAlias

from hsweep.design.own_training import Command, captured
from hsweep.errors import NESTED, UserError, is_installed
from hsweep.own_packages import PACKAGES, SHARED, SWEEP_FILE_PREFIX, inits_of_user, is_of_user
from hsweep.planning.source import LAMBDA, lambda_definition, source_of, source_of_part

SWEEP_FILE: Final = "the sweep file"
"""What the sweep file is called among the files of a trial's code, wherever it lies."""

_TRAINING: Final = "hsweep.training.train"
_OWN_TRAINING: Final = ("hsweep.training.own.function", "hsweep.training.own.script")
_TOOL: Final = "hsweep"
_MESSAGES: Final = "hsweep.errors"
"""Words that a training may say; no number depends on them."""
Definition: TypeAlias = type | FunctionType
_PLAIN: Final = frozenset({bool, int, float, str, type(None)})
_LARGEST: Final = 1 << 20


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
    """Return the code behind a model or task: of its class and base classes, and of those of all
    that its fields hold.

    Statements of the sweep file that act on import count even where none of its classes is used.

    Raises:
        UserError: one of the classes stands in no file, or the value holds itself.
    """
    kinds: set[Definition] = set()
    try:
        _collect(value, kinds)
    except RecursionError as error:
        raise UserError(NESTED) from error
    return _code_of_definitions(frozenset(kinds), sweep_module)


def named_code(command: Command, folder: Path, point: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files that a command names at a point, by their paths from the folder where it
    runs, and the modules (``-m NAME``), as ``-m NAME``.

    Files of more than 1 MiB are data, and an absolute path of the program is not the user's.
    """
    words = [_filled(word, point) for word in shlex.split(command.template)]
    found = []
    for number, word in enumerate(words):
        if words[number - 1 : number] == ["-m"]:
            found.append(f"-m {word}")
        elif number or not Path(word).is_absolute():
            files = (folder / each for each in {word, word.partition("=")[2]} - {""})
            sizes = ((file, file.stat().st_size) for file in files if file.is_file())
            found += [os.path.relpath(file, folder) for file, size in sizes if size <= _LARGEST]
    return tuple(found)


def _filled(word: str, point: Mapping[str, Any]) -> str:
    """Return a word of a command with the axes that it names; one with other fields as it is."""
    try:
        return word.format(**point)
    except (KeyError, IndexError, ValueError, AttributeError):
        return word


def code_of_script(named: Iterable[str], folder: Path) -> Code:
    """Return the code that a command names (see ``named_code``), and what that of Python imports:
    from beside itself first."""
    closure = _Closure(follows_tool=False)
    for name in named:
        if name.startswith("-m "):
            module = name.removeprefix("-m ")
            closure.places = (str(folder),)
            for each in itertools.accumulate([*module.split("."), "__main__"], "{}.{}".format):
                closure.visit(each)
        else:
            closure.places = (str((folder / name).parent),)
            closure.visit_file(name, folder / name)
    return _noted(closure.code())


@functools.cache
def training_code() -> Code:
    """Return the code that every trial of this project's loop runs, whatever its model and task."""
    closure = _Closure(follows_tool=True, without=_OWN_TRAINING)
    closure.visit(_TRAINING)
    return _noted(closure.code())


@functools.cache
def own_training_code() -> Code:
    """Return the code that every trial of one's own training runs besides."""
    closure = _Closure(follows_tool=True)
    for name in _OWN_TRAINING:
        closure.visit(name)
    return _noted(closure.code())


def users_modules(file: Path, folder: Path) -> set[str]:
    """Return the modules that a file of Python leads to by imports, those in ``folder`` first, as
    far as they are the user's."""
    closure = _Closure(follows_tool=False)
    closure.places = (str(folder),)
    closure.visit_file(file.name, file)
    return {
        name
        for name in closure.modules
        if name.split(".")[0] not in PACKAGES or is_of_user(name, closure.modules[name])
    }


def look_again() -> None:
    """Forget which code classes lead to: files may have changed since."""
    _code_of_definitions.cache_clear()


def files_of(digest: str) -> Mapping[str, str] | None:
    """Return the files of code that this process has looked at; None if it has not."""
    return _KNOWN.get(digest)


def changed_files(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the files that differ, the sweep file first, or are there but once."""
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return sorted(names, key=lambda name: (name != SWEEP_FILE, name))


_KNOWN: Final[dict[str, Mapping[str, str]]] = {}


def _noted(code: Code) -> Code:
    _KNOWN[code.digest] = code.files
    return code


def _collect(value: Any, kinds: set[Definition]) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if isinstance(value, (FunctionType, type)):
        kinds.add(value)
        if isinstance(value, FunctionType):
            _collect(captured(value), kinds)
        return
    if isinstance(value, functools.partial):
        for part in (value.func, value.args, value.keywords):
            _collect(part, kinds)
        return
    if isinstance(value, Mapping):
        for part in value.values():
            _collect(part, kinds)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for part in value:
            _collect(part, kinds)
    else:
        kinds.add(kind)
        if is_dataclass(kind):
            for name in _field_names(kind):
                _collect(getattr(value, name), kinds)


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@functools.lru_cache(maxsize=256)
def _code_of_definitions(kinds: frozenset[Definition], sweep_module: str) -> Code:
    closure = _Closure(follows_tool=False)
    in_sweep: dict[str, set[str]] = {sweep_module: set()} if sweep_module else {}
    with_bases = (each.__mro__ if isinstance(each, type) else (each,) for each in kinds)
    for kind in {base for bases in with_bases for base in bases}:
        name = kind.__module__
        _refuse_without_file(kind)
        if _is_sweep(name):
            in_sweep.setdefault(name, set()).add(_definition(kind))
        else:
            closure.visit(name)
    for name, definitions in in_sweep.items():
        closure.visit_sweep(name, definitions)
    return _noted(closure.code())


def _definition(kind: Definition) -> str:
    """Return what ``source_of_part`` calls a class or function of a sweep file."""
    if isinstance(kind, FunctionType) and kind.__qualname__ == LAMBDA:
        return lambda_definition(kind.__code__)
    return kind.__qualname__.split(".")[0]


def _is_sweep(module: str) -> bool:
    return module == "__main__" or module.startswith(SWEEP_FILE_PREFIX)


def _refuse_without_file(kind: Definition) -> None:
    """Refuse a class or function that stands in no file, as one typed into a console does: no
    change of it could be seen."""
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


class _Closure:
    """Follows imports from where it is sent.

    Args:
        follows_tool: also into ``hsweep``, whose ``__init__`` only says what to run.
        without: modules that are not entered.

    Attributes:
        places: folders in which modules are looked for first, as a script does beside itself.
        modules: the file of each module that was added.
    """

    def __init__(self, *, follows_tool: bool, without: Collection[str] = ()) -> None:
        self._follows_tool = follows_tool
        self._files: dict[str, str] = {}
        self._libraries: set[str] = set()
        self._seen = set(without)
        self.places: tuple[str, ...] = ()
        self.modules: dict[str, Path] = {}

    def code(self) -> Code:
        listed = "".join(f"{name}\0{self._files[name]}\0" for name in sorted(self._files))
        return Code(_digest(listed.encode()), dict(self._files), frozenset(self._libraries))

    def visit(self, name: str) -> None:
        """Add a module and all that it imports; what is no module of the user's or this
        project's is passed over."""
        queue = [name]
        while queue:
            name = queue.pop()
            if name in self._seen:
                continue
            self._seen.add(name)
            found = self._spec(name)
            if found is not None:
                queue += self._entered(name, found)
            elif name.count(".") == 1 and name.split(".")[0] in SHARED:
                # No module: the user's packages of that name may define it.
                for init in inits_of_user(name.split(".")[0]):
                    self._seen.add(init.name)
                    queue += self._entered(init.name, init)

    def visit_file(self, label: str, file: Path) -> None:
        """Add a file that is no module, and what it imports if it is one of Python."""
        if file.suffix != ".py":
            self._files[label] = _digest(file.read_bytes())
            return
        source = source_of(file, "")
        self._files[label] = _digest(source.text.encode())
        for name in source.imports:
            self.visit(name)

    def visit_sweep(self, module: str, definitions: set[str]) -> None:
        """Add what of a sweep file trials can reach, and what that imports."""
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None or not Path(file).is_file():
            return
        source = source_of_part(Path(file), definitions)
        if source.text:
            self._files[SWEEP_FILE] = _digest(source.text.encode())
        for name in source.imports:
            self.visit(name)

    def _entered(self, name: str, spec: ModuleSpec) -> Collection[str]:
        """Add a module's file; return the modules that it imports."""
        path = None if spec.origin is None else Path(spec.origin)
        if path is None or not path.is_file():  # a namespace package
            return []
        self.modules[name] = path
        is_package = spec.submodule_search_locations is not None
        label = f"{name.replace('.', '/')}{'/__init__' if is_package else ''}{path.suffix}"
        if name.rpartition(".")[2].startswith("__init__"):
            label += " of yours"
        if path.suffix != ".py":
            self._files[label] = _digest(path.read_bytes())
            return []
        source = source_of(path, name if is_package else name.rpartition(".")[0])
        self._files[label] = _digest(source.text.encode())
        return source.imports

    def _spec(self, name: str) -> ModuleSpec | None:
        """Return where a module is whose code counts; None for any other."""
        beside = _found_below(name, self.places)
        if beside is not None and beside.origin is not None:
            return beside
        top = name.split(".")[0]
        if top in sys.stdlib_module_names:
            return None
        if top == _TOOL:
            return _found(name) if self._follows_tool and name not in (_TOOL, _MESSAGES) else None
        if top not in PACKAGES:
            found = _found(top)
            place = None if found is None else _place(found)
            if place is None:
                return None
            if is_installed(place):
                self._libraries.add(top)
                return None
        return _found(name)


def _found(name: str) -> ModuleSpec | None:
    """Find a module without importing anything; None if there is none of that name."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if isinstance(spec, ModuleSpec):
        return spec
    package, _, _ = name.rpartition(".")
    if not package:
        try:
            return importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
    above = _found(package)
    if above is None or above.submodule_search_locations is None:
        return None
    places = getattr(sys.modules.get(package), "__path__", above.submodule_search_locations)
    return importlib.machinery.PathFinder.find_spec(name, list(places))


def _found_below(name: str, places: Sequence[str]) -> ModuleSpec | None:
    """Find a module in some folders; None if there is none of that name."""
    package, _, _ = name.rpartition(".")
    if package:
        above = _found_below(package, places)
        places = [] if above is None else [*(above.submodule_search_locations or ())]
    return importlib.machinery.PathFinder.find_spec(name, places) if places else None


def _place(spec: ModuleSpec) -> Path | None:
    """Return where a module lies; None if it comes with the interpreter."""
    if spec.origin in ("built-in", "frozen"):
        return None
    if spec.origin is not None:
        return Path(spec.origin)
    return next((Path(each) for each in spec.submodule_search_locations or ()), None)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]
