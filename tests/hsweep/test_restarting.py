"""What a trial says and loses where its checkpoints are damaged, gone or cannot be written."""

import errno
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_disks import small_disk
from stepped_trial import to_the_end, train_stepwise
from tiny import TinyTask, tiny_sweep
from tiny_runs import assignment_of, checkpoints_written, content, planned
from tiny_studies import new_study

from hsweep import Recipe, epochs, grid, seconds, steps
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Assignment, Report, StorageFailure, Trial
from hsweep.paths import Home
from hsweep.running.run import remove_checkpoints
from hsweep.training import storage as storing
from hsweep.training import trial_run as timed
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.storage import StorageError, file_system

CPU = torch.device("cpu")


def trial_of(**changes: Any) -> Trial:
    space = grid(width=[6], dropout=[0.4])
    recipe = Recipe(lr=0.03, batch_size=8, warmup_fraction=0.2, weight_decay=0.1)
    settings = {"space": space, "recipe": recipe, "budget": epochs(8)} | changes
    return planned(tiny_sweep(**settings))[0]


TRIAL = trial_of()


def said(assignment: Assignment) -> list[Any]:
    return to_the_end(assignment)


def begun(trial: Trial, folder: Path, num_reports: int, checkpoint_seconds: float = 0.0) -> None:
    """Train up to a report, and leave without another checkpoint."""
    generator = train_stepwise(assignment_of(trial, folder, checkpoint_seconds=checkpoint_seconds))
    for _ in range(num_reports):
        next(generator)
        checkpoints_written()
    before = set((folder / trial.key).glob("*.pt"))
    generator.close()
    for file in set((folder / trial.key).glob("*.pt")) - before:
        file.unlink()


def checkpoints(folder: Path, trial: Trial = TRIAL) -> list[Path]:
    return sorted((folder / trial.key).glob("*.pt"))


def resumed(folder: Path, recorded_through: int, **more: Any) -> list[Any]:
    return said(assignment_of(TRIAL, folder, attempt=2, recorded_through=recorded_through, **more))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return [content(report) for report in said(assignment_of(TRIAL, tmp_path_factory.mktemp("a")))]


def notes(reports: list[Any]) -> dict[int, str]:
    return {report.unit: report.note for report in reports if report.note}


def test_a_restart_from_where_the_record_is_has_nothing_to_say(tmp_path: Path) -> None:
    begun(TRIAL, tmp_path, 5)
    assert notes(resumed(tmp_path, 5)) == {}
    assert notes(resumed(tmp_path, 4)) == {}
    assert notes(said(assignment_of(TRIAL, tmp_path / "first"))) == {}


def shortened(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("harm", "newest", "goes_on_from", "note"),
    [
        (shortened, 1, 4, "the checkpoint of unit 5 is damaged: trained again from unit 4"),
        (
            shortened,
            2,
            0,
            "the checkpoints of units 5 and 4 are damaged: it starts again from the beginning",
        ),
        (
            Path.unlink,
            2,
            0,
            "no checkpoint is left, with unit 5 on record: it starts again from the beginning",
        ),
    ],
)
def test_a_damaged_or_lost_checkpoint_is_told_by_the_first_new_report(
    tmp_path: Path, undisturbed: list[Any], harm: Any, newest: int, goes_on_from: int, note: str
) -> None:
    begun(TRIAL, tmp_path, 5)
    for file in checkpoints(tmp_path)[-newest:]:
        harm(file)
    reports = resumed(tmp_path, 5)
    assert [content(report) for report in reports] == undisturbed[goes_on_from:]
    assert notes(reports) == {6: note}


def test_a_checkpoint_far_behind_the_record_is_told(tmp_path: Path) -> None:
    begun(TRIAL, tmp_path, 2)
    reports = resumed(tmp_path, 7, checkpoint_seconds=0.0)
    assert notes(reports) == {
        8: "the newest checkpoint left is of unit 2 of 7 on record: trained again from unit 2"
    }
    begun(TRIAL, tmp_path / "usual", 2)
    assert notes(resumed(tmp_path / "usual", 7, checkpoint_seconds=3600.0)) == {}


