"""What a Python file does: its code without comments, docstrings and layout, and what it imports.

What stands under ``if TYPE_CHECKING`` never runs, so it is left out everywhere.
"""

import ast
import contextlib
import copy
import functools
import importlib.util
import itertools
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final

LAMBDA: Final = "<lambda>"
_INLINE: Final = "<inline>"
"""What a lambda is taken to bind, beside the statement that it stands in."""
_SWEEP: Final = "SWEEP"
_PLAIN_BINDINGS: Final = (
    *(ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.Pass, ast.Raise),
)


@dataclass(frozen=True, slots=True)
class Source:
    """What a file, or a part of it, does: its code in one form, and the names of all that it may
    import, inside functions too: packages, modules in them, and names that may be modules."""

    text: str
    imports: frozenset[str]


def source_of(path: Path, package: str) -> Source:
    """Return what a file does; relative imports are from ``package``."""
    return _source(*_stamp(path), package)


def source_of_part(path: Path, definitions: Iterable[str]) -> Source:
    """Return what a sweep file does for trials that use some of its top-level classes.

    That is these classes, every statement that acts when the file is imported, and, one leading to
    the next, the definitions and imports that these use. A statement acts unless it is an import,
    the definition of a function or class, or an assignment; and a decorated definition or an
    assignment acts where nothing in the file uses it. What only ``SWEEP`` uses (spaces, budgets,
    presets, its functions of the point) and what stands under ``if __name__ == "__main__"`` is no
    part of it. A class that the file does not have at its top level leads to the whole file. A
    lambda is named by where it stands (``lambda_definition``).
    """
    statements = [*_statements(*_stamp(path))]
    named = {each for each in definitions if each.startswith(LAMBDA)}
    if named:
        definitions = {*definitions} - named | {_INLINE}
        statements += [_inline(each) for each in _lambdas(_parsed(path), named)]
    wanted = frozenset(definitions)
    bound = {name for each in statements for name in each.binds}
    if not wanted <= bound:
        return _described([each.node for each in statements], "")
    for_sweep = _reached(statements, [each for each in statements if _SWEEP in each.binds])
    roots = [each for each in statements if each.acts or wanted & each.binds]
    used = _reached(statements, roots)
    roots += [each for each in statements if each.acts_unused and each not in used | for_sweep]
    used = _reached(statements, roots)
    return _described([each.node for each in statements if each in used], "")


def lambda_definition(code: CodeType) -> str:
    """Return what calls a lambda of a file by the place of its body."""
    # What only begins or ends the function has no width.
    spans = [
        ((line or 0, begin or 0), (last or 0, end or 0))
        for line, last, begin, end in code.co_positions()
        if (line, begin) != (last, end)
    ]
    first = min((start for start, _ in spans), default=None)
    return f"{LAMBDA} {first} {max((end for _, end in spans), default=None)}"


def _lambdas(tree: ast.Module, named: Iterable[str]) -> Iterator[ast.Lambda]:
    """Yield the lambdas of a file that are called so."""
    wanted = set(named)
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            body = node.body
            start = (body.lineno, body.col_offset)
            if f"{LAMBDA} {start} {(body.end_lineno, body.end_col_offset)}" in wanted:
                yield node


def _inline(node: ast.Lambda) -> "_Statement":
    alone = ast.Expr(node)
    return _Statement(alone, frozenset({_INLINE}), _global_names(alone))


def _stamp(path: Path) -> tuple[Path, int, int]:
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=2048)
def _source(path: Path, _mtime_ns: int, _size: int, package: str) -> Source:
    return _described(_parsed(path).body, package)


def _described(body: list[ast.stmt], package: str) -> Source:
    imported = frozenset(name for node in body for name in _imported(node, package))
    return Source("\n".join(map(ast.unparse, body)), imported)


def _parsed(path: Path) -> ast.Module:
    tree = _WithoutWords().visit(ast.parse(path.read_bytes()))
    assert isinstance(tree, ast.Module)
    return tree


class _WithoutWords(ast.NodeTransformer):
    """Takes out docstrings, and what only type checkers read."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit what may hold statements; nothing else is of interest."""
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            children = getattr(node, field, None)
            if isinstance(children, list):
                kept = [each for child in children for each in self._visited(child)]
                if field == "body" and _has_docstring(node):
                    kept = kept[1:]
                if field == "body" and not kept and not isinstance(node, ast.Module):
                    kept = [ast.Pass()]
                setattr(node, field, kept)
        return node

    def _visited(self, child: ast.AST) -> list[ast.AST]:
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            return [each for other in child.orelse for each in self._visited(other)]
        return [self.visit(child)]


