"""What training does for the sake of a device, as far as a machine without one can tell."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hsweep.training.checkpoints import from_packed, packed
from hsweep.training.compiled import forget_replays
from hsweep.training.opening import Average
from hsweep.training.prefetch import queue_limit
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
