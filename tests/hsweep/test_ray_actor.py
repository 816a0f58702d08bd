"""The process that trains trials, as Tune treats it: started, asked, reused, given up."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny import TinyTask, tiny_sweep
from tiny_runs import assignment_of, planned

from hsweep import epochs, grid
from hsweep.design.trial import Report
from hsweep.ray_tune.environment import prepare_ray
from hsweep.training.worker_queue import BrokenWorkerError, Message

prepare_ray()

from ray.tune.trainable import trainable  # noqa: E402

from hsweep.ray_tune.actor import TrialActor  # noqa: E402
from hsweep.ray_tune.messages import MESSAGES, START, WorkerStart  # noqa: E402


@pytest.fixture(autouse=True)
def own_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trainable, "DEFAULT_STORAGE_PATH", str(tmp_path / "tune"))


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.fixture
def raising(tmp_path: Path, traces: Path) -> WorkerStart:
    """Of a trial that leaves a trace and raises as soon as it trains."""
    task = TinyTask(raises_at=1, raises=99, folder=str(traces))
    trial = planned(tiny_sweep(task=task))[0]
    return WorkerStart([assignment_of(trial, tmp_path / "checkpoints")])


@pytest.fixture
def calm(tmp_path: Path) -> WorkerStart:
    """Of a trial that nothing happens to."""
    trial = planned(tiny_sweep(space=grid(width=[4]), budget=epochs(2)))[0]
    return WorkerStart([assignment_of(trial, tmp_path / "checkpoints")])


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[WorkerStart], TrialActor]]:
    """Start processes that are none, and end them."""
    actors: list[TrialActor] = []

    def start(with_trials: WorkerStart) -> TrialActor:
        actors.append(TrialActor({START: with_trials}))
        return actors[-1]

    before = signal.getsignal(signal.SIGTERM)
    yield start
    signal.signal(signal.SIGTERM, before)
    for actor in actors:
        actor.stop()


def messages_of(actor: TrialActor) -> list[Message]:
    """Ask a process until there is nothing more."""
    messages: list[Message] = []
    while found := actor.step()[MESSAGES]:
        messages += found
    return messages


def units(messages: list[Message]) -> list[int]:
    return [each.event.unit for each in messages if isinstance(each.event, Report)]


def test_a_trial_given_to_another_process_while_its_own_started_is_trained_once(
    started: Callable[[WorkerStart], TrialActor],
    raising: WorkerStart,
    calm: WorkerStart,
    traces: Path,
) -> None:
    """Tune gives it to a process that became free, and ends the one that was started for it."""
    given_up, reused = started(raising), started(calm)
    assert units(messages_of(reused)) == [1, 2]
    reused.reset({START: raising})
    with pytest.raises(BrokenWorkerError):
        messages_of(reused)
    given_up.stop()
    assert [trace.name for trace in traces.iterdir()] == ["raised-1"]


@pytest.mark.parametrize("ending", ["halt", "cleanup"])
def test_what_is_ended_before_it_was_asked_for_never_trains(
    started: Callable[[WorkerStart], TrialActor], raising: WorkerStart, traces: Path, ending: str
) -> None:
    actor = started(raising)
    getattr(actor, ending)()
    assert messages_of(actor) == []
    assert not list(traces.iterdir())


def test_a_process_that_is_used_again_leaves_its_traces_where_its_driver_looks(
    started: Callable[[WorkerStart], TrialActor], calm: WorkerStart
) -> None:
    actor = started(calm)
    first = actor.logdir
    messages_of(actor)
    actor.reset({START: calm})
    assert actor._watch.folder == actor.logdir != first


def test_a_process_in_which_a_trial_raised_trains_nothing_more(
    started: Callable[[WorkerStart], TrialActor],
    raising: WorkerStart,
    calm: WorkerStart,
    traces: Path,
) -> None:
    """Even one that raised unheard, because its driver had ended it meanwhile."""
    actor = started(raising)
    assert actor.step()[MESSAGES]
    while not list(traces.iterdir()):
        pass
    actor.reset({START: calm})
    with pytest.raises(BrokenWorkerError):
        actor.step()


def test_a_process_that_gets_sigterm_hands_its_trials_back_and_the_next_one_is_as_before(
    started: Callable[[WorkerStart], TrialActor], calm: WorkerStart, raising: WorkerStart
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    actor = started(calm)
    assert units(messages_of(actor)) == [1, 2]
    actor.give(raising.assignments)
    signal.raise_signal(signal.SIGTERM)
    # It may have begun its next trial before, and say so first.
    steps = (actor.step() for _ in range(3))
    with pytest.raises(BrokenWorkerError, match="told to end"):
        list(steps)
    assert signal.getsignal(signal.SIGTERM) is before
