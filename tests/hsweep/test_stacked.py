"""Trials trained as one program are what they are when trained separately."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TinyData, TinyModel, TinyTask, tiny_sweep
from tiny_clock import CLOCK, TimedTask
from tiny_runs import assignment_of, content, planned, saved
from torch import nn

from hsweep import Recipe, epochs, grid, steps
from hsweep.design.trial import Assignment, Report, StorageFailure, Trial
from hsweep.training.checkpoints import CheckpointStore, StorageError
from hsweep.training.optimizers import build_optimizer
from hsweep.training.precision import autocast_of
from hsweep.training.stacked import replicate as stacked_replicate
from hsweep.training.stacked import session as stacked_session
from hsweep.training.stacked.session import StackedSession
from hsweep.training.stacked.stack import Member, Stack
from hsweep.training.train import train

CPU = torch.device("cpu")
RECIPE = Recipe(lr=0.03, batch_size=8, weight_decay=0.1, warmup_fraction=0.2)
Reports = dict[str, list[Report]]


@pytest.fixture
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def replicates(number: int = 3, **changes: Any) -> tuple[Trial, ...]:
    settings = {"space": grid(width=[4]), "recipe": RECIPE, "budget": epochs(4)} | changes
    return planned(tiny_sweep(replicates=number, **settings))


def assignments_of(trials: Sequence[Trial], folder: Path, **settings: Any) -> list[Assignment]:
    return [assignment_of(trial, folder, **settings) for trial in trials]


def session_of(trials: Sequence[Trial], folder: Path, **settings: Any) -> StackedSession:
    return StackedSession(assignments_of(trials, folder, **settings), always=True)


def reports_of(session: StackedSession, **until: int) -> Reports:
    """Train to the end, or some trials until a unit, keeping the last state of every trial."""
    found: Reports = {}
    while words := session.next_events():
        for assignment, said in words:
            assert isinstance(said, Report)
            key = assignment.trial.key
            found.setdefault(key, []).append(said)
            if said.is_last or said.unit == until.get(key):
                session.drop(key)
    session.close()
    return found


def separately(trials: Sequence[Trial], folder: Path, **settings: Any) -> Reports:
    found: Reports = {}
    for trial in trials:
        generator = train(assignment_of(trial, folder, **settings), CPU)
        for report in generator:
            assert isinstance(report, Report)
            found.setdefault(trial.key, []).append(report)
            if report.is_last:
                generator.close()
    return found


def assert_close(one: Any, other: Any, rtol: float) -> None:
    """Equal nests of tensors and numbers, but for rounding."""
    torch.testing.assert_close(one, other, rtol=rtol, atol=rtol, equal_nan=True)


def assert_same_trials(
    trials: Sequence[Trial], here: tuple[Reports, Path], there: tuple[Reports, Path], rtol: float
) -> None:
    """The same reports, weights and optimizer states."""
    for trial in trials:
        one, other = (reports[trial.key] for reports, _ in (here, there))
        assert_close([content(each) for each in one], [content(each) for each in other], rtol)
        states = [saved(folder, trial) for _, folder in (here, there)]
        for part in ("model", "optimizer"):
            assert_close(states[0][part], states[1][part], rtol)
        figures = [[(each.learning_rate, each.grad_norm) for each in said] for said in (one, other)]
        assert_close(*figures, max(rtol, 1e-5))
        assert all(each.examples_per_second for each in one)


def assert_as_separately(trials: Sequence[Trial], tmp_path: Path, rtol: float) -> None:
    here, there = tmp_path / "together", tmp_path / "separately"
    reports = reports_of(session_of(trials, here))
    assert_same_trials(trials, (reports, here), (separately(trials, there), there), rtol)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="seeds"),
        pytest.param({"recipe": replace(RECIPE, clip_norm=0.3)}, id="clipped"),
        pytest.param({"recipe": replace(RECIPE, optimizer="sgd")}, id="momentum"),
        pytest.param(
            {"recipe": replace(RECIPE, optimizer="sgd", betas=(0.0, 0.0))}, id="no momentum"
        ),
        pytest.param({"budget": steps(10, report_every=3)}, id="a budget of updates"),
        pytest.param({"budget": epochs(5, report_every=2)}, id="a shorter last unit"),
    ],
)
def test_what_is_trained_together_is_what_it_is_separately(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert_as_separately(replicates(**changes), tmp_path, rtol=1e-10)


@pytest.mark.parametrize("clip_norm", [None, 0.3])
def test_in_single_precision_it_is_the_same_up_to_rounding(
    tmp_path: Path, clip_norm: float | None
) -> None:
    trials = replicates(4, recipe=replace(RECIPE, clip_norm=clip_norm))
    assert_as_separately(trials, tmp_path, rtol=1e-4)


def test_under_autocast_it_is_the_same_up_to_its_rounding(tmp_path: Path) -> None:
    # Adam divides gradients by their own size, so rounding alone can turn a weight's first steps.
    recipe = replace(RECIPE, precision="bfloat16", optimizer="sgd")
    assert_as_separately(replicates(recipe=recipe), tmp_path, 3e-2)


@pytest.mark.usefixtures("float64")
def test_a_trial_that_is_dropped_leaves_its_work_and_the_others_go_on(tmp_path: Path) -> None:
    trials = replicates(4)
    here, there = tmp_path / "together", tmp_path / "separately"
    dropped = trials[1].key
    reports = reports_of(session_of(trials, here), **{dropped: 2})
    assert [report.unit for report in reports[dropped]] == [1, 2]
    # It goes on separately, from where it was dropped.
    again = separately(trials[1:2], here, attempt=2, recorded_through=2)
    reports[dropped] += again[dropped]
    assert [report.unit for report in again[dropped]] == [3, 4]
    assert_same_trials(trials, (reports, here), (separately(trials, there), there), 1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("recipe", [RECIPE, replace(RECIPE, optimizer="sgd")], ids=["adamw", "sgd"])
def test_trials_interrupted_at_different_reports_catch_up_and_end_the_same(
    tmp_path: Path, recipe: Recipe
) -> None:
    trials = replicates(4, recipe=recipe, budget=epochs(5))
    here, there = tmp_path / "together", tmp_path / "separately"
    # One has not begun, two have come to 1 and 3 separately, one to 3 together with others.
    reports: Reports = {trial.key: [] for trial in trials}
    for trial, units in zip(trials[1:3], (1, 3), strict=True):
        generator = train(assignment_of(trial, here), CPU)
        reports[trial.key] += [next(generator) for _ in range(units)]  # type: ignore[misc]
        generator.close()
    others = [trials[3], *(replace(trial, key=f"other-{trial.key}") for trial in trials[:2])]
    session = session_of(others, here)
    for _ in range(3):
        words = session.next_events()
        reports[trials[3].key] += [said for each, said in words if each.trial is trials[3]]  # type: ignore[misc]
    session.close()
    resumed = [
        assignment_of(trial, here, attempt=2, recorded_through=len(reports[trial.key]))
        for trial in trials
    ]
    order: list[list[int]] = []
    session = StackedSession(resumed, always=True)
    while words := session.next_events():
        order.append([said.unit for _, said in words])  # type: ignore[union-attr]
        for assignment, said in words:
            assert isinstance(said, Report)
            reports[assignment.trial.key].append(said)
            if said.is_last:
                session.drop(assignment.trial.key)
    session.close()
    assert session.reason == ""
    assert order == [[1], [2, 2], [3, 3], [4] * 4, [5] * 4]
    assert_same_trials(trials, (reports, here), (separately(trials, there), there), 1e-10)


def test_reports_that_the_record_lacks_are_sent_again_before_anything_is_trained(
    tmp_path: Path,
) -> None:
    trials = replicates(2)
    session = session_of(trials, tmp_path)
    first = [said for _ in range(3) for said in session.next_events()]
    session.close()
    resumed = session_of(trials, tmp_path, attempt=2, recorded_through=1)
    again = [(each.trial.key, said) for each, said in resumed.next_events()]
    resumed.close()
    before = [(each.trial.key, said) for each, said in first]
    assert sorted(again, key=repr) == sorted(
        [(key, said) for key, said in before if said.unit > 1],  # type: ignore[union-attr]
        key=repr,
    )


def test_a_checkpoint_holds_one_trials_numbers_alone(tmp_path: Path) -> None:
    trials = replicates(8)
    reports_of(session_of(trials, tmp_path / "together"))
    separately(trials[:1], tmp_path / "separately")
    sizes = [
        max(file.stat().st_size for file in (tmp_path / folder / trials[0].key).glob("*.pt"))
        for folder in ("together", "separately")
    ]
    # The note of the first report is all that there is more of.
    assert sizes[0] <= sizes[1] + 256


class WildData(TinyData):
    """Of every other seed, from the third epoch on, numbers that no weight survives."""

    def batches(self, start_step: int) -> Iterator[Any]:
        for number, inputs, outputs in super().batches(start_step):
            scale = 1e200 if number > 8 and self._sampling_seed % 2 else 1.0
            yield number, inputs * scale, outputs


@dataclass(frozen=True)
class WildTask(TinyTask):
    def open(self, **settings: Any) -> TinyData:
        return WildData(self, **settings)


@pytest.mark.usefixtures("float64")
def test_one_that_diverges_says_so_and_changes_no_other(tmp_path: Path) -> None:
    trials = replicates(4, task=WildTask())
    here, there = tmp_path / "together", tmp_path / "separately"
    reports = reports_of(session_of(trials, here))
    expected = separately(trials, there)
    diverged = [trial for trial in trials if trial.seeds.sampling % 2]
    sound = [trial for trial in trials if trial not in diverged]
    assert diverged
    assert sound
    for trial in diverged:
        last = reports[trial.key][-1]
        assert last.diverged_at is not None
        assert not last.is_last
        assert content(last) == content(expected[trial.key][-1])
    assert_same_trials(sound, (reports, here), (expected, there), 1e-10)


@pytest.mark.parametrize("diverges_at", [1, 6])
def test_a_loss_that_is_not_finite_ends_trials_at_the_same_update(
    tmp_path: Path, diverges_at: int
) -> None:
    trials = replicates(task=TinyTask(diverges_at=diverges_at))
    reports = reports_of(session_of(trials, tmp_path))
    for trial in trials:
        assert reports[trial.key][-1].diverged_at == diverges_at


def test_the_first_new_report_says_that_a_trial_was_not_trained_alone(tmp_path: Path) -> None:
    trials = replicates(3)
    reports = reports_of(session_of(trials, tmp_path))
    notes = [(said.unit, said.note) for found in reports.values() for said in found]
    told = [(unit, note) for unit, note in notes if note]
    assert [unit for unit, _ in told] == [1, 1, 1]
    assert all("with 2 other trials of its shape" in note for _, note in told)


def timed_session(
    trials: Sequence[Trial], folder: Path, monkeypatch: pytest.MonkeyPatch, limit: float
) -> StackedSession:
    for module in (stacked_session, stacked_replicate):
        monkeypatch.setattr(module, "time", CLOCK)
    return session_of(trials, folder, checkpoint_seconds=limit)


def test_an_updates_time_is_shared_by_those_that_it_was_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = replicates(4, task=TimedTask(seconds=4.0), budget=epochs(2))
    reports = reports_of(timed_session(trials, tmp_path, monkeypatch, 1e9))
    for trial in trials:
        # Four updates an epoch, each of a second for each of the four.
        assert [each.train_seconds for each in reports[trial.key]] == [4.0, 8.0]
        assert [each.wall_seconds for each in reports[trial.key]] == [4.0, 8.0]


def test_no_more_of_all_trials_time_is_at_risk_than_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = replicates(4, task=TimedTask(seconds=4.0), budget=epochs(4))
    session = timed_session(trials, tmp_path, monkeypatch, limit=32.0)
    session.next_events()
    # An epoch took 16 seconds of which 4 are a trial's; after two of them 32 would be at risk.
    assert not list(tmp_path.rglob("*.pt"))
    session.next_events()
    for each in session._replicates:
        each.state.close()
    assert {file.name[:9] for file in tmp_path.rglob("*.pt")} == {"000000002"}
    session.close()


def test_a_trial_whose_checkpoint_cannot_be_written_says_so_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = replicates(3)
    save = CheckpointStore.save

    def full(store: CheckpointStore, *what: Any) -> None:
        if trials[1].key in store._folder:
            raise StorageError("the disk is full")
        save(store, *what)

    monkeypatch.setattr(CheckpointStore, "save", full)
    session = session_of(trials, tmp_path, checkpoint_seconds=0.0)
    said: dict[str, list[Any]] = {}
    while words := session.next_events():
        for assignment, word in words:
            said.setdefault(assignment.trial.key, []).append(word)
    ending = said[trials[1].key][-1]
    assert ending == StorageFailure("the disk is full")
    assert [len(said[trial.key]) for trial in trials] == [4, 2, 4]
    assert session.reason == ""


@dataclass(frozen=True)
class Normed(TinyModel):
    """Normalises batches."""

    def build(self) -> nn.Module:
        return nn.Sequential(super().build(), nn.BatchNorm1d(self.dim, affine=False))


class ImpureData(TinyData):
    """A loss that its trial's seed has a part in, whatever it says of itself."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) * (1 + self._sampling_seed % 7)


