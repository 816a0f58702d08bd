"""Memory that does not suffice for a batch changes how its gradient is computed, no more."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_trial import to_the_end, train_stepwise
from tiny import TinyData, TinyModel, TinyTask, tiny_sweep
from tiny_runs import (
    assignment_of,
    content,
    coordinating,
    planned,
    saved,
    trained_with_stops,
)
from torch import Tensor, nn
from torch.nn import functional

from hsweep import Recipe, epochs, grid, steps
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Assignment, OutOfMemory, Report, Trial
from hsweep.record.journal import JournalReader
from hsweep.training.batches import leaves, parts_of
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.devices import DoesNotFitError, fitting, is_out_of_memory
from hsweep.training.micro_batches import check_divisible
from hsweep.training.optimizers import AdamW

CPU = torch.device("cpu")
PLAIN = TinyTask().open(data_seed=1, sampling_seed=2, batch_size=8, device=CPU)


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Record:
    x: Tensor
    scale: float
    more: dict[str, Tensor]


def rows(count: int, *others: int) -> Tensor:
    return torch.arange(count * max(1, *others, 1)).reshape(count, -1)


BATCHES: list[Callable[[int], Any]] = [
    lambda n: rows(n, 2),
    lambda n: (7, rows(n), rows(n, 3)),
    lambda n: [rows(n), {"a": rows(n, 2), "none": None}],
    lambda n: Pair(rows(n), rows(n, 4)),
    lambda n: Record(rows(n, 2), 0.5, {"y": rows(n), "temperature": torch.tensor(2.0)}),
]


@given(make=st.sampled_from(BATCHES), size=st.integers(1, 20), at_once=st.integers(1, 25))
def test_parts_put_together_are_the_batch_and_weigh_what_they_hold(
    make: Callable[[int], Any], size: int, at_once: int
) -> None:
    batch = make(size)
    parts = parts_of(PLAIN, batch, at_once)
    assert len(parts) == -(-size // at_once)
    assert {type(part) for part, _ in parts} == {type(batch)}
    for whole, *pieces in zip(leaves(batch), *(leaves(part) for part, _ in parts), strict=True):
        if isinstance(whole, Tensor) and whole.ndim:
            assert torch.equal(torch.cat(pieces), whole)
            assert [len(piece) / size for piece in pieces] == [share for _, share in parts]
        else:
            assert all(piece is whole for piece in pieces)


@pytest.mark.parametrize(
    "batch",
    [
        (rows(4), rows(3)),
        (rows(4), ["one", "two", "three", "four"]),
        (rows(4), object()),
        torch.tensor(1.0),
        (1, 2, 3),
        {},
    ],
)
def test_a_batch_of_which_it_is_not_clear_what_an_example_is_stays_whole(batch: Any) -> None:
    ((part, share),) = parts_of(PLAIN, batch, 1)
    assert part is batch
    assert share == 1.0


def gradient(data: Any, model: nn.Module, batch: Any, at_once: int | None) -> Tensor:
    model.zero_grad()
    parts = [(batch, 1.0)] if at_once is None else parts_of(data, batch, at_once)
    for part, share in parts:
        (data.loss(model, part) * share).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@given(size=st.integers(1, 17), at_once=st.integers(1, 18), seed=st.integers(0, 99))
def test_the_accumulated_gradient_is_that_of_the_whole_batch(
    size: int, at_once: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, size, 3, dtype=torch.float64, generator=random)
    model = TinyModel(width=4).build().double()
    batch = (1, x, y)
    assert torch.allclose(
        gradient(PLAIN, model, batch, at_once), gradient(PLAIN, model, batch, None), rtol=1e-12
    )


class Tokens(TinyData):
    """The mean over tokens, of which an example has more or fewer: those that are not 0."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, tokens = batch
        logits = model(x)[:, None].expand(*tokens.shape, 3)
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=0)


class TokensThatSayTheirShares(Tokens):
    def parts(self, batch: tuple[Tensor, Tensor], at_once: int) -> Any:
        x, tokens = batch
        total = (tokens != 0).sum()
        return [
            ((some, theirs), float((theirs != 0).sum() / total))
            for some, theirs in zip(x.split(at_once), tokens.split(at_once), strict=True)
        ]


