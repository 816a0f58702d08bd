"""Nothing that a trial changes of its process reaches the trial after it."""

import contextlib
import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
from stepped_trial import to_the_end, train_stepwise
from tiny import TinyData, TinyModel, TinyTask, tiny_sweep
from tiny_runs import assignment_of, content, planned
from torch import Tensor, backends, distributed, nn

from hsweep import Recipe, UserError, epochs, grid
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Trial
from hsweep.running.run import connect
from hsweep.training.process_state import ProcessState
from models.retrieval import RetrievalTransformer
from tasks.synthetic.retrieval import Retrieval

PROJECT = Path(__file__).resolve().parents[2]

CHANGES: dict[str, Callable[[], Any]] = {
    "torch's number of threads": lambda: torch.set_num_threads(3),
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "the working directory": lambda: os.chdir("/"),
}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Other tests find the process as it was, even if the code under test does not see to it."""
    before = ProcessState()
    yield
    before.restore()


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_named_and_restored(name: str) -> None:
    before = ProcessState()
    assert before.changed() == []
    CHANGES[name]()
    assert before.changed() == [name]
    before.restore()
    assert before.changed() == []
    assert ProcessState().changed() == []


def make_group() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)


ONCE: dict[str, Callable[[], Any]] = {
    "start method": lambda: multiprocessing.set_start_method("spawn"),
    "process group": make_group,
    "launcher": lambda: os.environ.update(RANK="1", WORLD_SIZE="4", MASTER_PORT="29500"),
    "signal": lambda: signal.signal(signal.SIGTERM, lambda *_: None),
    "path": lambda: sys.path.insert(0, "/nowhere"),
    "interop threads": lambda: torch.set_num_interop_threads(torch.get_num_interop_threads()),
    "Accelerate": lambda: accelerate.Accelerator(cpu=True, mixed_precision="no"),
}
"""What can be done but once in a process, or is left to the next trial."""


@pytest.mark.parametrize("name", ONCE)
def test_what_is_done_once_in_a_process_can_be_done_by_each_trial(name: str) -> None:
    multiprocessing.set_start_method(None, force=True)  # other tests may have settled it
    handlers, path = signal.getsignal(signal.SIGTERM), list(sys.path)
    for _ in range(2):
        before = ProcessState()
        ONCE[name]()
        assert before.changed() == []
        before.restore()
    assert not distributed.is_initialized()
    assert multiprocessing.get_start_method(allow_none=True) != "spawn"
    assert (signal.getsignal(signal.SIGTERM), sys.path) == (handlers, path)
    assert "WORLD_SIZE" not in os.environ


OTHER = "C.UTF-8" if locale.setlocale(locale.LC_TIME) == "C" else "C"
LEFT: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "grad mode": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "device": (torch.get_default_device, lambda: torch.set_default_device("meta")),
    "anomaly": (torch.is_anomaly_enabled, lambda: torch.autograd.set_detect_anomaly(True)),
    "matmul": (
        torch.get_float32_matmul_precision,
        lambda: torch.set_float32_matmul_precision("medium"),
    ),
    "matmul's new name": (
        lambda: backends.cuda.matmul.fp32_precision,
        lambda: setattr(backends.cuda.matmul, "fp32_precision", "tf32"),
    ),
    "all precisions": (
        lambda: backends.cudnn.conv.fp32_precision,
        lambda: setattr(backends, "fp32_precision", "ieee"),
    ),
    "cudnn": (
        lambda: backends.cudnn.benchmark,
        lambda: setattr(backends.cudnn, "benchmark", True),
    ),
    "attention": (
        backends.cuda.flash_sdp_enabled,
        lambda: backends.cuda.enable_flash_sdp(False),
    ),
    "sharing": (
        torch.multiprocessing.get_sharing_strategy,
        lambda: torch.multiprocessing.set_sharing_strategy("file_system"),
    ),
    "numpy": (np.geterr, lambda: np.seterr(all="raise")),
    "variable": (lambda: os.environ.get("MINE"), lambda: os.environ.update(MINE="1")),
    "PATH": (lambda: os.environ.get("PATH"), lambda: os.environ.pop("PATH")),
    "warnings": (lambda: list(warnings.filters), lambda: warnings.simplefilter("error")),
    "log level": (lambda: logging.root.level, lambda: logging.root.setLevel(1)),
    "log file": (
        lambda: list(logging.root.handlers),
        lambda: logging.root.addHandler(logging.NullHandler()),
    ),
    "no log": (lambda: logging.root.manager.disable, lambda: logging.disable(50)),
    "locale": (
        lambda: locale.setlocale(locale.LC_ALL),
        lambda: locale.setlocale(locale.LC_TIME, OTHER),
    ),
    "arguments": (lambda: list(sys.argv), lambda: sys.argv.append("--lr")),
    "recursion": (sys.getrecursionlimit, lambda: sys.setrecursionlimit(5000)),
    "collector": (gc.isenabled, gc.disable),
    "thresholds": (gc.get_threshold, lambda: gc.set_threshold(10)),
}
"""What the next trial would begin with, of which nothing is said."""


@pytest.mark.parametrize("name", LEFT)
def test_what_a_function_leaves_behind_does_not_reach_the_next_trial(name: str) -> None:
    read, change = LEFT[name]
    before, value = ProcessState(), read()
    change()
    assert read() != value
    assert before.changed() == []
    before.restore()
    assert read() == value


def test_a_second_trial_may_ask_accelerate_for_another_precision() -> None:
    for precision in ("no", "bf16"):
        before = ProcessState()
        assert (
            accelerate.Accelerator(cpu=True, mixed_precision=precision).mixed_precision == precision
        )
        before.restore()


def test_a_group_that_was_there_before_stays_whatever_a_trial_does() -> None:
    make_group()
    try:
        ProcessState().restore()
        assert distributed.is_initialized()
        before = ProcessState()
        distributed.destroy_process_group()
        before.restore()
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    before = ProcessState()
    os.chdir(tmp_path)
    before.restore()
    assert Path.cwd() == tmp_path


# Trials.


@dataclass(frozen=True)
class Leaky(TinyModel):
    """Changes what a process has once, in its first pass."""

    change: str = "torch's default dtype"

    def build(self) -> nn.Module:
        model = super().build()
        model.register_forward_hook(lambda *_: CHANGES[self.change]() and None)
        return model


@dataclass(frozen=True)
class WritesIntoItsInput(RetrievalTransformer):
    """As some models normalise: in place."""

    def build(self) -> nn.Module:
        model = super().build()
        model.register_forward_pre_hook(lambda _, inputs: inputs[0].mul_(0.5) and None)
        return model


class Draws(nn.Module):
    """Takes its weights and its noise from numpy and Python, not from torch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        drawn = np.random.default_rng(np.random.randint(1 << 30)).normal(size=(2, dim, dim))
        self.read, self.write = (nn.Parameter(torch.from_numpy(each).float()) for each in drawn)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.read @ self.write * (1 + 0.1 * random.random() * self.training)


