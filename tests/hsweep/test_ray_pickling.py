"""A sweep file's own functions reach workers that cannot import it."""

import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hsweep.design.user_training import UserTraining
from hsweep.errors import ROOT, UserError
from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402

from hsweep.ray_tune.pickling import check_sent, name_definitions, send_whole  # noqa: E402

SOURCE = """
import functools

@functools.lru_cache(maxsize=7)
def doubled(number):
    calls.append(number)
    return 2 * number

calls = []

class Model:
    def width(self, number):
        return doubled(number) + doubled(number)
"""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("a_sweep_of_ones_own")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(SOURCE, vars(module))
    return module


def test_a_cached_function_goes_with_the_class_that_calls_it(
    own: ModuleType, tmp_path: Path
) -> None:
    send_whole([own])
    sent = tmp_path / "sent"
    sent.write_bytes(ray.cloudpickle.dumps(own.Model()))
    program = (
        f"import pickle, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from hsweep.ray_tune.environment import prepare_ray; prepare_ray()\n"
        f"model = pickle.loads(open({str(sent)!r}, 'rb').read())\n"
        "cached = type(model).width.__globals__['doubled']\n"
        "print(model.width(3), cached.cache_info().hits, cached.cache_parameters()['maxsize'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["12", "1", "7"], done.stderr


FUNCTIONS = """
import functools, threading
from dataclasses import dataclass

class Step:
    size = 2

def train(point, run):
    return Step.size * point

def scaled(scale, point, run):
    return scale * train(point, run)

def enclosing(step):
    def inner(point, run):
        return step.size * point
    return inner

@dataclass(frozen=True)
class Trainer:
    step: int
    def __call__(self, point, run):
        return self.step * point

sent = [
    train, enclosing(Step), lambda point, run: 2 * point, functools.partial(scaled, 1),
    Trainer(2), functools.partial(Trainer(2)),
]

def holding():
    lock = threading.Lock()
    def inner(point, run):
        with lock:
            return point
    return inner
"""


def test_any_training_function_of_a_sweep_file_is_sent_whole_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("a_sweep_that_trains")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(FUNCTIONS, vars(module))
    send_whole([module])
    sent = []
    for function in module.sent:
        assert UserTraining(function, ()).name
        check_sent(function)
        sent.append(ray.cloudpickle.dumps(function))
    monkeypatch.delitem(sys.modules, module.__name__)
    for each in sent:
        function = pickle.loads(each)
        assert function(3, None) == 6
    with pytest.raises(UserError, match=r"inner.* cannot be sent .*cannot pickle '_thread.lock'"):
        check_sent(module.holding())
    with pytest.raises(UserError, match=r"train must be a function .*, not <bound method"):
        UserTraining(Trains().train, ())


class Trains:
    def train(self, point: Any, run: Any) -> None:
        """Train, as a method."""


@functools.cache
def elsewhere() -> int:
    return 1


def test_what_can_be_imported_is_sent_by_its_name(
    own: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or ModuleType(__name__))
    monkeypatch.setattr(sys.modules[__name__], "elsewhere", elsewhere, raising=False)
    send_whole([own])
    sent = pickle.dumps(elsewhere)
    assert len(sent) < 100
    assert pickle.loads(sent) is elsewhere


def test_what_every_process_imports_itself_is_not_taken_for_what_was_sent() -> None:
    """Python calls ``_collections_abc`` by the name of another module."""
    before = set(ray.cloudpickle.list_registry_pickle_by_value())

    class Numbers(Sequence[int]):
        modules = (sys.modules["_collections_abc"], os.path)

    name_definitions(Numbers)
    assert set(ray.cloudpickle.list_registry_pickle_by_value()) == before
