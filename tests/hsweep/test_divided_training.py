"""One process or several that train a trial give the same numbers up to rounding."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from every_task import NAMES, pair
from safetensors.torch import load_file
from second_process import SecondProcess, second_process
from stepped_trial import to_the_end, train_stepwise
from task_contract import measured
from tiny import TinyData, TinyModel, TinyTask
from tiny_runs import assignment_of, planned
from torch import Tensor, distributed, nn

from hsweep import Recipe, Sweep, epochs, grid, seconds, steps
from hsweep.design.budget import Budget
from hsweep.design.trial import OutOfMemory, Report, Resources, Trial
from hsweep.errors import UserError
from hsweep.paths import weights_file
from hsweep.training.division import Division
from hsweep.training.opening import data_of
from hsweep.training.rehearsal import RehearsalError, open_data, rehearse
from hsweep.training.world import World
from models.base import PARAM_GROUPS, Counts
from tasks.vision.images import Images

CPU = torch.device("cpu")
EPOCHS = epochs(3)
SGD = Recipe(lr=0.05, batch_size=9, optimizer="sgd", clip_norm=1.0)
EVEN = {"streamed-mixed": 8}
"""Batch sizes where not every number is possible, in two parts; others leave one process an example
more."""
DIVISIBLE = [name for name in NAMES if name not in ("images-xcit", "images-volo")]
"""The other two have batch norm."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("HSWEEP_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def other(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondProcess]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with second_process(tmp_path_factory.mktemp("processes")) as process:
        yield process
    torch.set_num_threads(threads)


def trial_of(task: Any, model: Any, recipe: Recipe = SGD, budget: Budget = EPOCHS) -> Trial:
    sweep = Sweep(
        name="several",
        space=grid(heads=[2]),
        task=lambda point: task,
        model=lambda point: model,
        metric=task.metrics[0].name,
        goal=task.metrics[0].goal,
        budget=budget,
        recipe=recipe,
    )
    return planned(sweep)[0]


def taken(events: Iterator[Any], count: int) -> list[Report]:
    """The first reports; the trial is ended at the last of them."""
    found = []
    for event in events:
        assert isinstance(event, Report), event
        found.append(event)
        if len(found) == count:
            break
    events.close()  # type: ignore[attr-defined]
    return found


def assert_close(one: list[Report], two: list[Report]) -> None:
    assert [r.unit for r in one] == [r.unit for r in two]
    for each, like in zip(one, two, strict=True):
        assert (each.step, each.is_last, each.diverged_at) == (
            like.step,
            like.is_last,
            like.diverged_at,
        )
        assert like.metrics == pytest.approx(each.metrics, rel=1e-5, abs=1e-6)
        assert like.learning_rate == each.learning_rate
        assert like.grad_norm == pytest.approx(each.grad_norm, rel=1e-3)


@pytest.mark.parametrize("name", DIVISIBLE)
def test_every_task_and_family_gives_the_numbers_of_one_process_however_it_is_resumed(
    name: str, other: SecondProcess, tmp_path: Path
) -> None:
    made = pair(name, tmp_path / "data")
    recipe = replace(SGD, batch_size=EVEN[name], accumulate=2) if name in EVEN else SGD
    trial = trial_of(made.task, made.model, recipe)
    alone = to_the_end(assignment_of(trial, tmp_path / "one", checkpoint_seconds=0.0))
    here = tmp_path / "two"
    parts = taken(other.train(assignment_of(trial, here)), 1)
    other.answer()
    more: dict[str, Any] = {"attempt": 2, "recorded_through": 1}
    parts += taken(train_stepwise(assignment_of(trial, here, **more)), 1)
    more = {"attempt": 3, "recorded_through": 2, "checkpoint_seconds": 0.0}
    parts += list(other.train(assignment_of(trial, here, **more)))  # type: ignore[arg-type]
    assert other.events == []
    assert_close(alone, parts)  # type: ignore[arg-type]


def test_an_average_of_accumulated_and_clipped_updates_is_that_of_one_process_and_is_kept(
    other: SecondProcess, tmp_path: Path
) -> None:
    made = pair("images-vit", tmp_path / "data")
    recipe = replace(SGD, batch_size=8, accumulate=2, clip_norm=0.1, ema=0.9)
    trial = trial_of(made.task, made.model, recipe)
    one, two = (
        replace(assignment_of(trial, folder), weights=str(folder))
        for folder in (tmp_path / "one", tmp_path / "two")
    )
    alone, reports = to_the_end(one), list(other.train(two))
    assert_close(alone, reports)  # type: ignore[arg-type]
    assert isinstance(last := reports[-1], Report)
    assert last.micro_batch is None, "no fewer at once than the recipe asks for"
    kept = [load_file(f"{each.weights}/{weights_file(trial.key, 1)}") for each in (one, two)]
    torch.testing.assert_close(*kept)
    model = made.model.build().eval()
    model.load_state_dict(kept[1])
    with torch.no_grad():
        evaluated = measured(data_of(trial, CPU), model)
    assert evaluated == pytest.approx(last.metrics, rel=1e-5)


@dataclass(frozen=True)
class Matrix(TinyModel):
    """One matrix, the rows of which are the outputs."""

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(self.dim, self.dim, bias=False))

    def counts(self) -> Counts:
        return replace(
            super().counts(), params=dict.fromkeys(PARAM_GROUPS, 0) | {"head": self.dim**2}
        )


@dataclass(frozen=True)
class Steep(TinyTask):
    """The gradient of the third update is not finite in float16: of one output, in one process."""

    rank: int = 1

    def open(self, **settings: Any) -> "SteepData":
        return SteepData(self, *settings.values())


