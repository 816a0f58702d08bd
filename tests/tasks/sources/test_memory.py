"""Data sets that a process keeps: the last ones, within bounds, and as they were made."""

import threading
from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from task_contract import measured
from torch import Tensor

from tasks.ranking.passages import Tables
from tasks.sources import memory
from tasks.sources.memory import KeepLast, keep_last
from tasks.synthetic.retrieval import Retrieval, generate

CPU = torch.device("cpu")
KIB = 1 << 10


class Split(NamedTuple):
    x: Tensor
    y: Tensor


class Held:
    """Data with tensors in attributes, as some tasks have them."""

    def __init__(self, value: float) -> None:
        self.train = Split(torch.full((4, 3), value), torch.zeros(4))
        self.rows = {"train": [torch.arange(4)]}
        self.size = 4


class Maker:
    """Makes data sets, and counts how often."""

    def __init__(self, most: int = 2) -> None:
        self.made: list[float] = []
        self.load: KeepLast[[float], Held] = keep_last(most)(self._make)

    def _make(self, value: float) -> Held:
        self.made.append(value)
        return Held(value)


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of the test's own."""
    monkeypatch.setattr(memory, "_RESULTS", OrderedDict())


def test_what_was_made_is_handed_out_again_and_the_least_recently_used_goes_first() -> None:
    maker = Maker(most=2)
    first = maker.load(1.0)
    assert maker.load(1.0) is first
    maker.load(2.0), maker.load(1.0), maker.load(3.0)
    assert maker.made == [1.0, 2.0, 3.0]
    assert maker.load(1.0) is first
    maker.load(2.0)
    assert maker.made == [1.0, 2.0, 3.0, 2.0]


def test_named_arguments_are_told_apart() -> None:
    maker = Maker()
    assert maker.load(value=1.0) is maker.load(value=1.0)
    assert maker.load(value=2.0).train.x[0, 0] == 2.0


def test_two_functions_do_not_share_what_they_keep() -> None:
    one, other = Maker(most=1), Maker(most=1)
    assert one.load(1.0) is not other.load(1.0)
    assert (one.made, other.made) == ([1.0], [1.0])
    one.load.cache_clear()
    other.load(1.0), one.load(1.0)
    assert (one.made, other.made) == ([1.0, 1.0], [1.0])


@pytest.mark.parametrize(
    "write",
    [
        lambda data: data.train.x.mul_(2.0),
        lambda data: data.train.y[1:].add_(1.0),
        lambda data: torch.split(data.train.x, 2)[1].zero_(),
        lambda data: data.train.x.detach().view(-1).fill_(3.0),
        lambda data: torch.nn.functional.relu_(data.train.x),
        lambda data: data.rows["train"][0].add_(1),
    ],
)
def test_what_was_written_into_is_made_anew(write: object) -> None:
    maker = Maker()
    write(maker.load(1.0))  # type: ignore[operator]
    anew = maker.load(1.0)
    assert maker.made == [1.0, 1.0]
    for tensor, other in zip(
        (*anew.train, anew.rows["train"][0]), (*Held(1.0).train, torch.arange(4)), strict=True
    ):
        assert torch.equal(tensor, other)
    assert maker.load(1.0) is anew


def test_reading_it_is_not_writing() -> None:
    maker = Maker()
    data = maker.load(1.0)
    (data.train.x * 2).sum()
    data.train.x.clone().zero_()
    data.train.x[[1, 2]].zero_()
    assert maker.load(1.0) is data


def test_memory_is_bounded_but_for_what_was_made_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "HOST_BYTES", 10 * KIB)

    @keep_last(100)
    def zeros(kib: int, _number: int) -> Tensor:
        return torch.zeros(kib * KIB, dtype=torch.uint8)

    small = [zeros(4, number) for number in range(3)]
    # The two before the last have eight; one more would be twelve.
    assert zeros(4, 0) is small[0]
    large = zeros(50, 0)
    assert zeros(50, 0) is large
    zeros(1, 0)
    assert zeros(50, 0) is not large


def test_memory_that_is_shared_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "HOST_BYTES", 10 * KIB)

    @keep_last(100)
    def halves(_number: int) -> tuple[Tensor, ...]:
        return torch.zeros(8 * KIB, dtype=torch.uint8).split(4 * KIB)

    first = halves(0)
    halves(1)
    assert halves(0) is first


def test_threads_may_ask_at_once() -> None:
    maker = Maker(most=8)
    found: list[Held] = []

    def ask() -> None:
        found.extend(maker.load(float(number % 4)) for number in range(50))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert {float(data.train.x[0, 0]) for data in found} == {0.0, 1.0, 2.0, 3.0}


def test_named_tuples_of_the_tasks_are_looked_into() -> None:
    tables = Tables(*(torch.zeros(2) for _ in range(3)), 1, CPU)
    assert len(list(memory._tensors(tables))) == 3


def test_a_trial_that_writes_into_its_validation_set_does_not_change_the_next_ones() -> None:
    task = Retrieval(seq_len=4, dim=2, num_train=16, num_validation=16)

    class Halves(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(0.5).sum((1, 2))

    class Sums(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum((1, 2))

    def scores(model: torch.nn.Module) -> dict[str, float]:
        data = task.open(data_seed=1, sampling_seed=2, batch_size=4, device=CPU)
        with torch.no_grad():
            return dict(measured(data, model))

    generate.cache_clear()
    alone = scores(Sums())
    assert scores(Sums()) == alone
    scores(Halves())
    assert scores(Sums()) == alone
