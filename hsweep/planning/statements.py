"""Python code as statements: the names that each reads and writes, the statements that lead to a
name, and the sweep file that a notebook's cells make."""

import ast
import copy
import symtable
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Final

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_REBINDING: Final = (*_DEFINITIONS, ast.Assign, ast.Import, ast.ImportFrom)
_COMPREHENSIONS: Final = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})


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