def test_what_a_checkpoint_says_of_another_model_is_passed_over(
    tmp_path: Path, undisturbed: list[Any]
) -> None:
    other = replace(trial_of(space=grid(width=[5], dropout=[0.4])), key=TRIAL.key)
    begun(other, tmp_path, 3)
    CheckpointStore(str(tmp_path), TRIAL.key, 1).save(4, {"anything": 1})
    reports = resumed(tmp_path, 0)
    assert [content(report) for report in reports] == undisturbed
    assert "damaged: it starts again from the beginning" in reports[0].note


# Storage that fails.


class Disk:
    """Stands before a file system, and fails where and as often as it is told to."""

    def __init__(self, files: Any, failing: set[str], number: int) -> None:
        self._files, self._failing, self._number = files, failing, number

    def __getattr__(self, name: str) -> Any:
        if name in self._failing:
            return self._fail
        return getattr(self._files, name)

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise OSError(self._number, os.strerror(self._number))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], list[int]]:
    """The file system's methods that fail, and the error's number; empty at first."""
    methods: set[str] = set()
    number = [errno.ENOSPC]
    real = file_system

    def standing_before(root: str) -> tuple[Any, str]:
        files, path = real(root)
        return Disk(files, methods, number[0]), path

    monkeypatch.setattr(storing, "file_system", standing_before)
    return methods, number


@pytest.mark.parametrize("method", ["create_dir", "open_output_stream", "move"])
@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free space there"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "mount it writable"),
        (errno.EACCES, "the right to read and write"),
        (errno.EIO, "see to it that the storage works"),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_a_storage_failure_after_its_report(
    tmp_path: Path, failing: tuple[set[str], list[int]], method: str, number: int, advice: str
) -> None:
    failing[0].add(method)
    failing[1][0] = number
    report, ending = said(assignment_of(TRIAL, tmp_path, checkpoint_seconds=0.0))
    assert (report.unit, type(ending)) == (1, StorageFailure)
    for part in (f"{tmp_path}/{TRIAL.key}", os.strerror(number), advice):
        assert part in ending.message
    # Neither a checkpoint nor half of one.
    folder = tmp_path / TRIAL.key
    assert not folder.exists() or list(folder.iterdir()) == []


@pytest.mark.parametrize("method", ["get_file_info", "open_input_file"])
def test_checkpoints_that_cannot_be_read_are_a_storage_failure_before_anything_is_trained(
    tmp_path: Path, failing: tuple[set[str], list[int]], method: str
) -> None:
    begun(TRIAL, tmp_path, 2)
    failing[0].add(method)
    failing[1][0] = errno.EACCES
    (ending,) = resumed(tmp_path, 2)
    assert isinstance(ending, StorageFailure)
    assert "cannot be read" in ending.message


def test_what_cannot_be_removed_costs_only_space(
    tmp_path: Path, failing: tuple[set[str], list[int]], undisturbed: list[Any]
) -> None:
    failing[0].add("delete_file")
    reports = said(assignment_of(TRIAL, tmp_path, checkpoint_seconds=0.0))
    assert [content(report) for report in reports] == undisturbed
    assert len(checkpoints(tmp_path)) == 7


def test_a_last_report_needs_no_room(
    tmp_path: Path, failing: tuple[set[str], list[int]], undisturbed: list[Any]
) -> None:
    trial = trial_of(recipe=Recipe(lr=0.03, batch_size=8, schedule="constant"))
    failing[0].add("open_output_stream")
    reports = said(assignment_of(trial, tmp_path))
    assert [report.unit for report in reports] == list(range(1, 9))
    assert all(isinstance(report, Report) for report in reports)


def test_closing_a_session_that_cannot_be_saved_is_quiet_and_costs_work_alone(
    tmp_path: Path, failing: tuple[set[str], list[int]], undisturbed: list[Any]
) -> None:
    training = train_stepwise(assignment_of(TRIAL, tmp_path))
    for _ in range(3):
        next(training)
    failing[0].add("open_output_stream")
    training.close()
    failing[0].clear()
    reports = resumed(tmp_path, 3)
    assert [content(report) for report in reports] == undisturbed
    assert notes(reports).keys() == {4}


