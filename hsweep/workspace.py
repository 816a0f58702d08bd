"""Where the code comes from: sweep files by path, and import names that cannot be taken over.

This project's packages have plain names (``models``, ``tasks``). A process started in a folder
with a ``models/`` of its own would import that one, and a worker would silently train the wrong
code. So the names are pinned to this installation, in the driver before anything else is imported
and in every worker before it sees a trial. What is in such a folder can be imported beside what is
here (``hsweep.user_packages``).
"""

import contextlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hsweep.errors import (
    ROOT,
    UserError,
    format_error,
    is_installed,
    shown,
    unknown_name,
    user_frame,
)
from hsweep.training.world import leave_launcher
from hsweep.user_packages import (
    FOLDERS_VARIABLE,
    PACKAGES,
    SWEEP_FILE_VARIABLE,
    SWEEP_MODULE,
    add_user_packages,
    default_folders,
    folders,
    is_of_user,
    refuse_doubles,
)

if TYPE_CHECKING:
    from hsweep.design.sweep import Sweep

SIBLINGS_VARIABLE: Final = "HSWEEP_SWEEP_FOLDERS"
_SHIPPED: Final = ROOT / "sweeps"


def pin_imports() -> None:
    """Bind this project's import names to this installation, and let the user's packages of these
    names in.

    Raises:
        UserError: one of the names is already taken by a module from elsewhere, or a module of the
            user's is called like one of this project's. The command line says the latter when a
            sweep is loaded.
    """
    for name in PACKAGES:
        expected = ROOT / name / "__init__.py"
        present = sys.modules.get(name)
        if present is not None:
            origin = Path(present.__file__ or "unknown").resolve()
            if origin != expected:
                raise UserError(
                    f"the import name {name!r} belongs to hsweep ({expected}) but {origin} was "
                    "imported under it; rename that module or start from another folder"
                )
        elif expected.exists():
            _executed(name, expected, [str(expected.parent)])
    if not folders():
        add_user_packages(default_folders())
        if not is_command() and FOLDERS_VARIABLE not in os.environ:
            refuse_doubles()


def is_command() -> bool:
    """Whether this process is the command line of hsweep, of which most needs no sweep."""
    called = sys.orig_argv[1:3]
    return Path(sys.argv[0]).stem == "hsweep" or called == ["-m", "hsweep"]


def set_up_worker() -> None:
    """Prepare a worker process: pinned names, and last on the path the folder of the sweep file, so
    that a sweep can use helper modules beside it, and what the driver has there."""
    pin_imports()
    from models.torchvision_compat import make_torchvision_importable

    make_torchvision_importable()  # a sweep may import timm or transformers itself
    for folder in filter(None, os.environ.get(SIBLINGS_VARIABLE, "").split(os.pathsep)):
        _append_to_path(Path(folder))


def set_up_cluster_worker() -> None:
    """Prepare a worker of a cluster, whose environment is that of who started its node."""
    leave_launcher()
    set_up_worker()


def worker_environment(sweep_folder: Path | None) -> dict[str, str]:
    """Return the environment variables that workers need to find the same code."""
    variables = {FOLDERS_VARIABLE: os.pathsep.join(map(str, folders()))}
    if sweep_folder is not None:
        variables[SIBLINGS_VARIABLE] = os.pathsep.join([str(sweep_folder), *_added_to_path()])
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if str(ROOT) not in installed:
        inherited = os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])
    return variables


def _added_to_path() -> list[str]:
    """Return the driver's module folders besides installed ones, such as those a notebook adds."""
    # Python begins with the folder of the program, which is that of commands for a command.
    ours = (ROOT, Path(sysconfig.get_path("scripts")))
    folders = (Path(entry).absolute() for entry in sys.path if entry)
    return [
        str(folder)
        for folder in dict.fromkeys(folders)
        if folder.is_dir() and folder not in ours and not is_installed(folder)
    ]


@dataclass(frozen=True, slots=True)
class LoadedSweep:
    """A sweep and the file it came from.

    Attributes:
        sweep: the file's ``SWEEP``, its docstring as description.
        path: the file.
        folder: whose modules the file may import.
        module: the imported file.
    """

    sweep: "Sweep"
    path: Path
    folder: Path
    module: ModuleType

    def own_modules(self) -> list[ModuleType]:
        """Return the sweep's module, those beside it or below that it imported, and those of the
        user's packages that are called like this project's.

        Classes they define must travel to workers whole: another node need not have the files.
        """
        names = [
            module
            for module in list(sys.modules.values())
            if (origin := getattr(module, "__file__", None))
            and self._is_own(module.__name__, Path(origin))
        ]
        return [self.module, *(module for module in names if module is not self.module)]

    def _is_own(self, name: str, file: Path) -> bool:
        if name.split(".")[0] in PACKAGES:
            return is_of_user(name, file)
        is_beside = file.resolve().is_relative_to(self.folder) and not is_installed(file)
        # torch.ops says that its file is _ops.py, wherever this process is.
        return is_beside and file.is_file() and name not in ("__main__", "__mp_main__")