def test_a_mean_over_something_else_than_examples_needs_shares_of_its_own() -> None:
    tokens = torch.tensor([[1, 0, 0], [2, 2, 1], [1, 1, 0], [2, 0, 0], [1, 2, 2]])
    batch = (torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), tokens)
    model = TinyModel(width=4).build()
    by_default, said = (
        kind(TinyTask(), 1, 2, 8, CPU) for kind in (Tokens, TokensThatSayTheirShares)
    )
    whole = gradient(by_default, model, batch, None)
    assert not torch.allclose(gradient(by_default, model, batch, 2), whole, rtol=1e-2)
    assert torch.allclose(gradient(said, model, batch, 2), whole, rtol=1e-4, atol=1e-6)


class Fails(torch.autograd.Function):
    """Passes its input on, and runs out of memory on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("Tried to allocate 512.00 MiB.")


def forward_fails(loss: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("Tried to allocate 512.00 MiB.")


def host_fails(loss: Tensor) -> Tensor:
    # The allocator itself says no: no machine has as much.
    return loss + torch.empty(10**16).sum()


def library_fails(loss: Tensor) -> Tensor:
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


FAILURES: dict[str, Callable[[Tensor], Tensor]] = {
    "forward": forward_fails,
    "backward": Fails.apply,
    "host": host_fails,
    "library": library_fails,
}


@dataclass(frozen=True)
class CrowdedTask(TinyTask):
    """Memory suffices for so many examples at once.

    Attributes:
        since: the update (from 1) from which on it is scarce.
        how: where it gives out.
    """

    since: int = 1
    how: str = "forward"

    def open(self, **where: Any) -> "CrowdedData":
        return CrowdedData(replace(self, fits=None), *where.values(), fits=self.fits)


class CrowdedData(TinyData):
    def __init__(self, task: CrowdedTask, *where: Any, fits: int | None) -> None:
        super().__init__(task, *where)
        self._crowded, self._fits = task, fits

    def loss(self, model: nn.Module, batch: tuple[int, Tensor, Tensor]) -> Tensor:
        loss = super().loss(model, batch)
        is_scarce = self._fits is not None and batch[0] >= self._crowded.since
        if is_scarce and torch.is_grad_enabled() and len(batch[1]) > self._fits:
            return FAILURES[self._crowded.how](loss)
        return loss


def crowded(recipe: Recipe | None = None, dropout: float = 0.0, **task: Any) -> Trial:
    return planned(
        tiny_sweep(
            space=grid(width=[6], dropout=[dropout]),
            task=CrowdedTask(**task),
            recipe=recipe or Recipe(lr=0.03, batch_size=8, warmup_fraction=0.2, clip_norm=1.0),
            budget=epochs(6),
        )
    )[0]


def said(assignment: Assignment) -> list[Any]:
    return to_the_end(assignment)


def trained(trial: Trial, folder: Path) -> tuple[list[Report], dict[str, Tensor]]:
    """All reports, and the weights after the last."""
    generator = train_stepwise(assignment_of(trial, folder))
    reports = []
    for report in generator:
        assert isinstance(report, Report)
        reports.append(report)
        if report.is_last:
            generator.close()
    weights: dict[str, Tensor] = saved(folder, trial)["model"]
    return reports, weights


@pytest.mark.parametrize(
    ("batch_size", "fits", "at_once"),
    [
        *[(8, 7, 4), (8, 4, 4), (8, 3, 2), (8, 2, 2), (8, 1, 1)],
        pytest.param(7, 2, 2, id="cut unevenly: 7, then 4, then 2"),
        # 32 examples are all there are: 500, 250, 125, 63 and 32 at once would be the same again.
        pytest.param(1000, 3, 2, id="a training set smaller than a batch"),
    ],
)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_trial_that_does_not_fit_goes_on_in_parts_to_the_same_result(
    tmp_path: Path, batch_size: int, fits: int, at_once: int, optimizer: Any
) -> None:
    recipe = Recipe(lr=0.03, batch_size=batch_size, optimizer=optimizer, clip_norm=1.0)
    reports, weights = trained(crowded(recipe, fits=fits), tmp_path / "parts")
    expected, whole = trained(crowded(recipe), tmp_path / "whole")
    assert [(r.unit, r.step, r.is_last) for r in reports] == [
        (r.unit, r.step, r.is_last) for r in expected
    ]
    for one, other in zip(reports, expected, strict=True):
        assert one.metrics["nmse"] == pytest.approx(other.metrics["nmse"], rel=1e-4)
    for name, weight in whole.items():
        assert torch.allclose(weights[name], weight, rtol=1e-3, atol=1e-5)
    assert {report.micro_batch for report in reports} == {at_once}
    assert {report.micro_batch for report in expected} == {None}
    assert [report.note for report in expected] == [""] * 6


@pytest.mark.parametrize(
    ("fits", "reduced"),
    [
        pytest.param(4, None, id="as asked for"),
        pytest.param(3, 2, id="what was asked for does not fit"),
    ],
)
def test_parts_that_are_asked_for_are_taken_from_the_start(
    tmp_path: Path, fits: int, reduced: int | None
) -> None:
    whole = Recipe(lr=0.03, batch_size=8, clip_norm=1.0)
    reports, weights = trained(crowded(replace(whole, accumulate=2), fits=fits), tmp_path / "parts")
    expected, same = trained(crowded(whole), tmp_path / "whole")
    for name, weight in same.items():
        assert torch.allclose(weights[name], weight, rtol=1e-3, atol=1e-5)
    assert reports[-1].metrics["nmse"] == pytest.approx(expected[-1].metrics["nmse"], rel=1e-4)
    assert {report.micro_batch for report in reports} == {reduced}
    assert ("out of memory" in reports[0].note) is (reduced is not None)


@dataclass(frozen=True)
class LargeBatchTask(TinyTask):
    """Memory does not suffice to make the batch of the sixth update, so many times."""

    times: int = 1

    def open(self, **where: Any) -> "LargeBatchData":
        return LargeBatchData(self, *where.values())


class LargeBatchData(TinyData):
    def __init__(self, task: LargeBatchTask, *where: Any) -> None:
        super().__init__(task, *where)
        self._times = task.times

    def batches(self, start_step: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        for batch in super().batches(start_step):
            if batch[0] == 6 and self._times:
                self._times -= 1
                raise torch.OutOfMemoryError("Tried to allocate 512.00 MiB.")
            yield batch


def test_a_batch_that_did_not_fit_beside_the_update_before_is_made_again(tmp_path: Path) -> None:
    trials = [replace(crowded(), task=task) for task in (LargeBatchTask(), TinyTask())]
    (reports, weights), (expected, same) = (
        trained(trial, tmp_path / str(number)) for number, trial in enumerate(trials)
    )
    assert [content(report) for report in reports] == [content(report) for report in expected]
    assert all(torch.equal(weights[name], same[name]) for name in same)


def test_a_trial_whose_batch_does_not_fit_at_all_may_fit_alone(tmp_path: Path) -> None:
    trial = replace(crowded(), task=LargeBatchTask(times=2))
    *reports, ending = to_the_end(assignment_of(trial, tmp_path))
    assert [report.unit for report in reports] == [1]
    assert isinstance(ending, OutOfMemory)
    assert "a batch does not fit" in ending.message


def test_parts_of_what_cannot_be_cut_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tasks\.base\.Divisible"):
        check_divisible(PLAIN, (rows(4), rows(3)))
    check_divisible(TokensThatSayTheirShares(TinyTask(), 1, 2, 8, CPU), (rows(4), rows(3)))


@pytest.mark.parametrize("how", ["backward", "host", "library"])
def test_wherever_memory_gives_out_the_update_is_repeated_alike(tmp_path: Path, how: str) -> None:
    reports, weights = trained(crowded(fits=3, dropout=0.3, since=6, how=how), tmp_path / how)
    expected, same = trained(crowded(fits=3, dropout=0.3, since=6), tmp_path / "forward")
    assert [content(report) for report in reports] == [content(report) for report in expected]
    assert all(torch.equal(weights[name], same[name]) for name in same)


def test_the_first_report_after_it_says_what_happened_and_all_later_ones_in_what_parts(
    tmp_path: Path,
) -> None:
    reports, _ = trained(crowded(fits=2, since=11), tmp_path)
    # Four updates an epoch: the eleventh is in the third.
    assert [report.micro_batch for report in reports] == [None, None, 2, 2, 2, 2]
    assert [bool(report.note) for report in reports] == [False, False, True, False, False, False]
    assert "update 11" in reports[2].note
    assert "2 of 8 examples at once" in reports[2].note


@dataclass(frozen=True)
class NormedModel(TinyModel):
    def build(self) -> nn.Module:
        return nn.Sequential(super().build(), nn.BatchNorm1d(self.dim))


def test_a_model_with_batch_norm_says_that_its_statistics_are_those_of_the_parts(
    tmp_path: Path,
) -> None:
    trial = replace(crowded(fits=4), model=NormedModel(6))
    reports, _ = trained(trial, tmp_path)
    assert "batch norm takes its statistics over those 4" in reports[0].note


@settings(max_examples=10, deadline=None)
@given(
    stops=st.lists(st.integers(1, 6), max_size=3),
    since=st.integers(1, 24),
    checkpoint_seconds=st.sampled_from([0.0, 1e9]),
    lost=st.booleans(),
)
def test_a_trial_in_parts_interrupted_anywhere_ends_the_same_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory,
    stops: list[int],
    since: int,
    checkpoint_seconds: float,
    lost: bool,
) -> None:
    root = tmp_path_factory.mktemp("interrupted")
    trial = crowded(fits=3, since=since, dropout=0.4)
    expected, weights = trained(trial, root / "whole")
    heard = trained_with_stops(trial, root, stops, checkpoint_seconds, lost=lost)
    assert [(content(r), r.micro_batch) for r in heard] == [
        (content(r), r.micro_batch) for r in expected
    ]
    same = saved(root, trial)["model"]
    assert all(torch.equal(weights[name], same[name]) for name in same)


def test_a_resumed_trial_does_not_try_what_did_not_fit(tmp_path: Path) -> None:
    trial = crowded(fits=2)
    generator = train_stepwise(assignment_of(trial, tmp_path))
    next(generator)
    generator.close()
    resumed = said(assignment_of(trial, tmp_path, attempt=2, recorded_through=1))
    assert [report.micro_batch for report in resumed] == [2] * 5
    assert [report.note for report in resumed] == [""] * 5


def test_one_example_that_does_not_fit_is_out_of_memory_with_the_allocators_words(
    tmp_path: Path,
) -> None:
    trial = crowded(fits=0, since=9)
    *reports, ending = said(assignment_of(trial, tmp_path))
    assert [report.unit for report in reports] == [1, 2]
    assert isinstance(ending, OutOfMemory)
    for part in ("one example at once", "does not fit", "Tried to allocate 512.00 MiB"):
        assert part in ending.message


def test_before_memory_runs_out_the_work_up_to_the_last_report_is_kept(tmp_path: Path) -> None:
    """Where nothing was updated since; else there is no going back to it."""
    for since, kept in ((9, 2), (10, None)):
        folder = tmp_path / str(since)
        trial = crowded(fits=0, since=since, dropout=0.4)
        said(assignment_of(trial, folder))
        found = CheckpointStore(str(folder), trial.key, 9).search()
        assert found.unit == (kept or 0)
        roomy = replace(trial, task=replace(trial.task, fits=None))
        again = said(assignment_of(roomy, folder, attempt=2))
        undisturbed = said(assignment_of(roomy, folder / "undisturbed"))
        assert [content(r)[:4] for r in again] == [content(r)[:4] for r in undisturbed]


class Uncut(CrowdedData):
    """Examples that are compared with one another."""

    asked = 0

    def parts(self, batch: Any, at_once: int) -> Any:
        return [(batch, 1.0)]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        Uncut.asked += 1
        return super().loss(model, batch)


@dataclass(frozen=True)
class UncutTask(CrowdedTask):
    def open(self, **where: Any) -> CrowdedData:
        return Uncut(replace(self, fits=None), *where.values(), fits=self.fits)


def test_a_batch_that_cannot_be_cut_is_out_of_memory_at_once(tmp_path: Path) -> None:
    Uncut.asked = 0
    trial = replace(crowded(), task=UncutTask(fits=4))
    (ending,) = said(assignment_of(trial, tmp_path))
    assert "whole batch, which its task does not cut" in ending.message
    assert Uncut.asked == 1


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("Tried to allocate 1.00 GiB.")


@pytest.mark.parametrize(
    ("owner", "method", "what"),
    [
        (TinyData, "__init__", "the data"),
        (TinyData, "warm_start", "the model"),
        (nn.Module, "to", "the model"),
        (AdamW, "step", "an update"),
        (TinyData, "evaluate", "the evaluation"),
    ],
)
def test_what_has_no_smaller_parts_is_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, what: str
) -> None:
    trial = crowded()
    monkeypatch.setattr(owner, method, out_of_memory)
    (ending,) = said(assignment_of(trial, tmp_path))
    assert isinstance(ending, OutOfMemory)
    assert ending.message.startswith(what)
    monkeypatch.undo()
    # Nothing is left behind that would spoil what comes next.
    assert len(said(assignment_of(trial, tmp_path, attempt=2))) == 6


def test_an_evaluation_that_fits_once_gradients_are_gone_is_not_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = said(assignment_of(crowded(), tmp_path / "expected"))
    evaluate = TinyData.evaluate

    def beside_gradients(data: TinyData, model: nn.Module) -> Any:
        if any(parameter.grad is not None for parameter in model.parameters()):
            out_of_memory()
        return evaluate(data, model)

    monkeypatch.setattr(TinyData, "evaluate", beside_gradients)
    reports = said(assignment_of(crowded(), tmp_path / "tight"))
    assert [content(report) for report in reports] == [content(report) for report in expected]


def test_a_latency_that_cannot_be_measured_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = TinyData.loss

    def without_gradients_too(data: TinyData, model: nn.Module, batch: Any) -> Tensor:
        return loss(data, model, batch) if len(batch[1]) <= 2 else out_of_memory()

    monkeypatch.setattr(TinyData, "loss", without_gradients_too)
    reports = said(assignment_of(crowded(), tmp_path))
    assert (reports[-1].is_last, reports[-1].micro_batch) == (True, 2)
    assert reports[-1].latency_seconds is None


def test_other_errors_are_none_of_this(tmp_path: Path) -> None:
    trial = crowded(raises_at=3, folder=str(tmp_path))
    with pytest.raises(RuntimeError, match="raised on purpose"):
        said(assignment_of(trial, tmp_path))


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("unable to mmap 4096 bytes: Cannot allocate memory (12)"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cub"), True),
        (RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (OSError("Cannot allocate memory"), False),
    ],
)
def test_which_errors_are_for_want_of_memory(error: Exception, is_one: bool) -> None:
    assert is_out_of_memory(error) is is_one


def test_an_allocators_message_is_cut_to_what_it_was_asked_for_and_what_there_is() -> None:
    said = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 8 GiB. Process 1 has 7 GiB."
    for error, reason in (
        (torch.OutOfMemoryError(said), said.partition(". Process")[0]),
        (
            torch.OutOfMemoryError("CUDA error: out of memory\nFor debugging"),
            "CUDA error: out of memory",
        ),
        (MemoryError(), "MemoryError"),
    ):
        with pytest.raises(DoesNotFitError) as caught, fitting("a batch"):
            raise error
        assert caught.value.reason == reason


@pytest.fixture(autouse=True)
def _gradients_on() -> Iterator[None]:
    yield
    assert torch.is_grad_enabled()


def test_steps_count_updates_and_not_parts(tmp_path: Path) -> None:
    trial = replace(crowded(fits=1), budget=steps(5, report_every=2))
    reports = said(assignment_of(trial, tmp_path))
    assert [(report.unit, report.step) for report in reports] == [(2, 2), (4, 4), (5, 5)]


def test_a_study_ends_with_each_shape_computed_as_it_fits_or_too_large(tmp_path: Path) -> None:
    fits = {1: None, 2: 2, 3: 0}
    sweep = tiny_sweep(task=lambda point: TinyTask(fits=fits[point.width]))
    with coordinating(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
    with JournalReader(tmp_path / "journal") as journal:
        ended = {row.point["width"]: (row.status, row.attempt) for row in journal.trials()}
        reasons = {row.point["width"]: row.reason for row in journal.trials()}
        in_parts = {(entry.key, entry.payload.get("micro_batch")) for entry in journal.reports()}
    assert ended == {1: ("finished", 1), 2: ("finished", 1), 3: ("too_large", 2)}
    assert sorted(at_once or 0 for _, at_once in in_parts) == [0, 2]
    for part in ("even alone", "smaller", "bfloat16", "more memory"):
        assert part in reasons[3]
    assert "2.00 GiB" in reasons[3]
