"""Folders of the user's that are called like this project's packages: both are importable.

The user's ``models/tiny.py`` is imported as ``models.tiny``, beside the modules that are here. The
names themselves stay this project's: a module that both have is an error, and what the user's
``models/__init__.py`` defines is found where the package here has nothing of that name.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hsweep.errors import ROOT, UserError

SHARED: Final = ("models", "tasks", "analysis", "sweeps")
"""The packages that the user may have, too."""
PACKAGES: Final = ("hsweep", *SHARED)
SWEEP_FILE_PREFIX: Final = "hsweep_sweep_"
"""How the module names of imported sweep files begin."""
FOLDERS_VARIABLE: Final = "HSWEEP_OWN_FOLDERS"
"""Tells workers in which folders the driver has looked for such packages."""

_INIT: Final = "__init__"


def let_in(folders: Iterable[Path]) -> None:
    """Look for the user's packages in these folders, the first one first, and in no others.

    This project's packages must be imported. Modules that were imported from folders that are no
    longer among them are forgotten.
    """
    _FOLDERS[:] = dict.fromkeys(map(_absolute, folders))
    for name in SHARED:
        package = sys.modules.get(name)
        if package is None:
            continue
        ours = ROOT / name
        theirs = [
            folder / name
            for folder in _FOLDERS
            if (folder / name).resolve() != ours and any(_modules_in(folder / name))
        ]
        _forget(name, [ours, *theirs])
        package.__path__ = [str(ours), *map(str, theirs)]
        known = _BODIES.get(name)
        if known is None or known.folders != theirs:
            _BODIES[name] = known = _Bodies(name, theirs)
        vars(package)["__getattr__"] = known
    if not any(isinstance(finder, _BodyFirst) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BodyFirst())


def folders() -> list[Path]:
    """Return the folders in which the user's packages are looked for."""
    return list(_FOLDERS)


def folders_in_use() -> list[Path]:
    """Return those of the folders that have such a package."""
    used = {package.parent for bodies in _BODIES.values() for package in bodies.folders}
    return [folder for folder in _FOLDERS if folder in used]


def default_folders() -> list[Path]:
    """Return where they are looked for where no sweep says more: the folder of the script that
    runs and the working directory; in a worker, where the driver has looked."""
    given = os.environ.get(FOLDERS_VARIABLE)
    if given is not None:
        return [Path(folder) for folder in given.split(os.pathsep) if folder]
    found = []
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script:
        found.append(Path(script).absolute().parent)
    with contextlib.suppress(OSError):  # it may have been removed
        found.append(Path.cwd())
    return found


def refuse_doubles() -> None:
    """Refuse modules that are both here and among the user's.

    Raises:
        UserError: there is one; names both files.
    """
    for name in SHARED:
        here = dict(_modules_in(ROOT / name))
        here.pop(_INIT, None)
        for folder in _BODIES[name].folders if name in _BODIES else ():
            for module, file in _modules_in(folder):
                if module in here:
                    raise UserError(
                        f"the module {name}.{module} is both yours ({file}) and hsweep's "
                        f"({here[module]}), so importing it could mean either; rename yours, or "
                        f"put your modules into a package of another name than {name!r}"
                    )


def bodies_of(name: str) -> list[Path]:
    """Return the ``__init__.py`` files of the user's packages of this name."""
    return _BODIES[name].files if name in _BODIES else []


def is_of_user(module: str, file: Path) -> bool:
    """Whether a module of one of the shared packages is the user's."""
    top = module.split(".")[0]
    return top in SHARED and not file.resolve().is_relative_to(ROOT / top)


class _Bodies:
    """What the user's ``__init__.py`` files of one package define, run when it is first asked for.

    It is the package's ``__getattr__``.

    Args:
        name: of the package.
        folders: the user's packages of that name.
    """

    def __init__(self, name: str, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self._name = name
        self._modules: list[ModuleType] = []
        self._has_run = False

    @property
    def files(self) -> list[Path]:
        """Those of the folders that have one."""
        return [file for each in self.folders if (file := each / f"{_INIT}.py").is_file()]

    def __call__(self, attribute: str) -> Any:
        """Return what one of the files calls so.

        Raises:
            AttributeError: none does.
        """
        if not attribute.startswith("__") and not self._is_here(attribute):
            self.run()
            for module in self._modules:
                if attribute in vars(module):
                    return vars(module)[attribute]
        raise AttributeError(f"module {self._name!r} has no attribute {attribute!r}")

    def has(self, module: str) -> bool:
        """Whether a module of the package is the user's."""
        return any(module in dict(_modules_in(folder)) for folder in self.folders)

    def run(self) -> None:
        """Run the files, once; a file that is being run counts as far as it has come.

        Raises:
            UserError: one defines a name that is a module of the package here.
        """
        if self._has_run:
            return
        self._has_run = True
        try:
            for number, file in enumerate(self.files):
                spec = importlib.util.spec_from_file_location(
                    f"{self._name}.{_INIT}{number or ''}", file
                )
                assert spec is not None
                assert spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                sys.modules[spec.name] = module
                self._modules.append(module)
                spec.loader.exec_module(module)
                self._refuse_hidden(module, file)
        except BaseException:
            # Asked again, it fails again: with the reason, not with a name that is missing.
            for module in self._modules:
                sys.modules.pop(module.__name__, None)
            self._modules.clear()
            self._has_run = False
            raise

    def _refuse_hidden(self, module: ModuleType, file: Path) -> None:
        for attribute, value in vars(module).items():
            is_double = not attribute.startswith("__") and self._is_here(attribute)
            if is_double and value is not sys.modules.get(f"{self._name}.{attribute}"):
                raise UserError(
                    f"{file} defines {attribute!r}, which is also hsweep's module "
                    f"{self._name}.{attribute}; rename it"
                )

    def _is_here(self, module: str) -> bool:
        folder = ROOT / self._name
        return (folder / f"{module}.py").is_file() or (folder / module / f"{_INIT}.py").is_file()


class _BodyFirst:
    """A finder that finds nothing: it runs a user's package before the first module of it."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Run what comes before the module ``name``."""
        package, _, module = name.partition(".")
        bodies = _BODIES.get(package)
        if bodies is not None and module and "." not in module and bodies.has(module):
            bodies.run()


_FOLDERS: Final[list[Path]] = []
_BODIES: Final[dict[str, _Bodies]] = {}


def _modules_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules and packages directly in a folder; none of a folder without Python files,
    as one of weights is."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.suffix == ".py" and entry.stem != _INIT and entry.is_file():
            yield entry.stem, entry
        elif entry.name == f"{_INIT}.py":
            yield _INIT, entry
        elif (
            entry.name.isidentifier()
            and not entry.name.startswith("__")
            and entry.is_dir()
            and any(entry.glob("*.py"))
        ):
            yield entry.name, entry


def _forget(package: str, places: Sequence[Path]) -> None:
    roots = [place.resolve() for place in places]
    for name, module in list(sys.modules.items()):
        if not name.startswith(f"{package}."):
            continue
        file = getattr(module, "__file__", None)
        if file is None:
            continue
        if not any(Path(file).resolve().is_relative_to(root) for root in roots):
            del sys.modules[name]
            vars(sys.modules[package]).pop(name.partition(".")[2], None)


def _absolute(folder: Path) -> Path:
    return folder.expanduser().absolute()