class SteepData(TinyData):
    def loss(self, model: nn.Module, batch: tuple[int, Tensor, Tensor]) -> Tensor:
        def steep(inputs: Tensor) -> Tensor:
            outputs: Tensor = model(inputs).float()
            rank = self._task.rank  # type: ignore[attr-defined]
            if batch[0] == 3 and distributed.get_rank() == rank:
                factors = outputs.new_tensor([1, 1, 1e36])
                outputs.register_hook(lambda each: each * factors)  # type: ignore[no-untyped-call]
            return outputs

        # A part of the loss, so that no other gradient is too large.
        return super().loss(steep, batch) / 16  # type: ignore[arg-type]


def test_an_update_that_is_not_finite_in_one_process_is_left_out_in_all(
    other: SecondProcess, tmp_path: Path
) -> None:
    recipe = replace(SGD, batch_size=8, clip_norm=None, precision="float16")
    by_step = steps(4, report_every=1)
    alone = trial_of(Steep(rank=0), Matrix(1), recipe, by_step)
    reports = to_the_end(assignment_of(alone, tmp_path / "one"))
    trial = trial_of(Steep(rank=1), Matrix(1), recipe, by_step)
    here = tmp_path / "two"
    found = taken(other.train(assignment_of(trial, here, checkpoint_seconds=0.0)), 3)
    other.answer()
    found += list(other.train(assignment_of(trial, here, attempt=2, recorded_through=3)))  # type: ignore[arg-type]
    assert [each.grad_norm is None for each in found] == [False, False, True, False]
    assert found[1].metrics == found[2].metrics
    for one, two in zip(reports, found, strict=True):
        assert isinstance(one, Report)
        assert two.metrics == pytest.approx(one.metrics, rel=1e-2)


@pytest.mark.parametrize("name", ["streamed", "images-vit"])
def test_a_batch_has_the_examples_of_all_processes(name: str, cache: Path, tmp_path: Path) -> None:
    made = pair(name, tmp_path / "data")
    data = data_of(trial_of(made.task, made.model), CPU)
    for rank in (0, 1):
        division = Division(data, SGD.batch_size, World(rank, 2))
        assert division.num_examples(next(division.batches(0))) == SGD.batch_size


@dataclass(frozen=True)
class Scarce(TinyTask):
    """Learns a linear map where a process of one rank has memory for few examples."""

    rank: int = 1
    fits: int | None = 2

    def open(self, **settings: Any) -> TinyData:
        fits = self.fits if distributed.get_rank() == self.rank else None
        return replace(TinyTask(), fits=fits).open(**settings)


@pytest.mark.parametrize("rank", [0, 1])
def test_where_memory_does_not_suffice_in_one_all_compute_smaller_parts(
    rank: int, other: SecondProcess, tmp_path: Path
) -> None:
    recipe = replace(SGD, batch_size=8)
    alone = to_the_end(assignment_of(trial_of(TinyTask(), TinyModel(2), recipe), tmp_path))
    scarce = trial_of(Scarce(rank=rank), TinyModel(2), recipe)
    reports = list(other.train(assignment_of(scarce, tmp_path)))
    assert_close(alone, reports)  # type: ignore[arg-type]
    assert [report.micro_batch for report in reports] == [2, 2, 2]  # type: ignore[union-attr]
    assert "out of memory at update 1" in reports[0].note  # type: ignore[union-attr]


def test_where_not_even_one_example_fits_one_process_all_say_so(
    other: SecondProcess, tmp_path: Path
) -> None:
    trial = trial_of(Scarce(fits=0), TinyModel(2), replace(SGD, batch_size=8))
    events = list(other.train(assignment_of(trial, tmp_path)))
    for event in (*events, *other.events):
        assert isinstance(event, OutOfMemory)
        assert "one example at once does not fit" in event.message
    assert (len(events), len(other.events)) == (1, 1)


def test_a_divergence_is_seen_in_all_at_the_same_update(
    other: SecondProcess, tmp_path: Path
) -> None:
    trial = trial_of(TinyTask(diverges_at=6), TinyModel(2), replace(SGD, batch_size=8))
    reports = list(other.train(assignment_of(trial, tmp_path)))
    assert [report.diverged_at for report in reports] == [None, 6]  # type: ignore[union-attr]
    assert other.events == []


def test_a_batch_smaller_than_the_processes_is_trained_and_evaluated(
    other: SecondProcess, tmp_path: Path
) -> None:
    task = Images("digits", image_size=8, max_train=3, max_validation=1)
    model = pair("images-vit", tmp_path).model
    trial = trial_of(task, model, replace(SGD, batch_size=1))
    alone = to_the_end(assignment_of(trial, tmp_path / "one"))
    reports = list(other.train(assignment_of(trial, tmp_path / "two")))
    assert_close(alone, reports)  # type: ignore[arg-type]


def test_batch_norm_asks_for_one_process(tmp_path: Path) -> None:
    made = pair("images-xcit", tmp_path / "data")
    trial = replace(trial_of(made.task, made.model), resources=Resources(processes=2))
    with pytest.raises(UserError, match="batch norm takes its statistics over a whole batch"):
        to_the_end(assignment_of(trial, tmp_path))
    with pytest.raises(RehearsalError, match="train with one process"):
        rehearse(trial, open_data(trial))


def test_a_budget_of_seconds_ends_in_all_at_the_same_update(
    other: SecondProcess, tmp_path: Path
) -> None:
    trial = trial_of(TinyTask(), TinyModel(2), replace(SGD, batch_size=8), budget=seconds(1))
    reports = list(other.train(assignment_of(trial, tmp_path)))
    assert reports[-1].is_last  # type: ignore[union-attr]
    assert other.events == []
