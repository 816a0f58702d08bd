"""The effect of a Python file: its code without comments, docstrings and layout, and its imports;
the statements that lead to a name; and the sweep file that a notebook's cells make.

Statements under ``if TYPE_CHECKING`` never run, so they are left out of a file's effect.
"""

import ast
import contextlib
import copy
import functools
import importlib.util
import itertools
import symtable
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Final, TypeAlias

Source: TypeAlias = tuple[str, frozenset[str]]
"""The code of a file, or of a part of it, in one form, and the names of all that it may import,
inside functions too: packages, modules in them, and names that may be modules."""

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_REBINDING: Final = (*_DEFINITIONS, ast.Assign, ast.Import, ast.ImportFrom)
_COMPREHENSIONS: Final = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})
_LAMBDA: Final = "<lambda>"
_INLINE: Final = "<inline>"
"""What a lambda is taken to bind, beside the statement that it stands in."""
_SWEEP: Final = "SWEEP"
_ASSIGNMENTS: Final = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_BRANCHES: Final = (ast.If, ast.Try)
_DOCUMENTED: Final = (ast.Module, *_DEFINITIONS)
_BINDING: Final = (*_DEFINITIONS, *_ASSIGNMENTS, ast.Import, ast.ImportFrom, ast.Pass, ast.Raise)


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement at the top level of a file or a cell; of an import, one of its names.

    Attributes:
        text: its code.
        binds: names that it gives a value.
        changes: names whose value it may change in place; empty text for a value without a name.
        uses: names that it reads when it runs.
        later: names that its functions read when they are called.
        rebinds: whether it replaces its names, whatever they were before.
    """

    node: ast.stmt
    text: str
    binds: Set[str]
    changes: Set[str] = frozenset()
    uses: Set[str] = frozenset()
    later: Set[str] = frozenset()
    rebinds: bool = True

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def is_star_import(self) -> bool:
        """Whether it may bind any name."""
        return "*" in self.binds


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


def statements_of(nodes: Iterable[tuple[ast.stmt, str]]) -> Iterator[Statement]:
    """Yield the statements of nodes, each with its code, in the order in which they run."""
    imported: set[str] = set()
    for node, text in nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            yield statement_of(node, text, imported)
            continue
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            imported.add(name)
            alone = copy.copy(node)
            alone.names = [alias]
            # `import package.module` goes with every other import of the package.
            rebinds = "." not in alias.name or alias.asname is not None
            yield Statement(alone, ast.unparse(alone), {name}, rebinds=rebinds)


def statement_of(node: ast.stmt, text: str, imported: Iterable[str] = ()) -> Statement:
    """Return a statement that is no import, with the names that it binds, changes and reads.

    A method that is called as a statement may change its object, but for a module's functions.
    """
    # A table is made of text that stands alone.
    table = symtable.symtable(ast.unparse(node), "a statement", "exec")
    symbols = table.get_symbols()
    binds = {
        symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()
    }
    uses = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
    later: set[str] = set()
    _add_names_within(table, uses, later)
    if isinstance(node, ast.AugAssign):
        uses |= binds
    changes: set[str] = set()
    # What a definition changes, it changes when it is called, if ever.
    for inner in () if isinstance(node, _DEFINITIONS) else ast.walk(node):
        if isinstance(inner, ast.Attribute | ast.Subscript):
            if not isinstance(inner.ctx, ast.Load):
                changes.add(_base(inner))
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            function = inner.value.func
            if isinstance(function, ast.Attribute):
                changes |= {_base(function)}.difference(imported)
    rebinds = isinstance(node, _REBINDING) or (
        isinstance(node, ast.AnnAssign) and node.value is not None
    )
    return Statement(node, text, binds, changes, uses, later, rebinds)


def leading_to(
    names: Iterable[str],
    statements: Iterable[Statement],
    is_needed: Callable[[Statement], bool] = lambda _statement: False,
) -> list[Statement]:
    """Return the statements that give names their values, in order.

    When a statement runs, a name has its last binding before the statement; in a function called
    later it has its last binding of all.

    Args:
        names: the names whose values are used.
        statements: in the order in which they run.
        is_needed: whether a statement is kept whatever names it binds.
    """
    backwards = [*statements][::-1]
    later, before = set(names), None
    chosen: list[Statement] = []
    while later != before:
        before, chosen, needed = set(later), [], set(later)
        for statement in backwards:
            if is_needed(statement) or needed & (statement.binds | statement.changes):
                chosen.append(statement)
                if statement.rebinds:
                    needed -= statement.binds
                needed |= statement.uses
                later |= statement.later
    return chosen[::-1]


def _add_names_within(table: symtable.SymbolTable, uses: set[str], later: set[str]) -> None:
    """Add the global names that the scopes within a scope read, now or when called."""
    for child in table.get_children():
        is_now = child.get_type() == "class" or child.get_name() in _COMPREHENSIONS
        inner = uses if is_now else later
        inner |= {symbol.get_name() for symbol in child.get_symbols() if symbol.is_global()}
        _add_names_within(child, inner, later)


def _base(target: ast.expr) -> str:
    """Return the name at the root of an attribute or item, as ``a`` of ``a.b[0]``; empty without
    one."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def sweep_text(cells: Iterable[str], name: str) -> str:
    """Return a sweep file whose ``SWEEP`` is what ``name`` is after these cells, in the order in
    which they were run.

    Calls of what was imported are left out where nothing needed comes of them: they plot, print,
    seed and install, and one of them asks for this text. But what is added to ``sys.path`` stays.
    """
    chosen = leading_to([name], statements_of(_nodes(cells)), _is_needed)
    chosen.sort(key=lambda statement: not _is_of_future(statement))
    lines: list[str] = []
    for statement in chosen:
        lines += [statement.text] if statement.is_import else ["", statement.text]
    if name != "SWEEP":
        lines += ["", f"SWEEP = {name}"]
    return "\n".join(lines).lstrip() + "\n"


def _is_needed(statement: Statement) -> bool:
    """Whether a statement may matter to any sweep."""
    return statement.is_star_import or _is_of_future(statement) or "sys.path." in statement.text


def _is_of_future(statement: Statement) -> bool:
    node = statement.node
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _nodes(cells: Iterable[str]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the statements of cells, each with its text as written, comments included."""
    for cell in cells:
        try:
            tree = ast.parse(cell)
        except (SyntaxError, ValueError):  # it was run without effect
            continue
        for node in tree.body:
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            text = ast.get_source_segment(cell, node) or ast.unparse(node)
            if decorators:
                text = "\n".join(cell.splitlines()[decorators[0].lineno - 1 : node.end_lineno])
            yield node, text
