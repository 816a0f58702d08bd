"""Checkpoints written beside training: the same files, nothing lost, errors told."""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TinyTask, tiny_sweep
from tiny_runs import (
    assert_equal_to_the_bit,
    assignment_of,
    checkpoints_written,
    content,
    planned,
)
from torch import nn

from hsweep import Recipe, epochs, grid
from hsweep.design.trial import StorageFailure, Trial
from hsweep.training import background, trial_state
from hsweep.training import train as training
from hsweep.training.background import BackgroundWriter, copied
from hsweep.training.checkpoints import CheckpointStore, StorageError
from hsweep.training.train import build_optimizer, train

CPU = torch.device("cpu")


class Clock:
    """Four seconds an epoch, whatever the machine does."""

    now = 0.0

    def perf_counter(self) -> float:
        return Clock.now


@dataclass(frozen=True)
class TimedTask(TinyTask):
    def before_update(self, number: int) -> None:
        Clock.now += 1.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "now", 0.0)
    monkeypatch.setattr(training, "time", Clock())


def trial_of(**changes: Any) -> Trial:
    recipe = Recipe(lr=0.03, batch_size=8, warmup_fraction=0.2, weight_decay=0.1)
    settings = {"space": grid(width=[6], dropout=[0.4]), "recipe": recipe, "task": TimedTask()}
    return planned(tiny_sweep(budget=epochs(8), **{**settings, **changes}))[0]


TRIAL = trial_of()
LIMIT = 10.0
"""Seconds of work at risk: units 2, 4 and 6 of eight have a checkpoint, none of them at once."""


def said(folder: Path, **more: Any) -> list[Any]:
    return list(train(assignment_of(TRIAL, folder, checkpoint_seconds=LIMIT, **more), CPU))


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / TRIAL.key).iterdir())


class Gate:
    """Stands before every write: notes that it has begun, and lets it go on when opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[int, str]] = []
        self.at_once = self.most_at_once = 0
        self.has_begun, self.is_open = threading.Event(), threading.Event()
        save = CheckpointStore.save

        def gated(store: CheckpointStore, unit: int, state: Any) -> None:
            self.begun.append((unit, threading.current_thread().name))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.has_begun.set()
            assert self.is_open.wait(60)
            save(store, unit, state)
            self.at_once -= 1

        monkeypatch.setattr(CheckpointStore, "save", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.is_open.set()
    checkpoints_written()


# The copy.


class Tied(nn.Module):
    """Two names for one matrix, a view of a larger buffer, and a batch norm's whole number."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(3, 3, bias=False)
        self.write = nn.Linear(3, 3, bias=False)
        self.write.weight = self.read.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("upper", torch.arange(8.0)[4:])


def states() -> dict[str, Any]:
    torch.manual_seed(0)
    model = Tied()
    optimizer = build_optimizer(model, Recipe(weight_decay=0.1))
    model.norm(model.write(model.read(torch.randn(5, 3)))).square().mean().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": [{"unit": 1, "metrics": {"nmse": 0.5, "fit": None}, "note": ""}],
    }


def test_a_copy_is_written_as_the_state_itself_to_the_byte(tmp_path: Path) -> None:
    state = states()
    CheckpointStore(str(tmp_path / "itself"), TRIAL.key, 1).save(1, state)
    CheckpointStore(str(tmp_path / "copy"), TRIAL.key, 1).save(1, copied(state))
    (itself,), (copy,) = names(tmp_path / "itself"), names(tmp_path / "copy")
    assert itself == copy
    places = [tmp_path / each / TRIAL.key / itself for each in ("itself", "copy")]
    assert places[0].read_bytes() == places[1].read_bytes()