@dataclass(frozen=True)
class Drawn(TinyModel):
    def build(self) -> nn.Module:
        return Draws(self.dim)


TINY = TinyTask()


def of_model(model: Any, task: Any = TINY, **changes: Any) -> Trial:
    sweep = tiny_sweep(
        space=grid(width=[4]), task=task, model=lambda _: model, budget=epochs(2), **changes
    )
    return planned(sweep)[0]


RETRIEVAL = Retrieval(seq_len=8, dim=2, num_train=64, num_validation=32)
SMALL = {"heads": 1, "head_dim": 8, "seq_len": 8, "input_dim": 2}
OURS = of_model(RetrievalTransformer(**SMALL), RETRIEVAL, recipe=Recipe(lr=0.01, batch_size=16))


def run(trial: Trial, folder: Path) -> list[Any]:
    return to_the_end(assignment_of(trial, folder))


def contents(trial: Trial, folder: Path) -> list[Any]:
    return [content(report) for report in run(trial, folder)]


def in_a_process_of_its_own(folder: Path) -> list[Any]:
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from pathlib import Path\n"
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('alone', {str(Path(__file__))!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['alone'] = module\n"
        "spec.loader.exec_module(module)\n"
        f"print(repr(module.contents(module.OURS, Path({str(folder)!r}))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    found: list[Any] = eval(done.stdout.splitlines()[-1])
    return found


def test_a_trial_is_the_same_to_the_bit_alone_in_a_process_and_after_others(tmp_path: Path) -> None:
    before = [of_model(Leaky(2, change=name)) for name in CHANGES]
    before += [of_model(WritesIntoItsInput(**SMALL), RETRIEVAL), of_model(Drawn(3))]
    for number, trial in enumerate(before):
        with contextlib.suppress(RuntimeError):
            run(trial, tmp_path / str(number))
    assert contents(OURS, tmp_path / "last") == in_a_process_of_its_own(tmp_path / "alone")


@pytest.mark.parametrize("name", ["torch's default dtype"])
def test_reports_name_what_a_trial_changes_at_its_beginning_and_at_its_end(
    tmp_path: Path, name: str
) -> None:
    model = Leaky(2, change=name)
    trial = planned(tiny_sweep(space=grid(width=[2]), model=lambda _: model, budget=epochs(4)))[0]
    notes = [report.note for report in run(trial, tmp_path)]
    told = f"the task or model changed {name}: put back after the trial"
    assert notes == [told, "", "", told]
    assert ProcessState().changed() == []


def test_a_trial_that_fails_leaves_nothing_behind_either(tmp_path: Path) -> None:
    before = ProcessState()
    trial = of_model(Leaky(2), TinyTask(raises_at=1, folder=str(tmp_path)))
    with pytest.raises(RuntimeError):
        to_the_end(assignment_of(trial, tmp_path))
    assert before.changed() == []


def test_models_that_draw_from_numpy_and_python_repeat_and_can_be_resumed(tmp_path: Path) -> None:
    trial = replace(of_model(Drawn(3)), budget=epochs(4))
    whole = contents(trial, tmp_path / "whole")
    random.seed(7)
    np.random.seed(7)
    training = train_stepwise(assignment_of(trial, tmp_path / "in parts"))
    heard = [content(next(training)) for _ in range(2)]  # type: ignore[arg-type]
    training.close()
    random.seed(8)
    np.random.seed(8)
    again = assignment_of(trial, tmp_path / "in parts", attempt=2, recorded_through=2)
    heard += [content(report) for report in to_the_end(again)]  # type: ignore[arg-type]
    assert heard == whole


def test_a_trial_leaves_no_model_and_no_data_of_its_own_behind(tmp_path: Path) -> None:
    alive: list[Any] = []

    class Noting(TinyModel):
        def build(self) -> nn.Module:
            import weakref

            model = super().build()
            alive.append(weakref.ref(model))
            return model

    class NotingTask(TinyTask):
        def open(self, **where: Any) -> TinyData:
            import weakref

            data = super().open(**where)
            alive.append(weakref.ref(data))
            return data

    trial = of_model(Noting(2), NotingTask())
    alive.clear()
    for number in range(2):
        run(trial, tmp_path / str(number))
    gc.collect()
    assert len(alive) == 4
    assert [ref() for ref in alive] == [None] * 4


# A process for each.


@pytest.mark.parametrize(("text", "value"), [("true", True), (True, True), ("False", False)])
def test_isolation_is_set_like_any_other_setting(text: Any, value: bool) -> None:
    sweep = tiny_sweep()
    assert sweep.isolate is False
    assert sweep.with_settings([("isolate", [text])]).isolate is value


@pytest.mark.parametrize("values", [["maybe"], [2], ["true", "false"], [None]])
def test_isolation_is_on_or_off(values: list[Any]) -> None:
    with pytest.raises(UserError, match="isolate takes true or false"):
        tiny_sweep().with_settings([("isolate", values)])
    with pytest.raises(UserError, match="isolate must be True or False"):
        tiny_sweep(isolate=values[0] if len(values) == 1 else values)


def test_the_inline_runner_refuses_to_isolate() -> None:
    from hsweep.planning.plan import make_plan

    plan = make_plan(tiny_sweep(isolate=True), preset="quick", study_seed=0)
    with pytest.raises(UserError, match="leave out --runner inline, or set isolate=false"):
        connect(InlineRunner(), plan)


def test_trials_are_the_same_with_and_without_isolation() -> None:
    keys = [[trial.key for trial in planned(tiny_sweep(isolate=is_on))] for is_on in (False, True)]
    assert keys[0] == keys[1]
