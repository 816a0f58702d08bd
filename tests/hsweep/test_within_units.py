"""Trials that end between two reports, at any update, and go on there."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_functions import own_sweep
from second_process import second_process
from tiny import TinyTask, tiny_sweep
from tiny_clock import CLOCK, TimedTask
from tiny_runs import assert_equal_to_the_bit, assignment_of, planned, saved

from hsweep import Point, Recipe, Run, epochs, grid, steps
from hsweep.design.trial import Assignment, Event, Report, Trial
from hsweep.errors import RefusedReportError
from hsweep.training import trial_run as timed
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.run import Channel
from hsweep.training.train import train

UPDATES = 24
"""Of a trial of six epochs."""


def trial_of(task: TinyTask | None = None, **changes: Any) -> Trial:
    recipe = Recipe(lr=0.03, batch_size=8, warmup_fraction=0.2, weight_decay=0.1, clip_norm=1.0)
    task = task or TinyTask()
    settings = {"space": grid(width=[6], dropout=[0.4]), "task": task, "budget": epochs(6)}
    return planned(tiny_sweep(**{**settings, "recipe": replace(recipe, **changes)}))[0]


class EndsAfter(Channel):
    """Hears all reports, and ends a trial after so many updates; never where there are fewer."""

    def __init__(self, updates: float) -> None:
        self.left = updates
        self.events: list[Event] = []

    @property
    def is_stopped(self) -> bool:
        self.left -= 1
        return self.left <= 0

    def put(self, event: Event, /) -> bool:
        self.events.append(event)
        return self.left > 0


def content(report: Event) -> tuple[Any, ...]:
    """All of a report but times."""
    assert isinstance(report, Report)
    numbers = report.learning_rate, report.grad_norm, report.running_loss
    return (
        *(report.unit, report.step, report.metrics, report.is_last, report.diverged_at),
        *(report.micro_batch, report.note, *numbers),
    )


Train = Callable[[Assignment, Channel], object]


def trained(
    trial: Trial, root: Path, stops: list[int], train: Train = train
) -> dict[int, tuple[Any, ...]]:
    """Train a trial that ends after so many updates, again and again; return what was recorded."""
    recorded: dict[int, tuple[Any, ...]] = {}
    for attempt, updates in enumerate([*stops, 1e9], start=1):
        channel = EndsAfter(updates)
        through = max(recorded, default=0)
        train(assignment_of(trial, root, attempt=attempt, recorded_through=through), channel)
        for event in channel.events:
            said = content(event)
            assert said[0] not in recorded, "nothing is told twice"
            recorded[said[0]] = said
        if 6 in recorded:
            return recorded
    raise AssertionError("a trial comes to its end")


TRIALS = {
    "dropout": trial_of(),
    "average": trial_of(ema=0.9),
    "memory": trial_of(TinyTask(fits=3)),
    "float16": trial_of(precision="float16"),
}


@dataclass(repr=False)
class Calm:
    """A trial that nothing disturbs: what it reports, and its state before the last update."""

    reports: dict[int, tuple[Any, ...]]
    state: dict[str, Any]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Calm]:
    @functools.cache
    def of(name: str) -> Calm:
        root, trial = tmp_path_factory.mktemp(name), TRIALS[name]
        train(assignment_of(trial, root), EndsAfter(UPDATES - 1))
        return Calm(trained(trial, root / "reports", []), saved(root, trial))

    return of


@pytest.mark.parametrize("name", TRIALS)
@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(1, UPDATES), max_size=4))
def test_a_trial_ended_at_any_update_ends_the_same_to_the_bit(
    undisturbed: Callable[[str], Calm],
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    stops: list[int],
) -> None:
    root, trial = tmp_path_factory.mktemp("ended"), TRIALS[name]
    calm = undisturbed(name)
    assert trained(trial, root / "reports", stops) == calm.reports
    left = UPDATES - 1
    for attempt, updates in enumerate([*stops, UPDATES], start=1):
        train(assignment_of(trial, root, attempt=attempt), EndsAfter(min(updates, left)))
        left -= min(updates, left)
        if not left:
            break
    final = saved(root, trial)
    for part in ("model", "optimizer", "updates"):
        assert_equal_to_the_bit(final[part], calm.state[part])


def test_two_processes_end_at_one_update_and_go_on_to_the_bit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trial = TRIALS["dropout"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with second_process(tmp_path_factory.mktemp("processes")) as other:
            calm = trained(trial, tmp_path / "calm", [], other.train_through)
            ended = trained(trial, tmp_path / "ended", [2, 7, 1, 4], other.train_through)
            assert ended == calm
            assert other.events == []
            # Another number of processes goes on too, with other masks of dropout.
            channel = EndsAfter(6)
            other.train_through(assignment_of(trial, tmp_path / "fewer"), channel)
    finally:
        torch.set_num_threads(threads)
    more = EndsAfter(UPDATES)
    train(assignment_of(trial, tmp_path / "fewer", attempt=2, recorded_through=1), more)
    assert [content(event)[:2] for event in [*channel.events, *more.events]] == [
        content_[:2] for content_ in calm.values()
    ]


# By time.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLOCK, "now", 0.0)
    monkeypatch.setattr(timed, "time", CLOCK)


def positions(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> list[tuple[int, int]]:
    """Note what is saved, which takes so many seconds of training; let nothing be pending."""
    noted: list[tuple[int, int]] = []
    save = CheckpointStore.save

    def noting(
        store: CheckpointStore, unit: int, state: Any, *, step: int = 0, beside: bool = False
    ) -> None:
        noted.append((unit, step))
        CLOCK.now += seconds
        save(store, unit, state, step=step)

    monkeypatch.setattr(CheckpointStore, "save", noting)
    return noted


@pytest.mark.usefixtures("clock")
def test_a_unit_longer_than_the_work_at_risk_has_checkpoints_within(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An update takes a second, and a unit eight.
    trial = planned(tiny_sweep(task=TimedTask(), budget=steps(24, report_every=8)))[0]
    noted = positions(monkeypatch)
    assignment = assignment_of(trial, tmp_path, checkpoint_seconds=3.0)
    channel = EndsAfter(1e9)
    train(assignment, channel)
    assert noted == [(0, 3), (0, 6), (8, 0), (8, 3), (8, 6), (16, 0), (16, 3), (16, 6)]
    assert [event.wall_seconds for event in channel.events if isinstance(event, Report)] == [
        8.0, 16.0, 24.0,
    ]  # fmt: skip
    # The newest that a kill leaves counts, and no second is lost or counted twice.
    for file in (tmp_path / trial.key).glob("000000016.000000006-*"):
        file.unlink()
    CLOCK.now += 1000.0
    again = EndsAfter(1e9)
    train(replace(assignment, attempt=2, recorded_through=16), again)
    (last,) = again.events
    assert content(last) == content(channel.events[-1])
    assert isinstance(last, Report)
    assert (last.wall_seconds, last.train_seconds) == (24.0, 24.0)


@pytest.mark.usefixtures("clock")
def test_where_nothing_may_be_lost_reports_have_checkpoints_and_updates_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = planned(tiny_sweep(task=TimedTask(), budget=steps(24, report_every=8)))[0]
    noted = positions(monkeypatch)
    train(assignment_of(trial, tmp_path, checkpoint_seconds=0.0), EndsAfter(1e9))
    assert noted == [(8, 0), (16, 0)]


@pytest.mark.usefixtures("clock")
def test_checkpoints_within_a_unit_take_a_twentieth_of_training_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = planned(tiny_sweep(task=TimedTask(), budget=steps(100, report_every=100)))[0]
    noted = positions(monkeypatch, seconds=2.0)
    channel = EndsAfter(1e9)
    train(assignment_of(trial, tmp_path, checkpoint_seconds=10.0), channel)
    assert noted == [(0, 10), (0, 50), (0, 90)]
    assert isinstance(last := channel.events[-1], Report)
    assert last.wall_seconds == 100.0, "saving is no training"


# Functions.


def walk(point: Point, run: Run) -> None:
    """Train units of four steps, and write a checkpoint after any of them if it is of use."""
    number, done = torch.zeros(()), 0
    if run.checkpoint is not None:
        number, done = torch.load(run.checkpoint)
    file = run.folder / "state.pt"
    for step in range(done + 1, 4 * run.budget + 1):
        torch.manual_seed(run.seeds.sampling + step)
        number = number * 0.9 + point.lr * torch.randn(())
        if is_due := run.should_checkpoint:
            torch.save((number, step), file)
        if step % 4 == 0:
            run.report(step // 4, file if is_due else None, loss=float(number))
        elif is_due:
            run.save(file)


def save_nothing(_point: Point, run: Run) -> None:
    run.save(run.folder / "missing")


@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(1, UPDATES), max_size=4))
def test_a_function_that_asks_ends_within_a_unit_and_goes_on_there(
    tmp_path_factory: pytest.TempPathFactory, stops: list[int]
) -> None:
    root, trial = tmp_path_factory.mktemp("walk"), planned(own_sweep(train=walk))[0]
    assert trained(trial, root / "ended", stops) == trained(trial, root, [])


def test_a_checkpoint_of_a_function_is_copied_only_where_it_is_of_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, noted = planned(own_sweep(train=walk))[0], positions(monkeypatch)
    train(assignment_of(trial, tmp_path / "rarely"), EndsAfter(1e9))
    assert noted == []
    # Where nothing may be lost it always is.
    train(assignment_of(trial, tmp_path / "always", checkpoint_seconds=0.0), EndsAfter(1e9))
    assert noted == [(unit, step) for unit in range(6) for step in range(4)][1:]
    noted.clear()
    train(assignment_of(trial, tmp_path / "ended"), EndsAfter(14))
    assert noted == [(3, 1)], "the first since unit 3"
    again = assignment_of(trial, tmp_path / "ended", attempt=2, recorded_through=3)
    train(again, ended := EndsAfter(1e9))
    assert [content(event)[0] for event in ended.events] == [4, 5, 6]


def test_a_checkpoint_that_is_not_there_fails_the_trial(tmp_path: Path) -> None:
    trial = planned(own_sweep(train=save_nothing))[0]
    with pytest.raises(RefusedReportError, match="missing is not"):
        train(assignment_of(trial, tmp_path), EndsAfter(1e9))
