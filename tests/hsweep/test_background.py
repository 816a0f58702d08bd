"""Checkpoints written beside training: nothing lost, errors told."""

import copy
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from stepped_trial import to_the_end, train_stepwise
from tiny import tiny_sweep
from tiny_clock import CLOCK, TimedTask
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
from hsweep.training import trial_run as timed
from hsweep.training.checkpoints import (
    THREAD_NAME,
    CheckpointStore,
)
from hsweep.training.optimizers import build_optimizer
from hsweep.training.storage import StorageError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLOCK, "now", 0.0)
    monkeypatch.setattr(timed, "time", CLOCK)


def trial_of(**changes: Any) -> Trial:
    recipe = Recipe(lr=0.03, batch_size=8, warmup_fraction=0.2, weight_decay=0.1)
    settings = {"space": grid(width=[6], dropout=[0.4]), "recipe": recipe, "task": TimedTask()}
    return planned(tiny_sweep(budget=epochs(8), **{**settings, **changes}))[0]


TRIAL = trial_of()
LIMIT = 10.0
"""Seconds of work at risk: units 2, 4 and 6 of eight have a checkpoint, none of them at once."""


def said(folder: Path, **more: Any) -> list[Any]:
    """Return a trial's events; each checkpoint is there before the next report."""
    events = []
    for event in train_stepwise(assignment_of(TRIAL, folder, checkpoint_seconds=LIMIT, **more)):
        events.append(event)
        checkpoints_written()
    return events


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / TRIAL.key).iterdir())


class Gate:
    """Stands before every write: notes that it has begun, and lets it go on when opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[int, str]] = []
        self.at_once = self.most_at_once = 0
        self.has_begun, self.is_open = threading.Event(), threading.Event()
        write = CheckpointStore._write

        def gated(store: CheckpointStore, unit: int, content: bytes, step: int) -> None:
            self.begun.append((unit, threading.current_thread().name))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.has_begun.set()
            assert self.is_open.wait(60)
            write(store, unit, content, step)
            self.at_once -= 1

        monkeypatch.setattr(CheckpointStore, "_write", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.is_open.set()
    checkpoints_written()


# What is packed.


class Tied(nn.Module):
    """Two names for one matrix, a view of a larger buffer, and a batch norm's whole number."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(3, 3, bias=False)
        self.write = nn.Linear(3, 3, bias=False)
        self.write.weight = self.read.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("upper", torch.arange(1000.0)[996:])


def test_a_checkpoint_is_packed_at_once_and_holds_what_there_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Tied()
    optimizer = build_optimizer(model, Recipe(weight_decay=0.1))
    model.norm(model.write(model.read(torch.randn(5, 3)))).square().mean().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": [{"unit": 1, "metrics": {"nmse": 0.5, "fit": None}, "note": ""}],
    }
    before = copy.deepcopy(state)
    store = CheckpointStore(str(tmp_path), TRIAL.key, 1)
    store.save(1, state, beside=True)
    with torch.no_grad():
        for weight in model.state_dict().values():
            weight.zero_()
    optimizer.step()
    state["history"][0]["metrics"]["nmse"] = 7.0
    store.wait()
    found = store.search().state
    assert found is not None
    assert_equal_to_the_bit(found, before)
    assert found["model"]._metadata == model.state_dict()._metadata
    # The matrix that has two names is there once, and of the large buffer the part alone.
    read, write = found["model"]["read.weight"], found["model"]["write.weight"]
    assert read.data_ptr() == write.data_ptr()
    assert found["model"]["upper"].untyped_storage().nbytes() == 16


# Beside training.


