"""A notebook's cells as a sweep file: what the sweep leads to, as it is when the cells have run."""

from types import SimpleNamespace
from typing import Any

import pytest

from hsweep.planning.source import sweep_text


def made(*cells: str, name: str = "SWEEP") -> Any:
    """Return what SWEEP is in the file that the cells come to, and the file's text."""
    text = sweep_text(cells, name)
    values: dict[str, Any] = {}
    exec(text, values)
    return SimpleNamespace(sweep=values["SWEEP"], text=text)


def test_what_the_sweep_does_not_lead_to_is_left_out() -> None:
    found = made(
        "get_ipython().run_line_magic('matplotlib', 'inline')\nimport json, math",
        "print('hello')\nrows = [1]\nrows.append(2)\n",
        "values = [math.floor(2.5)]  # kept as it is written\nvalues",
        "this is no Python",
        "SWEEP = tuple(values)\nmath.fsum(values)",
        "study = math.prod(SWEEP)",
    )
    assert found.sweep == (2,)
    assert found.text == "import math\n\nvalues = [math.floor(2.5)]\n\nSWEEP = tuple(values)\n"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("a = 1", "SWEEP = a", "a = 2"), 1),
        (("a = 1", "a = 2", "SWEEP = a"), 2),
        (("a = [1]", "a.append(2)", "SWEEP = list(a)", "a.append(3)"), [1, 2]),
        (("a = {}", "a['x'] = 1", "SWEEP = dict(a)"), {"x": 1}),
        (("a = 1", "a += 1", "SWEEP = a"), 2),
        (("a = 1", "a = a + 1", "SWEEP = a"), 2),
        (("n = 3\na = []", "for i in range(n):\n    a.append(i)", "SWEEP = a"), [0, 1, 2]),
        (("a = 0", "if True:\n    a = 1", "SWEEP = a"), 1),
        (("from math import *", "SWEEP = floor(1.5)"), 1),
        (("import os.path", "import os.path as path", "SWEEP = os.path is path"), True),
        (("n = 2", "SWEEP = [n * each for each in (1, 2)]"), [2, 4]),
        (("a, (b, *c) = 1, (2, 3)", "SWEEP = [a, b, c]"), [1, 2, [3]]),
        (("a: int = 1", "SWEEP = a"), 1),
        (("import sys", "sys.path.append('/nowhere')", "SWEEP = sys.path.pop()"), "/nowhere"),
    ],
)
def test_a_name_means_what_it_meant_where_the_sweep_was_made(
    cells: tuple[str, ...], expected: object
) -> None:
    assert made(*cells).sweep == expected


def test_functions_find_what_their_names_mean_in_the_end() -> None:
    found = made(
        "from __future__ import annotations",
        "class Model:\n    size = 1",
        "SWEEP = lambda: (Model.size, helper())",
        "def helper():\n    return SCALE",
        "class Model:\n    size = 2",
        "import functools\nSCALE = 3",
        "@functools.cache\n# with a comment\ndef helper() -> int:\n    return 10 * SCALE",
    )
    assert found.sweep() == (2, 30)
    assert found.text.startswith("from __future__ import annotations\n")
    assert "@functools.cache\n# with a comment\ndef helper() -> int:" in found.text


def test_what_was_made_of_a_class_stays_of_that_class() -> None:
    found = made(
        "class Task:\n    size = 1",
        "SWEEP = (Task(), lambda: Task())",
        "class Task:\n    size = 2",
    )
    assert (found.sweep[0].size, found.sweep[1]().size) == (1, 2)


def test_a_sweep_of_another_name_is_called_sweep_in_the_file() -> None:
    assert made("mine = 1", name="mine").text == "mine = 1\n\nSWEEP = mine\n"
