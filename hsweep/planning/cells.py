"""A sweep file out of the cells of a notebook: what its sweep leads to, and no more."""

import ast
from collections.abc import Iterable, Iterator

from hsweep.planning.statements import Statement, leading_to, statements_of


def sweep_text(cells: Iterable[str], name: str) -> str:
    """Return a sweep file whose ``SWEEP`` is what ``name`` is after these cells, in the order in
    which they were run.

    Calls of what was imported are left out where nothing needed comes of them: they plot, print,
    seed and install, and one of them asks for this text. But what is added to ``sys.path`` stays.
    """
    chosen = leading_to([name], statements_of(_nodes(cells)), _is_needed)
    chosen.sort(key=lambda each: not _is_of_future(each))
    lines: list[str] = []
    for each in chosen:
        lines += [each.text] if each.is_import else ["", each.text]
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
