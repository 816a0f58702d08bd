"""The effect of a Python file: its code without comments, docstrings and layout, and its imports.

Statements under ``if TYPE_CHECKING`` never run, so they are left out everywhere.
"""

import ast
import contextlib
import functools
import importlib.util
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Final, TypeAlias

from hsweep.planning.statements import Statement, leading_to, statement_of, statements_of

Source: TypeAlias = tuple[str, frozenset[str]]
"""The code of a file, or of a part of it, in one form, and the names of all that it may import,
inside functions too: packages, modules in them, and names that may be modules."""

_LAMBDA: Final = "<lambda>"
_INLINE: Final = "<inline>"
"""What a lambda is taken to bind, beside the statement that it stands in."""
_SWEEP: Final = "SWEEP"
_ASSIGNMENTS: Final = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_BRANCHES: Final = (ast.If, ast.Try)
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BINDING: Final = (
    *(ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(*_ASSIGNMENTS, ast.Pass, ast.Raise),
)


def definition_of(kind: type | FunctionType) -> str:
    """Return the name of a class or function for ``source_of_part``; a lambda is named by its
    line."""
    if isinstance(kind, FunctionType) and kind.__qualname__ == _LAMBDA:
        return f"{_LAMBDA} {kind.__code__.co_firstlineno}"
    return kind.__qualname__.split(".")[0]


def source_of(path: Path, package: str) -> Source:
    """Return the source of a file; relative imports are from ``package``."""
    return _source(*_stamp(path), package)


def source_of_part(path: Path, definitions: Iterable[str]) -> Source:
    """Return the part of a sweep file that runs for trials that use some of its definitions.

    The part has these definitions (see ``definition_of``), every statement that acts when the file
    is imported, and, one leading to the next, the definitions and imports that these use. A
    statement acts unless it only binds names: an import, the definition of a function or class, an
    assignment; and a decorated definition or an assignment acts where nothing in the file uses it.

    The part leaves out definitions that only ``SWEEP`` uses (spaces, budgets, presets, its
    functions of the point) and statements under ``if __name__ == "__main__"``. A class that the
    file does not have at its top level leads to the whole file.
    """
    names = frozenset(definitions)
    statements = [*_statements(*_stamp(path))]
    if lambdas := {name for name in names if name.startswith(_LAMBDA)}:
        names = names - lambdas | {_INLINE}
        statements += _inline(_parsed(path), lambdas)
    if not names <= {name for statement in statements for name in statement.binds}:
        return _described(statement.node for statement in statements)
    imports = [statement for statement in statements if statement.is_import]
    imported = {name for statement in imports for name in statement.binds}
    acting = {statement for statement in statements if _acts(statement, imported)}
    used = leading_to(names, statements, acting.__contains__)
    acting |= {statement for statement in statements if _may_act(statement.node)}.difference(
        used, leading_to([_SWEEP], statements)
    )
    used = leading_to(names, statements, acting.__contains__)
    return _described(statement.node for statement in used)


def _acts(statement: Statement, imported: set[str]) -> bool:
    """Whether importing the file runs something in this statement, even if its names are unused."""
    # Writing into something imported changes it for everybody.
    changes_others = not statement.changes.isdisjoint({"", *imported})
    return statement.is_star_import or changes_others or not _only_binds(statement.node)


def _only_binds(node: ast.AST) -> bool:
    if isinstance(node, _BRANCHES):
        inner = (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        return all(map(_only_binds, inner))
    if isinstance(node, ast.ExceptHandler):
        return all(map(_only_binds, node.body))
    return isinstance(node, _BINDING)


def _may_act(node: ast.stmt) -> bool:
    """Whether a statement that only binds names may have an effect even if nothing uses them."""
    return isinstance(node, _ASSIGNMENTS + _BRANCHES) or bool(getattr(node, "decorator_list", ()))


def _inline(tree: ast.Module, lambdas: set[str]) -> Iterator[Statement]:
    """Yield the lambdas of a file as statements of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and f"{_LAMBDA} {node.lineno}" in lambdas:
            yield replace(statement_of(ast.Expr(node), ""), binds={_INLINE})


def _stamp(path: Path) -> tuple[Path, int, int]:
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=2048)
def _source(path: Path, _mtime_ns: int, _size: int, package: str) -> Source:
    return _described(_parsed(path).body, package)


@functools.lru_cache(maxsize=16)
def _statements(path: Path, _mtime_ns: int, _size: int) -> tuple[Statement, ...]:
    guard = "if __name__ =="
    body = (node for node in _parsed(path).body if not ast.unparse(node).startswith(guard))
    return tuple(statements_of((node, "") for node in body))


def _described(nodes: Iterable[ast.stmt], package: str = "") -> Source:
    body = list(nodes)
    imported = frozenset(name for node in body for name in _imported(node, package))
    return "\n".join(map(ast.unparse, body)), imported


def _parsed(path: Path) -> ast.Module:
    """Return a file's code without docstrings and without statements for type checkers alone."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if not isinstance(block, list):
                continue
            nodes = [
                part for child in block for part in (child.orelse if _is_unseen(child) else [child])
            ]
            if field == "body" and isinstance(node, _DOCUMENTED) and ast.get_docstring(node, False):
                nodes = nodes[1:]
            if field == "body" and not nodes and node is not tree:
                nodes = [ast.Pass()]
            setattr(node, field, nodes)
    return tree


def _is_unseen(node: ast.stmt) -> bool:
    """Whether a statement is an ``if TYPE_CHECKING``."""
    if not isinstance(node, ast.If):
        return False
    name = node.test.attr if isinstance(node.test, ast.Attribute) else getattr(node.test, "id", "")
    return name == "TYPE_CHECKING"


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            # One beyond the top package: the file itself will say so.
            with contextlib.suppress(ImportError):
                if node.level:
                    module = importlib.util.resolve_name("." * node.level + module, package)
                names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            yield from itertools.accumulate(name.split("."), "{}.{}".format)
