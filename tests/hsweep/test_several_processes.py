"""One process or several that train a trial give the same numbers up to rounding."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from every_task import NAMES, pair
from second_process import SecondProcess, second_process
from tiny_runs import assignment_of, planned

from hsweep import Recipe, Sweep, epochs, grid
from hsweep.design.trial import Report, Trial
from hsweep.training.train import train

CPU = torch.device("cpu")
SGD = Recipe(lr=0.05, batch_size=9, optimizer="sgd", clip_norm=1.0)
EVEN = {"streamed-mixed": 6, "images-xcit": 8, "images-volo": 8}
"""Batch sizes where not every number is possible; others leave one process an example more."""


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


def trial_of(task: Any, model: Any, recipe: Recipe = SGD, amount: int = 3) -> Trial:
    sweep = Sweep(
        name="several",
        space=grid(heads=[2]),
        task=lambda point: task,
        model=lambda point: model,
        metric=task.metrics[0].name,
        goal=task.metrics[0].goal,
        budget=epochs(amount),
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
        assert like.metrics == pytest.approx(each.metrics, rel=1e-4, abs=1e-5)


def assert_equal_weights(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert one.keys() == two.keys()
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_every_task_and_family_gives_the_numbers_of_one_process_however_it_is_resumed(
    name: str, other: SecondProcess, tmp_path: Path
) -> None:
    made = pair(name, tmp_path / "data")
    recipe = replace(SGD, batch_size=EVEN.get(name, SGD.batch_size))
    trial = trial_of(made.task, made.model, recipe)
    alone = list(train(assignment_of(trial, tmp_path / "one", checkpoint_seconds=0.0), CPU))
    here = tmp_path / "two"
    parts = taken(other.train(assignment_of(trial, here)), 1)
    other.answer()
    more: dict[str, Any] = {"attempt": 2, "recorded_through": 1}
    parts += taken(train(assignment_of(trial, here, **more), CPU), 1)
    more = {"attempt": 3, "recorded_through": 2, "checkpoint_seconds": 0.0}
    parts += list(other.train(assignment_of(trial, here, **more)))  # type: ignore[arg-type]
    assert other.events == []
    assert_close(alone, parts)  # type: ignore[arg-type]
    notes = [report.note for report in parts]
    assert notes[1] == ""
    assert all("trained by 2 processes from here on" in notes[at] for at in (0, 2))