def test_a_storage_that_a_worker_cannot_reach_is_a_storage_failure(tmp_path: Path) -> None:
    unknown = replace(assignment_of(TRIAL, tmp_path), checkpoints="nowhere://bucket/folder")
    (ending,) = said(unknown)
    assert isinstance(ending, StorageFailure)
    assert "nowhere://bucket" in ending.message


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "64k") as folder:
        yield folder


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as opened:
        while True:
            opened.write(bytes(512))


def test_a_disk_that_is_really_full_costs_no_more_than_work_since_the_last_checkpoint(
    small: Path, undisturbed: list[Any]
) -> None:
    generator = train_stepwise(assignment_of(TRIAL, small, checkpoint_seconds=0.0))
    heard: list[Any] = [next(generator), next(generator)]
    ballast = small / "ballast"
    with pytest.raises(OSError, match="No space left"):
        fill(ballast)
    heard += list(generator)
    assert [type(each) for each in heard] == [Report, Report, Report, StorageFailure]
    assert "No space left on device" in heard[-1].message
    assert not list((small / TRIAL.key).glob(".*"))
    assert len(checkpoints(small)) == 2
    ballast.unlink()
    again = resumed(small, 3)
    assert [content(report) for report in again] == undisturbed[2:]


def test_a_file_system_that_has_become_read_only_is_a_storage_failure(small: Path) -> None:
    generator = train_stepwise(assignment_of(TRIAL, small, checkpoint_seconds=0.0))
    next(generator)
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    report, ending = generator
    assert (report.unit, type(ending)) == (2, StorageFailure)
    for part in ("Read-only file system", "mount it writable"):
        assert part in ending.message


def test_removing_from_a_storage_that_fails_says_why(
    tmp_path: Path, failing: tuple[set[str], list[int]]
) -> None:
    begun(TRIAL, tmp_path, 2)
    failing[0].add("delete_dir")
    failing[1][0] = errno.EROFS
    with pytest.raises(StorageError, match=r"cannot be removed .*mount it writable"):
        CheckpointStore(str(tmp_path), TRIAL.key, 0).remove()


# How much a kill costs.


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return Clock.now


@dataclass(frozen=True)
class TimedTask(TinyTask):
    """Every update takes a quarter of ``seconds_an_epoch``."""

    seconds_an_epoch: float = 1.0

    def before_update(self, number: int) -> None:
        Clock.now += self.seconds_an_epoch / 4


@settings(max_examples=25, deadline=None)
@given(
    seconds_an_epoch=st.floats(0.5, 40.0),
    checkpoint_seconds=st.floats(0.0, 60.0),
    killed_after=st.integers(1, 7),
)
def test_a_kill_costs_at_most_a_checkpoint_interval_and_an_update(
    tmp_path_factory: pytest.TempPathFactory,
    seconds_an_epoch: float,
    checkpoint_seconds: float,
    killed_after: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed, "time", Clock())
        # No write takes time of this clock.
        is_writing = property(lambda store: store.wait() is not None)
        patch.setattr(CheckpointStore, "is_writing", is_writing)
        folder = tmp_path_factory.mktemp("killed")
        trial = trial_of(task=TimedTask(seconds_an_epoch=seconds_an_epoch))
        begun(trial, folder, killed_after, checkpoint_seconds)
        newest = CheckpointStore(str(folder), trial.key, 9).search()
        steps = (newest.state or {}).get("within", {"step": 0})["step"]
        # Killed just before a report; without an interval each report has a checkpoint.
        lost = (killed_after - newest.unit - steps / 4) * seconds_an_epoch
        most = checkpoint_seconds + seconds_an_epoch / 4 if checkpoint_seconds else seconds_an_epoch
        assert lost <= most + 1e-6


