"""A sweep file out of the cells of a notebook: what its sweep leads to, and no more.

Cells have been run in any order and again after edits. What a name meant where a statement ran is
its last binding before; what it means to a function that is called later is its last binding of
all. So the statements are followed backwards from the sweep: those that bind, or change in place, a
name that is needed.
"""

import ast
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_REBINDING: Final = (*_DEFINITIONS, ast.Assign, ast.Import, ast.ImportFrom)
_COMPREHENSIONS: Final = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})


@dataclass(frozen=True, slots=True, eq=False)
class _Statement:
    """A statement at the top level of a cell; of an import, one of its names.

    Attributes:
        binds: names that it gives a value.
        changes: names whose value it may change in place.
        uses: names that it reads when it runs.
        later: names that its functions read when they are called.
        rebinds: what its names were before does not matter to it.
        is_always: it may matter to any sweep.
    """

    text: str
    binds: frozenset[str]
    rebinds: bool
    changes: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    is_import: bool = False
    is_future: bool = False
    is_always: bool = False


def sweep_text(cells: Iterable[str], name: str) -> str:
    """Return a sweep file whose ``SWEEP`` is what ``name`` is after these cells, in the order in
    which they were run.

    Calls of what was imported are left out where nothing needed comes of them: they plot, print,
    seed and install, and one of them asks for this text. But what is added to ``sys.path`` stays.
    """
    statements = list(_statements(cells))
    later, before = {name}, frozenset[str]()
    chosen: list[_Statement] = []
    while later != before:
        before = frozenset(later)
        chosen, needed = [], set(later)
        for each in reversed(statements):
            if each.is_always or needed & (each.binds | each.changes):
                chosen.append(each)
                if each.rebinds:
                    needed -= each.binds
                needed |= each.uses
                later |= each.later
    chosen.sort(key=lambda each: each.is_future)
    lines: list[str] = []
    for each in reversed(chosen):
        lines += [each.text] if each.is_import else ["", each.text]
    if name != "SWEEP":
        lines += ["", f"SWEEP = {name}"]
    return "\n".join(lines).lstrip() + "\n"


def _statements(cells: Iterable[str]) -> Iterator[_Statement]:
    parsed = [(cell, tree) for cell in cells if (tree := _parsed(cell)) is not None]
    imported: set[str] = set()
    for cell, tree in parsed:
        for node in tree.body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                yield _statement(node, _source(cell, node), imported)
                continue
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                imported.add(bound)
                node_of_one = (
                    ast.Import([alias])
                    if isinstance(node, ast.Import)
                    else ast.ImportFrom(node.module, [alias], node.level)
                )
                is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
                yield _Statement(
                    ast.unparse(node_of_one),
                    binds=frozenset({bound}),
                    # `import package.module` goes with every other import of the package.
                    rebinds="." not in alias.name or alias.asname is not None,
                    is_import=True,
                    is_future=is_future,
                    is_always=is_future or alias.name == "*",
                )


def _parsed(cell: str) -> ast.Module | None:
    try:
        return ast.parse(cell)
    except (SyntaxError, ValueError):  # it was run without effect
        return None


def _source(cell: str, node: ast.stmt) -> str:
    """Return a statement as it was written, its comments included."""
    decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
    if decorators:
        first = min(each.lineno for each in decorators)
        return "\n".join(cell.splitlines()[first - 1 : node.end_lineno])
    return ast.get_source_segment(cell, node) or ast.unparse(node)


def _statement(node: ast.stmt, text: str, imported: set[str]) -> _Statement:
    # A table is made of text that stands alone.
    table = symtable.symtable(ast.unparse(node), "a cell", "exec")
    own = table.get_symbols()
    binds = {each.get_name() for each in own if each.is_assigned() or each.is_imported()}
    uses = {each.get_name() for each in own if each.is_referenced()}
    later: set[str] = set()
    _look_into(table, uses, later)
    changes, is_path = set(), False
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Attribute, ast.Subscript)) and not isinstance(
            inner.ctx, ast.Load
        ):
            changes.add(_base(inner))
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            called = inner.value.func
            if isinstance(called, ast.Attribute) and (base := _base(called)) not in imported:
                changes.add(base)
            is_path = is_path or ast.unparse(called).startswith("sys.path.")
    if isinstance(node, _DEFINITIONS):
        changes = set()  # when they are called, if ever
    rebinds = isinstance(node, _REBINDING) or (
        isinstance(node, ast.AnnAssign) and node.value is not None
    )
    if isinstance(node, ast.AugAssign):
        uses |= binds
    return _Statement(
        text,
        frozenset(binds),
        rebinds,
        frozenset(changes - {""}),
        frozenset(uses),
        frozenset(later),
        is_always=is_path,
    )


def _look_into(table: symtable.SymbolTable, uses: set[str], later: set[str]) -> None:
    """Add the names of the cells that the scopes within a scope read, now or when called."""
    for child in table.get_children():
        is_now = child.get_type() == "class" or child.get_name() in _COMPREHENSIONS
        inner = uses if is_now else later
        inner |= {each.get_name() for each in child.get_symbols() if each.is_global()}
        _look_into(child, inner, later)


def _base(target: ast.expr) -> str:
    """Return the name whose value an attribute or an item belongs to; empty where it is none."""
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""