def shipped_sweeps() -> dict[str, Path]:
    """Return the sweep files that are installed with this project, by name."""
    files = sorted(_SHIPPED.glob("*.py"))
    return {file.stem: file for file in files if file.stem != "__init__"}


def sweep_path(named: Path) -> Path:
    """Return the file that is meant by a path, or by the name of a sweep that comes with hsweep:
    one word without an ending. No file is opened. UserError if no sweep has this name, or a file
    beside has it too."""
    if len(named.parts) != 1 or named.suffix or named.is_file() or named.name in ("", ".."):
        return named
    name, local = named.name, named.with_suffix(".py")
    shipped = shipped_sweeps()
    if name not in shipped:
        if local.is_file():
            raise UserError(f"a sweep is named by its file; {name} is none, but {local} is there")
        if named.exists():  # a folder, which the loader refuses
            return named
        unknown = unknown_name("sweep", name, shipped)
        raise UserError(f"{unknown} One of your own is given by its file, as in {local}")
    if local.is_file() and not local.samefile(shipped[name]):
        raise UserError(
            f"{name} is a sweep that comes with hsweep, and {local} is yours; give {local} for "
            f"yours, or {shipped[name]} for the other"
        )
    return shipped[name]


def load_sweep(
    path: Path, *, siblings: Path | None = None, own_folders: Iterable[Path] = ()
) -> LoadedSweep:
    """Import a sweep file and return its ``SWEEP``.

    Args:
        path: the Python file, anywhere on disk.
        siblings: the folder whose modules the file may import; its own folder by default.
        own_folders: further folders in which packages of the user's are looked for that are called
            like this project's, after that folder and before the working directory.

    Raises:
        UserError: the file is missing, fails, or defines no ``SWEEP``.
    """
    from hsweep.design.sweep import Sweep

    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"a sweep is a Python file; {path} {kind}")
    folder = enter(siblings or path.parent, own_folders)
    from models.torchvision_compat import make_torchvision_importable

    make_torchvision_importable()
    module = _import_file(path.resolve())
    # What stands in it, not what a __getattr__ of its own makes up.
    sweep, note = vars(module).get("SWEEP"), vars(module).get("__doc__")
    if not isinstance(sweep, Sweep):
        problem = "defines no SWEEP" if sweep is None else f"defines SWEEP as {shown(sweep)}"
        raise UserError(f"a sweep file defines one Sweep object called SWEEP; {path} {problem}")
    note = note.strip() if isinstance(note, str) else ""
    sweep = replace(
        sweep, description=sweep.description or note, folder=sweep.folder or str(folder)
    )
    return LoadedSweep(sweep, path, folder, module)


@contextlib.contextmanager
def another_sweep() -> Iterator[None]:
    """Give the module name of sweep files back afterwards to the file that has it, if one has."""
    module, file = sys.modules.get(SWEEP_MODULE), os.environ.get(SWEEP_FILE_VARIABLE)
    try:
        yield
    finally:
        if module is not None and file is not None:
            sys.modules[SWEEP_MODULE], os.environ[SWEEP_FILE_VARIABLE] = module, file


def enter(folder: Path, own_folders: Iterable[Path] = ()) -> Path:
    """Let the modules of a sweep's folder be imported, and the user's packages in it and in these
    folders that are called like this project's; return the folder as workers are told it.

    What a launcher has told this process is forgotten before: a sweep file may set such variables.

    Raises:
        UserError: modules that are both here and among the user's.
    """
    leave_launcher()
    pin_imports()
    folder = folder.resolve()
    _append_to_path(folder)
    add_user_packages([folder, *own_folders, *default_folders()])
    refuse_doubles()
    return folder


def _import_file(path: Path) -> ModuleType:
    if path.suffix != ".py":
        raise UserError(f"a sweep is a Python file with the ending .py; got {path}")
    try:
        os.environ[SWEEP_FILE_VARIABLE] = str(path)
        return _executed(SWEEP_MODULE, path)
    except (Exception, SystemExit, GeneratorExit) as error:
        where = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = where[-1].lineno if where else getattr(error, "lineno", None)
        at = f"{path}, line {line}" if line else f"{path}"
        if isinstance(error, UserError):
            raise UserError(f"{at}: {error}") from error
        place, cure = user_frame(error) or "", ""
        beside = f" at {place}" if place.rpartition(":")[0] not in ("", str(path)) else ""
        if isinstance(error, SystemExit):
            cure = (
                "; a module that parses a command line or ends the process does so under "
                '`if __name__ == "__main__":` alone'
            )
        raise UserError(f"{at} fails: {format_error(error)}{beside}{cure}") from error


def _executed(name: str, path: Path, places: list[str] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=places)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses defined in the file look their module up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _append_to_path(folder: Path) -> None:
    # Last, never first: a sweep's folder must not shadow anything.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