def test_training_goes_on_while_a_checkpoint_is_written_and_does_not_change_it(
    tmp_path: Path, gate: Gate
) -> None:
    gate.is_open.set()
    undisturbed = [content(report) for report in said(tmp_path / "undisturbed")]
    gate.is_open.clear()
    gate.has_begun.clear()
    CLOCK.now = 0.0
    generator = train_stepwise(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT))
    heard = [content(next(generator)) for _ in range(3)]
    assert gate.has_begun.wait(60)
    # The checkpoint of unit 2 is not on disk, and unit 4, which has one too, is being trained.
    heard.append(content(next(generator)))
    # It waits for no store, and has the next checkpoint when that one is there.
    assert gate.most_at_once == 1
    gate.is_open.set()
    assert heard == undisturbed[:4]
    generator.close()
    assert [name[:9] for name in names(tmp_path)] == ["000000002", "000000004"]
    for file in (tmp_path / TRIAL.key).glob("*.pt"):
        if not file.name.startswith("000000002"):
            file.unlink()
    assert [content(report) for report in said(tmp_path, attempt=2)] == undisturbed


def test_no_two_are_written_at_once_and_none_by_the_training_thread_but_at_the_end(
    tmp_path: Path, gate: Gate
) -> None:
    gate.is_open.set()
    generator = train_stepwise(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT))
    for _ in range(7):
        next(generator)
        checkpoints_written()
    generator.close()
    assert gate.most_at_once == 1
    assert [unit for unit, _ in gate.begun] == [2, 4, 6, 7]
    assert [name == "training" for _, name in gate.begun] == [False, False, False, True]


def test_closing_waits_for_what_is_being_written(tmp_path: Path, gate: Gate) -> None:
    generator = train_stepwise(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT))
    next(generator), next(generator)
    assert gate.has_begun.wait(60)
    closing = threading.Thread(target=generator.close)
    closing.start()
    gate.is_open.set()
    closing.join()
    # That of unit 2 is what there was to keep: it is not written again.
    assert [unit for unit, _ in gate.begun] == [2]
    assert [name[:9] for name in names(tmp_path)] == ["000000002"]
    assert not [t for t in threading.enumerate() if t.name.startswith(THREAD_NAME)]


# Storage that fails, and memory that does not suffice.


def failing(monkeypatch: pytest.MonkeyPatch, units: set[int]) -> list[int]:
    """Let writes of these units fail for want of space; return the units that were tried."""
    tried: list[int] = []
    write = CheckpointStore._write

    def maybe(store: CheckpointStore, unit: int, content: bytes, step: int) -> None:
        tried.append(unit)
        if unit in units:
            raise StorageError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(store, unit, content, step)

    monkeypatch.setattr(CheckpointStore, "_write", maybe)
    return tried


def test_a_write_that_fails_is_a_storage_failure_at_the_next_report_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = [content(report) for report in said(tmp_path / "undisturbed")]
    full = {4}
    tried = failing(monkeypatch, full)
    CLOCK.now = 0.0
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
    generator = train_stepwise(assignment_of(TRIAL, tmp_path, checkpoint_seconds=LIMIT))
    next(generator), next(generator)
    checkpoints_written()
    full.clear()
    generator.close()
    assert tried == [2, 2]
    assert [name[:9] for name in names(tmp_path)] == ["000000002"]


def test_an_error_that_is_not_the_storages_fails_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(store: CheckpointStore, unit: int, content: bytes, step: int) -> None:
        raise ValueError("not to be written")

    monkeypatch.setattr(CheckpointStore, "_write", broken)
    with pytest.raises(ValueError, match="not to be written"):
        said(tmp_path)


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

    class Timed(CheckpointStore):
        def save(self, unit: int, state: Any, **_: Any) -> None:
            written.append(unit)
            self.write_seconds = writing

    monkeypatch.setattr(timed, "CheckpointStore", Timed)
    to_the_end(assignment_of(TRIAL, tmp_path, checkpoint_seconds=limit))
    assert written == units


def test_every_report_is_on_disk_when_it_is_told_if_nothing_may_be_lost(tmp_path: Path) -> None:
    for report in train_stepwise(assignment_of(TRIAL, tmp_path, checkpoint_seconds=0.0)):
        if not report.is_last:  # type: ignore[union-attr]
            assert names(tmp_path)[-1].startswith(f"{report.unit:09d}")  # type: ignore[union-attr]