def test_an_attempt_believed_dead_leaves_its_successors_checkpoints_alone(
    tmp_path: Path, undisturbed: list[Any]
) -> None:
    begun(TRIAL, tmp_path, 2)
    zombie = train_stepwise(assignment_of(TRIAL, tmp_path, attempt=2, checkpoint_seconds=0.0))
    next(zombie)
    successor = train_stepwise(
        assignment_of(TRIAL, tmp_path, attempt=3, recorded_through=2, checkpoint_seconds=0.0)
    )
    next(successor)
    theirs = {file for file in checkpoints(tmp_path) if "-00003-" in file.name}
    assert theirs
    for _ in zombie:
        assert theirs <= set(checkpoints(tmp_path))
    heard = [content(report) for report in successor]
    assert heard == undisturbed[3:]
    # Whoever comes next goes on from the newest, whoever wrote it: they are all the same.
    assert [
        content(report) for report in said(assignment_of(TRIAL, tmp_path, attempt=4))
    ] == undisturbed


# A longer budget.


@pytest.mark.parametrize(
    ("recipe", "is_open_ended"),
    [
        (Recipe(schedule="constant"), True),
        (Recipe(schedule="constant", min_lr=0.1, warmup_lr=0.1), True),
        (Recipe(schedule="constant", warmup_fraction=0.1), False),
        (Recipe(schedule="cosine"), False),
        (Recipe(schedule="linear"), False),
    ],
)
def test_a_recipe_is_open_ended_where_its_rate_does_not_depend_on_the_budget(
    recipe: Recipe, is_open_ended: bool
) -> None:
    assert (recipe.length_dependence == "") is is_open_ended
    rates = {
        tuple(recipe.lr_at(step, num_steps) for step in range(10)) for num_steps in (10, 20, 99)
    }
    assert (len(rates) == 1) is is_open_ended


@pytest.mark.parametrize(
    ("budget", "can_be"), [(epochs(2), True), (steps(8), True), (seconds(8), False)]
)
def test_a_budget_of_seconds_cannot_be_lengthened_to_the_same_result(
    budget: Any, can_be: bool
) -> None:
    constant = Recipe(batch_size=8, schedule="constant")
    assert trial_of(recipe=constant, budget=budget).branch_point == (budget.amount if can_be else 0)
    assert not trial_of(budget=budget).branch_point


def open_ended(budget: Any, optimizer: Any = "sgd", schedule: Any = "constant") -> Trial:
    recipe = Recipe(lr=0.03, batch_size=8, schedule=schedule, optimizer=optimizer)
    return trial_of(recipe=recipe, budget=budget)


def going_on(assignment: Any, short: Trial) -> Any:
    """The assignment, going on from a shorter training."""
    shared = assignment.trial.shared_with(short.budget.amount)
    return replace(assignment, continues=short.key, shared=shared)


def lasting(trial: Trial, folder: Path, continues: Trial | None = None, **more: Any) -> Any:
    """All reports of a trial, and its last checkpoint."""
    assignment = assignment_of(trial, folder, **more)
    if continues is not None:
        assignment = going_on(assignment, continues)
    reports = [content(report) for report in said(assignment)]
    found = CheckpointStore(str(folder), trial.key, 9).search()
    assert found.state is not None
    return reports, found


@pytest.mark.parametrize(
    ("optimizer", "schedule"), [("sgd", "constant"), ("adamw", "constant"), ("adamw", "wsd")]
)
@pytest.mark.parametrize(
    ("short", "long"),
    [(epochs(2), epochs(4)), (steps(8, report_every=2), steps(14, report_every=2))],
)
def test_a_longer_budget_goes_on_to_what_it_would_have_been_at_once_to_the_bit(
    tmp_path: Path, short: Any, long: Any, optimizer: Any, schedule: Any
) -> None:
    begun_with, longer = (open_ended(each, optimizer, schedule) for each in (short, long))
    assert begun_with.key != longer.key
    # No checkpoint but that of the trunk is due.
    first, found = lasting(begun_with, tmp_path)
    trunks = {"constant": {2: 2, 8: 8}, "wsd": {2: 1, 8: 6}}
    assert found.unit == begun_with.branch_point == trunks[schedule][short.amount]
    more, end = lasting(longer, tmp_path, begun_with, recorded_through=begun_with.branch_point)
    at_once, same = lasting(longer, tmp_path / "at once")
    taken = sum(report[0] <= begun_with.branch_point for report in first)
    assert [report[:3] for report in first[:taken]] == [report[:3] for report in at_once[:taken]]
    assert more == at_once[taken:]
    for name, weight in same.state["model"].items():
        assert torch.equal(end.state["model"][name], weight)
    for number, moments in same.state["optimizer"]["state"].items():
        for name, value in moments.items():
            other = end.state["optimizer"]["state"][number][name]
            assert torch.equal(torch.as_tensor(other), torch.as_tensor(value))


