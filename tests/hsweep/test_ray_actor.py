"""The process that trains trials, as Tune treats it: started, asked, reused, given up."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny import TinyTask, tiny_sweep
from tiny_runs import assignment_of, planned

from hsweep import epochs, grid
from hsweep.design.trial import Report
from hsweep.ray_tune.environment import prepare_ray
from hsweep.training.lane import BrokenLaneError, Word

prepare_ray()

from ray.tune.trainable import trainable  # noqa: E402

from hsweep.ray_tune.actor import PARCEL, WORDS, Parcel, TrialActor  # noqa: E402


@pytest.fixture(autouse=True)
def own_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trainable, "DEFAULT_STORAGE_PATH", str(tmp_path / "tune"))


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.fixture
def parcel(tmp_path: Path, traces: Path) -> Parcel:
    """Of a trial that leaves a trace and raises as soon as it trains."""
    task = TinyTask(raises_at=1, raises=99, folder=str(traces))
    trial = planned(tiny_sweep(task=task))[0]
    return Parcel([assignment_of(trial, tmp_path / "checkpoints")])


@pytest.fixture
def calm(tmp_path: Path) -> Parcel:
    """Of a trial that nothing happens to."""
    trial = planned(tiny_sweep(space=grid(width=[4]), budget=epochs(2)))[0]
    return Parcel([assignment_of(trial, tmp_path / "checkpoints")])


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Parcel], TrialActor]]:
    """Start processes that are none, and end them."""
    actors: list[TrialActor] = []

    def start(parcel: Parcel) -> TrialActor:
        actors.append(TrialActor({PARCEL: parcel}))
        return actors[-1]

    yield start
    for actor in actors:
        actor.stop()


def said_by(actor: TrialActor) -> list[Word]:
    """Ask until a process has no more to say."""
    words: list[Word] = []
    while said := actor.step()[WORDS]:
        words += said
    return words


def units(words: list[Word]) -> list[int]:
    return [word.said.unit for word in words if isinstance(word.said, Report)]


def test_a_trial_given_to_another_process_while_its_own_started_is_trained_once(
    started: Callable[[Parcel], TrialActor], parcel: Parcel, calm: Parcel, traces: Path
) -> None:
    """Tune gives it to a process that became free, and ends the one that was started for it."""
    given_up, reused = started(parcel), started(calm)
    assert units(said_by(reused)) == [1, 2]
    reused.reset({PARCEL: parcel})
    with pytest.raises(BrokenLaneError):
        said_by(reused)
    given_up.stop()
    assert [trace.name for trace in traces.iterdir()] == ["raised-1"]


@pytest.mark.parametrize("ending", ["halt", "cleanup"])
def test_what_is_ended_before_it_was_asked_for_never_trains(
    started: Callable[[Parcel], TrialActor], parcel: Parcel, traces: Path, ending: str
) -> None:
    actor = started(parcel)
    getattr(actor, ending)()
    assert said_by(actor) == []
    assert not list(traces.iterdir())


def test_a_process_in_which_a_trial_raised_trains_nothing_more(
    started: Callable[[Parcel], TrialActor], parcel: Parcel, calm: Parcel, traces: Path
) -> None:
    """Even one that raised unheard, because its driver had ended it meanwhile."""
    actor = started(parcel)
    assert actor.step()[WORDS]
    while not list(traces.iterdir()):
        pass
    actor.reset({PARCEL: calm})
    with pytest.raises(BrokenLaneError):
        actor.step()
