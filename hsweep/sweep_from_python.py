"""A sweep that Python is given, as a sweep file: only what stands in one can go on another day."""

import contextlib
import inspect
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hsweep.design.point import Point
from hsweep.design.sweep import Sweep, resolve
from hsweep.errors import UserError, format_error, shown
from hsweep.planning.code import look_again, users_modules
from hsweep.planning.identity import describe
from hsweep.planning.source import sweep_text
from hsweep.user_packages import SWEEP_MODULE
from hsweep.workspace import sweep_path

_LOADERS: Final = ("description", "folder")
"""Fields that the loader of a sweep file fills in."""
_PER_POINT: Final = ("task", "model", "recipe", "resources")
_MOST_POINTS: Final = 200
"""Points at which two sweeps are compared."""


@dataclass(frozen=True, slots=True)
class LocatedSweep:
    """The file of a sweep.

    Attributes:
        path: for a sweep of a notebook a temporary file with the statements that its sweep needs.
        folder: whose modules the file may import.
        sweep: None where the file alone was given.
        is_copy: whether the file is a temporary copy.
    """

    path: Path
    folder: Path
    sweep: Sweep | None = None
    is_copy: bool = False

    def check(self, loaded: Sweep) -> None:
        """Refuse a file that makes another sweep than the one that was given, with a UserError that
        names a field that differs."""
        if self.sweep is None:
            return
        for field in fields(Sweep):
            now, made = (_content(field.name, sweep) for sweep in (self.sweep, loaded))
            if field.name in _LOADERS or now == made:
                continue
            where, remedy = str(self.path), "change the file and start Python again, or reload it"
            if self.is_copy:
                where = "the cells, run once more in their order,"
                remedy = (
                    "give the sweep its value in one statement, or restart the kernel and run all "
                    "cells"
                )
            raise UserError(
                f"the sweep given is not the one that {where} would make: its {field.name} "
                f"differs{_difference(now, made)}. What is run must be what can be run again: "
                f"{remedy}"
            )


@contextlib.contextmanager
def sweep_file_of(sweep: Sweep | str | Path) -> Iterator[LocatedSweep]:
    """Yield the file of a sweep; the user's modules it imports are imported anew meanwhile, since
    their files may have changed.

    Args:
        sweep: a ``SWEEP``, of this script, of a module or of the cells of a notebook, or the path
            of a sweep file, or the name of one that comes with hsweep.

    Raises:
        UserError: it stands nowhere from where it could be loaded again, or a sweep file that is
            being loaded asks for it.
    """
    for frame in inspect.stack(0):
        if frame.frame.f_globals.get("__name__") == SWEEP_MODULE:
            raise UserError(
                "a sweep file is loaded to be planned, and again by each resume, so it cannot run "
                'a sweep at its top level; put that under `if __name__ == "__main__":`'
            )
    with contextlib.ExitStack() as stack:
        file = _file_of(sweep, stack)
        if file.path.is_file():
            stack.enter_context(_imported_anew(file))
        yield file


def _file_of(sweep: Sweep | str | Path, stack: contextlib.ExitStack) -> LocatedSweep:
    if isinstance(sweep, (str, Path)):
        path = sweep_path(Path(sweep).expanduser())
        return LocatedSweep(path, path.parent.absolute())
    if not isinstance(sweep, Sweep):
        raise UserError(f"give a Sweep, or the path of a sweep file; got {shown(sweep)}")
    # The last one: a module that has it from another began to be imported before that one.
    for module in [*reversed(sys.modules.values())]:
        path = Path(getattr(module, "__file__", None) or "")
        if vars(module).get("SWEEP") is sweep and path.suffix == ".py" and path.is_file():
            return LocatedSweep(path.resolve(), path.resolve().parent, sweep)
    main = sys.modules["__main__"]
    cells, name = vars(main).get("In"), _name_in(main, sweep)
    if name and isinstance(cells, list):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hsweep-"))
        path = Path(folder, "notebook.py")
        path.write_text(sweep_text(map(str, cells), name), encoding="utf-8")
        return LocatedSweep(path, Path.cwd(), sweep, is_copy=True)
    raise UserError(
        f"the sweep {sweep.name!r} has to be loaded again when its study goes on, so it stands "
        "where it can be found: in the variable SWEEP at the top level of a file (this script or "
        "a module), or in a variable of a notebook's cells"
    )


def _name_in(main: ModuleType, sweep: Sweep) -> str:
    """Return the variable of a notebook that holds a sweep, ``SWEEP`` first; empty for none."""
    # IPython's own names for outputs begin with an underscore.
    names = [n for n, value in vars(main).items() if value is sweep and not n.startswith("_")]
    return min(names, key=lambda name: name != "SWEEP", default="")


@contextlib.contextmanager
def _imported_anew(file: LocatedSweep) -> Iterator[None]:
    """Let the user's modules that a sweep imports be imported again, and put back those that the
    rest of the program has."""
    look_again()
    try:
        names = users_modules(file.path, file.folder)
    except (SyntaxError, ValueError):  # loading it says so
        names = set()
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    try:
        yield
    finally:
        sys.modules.update(before)


def _content(name: str, sweep: Sweep) -> Any:
    """Return the content of a field of a sweep, in a form that can be compared."""
    value = getattr(sweep, name)
    if name == "space" and not value.is_finite:
        return value.parameters()
    if name == "space" or (name in _PER_POINT and sweep.space.is_finite):
        points = itertools.islice(sweep.space.points(), _MOST_POINTS)
        return [dict(point) if name == "space" else _resolved(value, point) for point in points]
    if name == "presets":
        return {key: _plain(dict(variant.changes)) for key, variant in value.items()}
    return _plain(value)


def _resolved(value: Any, point: Point) -> Any:
    try:
        return _plain(resolve(value, point))
    except (Exception, SystemExit) as error:  # the point is impossible, or the plan says more
        return format_error(error)


def _plain(value: Any) -> Any:
    """Return a value as plain content; a function or class as its kind and name."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    try:
        return describe(value)
    except UserError:
        return f"{type(value).__qualname__} {getattr(value, '__qualname__', '')}"


def _difference(now: Any, made: Any) -> str:
    if isinstance(now, list) and isinstance(made, list) and len(now) == len(made):
        now, made = next(pair for pair in zip(now, made, strict=True) if pair[0] != pair[1])
    return f" ({shown(now)}, not {shown(made)})"
