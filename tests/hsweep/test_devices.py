"""What training does for the sake of a device, as far as a machine without one can tell."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stepped_trial import to_the_end
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hsweep import epochs, grid
from hsweep.design.trial import Resources
from hsweep.training import loop, trial_run
from hsweep.training.batches import queue_limit
from hsweep.training.checkpoints import from_packed, packed
from hsweep.training.compiled import forget_replays
from hsweep.training.devices import (
    DoesNotFitError,
    device_of,
    held_at_most,
    release,
    seed_torch,
    within_share,
)
from hsweep.training.opening import Average
from tasks.sampling import to_device

CPU = torch.device("cpu")


class NumbersRead(TorchDispatchMode):
    """Counts what would have to wait for a device: numbers of tensors that Python asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (
            torch.ops.aten._local_scalar_dense.default,
            torch.ops.aten.is_nonzero.default,
        )
        return func(*args, **(kwargs or {}))


def test_an_average_of_weights_reads_no_number_and_remembers_that_it_has_begun() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = Average(model, 0.75)

    def moved(by: float) -> None:
        with torch.no_grad():
            for each in (*model.parameters(), *model.buffers()):
                each.add_(by)

    with NumbersRead() as read:
        assert read.count == 0
        bool(torch.ones(()) > 0)
        assert read.count > 0
        before = read.count
        moved(1)
        average.update(model)
        first = [each.clone() for each in model.parameters()]
        moved(4)
        average.update(model)
        assert read.count == before
    resumed = Average(model, 0.75)
    resumed.load_state_dict(from_packed(packed(average.state_dict())))
    moved(4)
    for each in (average, resumed):
        each.update(model)
        for own, start in zip(each.module.parameters(), first, strict=True):
            # 0.25 of the way to 4 more, then to 8 more.
            torch.testing.assert_close(own, start + 2.75)
        assert all(map(torch.equal, each.module.buffers(), model.buffers()))


def test_a_checkpoint_is_read_on_the_cpu_wherever_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        content = packed({"step": torch.tensor(3.0)})
    found = from_packed(content)["step"]
    assert (found.item(), found.device) == (3.0, CPU)


def test_what_goes_to_the_device_where_it_is_stays_as_it_is() -> None:
    rows = torch.arange(3)
    assert to_device(rows, CPU) is rows
    assert to_device(rows, torch.device("meta")).device.type == "meta"


def test_the_host_is_two_updates_ahead_of_a_device_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    numbers = iter(range(9))

    def event() -> Any:
        number = next(numbers)
        return SimpleNamespace(
            record=lambda: log.append(f"asked for {number}"),
            synchronize=lambda: log.append(f"waited for {number}"),
        )

    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(Event=event))
    limit = queue_limit(torch.device("cuda"))
    for _ in range(4):
        limit()
    assert log == [
        *("asked for 0", "asked for 1", "asked for 2", "waited for 0"),
        *("asked for 3", "waited for 1"),
    ]
    queue_limit(CPU)()
    assert len(log) == 6


@pytest.mark.parametrize(
    ("accelerator", "kind"),
    [("cuda:1", "cuda"), ("xpu:0", "xpu"), ("mps:0", "mps"), (None, "cuda")],
)
def test_a_trial_trains_on_whatever_accelerator_torch_has(
    monkeypatch: pytest.MonkeyPatch, accelerator: str | None, kind: str
) -> None:
    device = None if accelerator is None else torch.device(accelerator)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
    assert device_of(0) == CPU
    assert device_of(0.25) == device_of(2) == torch.device(kind)


def test_seeds_reach_the_devices_of_the_trial_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[tuple[str, int]] = []

    def module(device: torch.device) -> Any:
        return SimpleNamespace(manual_seed=lambda seed: seeds.append((device.type, seed)))

    monkeypatch.setattr(torch, "get_device_module", module)
    with torch.random.fork_rng([]):
        expected = torch.rand(2, generator=torch.Generator().manual_seed(7))
        seed_torch(7, CPU)
        assert torch.equal(torch.rand(2), expected)
        assert seeds == []
        seed_torch(7, torch.device("xpu"))
        assert torch.equal(torch.rand(2), expected)
    assert seeds == [("xpu", 7)]


