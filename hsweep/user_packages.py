"""The user's folders that are called like this project's packages: both are importable.

The user's ``models/tiny.py`` is imported as ``models.tiny``, beside the modules that are here. The
packages themselves stay this project's: a module that both have is an error, and the user's
``models/__init__.py`` is run when code imports a name that the package here does not have.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hsweep.errors import ROOT, UserError

SHARED: Final = ("models", "tasks", "analysis", "sweeps")
"""The packages that the user may have, too."""
PACKAGES: Final = ("hsweep", *SHARED)
SWEEP_MODULE: Final = "hsweep.sweep_file"
"""The module name of the sweep file in use."""
SWEEP_FILE_VARIABLE: Final = "HSWEEP_SWEEP_FILE"
"""Tells processes that are started by this one which file that is."""
FOLDERS_VARIABLE: Final = "HSWEEP_OWN_FOLDERS"
"""Tells workers in which folders the driver has looked for such packages."""

_FOLDERS: Final[list[Path]] = []


def add_user_packages(folders: Iterable[Path]) -> None:
    """Look for the user's packages in these folders, the first one first, and in no others.

    This project's packages must be imported. Modules that were imported from folders that are no
    longer among them are forgotten.
    """
    _FOLDERS[:] = dict.fromkeys(folder.expanduser().absolute() for folder in folders)
    for name in SHARED:
        if name in sys.modules:
            places = [ROOT / name, *_packages_of_user(name)]
            _forget_others(name, places)
            sys.modules[name].__path__ = [*map(str, places)]
            vars(sys.modules[name])["__getattr__"] = _finder(name)


def folders() -> list[Path]:
    """Return the folders in which the user's packages are looked for."""
    return list(_FOLDERS)


def folders_in_use() -> list[Path]:
    """Return the folders of ``folders`` that have a package of the user's."""
    folders = {package.parent for name in SHARED for package in _packages_of_user(name)}
    return [folder for folder in _FOLDERS if folder in folders]


def default_folders() -> list[Path]:
    """Return where they are looked for where no sweep says more: the folder of the script that
    runs and the working directory; in a worker, where the driver has looked."""
    value = os.environ.get(FOLDERS_VARIABLE)
    if value is not None:
        return [Path(folder) for folder in value.split(os.pathsep) if folder]
    folders = []
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script:
        folders.append(Path(script).absolute().parent)
    with contextlib.suppress(OSError):  # it may have been removed
        folders.append(Path.cwd())
    return folders


def refuse_doubles() -> None:
    """Refuse modules that are both here and among the user's, with a UserError that names both
    files."""
    for name in SHARED:
        here = _modules_in(ROOT / name)
        for package in _packages_of_user(name):
            for module, file in _modules_in(package).items():
                if module in here:
                    raise UserError(
                        f"the module {name}.{module} is both yours ({file}) and hsweep's "
                        f"({here[module]}), so importing it could mean either; rename yours, or "
                        f"put your modules into a package of another name than {name!r}"
                    )


def inits_of_user(name: str) -> list[ModuleSpec]:
    """Return the ``__init__.py`` files of the user's packages of this name, as modules of it."""
    files = [package / "__init__.py" for package in _packages_of_user(name)]
    specs = [
        importlib.util.spec_from_file_location(f"{name}.__init__{number or ''}", file)
        for number, file in enumerate(files)
        if file.is_file()
    ]
    return [spec for spec in specs if spec is not None]


def is_of_user(module: str, file: Path) -> bool:
    """Whether a module of one of the shared packages is the user's."""
    top = module.split(".")[0]
    return top in SHARED and not file.resolve().is_relative_to(ROOT / top)


def _finder(package: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that looks in the user's ``__init__.py`` files."""

    def find(attribute: str) -> Any:
        if not attribute.startswith("__") and attribute not in _modules_in(ROOT / package):
            for spec in inits_of_user(package):
                defined = vars(_run_once(package, spec))
                if attribute in defined:
                    return defined[attribute]
        raise AttributeError(f"module {package!r} has no attribute {attribute!r}")

    return find


def _run_once(package: str, spec: ModuleSpec) -> ModuleType:
    """Return the module of a user's ``__init__.py``; while it runs, its names so far. UserError if
    it defines a name that is a module of the package here."""
    loaded = sys.modules.get(spec.name)
    if loaded is not None and loaded.__file__ == spec.origin:
        return loaded
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        assert spec.loader is not None
        spec.loader.exec_module(module)
        for name in _modules_in(ROOT / package).keys() & vars(module).keys():
            if vars(module)[name] is not sys.modules.get(f"{package}.{name}"):
                raise UserError(
                    f"{spec.origin} defines {name!r}, which is also hsweep's module "
                    f"{package}.{name}; rename it"
                )
    except BaseException:
        # Asked again, it fails again: with the reason, not with a name that is missing.
        del sys.modules[spec.name]
        raise
    return module


def _packages_of_user(name: str) -> list[Path]:
    """Return the user's folders of this name that hold Python files: one of weights is no
    package."""
    packages = [folder / name for folder in _FOLDERS if (folder / name).resolve() != ROOT / name]
    return [
        package for package in packages if any(package.glob("*.py")) or any(package.glob("*/*.py"))
    ]


def _modules_in(package: Path) -> dict[str, Path]:
    """Return the modules and packages directly in a folder, by name."""
    files = (file for file in package.glob("*.py") if file.stem != "__init__")
    return {
        **{file.stem: file for file in files},
        **{file.parent.name: file.parent for file in package.glob("*/*.py")},
    }


def _forget_others(package: str, places: Iterable[Path]) -> None:
    roots = [place.resolve() for place in places]
    # A copy: Ray may be importing in another thread.
    for name in [name for name in list(sys.modules) if name.startswith(f"{package}.")]:
        file = getattr(sys.modules[name], "__file__", None)
        if file and not any(Path(file).resolve().is_relative_to(root) for root in roots):
            del sys.modules[name]
            vars(sys.modules[package]).pop(name.partition(".")[2], None)