def _has_docstring(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
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


@dataclass(frozen=True, slots=True, eq=False)
class _Statement:
    """A top-level statement of a sweep file; of an import, one of its names.

    Attributes:
        binds: the file's names that it defines or changes.
        uses: the file's names that it reads, also later in a function.
        acts: it does something when the file is imported.
        acts_unused: it does if nothing in the file uses what it binds.
    """

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    acts: bool = False
    acts_unused: bool = False


@functools.lru_cache(maxsize=16)
def _statements(path: Path, _mtime_ns: int, _size: int) -> tuple[_Statement, ...]:
    found: list[_Statement] = []
    imported: set[str] = set()
    for node in _parsed(path).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                imported.add(name)
                alone = copy.copy(node)
                alone.names = [alias]
                found.append(_Statement(alone, frozenset({name}), frozenset()))
        elif not _is_main_guard(node):
            found.append(_statement(node, imported))
    return tuple(found)


def _statement(node: ast.stmt, imported: set[str]) -> _Statement:
    uses = _global_names(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        is_decorated = bool(node.decorator_list)
        return _Statement(node, frozenset({node.name}), uses, acts_unused=is_decorated)
    targets = _targets(node)
    if targets is not None:
        names = {_base(target) for target in targets}
        # Writing into something imported changes it for everybody.
        into_imported = any(not isinstance(each, ast.Name) for each in targets) and names & imported
        if None in names or into_imported:
            return _Statement(node, frozenset(), uses, acts=True)
        return _Statement(node, frozenset(filter(None, names)), uses, acts_unused=True)
    if isinstance(node, (ast.If, ast.Try)) and _only_binds(node):
        return _Statement(node, frozenset(_bound_within(node)), uses, acts_unused=True)
    return _Statement(node, frozenset(), uses, acts=not isinstance(node, ast.Pass))


def _targets(node: ast.stmt) -> list[ast.expr] | None:
    """Return what an assignment assigns to, tuples taken apart; None for another statement."""
    if isinstance(node, ast.Assign):
        targets = list(node.targets)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    else:
        return None
    found: list[ast.expr] = []
    while targets:
        target = targets.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        else:
            found.append(target.value if isinstance(target, ast.Starred) else target)
    return found


def _base(target: ast.expr) -> str | None:
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _only_binds(node: ast.stmt) -> bool:
    if isinstance(node, (ast.If, ast.Try)):
        inner = [*node.body, *node.orelse]
        if isinstance(node, ast.Try):
            inner += [*node.finalbody, *(each for h in node.handlers for each in h.body)]
        return all(map(_only_binds, inner))
    targets = _targets(node)
    if targets is not None:
        return all(isinstance(target, ast.Name) for target in targets)
    return isinstance(node, _PLAIN_BINDINGS)


def _bound_within(node: ast.stmt) -> set[str]:
    table = symtable.symtable(ast.unparse(node), "a sweep file", "exec")
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }


def _global_names(node: ast.stmt) -> frozenset[str]:
    """Return the names that a top-level statement looks up in its module."""
    names: set[str] = set()
    tables = [symtable.symtable(ast.unparse(node), "a sweep file", "exec")]
    while tables:
        table = tables.pop()
        is_top = table.get_type() == "module"
        names.update(
            symbol.get_name()
            for symbol in table.get_symbols()
            if (symbol.is_referenced() if is_top else symbol.is_global())
        )
        tables += table.get_children()
    return frozenset(names)


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ ==")


def _reached(statements: Iterable[_Statement], roots: Iterable[_Statement]) -> set[_Statement]:
    """Return all statements that some lead to by the names they use."""
    binding: dict[str, list[_Statement]] = {}
    for each in statements:
        for name in each.binds:
            binding.setdefault(name, []).append(each)
    queue = list(roots)
    found: set[_Statement] = set()
    while queue:
        statement = queue.pop()
        if statement not in found:
            found.add(statement)
            # Whatever changes a name that is used counts with what defines it.
            for name in statement.uses | statement.binds:
                queue += binding.get(name, ())
    return found