@pytest.mark.parametrize(
    ("gpus", "kind", "gib", "fractions"),
    [
        (0.25, "cuda", 80, [19 / 80, 1.0]),
        pytest.param(0.25, "cuda", 2, [0.125, 1.0], id="a device of little more than a context"),
        (1, "cuda", 80, []),
        (0.25, "xpu", 80, []),
        (0, "cpu", 80, []),
    ],
)
def test_a_share_of_a_device_is_a_limit_while_its_trial_trains(
    monkeypatch: pytest.MonkeyPatch, gpus: float, kind: str, gib: int, fractions: list[float]
) -> None:
    limits: list[float] = []
    device = SimpleNamespace(total_memory=gib * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    with contextlib.suppress(MemoryError), within_share(gpus, torch.device(kind)):
        assert limits == fractions[:1]
        raise MemoryError
    assert limits == fractions


def test_seconds_of_training_last_until_the_device_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def wait(device: torch.device) -> None:
        clock[0] += 5

    monkeypatch.setattr(loop, "now", lambda: clock[0])
    monkeypatch.setattr(loop, "wait_for", wait)
    [trial] = planned(tiny_sweep(budget=epochs(3), space=grid(width=[2])))[:1]
    reports = to_the_end(assignment_of(trial, tmp_path))
    assert [report.train_seconds for report in reports] == [5, 10, 15]


@pytest.mark.parametrize(
    ("accelerator", "is_initialized"),
    [
        pytest.param(None, False, id="torch lacks what a script has"),
        pytest.param(torch.device("cuda", 0), False, id="nothing has used it yet"),
        pytest.param(torch.device("cuda", 0), True, id="in use"),
    ],
)
def test_only_a_device_in_use_is_asked_for_its_memory(
    monkeypatch: pytest.MonkeyPatch, accelerator: torch.device | None, is_initialized: bool
) -> None:
    calls: list[str] = []

    def called(name: str) -> Callable[..., int]:
        return lambda *_: calls.append(name) or 7

    names = ("empty_cache", "reset_peak_memory_stats", "max_memory_reserved")
    for name in names:
        monkeypatch.setattr(torch.accelerator, name, called(name))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: accelerator)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_initialized)
    device = torch.device("cuda")
    release(device)
    assert held_at_most(device) == (7 if is_initialized else None)
    release(CPU)
    assert held_at_most(CPU) is None
    assert calls == (list(names) if is_initialized else [])


def test_a_trial_with_a_share_trains_within_it_from_the_opening_of_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []

    @contextlib.contextmanager
    def limit(gpus: float, device: torch.device) -> Iterator[None]:
        log.append(gpus)
        yield
        log.append("no limit")

    def no_room(*_: Any) -> Any:
        log.append("opened")
        raise DoesNotFitError("the data", "Tried to allocate 2.00 GiB")

    monkeypatch.setattr(trial_run, "device_of", lambda gpus: CPU)
    monkeypatch.setattr(loop, "within_share", limit)
    monkeypatch.setattr(loop, "open_trial", no_room)
    sweep = tiny_sweep(space=grid(width=[2]), resources=Resources(gpus=0.25))
    [ending] = to_the_end(assignment_of(planned(sweep)[0], tmp_path))
    assert log == [0.25, "opened"]
    assert "the data does not fit the device" in ending.message


@pytest.mark.parametrize(
    ("make", "times"),
    [(lambda model: model, 0), (lambda model: torch.compile(model, backend="eager"), 1)],
)
def test_the_replays_of_a_compiled_model_are_given_up_within_a_step(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[nn.Module], Any], times: int
) -> None:
    """Where no step is marked, torch takes each part of a batch for one."""
    calls: list[str] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: calls.append("reset"))
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: calls.append("mark"))
    forget_replays(make(nn.Linear(2, 2)))
    assert calls == ["reset", "mark"] * times