def test_reports_of_the_shorter_budget_are_sent_as_the_longer_ones(tmp_path: Path) -> None:
    short, long = open_ended(epochs(2)), open_ended(epochs(4))
    lasting(short, tmp_path)
    reports = said(going_on(assignment_of(long, tmp_path), short))
    assert [(r.unit, r.is_last, r.latency_seconds is None) for r in reports] == [
        (1, False, True), (2, False, True), (3, False, True), (4, True, False),
    ]  # fmt: skip


def test_its_own_checkpoint_counts_before_the_shorter_trials(tmp_path: Path) -> None:
    short, long = open_ended(epochs(3)), open_ended(epochs(6))
    lasting(short, tmp_path)
    begun(long, tmp_path, 2)
    kept = going_on(assignment_of(long, tmp_path, attempt=2, recorded_through=2), short)
    assert [report.unit for report in said(kept)] == [3, 4, 5, 6]


def test_a_shorter_budgets_end_that_the_longer_one_does_not_pass_is_no_start(
    tmp_path: Path,
) -> None:
    """Random numbers are set at reports, so a trial can go on from one that it has itself."""
    short = open_ended(steps(9, report_every=4))
    long = open_ended(steps(16, report_every=4))
    lasting(short, tmp_path)
    more, _ = lasting(long, tmp_path, short)
    at_once, _ = lasting(long, tmp_path / "at once")
    assert more == at_once


def test_the_shorter_trials_checkpoints_are_only_read(tmp_path: Path) -> None:
    short, long = open_ended(epochs(2)), open_ended(epochs(4))
    lasting(short, tmp_path)
    before = {file: file.read_bytes() for file in checkpoints(tmp_path, short)}
    lasting(long, tmp_path, short, checkpoint_seconds=0.0)
    assert {file: file.read_bytes() for file in checkpoints(tmp_path, short)} == before


def test_without_the_shorter_trials_checkpoint_it_starts_again_and_says_so(
    tmp_path: Path,
) -> None:
    short, long = open_ended(epochs(2)), open_ended(epochs(4))
    assignment = assignment_of(long, tmp_path, recorded_through=2)
    reports = said(going_on(assignment, short))
    assert [report.unit for report in reports] == [1, 2, 3, 4]
    assert notes(reports) == {
        3: "no checkpoint is left, with unit 2 on record: it starts again from the beginning"
    }


def test_a_study_keeps_the_last_checkpoints_that_a_longer_budget_can_go_on_from(
    tmp_path: Path,
) -> None:
    constant = Recipe(lr=0.03, batch_size=8, schedule="constant")
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4]),
        recipe=lambda point: constant if point.width > 1 else Recipe(lr=0.03, batch_size=8),
        task=lambda point: TinyTask(diverges_at=9) if point.width == 4 else TinyTask(),
        checkpoint_seconds=0.0,
    )
    study = new_study(Home(tmp_path), sweep=sweep)
    with study.writer() as journal:
        coordinator = Coordinator(
            journal=journal, sweep=sweep, trials=planned(sweep), checkpoints=study.checkpoints()
        )
        InlineRunner().run(coordinator)
        remove_checkpoints(study, coordinator)
        coordinator.settle()
    root = Path(study.checkpoints())
    left = {
        trial.point["width"]: [int(file.name[:9]) for file in checkpoints(root, trial)]
        for trial in planned(sweep)
    }
    # One rate that falls with the budget's length, and one that diverged, have no more to give.
    assert left == {1: [], 2: [3], 3: [3], 4: []}
