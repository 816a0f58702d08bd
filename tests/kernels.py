"""What a notebook is to a program: cells run in ``__main__``, which has no file, but the text of
every cell that was run."""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class Kernel:
    """Runs cells as IPython does.

    Attributes:
        module: ``__main__``, as the cells see it.
    """

    def __init__(self) -> None:
        self.module = ModuleType("__main__")
        self.cells = vars(self.module)["In"] = [""]

    def run(self, cell: str) -> Any:
        """Run a cell, and return what a notebook shows: the value of its last expression."""
        self.cells.append(cell)
        file, tree = f"<cell {len(self.cells)}>", ast.parse(cell)
        shown = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), vars(self.module))
        if not isinstance(shown, ast.Expr):
            return None
        return eval(compile(ast.Expression(shown.value), file, "eval"), vars(self.module))

    def __getitem__(self, name: str) -> Any:
        return vars(self.module)[name]


@contextmanager
def kernel_in(folder: Path) -> Iterator[Kernel]:
    """A kernel whose working directory is a folder, which also holds its studies."""
    kernel = Kernel()
    known = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", kernel.module)
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.delenv("HSWEEP_HOME", raising=False)
        yield kernel
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name == "hsweep.sweep_file" or Path(file).is_relative_to(folder):
            del sys.modules[name]