@dataclass(frozen=True)
class ImpureTask(TinyTask):
    def open(self, **settings: Any) -> TinyData:
        return ImpureData(self, **settings)


class UndeclaredData:
    """Task data that do not say what their loss depends on."""

    def __init__(self, data: TinyData) -> None:
        self.batches, self.loss, self.evaluate = data.batches, data.loss, data.evaluate
        self.warm_start, self.steps_per_epoch = data.warm_start, data.steps_per_epoch
        self.eval_size = data.eval_size


@dataclass(frozen=True)
class UndeclaredTask(TinyTask):
    def open(self, **settings: Any) -> Any:
        return UndeclaredData(super().open(**settings))


def test_a_trial_in_parts_of_batches_stays_separate(tmp_path: Path) -> None:
    trials = replicates(2, task=TinyTask(fits=4))
    generator = train(assignment_of(trials[0], tmp_path), CPU)
    assert next(generator).micro_batch == 4  # type: ignore[union-attr]
    generator.close()
    assert "parts of batches" in session_of(trials, tmp_path, attempt=2).reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"task": ImpureTask()}, "losses or gradients are others", id="another loss"),
        pytest.param(
            {"space": grid(width=[4], dropout=[0.5])}, "random operation", id="random numbers"
        ),
        pytest.param({"task": TinyTask(fits=4)}, "memory does not suffice", id="no memory"),
        pytest.param({"task": UndeclaredTask()}, "does not say", id="nothing is said of the loss"),
        pytest.param({"model": lambda _: Normed(4)}, "batch norm", id="batch norm"),
    ],
)
def test_a_session_that_cannot_be_one_program_is_trained_one_after_another(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    trials = replicates(**changes)
    session = session_of(trials, tmp_path / "session")
    reports = reports_of(session)
    assert reason in session.reason
    expected = separately(trials, tmp_path / "separately")
    for trial in trials:
        # To the bit: none of them was trained as part of a program.
        assert [content(each) for each in reports[trial.key]] == [
            content(each) for each in expected[trial.key]
        ]


@dataclass(frozen=True)
class UnevenTask(TinyTask):
    """From the third epoch on, batches are of different size."""

    def open(self, **settings: Any) -> TinyData:
        return UnevenData(self, **settings)


class UnevenData(TinyData):
    def batches(self, start_step: int) -> Iterator[Any]:
        for number, inputs, outputs in super().batches(start_step):
            kept = 8 - self._sampling_seed % 5 if number > 8 else 8
            yield number, inputs[:kept], outputs[:kept]


def test_trials_that_part_on_the_way_keep_what_they_have(tmp_path: Path) -> None:
    trials = replicates(task=UnevenTask())
    here, there = tmp_path / "session", tmp_path / "separately"
    session = session_of(trials, here)
    reports = reports_of(session)
    assert "differ in shape" in session.reason
    units = [[report.unit for report in found] for found in reports.values()]
    assert units == [[1, 2, 3, 4]] * 3
    assert_same_trials(trials, (reports, here), (separately(trials, there), there), 1e-3)


def test_what_one_trial_raises_is_raised_as_its_own(tmp_path: Path) -> None:
    trials = replicates(task=TinyTask(raises_at=6, raises=3, folder=str(tmp_path)))
    session = session_of(trials, tmp_path)
    for _ in trials:
        assert session.next_events()[0][1].unit == 1  # type: ignore[union-attr]
        if session.current is not None:
            break
    with pytest.raises(RuntimeError, match="raised on purpose before update 6"):
        session.next_events()
    assert session.current is not None
    session.close()


@pytest.mark.parametrize(
    ("stacked", "separate", "is_stacked"), [(10.0, 1.0, True), (15.9, 1.0, False)]
)
def test_the_quicker_way_is_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stacked: float,
    separate: float,
    is_stacked: bool,
) -> None:
    taken = iter([stacked, separate])
    monkeypatch.setattr(StackedSession, "_timed", lambda *_: next(taken))
    session = StackedSession(assignments_of(replicates(16, budget=epochs(1)), tmp_path))
    words = session.next_events()
    if is_stacked:
        assert (len(words), session.reason) == (16, "")
    else:
        assert (len(words), session.reason) == (1, "that is quicker here")
    session.close()


def test_numbers_that_are_not_finite_stay_in_their_row() -> None:
    task = TinyTask()
    data = task.open(data_seed=0, sampling_seed=0, batch_size=8, device=CPU)
    models = [TinyModel(4).build() for _ in range(3)]
    with torch.no_grad():
        next(models[1].parameters()).fill_(math.nan)
    members = [Member(model, build_optimizer(model, RECIPE)) for model in models]
    stack = Stack(members, data, autocast_of(RECIPE, CPU))
    losses = stack.gradients([next(data.batches(0))] * 3)
    stack.clip(0.1)
    stack.update(0.03)
    assert losses.isfinite().tolist() == [True, False, True]
    for number, model in enumerate(models):
        finite = all(bool(p.isfinite().all()) for p in model.parameters())
        assert finite == (number != 1)
    norms = [
        float(torch.stack([g.norm() for g in stack.gradient_of(number).values()]).norm())
        for number in (0, 2)
    ]
    assert norms == pytest.approx([0.1, 0.1], rel=1e-3)