def test_a_copy_shares_nothing_that_changes() -> None:
    state = states()
    copy = copied(state)
    before = copied(copy)
    for weight in state["model"].values():
        weight.zero_()
    for moments in state["optimizer"]["state"].values():
        for value in moments.values():
            value.zero_()
    state["optimizer"]["param_groups"][0]["lr"] = 7.0
    state["optimizer"]["param_groups"][0]["params"].append(99)
    state["history"][0]["metrics"]["nmse"] = 7.0
    state["history"].append({})
    assert_equal_to_the_bit(copy, before)
    assert isinstance(copy["model"], OrderedDict)
    assert copy["model"]._metadata == states()["model"]._metadata


# The same files.


def written_here(writer: BackgroundWriter, unit: int, state: Any) -> None:
    writer.write(unit, state)


def test_the_files_are_those_that_are_written_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = [content(report) for report in said(tmp_path / "beside")]
    beside = names(tmp_path / "beside")
    assert [name[:9] for name in beside] == ["000000004", "000000006"]
    monkeypatch.setattr(BackgroundWriter, "begin", written_here)
    Clock.now = 0.0
    assert [content(report) for report in said(tmp_path / "here")] == heard
    assert names(tmp_path / "here") == beside


def test_training_goes_on_while_a_checkpoint_is_written_and_does_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    gate.is_open.set()
    undisturbed = [content(report) for report in said(tmp_path / "undisturbed")]
    gate.is_open.clear()
    gate.has_begun.clear()
    Clock.now = 0.0
    generator = train(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT), CPU)
    heard = [content(next(generator)) for _ in range(2)]
    assert gate.has_begun.wait(60)
    # The checkpoint of unit 2 is not on disk, and unit 3 is being trained.
    reported = threading.Event()

    def go_on() -> None:
        heard.append(content(next(generator)))
        reported.set()

    waits = waiting(monkeypatch)
    thread = threading.Thread(target=go_on)
    thread.start()
    assert waits.wait(60)
    # A report away from what may be lost, training waits for what is being written.
    assert not reported.is_set()
    gate.is_open.set()
    thread.join()
    assert heard == undisturbed[:3]
    found = CheckpointStore(str(tmp_path), TRIAL.key, 9).search(CPU)
    assert found.unit == 2
    generator.close()
    for file in (tmp_path / TRIAL.key).glob("*.pt"):
        if not file.name.startswith("000000002"):
            file.unlink()
    assert [content(report) for report in said(tmp_path, attempt=2)] == undisturbed


