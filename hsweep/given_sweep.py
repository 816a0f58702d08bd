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

from hsweep.design.space import Point
from hsweep.design.sweep import Sweep, resolve
from hsweep.errors import UserError, format_error, shown
from hsweep.own_packages import SWEEP_FILE_PREFIX
from hsweep.planning.cells import sweep_text
from hsweep.planning.code import look_again, users_modules
from hsweep.planning.content import describe
from hsweep.shipped import sweep_path

_FILLED_IN: Final = ("description", "folder")
"""What the loader of a sweep file adds."""
_MOST_POINTS: Final = 200
"""Points at which two sweeps are compared."""


@dataclass(frozen=True, slots=True)
class GivenSweep:
    """A sweep and the file that it is in.

    Attributes:
        path: a copy of its own for a sweep of a notebook, with what of the cells it leads to.
        folder: whose modules the file may import.
        sweep: None where the file alone was given.
        is_copy: whether the file is gone afterwards.
    """

    path: Path
    folder: Path
    sweep: Sweep | None = None
    is_copy: bool = False

    def check(self, loaded: Sweep) -> None:
        """Refuse what the file makes where it is not what was given.

        Raises:
            UserError: names a field that differs.
        """
        if self.sweep is None:
            return
        for field in fields(Sweep):
            if field.name in _FILLED_IN:
                continue
            now, made = (_content(field.name, each) for each in (self.sweep, loaded))
            if now == made:
                continue
            where = "the cells, run once more in their order," if self.is_copy else str(self.path)
            raise UserError(
                f"the sweep given is not the one that {where} would make: its {field.name} "
                f"differs{_difference(now, made)}. What is run must be what can be run again: "
                + (
                    "give the sweep its value in one statement, or restart the kernel and run all "
                    "cells"
                    if self.is_copy
                    else "change the file and start Python again, or reload it"
                )
            )


@contextlib.contextmanager
def sweep_given(sweep: Sweep | str | Path) -> Iterator[GivenSweep]:
    """Yield the file of a sweep; the user's modules it imports are imported anew meanwhile, since
    their files may have changed.

    Args:
        sweep: a ``SWEEP``, of this script, of a module or of the cells of a notebook, or the path
            of a sweep file, or the name of one that comes with hsweep.

    Raises:
        UserError: it stands nowhere from where it could be loaded again, or a sweep file that is
            being loaded asks for it.
    """
    _refuse_within_sweep_file()
    with contextlib.ExitStack() as stack:
        found = _found(sweep, stack)
        if found.path.is_file():
            stack.enter_context(_imported_anew(found))
        yield found


def _found(sweep: Sweep | str | Path, stack: contextlib.ExitStack) -> GivenSweep:
    if isinstance(sweep, (str, Path)):
        path = sweep_path(Path(sweep).expanduser())
        return GivenSweep(path, path.parent.absolute())
    if not isinstance(sweep, Sweep):
        raise UserError(f"give a Sweep, or the path of a sweep file; got {shown(sweep)}")
    main = sys.modules["__main__"]
    cells, name = vars(main).get("In"), _name_in(main, sweep)
    # The last one: a module that has it from another began to be imported before that one.
    for module in [*reversed(sys.modules.values())]:
        path = Path(getattr(module, "__file__", None) or "")
        if vars(module).get("SWEEP") is sweep and path.suffix == ".py" and path.is_file():
            return GivenSweep(path.resolve(), path.resolve().parent, sweep)
    if name and isinstance(cells, list):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hsweep-"))
        path = Path(folder, "notebook.py")
        path.write_text(sweep_text(map(str, cells), name), encoding="utf-8")
        return GivenSweep(path, Path.cwd(), sweep, is_copy=True)
    raise UserError(
        f"the sweep {sweep.name!r} has to be loaded again when its study goes on, so it stands "
        "where it can be found: in the variable SWEEP at the top level of a file (this script or "
        "a module), or in a variable of a notebook's cells"
    )


def _name_in(main: ModuleType, sweep: Sweep) -> str:
    names = [name for name, value in vars(main).items() if value is sweep]
    # IPython's own names for outputs begin with an underscore.
    return min(
        (name for name in names if not name.startswith("_")),
        key=lambda name: name != "SWEEP",
        default="",
    )


def _refuse_within_sweep_file() -> None:
    for frame in inspect.stack(0):
        if frame.frame.f_globals.get("__name__", "").startswith(SWEEP_FILE_PREFIX):
            raise UserError(
                "a sweep file is loaded to be planned, and again by each resume, so it cannot run "
                'a sweep at its top level; put that under `if __name__ == "__main__":`'
            )


@contextlib.contextmanager
def _imported_anew(given: GivenSweep) -> Iterator[None]:
    """Let the user's modules that a sweep imports be imported again, and put back those that the
    rest of the program has."""
    look_again()
    try:
        names = users_modules(given.path, given.folder)
    except (SyntaxError, ValueError):  # loading it says so
        names = set()
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    try:
        yield
    finally:
        sys.modules.update(before)


def _content(name: str, sweep: Sweep) -> Any:
    """Return what a field of a sweep comes to, in a form that can be compared."""
    value = getattr(sweep, name)
    if name == "space":
        if not value.is_finite:
            return value.parameters()
        return [dict(point) for point in itertools.islice(value.points(), _MOST_POINTS)]
    if name in ("task", "model", "recipe", "resources") and sweep.space.is_finite:
        points = itertools.islice(sweep.space.points(), _MOST_POINTS)
        return [_resolved(value, point) for point in points]
    if name == "presets":
        return {key: _plain(dict(each.changes)) for key, each in value.items()}
    return _plain(value)


def _resolved(value: Any, point: Point) -> Any:
    try:
        return _plain(resolve(value, point))
    except (Exception, SystemExit) as error:  # the point is impossible, or the plan says more
        return format_error(error)


def _plain(value: Any) -> Any:
    """Return plain content; of what has none, such as a function, the kind and name."""
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
