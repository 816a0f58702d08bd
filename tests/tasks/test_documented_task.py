"""The task of docs/tasks.md, as it stands there, keeps what every task promises."""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from task_contract import TaskContract
from torch import nn

from tasks.base import Task
from tasks.sources.catalogue import CATALOGUE

GUIDE = Path(__file__).parents[2] / "docs" / "tasks.md"


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> Any:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    module = ModuleType("documented_task")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, str(GUIDE), "exec"), vars(module))
    return module


class TestDocumentedTask(TaskContract):
    generated = True

    @pytest.fixture
    def task(self, documented: Any) -> Task:
        task: Task = documented.Majority(seq_len=5, num_train=24)
        return task

    @pytest.fixture
    def variant(self, documented: Any) -> Task:
        variant: Task = documented.Majority(seq_len=7, num_train=24)
        return variant

    @pytest.fixture
    def model(self) -> nn.Module:
        layer = nn.Linear(5, 1)
        nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
        return nn.Sequential(nn.Flatten(), layer)

    @pytest.mark.skip(reason="a module that is a page's code cannot be imported elsewhere")
    def test_its_fingerprint_is_the_same_in_another_process(self, task: Task) -> None:
        raise NotImplementedError


def test_the_guide_and_the_catalogue_name_every_task() -> None:
    classes = {
        node.name
        for path in (GUIDE.parents[1] / "tasks").glob("*/*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(part, ast.Assign) and ast.unparse(part).startswith("name = ")
            for part in node.body
        )
    }
    assert {name for each in CATALOGUE for name in each.tasks} == classes
    guide = GUIDE.read_text("utf-8")
    assert {
        name for name in classes if not re.search(rf"`tasks\.[a-z_.]+\.{name}`", guide)
    } == set()