def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what is set when training begins to wait for a write."""
    event, wait = threading.Event(), BackgroundWriter.wait

    def telling(writer: BackgroundWriter) -> None:
        if writer.is_writing:
            event.set()
        wait(writer)

    monkeypatch.setattr(BackgroundWriter, "wait", telling)
    return event


def test_no_two_are_written_at_once_and_none_by_the_training_thread_but_at_the_end(
    tmp_path: Path, gate: Gate
) -> None:
    gate.is_open.set()
    generator = train(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT), CPU)
    for _ in range(7):
        next(generator)
    generator.close()
    assert gate.most_at_once == 1
    here = threading.current_thread().name
    assert [unit for unit, _ in gate.begun] == [2, 4, 6, 7]
    assert [name == here for _, name in gate.begun] == [False, False, False, True]


def test_closing_waits_for_what_is_being_written(tmp_path: Path, gate: Gate) -> None:
    generator = train(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT), CPU)
    next(generator), next(generator)
    assert gate.has_begun.wait(60)
    closing = threading.Thread(target=generator.close)
    closing.start()
    gate.is_open.set()
    closing.join()
    # That of unit 2 is what there was to keep: it is not written again.
    assert [unit for unit, _ in gate.begun] == [2]
    assert [name[:9] for name in names(tmp_path)] == ["000000002"]
    assert background.THREAD_NAME not in {thread.name for thread in threading.enumerate()}


# Storage that fails, and memory that does not suffice.


def failing(monkeypatch: pytest.MonkeyPatch, units: set[int]) -> list[int]:
    """Let writes of these units fail for want of space; return the units that were tried."""
    tried: list[int] = []
    save = CheckpointStore.save

    def maybe(store: CheckpointStore, unit: int, state: Any) -> None:
        tried.append(unit)
        if unit in units:
            raise StorageError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(store, unit, state)

    monkeypatch.setattr(CheckpointStore, "save", maybe)
    return tried


def test_a_write_that_fails_is_a_storage_failure_at_the_next_report_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = [content(report) for report in said(tmp_path / "undisturbed")]
    full = {4}
    tried = failing(monkeypatch, full)
    Clock.now = 0.0
    heard = said(tmp_path)
    *reports, ending = heard
    assert isinstance(ending, StorageFailure)
    assert "No space left" in ending.message
    # Told by the report after it at the latest.
    assert [content(report) for report in reports] == undisturbed[: len(reports)]
    assert len(reports) in (4, 5)
    assert tried == [2, 4]
    full.clear()
    again = said(tmp_path, attempt=2, recorded_through=len(reports))
    assert [content(report) for report in again] == undisturbed[2:]


def test_what_could_not_be_written_is_tried_again_when_the_trial_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {2}
    tried = failing(monkeypatch, full)
    generator = train(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT), CPU)
    next(generator), next(generator)
    checkpoints_written()
    full.clear()
    generator.close()
    assert tried == [2, 2]
    assert [name[:9] for name in names(tmp_path)] == ["000000002"]


def test_an_error_that_is_not_the_storages_fails_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(store: CheckpointStore, unit: int, state: Any) -> None:
        raise ValueError("not to be written")

    monkeypatch.setattr(CheckpointStore, "save", broken)
    with pytest.raises(ValueError, match="not to be written"):
        said(tmp_path)


def test_without_memory_for_a_copy_it_is_written_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    def without_room(state: Any) -> Any:
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
        )

    monkeypatch.setattr(background, "copied", without_room)
    gate.is_open.set()
    said(tmp_path)
    here = threading.current_thread().name
    assert gate.begun == [(2, here), (4, here), (6, here)]


# How often.


@pytest.mark.parametrize(
    ("limit", "writing", "units"),
    [
        # Four seconds a report, eight reports.
        (1e9, 0.0, []),
        (17.0, 0.0, [4]),
        (17.0, 5.0, [4, 7]),  # begun a report earlier, to be there in time
        (17.0, 12.0, [4]),  # what takes longer than half of that is not to be had in time
        (0.0, 0.0, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_checkpoints_are_as_rare_as_the_work_at_risk_allows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: float,
    writing: float,
    units: list[int],
) -> None:
    written: list[int] = []

    class Timed(BackgroundWriter):
        def write(self, unit: int, state: Any) -> None:
            written.append(unit)
            self.seconds = writing

        def begin(self, unit: int, state: Any) -> None:
            self.write(unit, state)

    monkeypatch.setattr(trial_state, "BackgroundWriter", Timed)
    list(train(assignment_of(TRIAL, tmp_path, checkpoint_seconds=limit), CPU))
    assert written == units


def test_every_report_is_on_disk_when_it_is_told_if_nothing_may_be_lost(tmp_path: Path) -> None:
    for report in train(assignment_of(TRIAL, tmp_path, checkpoint_seconds=0.0), CPU):
        if not report.is_last:  # type: ignore[union-attr]
            assert names(tmp_path)[-1].startswith(f"{report.unit:09d}")  # type: ignore[union-attr]


def test_of_reports_further_apart_than_work_may_be_at_risk_only_one_that_came_as_usual_goes_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[int] = []
    begin = BackgroundWriter.begin

    def noting(writer: BackgroundWriter, unit: int, state: Any) -> None:
        beside.append(unit)
        begin(writer, unit, state)

    monkeypatch.setattr(BackgroundWriter, "begin", noting)
    # Four seconds a report: what the first and the last report take is not known to be usual.
    list(train(assignment_of(TRIAL, tmp_path, checkpoint_seconds=3.0), CPU))
    assert beside == [2, 3, 4, 5, 6, 7]
