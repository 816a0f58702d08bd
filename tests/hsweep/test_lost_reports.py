"""Logs that lose a piece in their middle, with early stopping: nothing waits for what is gone."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tiny import tiny_sweep
from tiny_runs import coordinating, planned, statuses, take_one, values

from hsweep import Asha, Sweep, epochs, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Assignment, Report, TrialStatus
from hsweep.paths import index_file
from hsweep.record.index import remove_index
from hsweep.record.log import begin_segment, segment_files

RACE: Final = tiny_sweep(
    space=grid(width=[1, 2, 3, 4, 5, 6]),
    replicates=2,
    budget=epochs(9),
    early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=1, compete="trials"),
)
POINTS: Final = replace(
    RACE, early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=1, compete="points")
)
SEGMENTS: Final = 4
# The values of trials that went on are lost, and the ends of trials that lost to them (79, 133).
SEEDS: Final = (0, 1, 79, 133, *range(2, 79), *range(80, 100))


def value_of(assignment: Assignment, unit: int) -> float:
    """Of a trial, the same whenever it is trained; ranks change from rung to rung."""
    return random.Random(f"{assignment.trial.key}/{unit}").random()


def train(coordinator: Coordinator, rng: random.Random, most: int = 10**6) -> None:
    """Let three workers train until so many reports are there, or nothing more can be."""
    workers: list[Assignment] = []
    for _ in range(most):
        while len(workers) < 3 and (new := take_one(coordinator)) is not None:
            workers.append(new)
        if not workers:
            break
        assignment = rng.choice(workers)
        unit = coordinator.journal.rows[assignment.trial.key].unit + 1
        report = Report(
            unit=unit,
            step=unit,
            metrics={"nmse": value_of(assignment, unit), "fit": 0.0},
            wall_seconds=float(unit),
            is_last=unit == assignment.trial.budget.amount,
        )
        if not coordinator.report(assignment, report):
            workers.remove(assignment)


def cut(folder: Path, rng: random.Random) -> int:
    """Cut an earlier segment, or fill a piece of it with zeros; return how many bytes are gone."""
    segments = segment_files(folder / "journal")
    segment = rng.choice(segments[:-1])
    content = segment.read_bytes()
    at = rng.randrange(content.index(b'"report"'), len(content))
    if rng.random() < 0.5:
        segment.write_bytes(content[:at])
        return len(content) - at
    length = min(rng.randrange(1, 8000), len(content) - at)
    segment.write_bytes(content[:at] + bytes(length) + content[at + length :])
    return length


@pytest.mark.parametrize("sweep", [RACE, POINTS], ids=["trials", "points"])
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.slow] * (place > 3))
        for place, seed in enumerate(SEEDS)
    ],
)
def test_a_log_cut_in_the_middle_leaves_no_trial_waiting_and_changes_none_that_won(
    tmp_path: Path, sweep: Sweep, seed: int
) -> None:
    rng = random.Random(f"{seed}/{sweep is RACE}")  # not its repr, which holds addresses
    with coordinating(sweep, tmp_path / "calm") as coordinator:
        train(coordinator, rng)
    calm, calm_values = statuses(tmp_path / "calm"), values(tmp_path / "calm")
    folder = tmp_path / "cut"
    for number in range(1, SEGMENTS + 1):
        if number > 1:
            begin_segment(folder / "journal", number, {"id": str(number)})
        with coordinating(sweep, folder) as coordinator:
            train(coordinator, rng, rng.randrange(3, 14))
    before = statuses(folder)
    assert cut(folder, rng)
    if seed % 2:  # another machine has no index, which may hold what the log has lost
        remove_index(index_file(folder / "journal"))
    begin_segment(folder / "journal", SEGMENTS + 1, {"id": "last"})
    with coordinating(sweep, folder) as coordinator:
        finished = [
            key
            for key, row in coordinator.journal.rows.items()
            if row.status is TrialStatus.FINISHED
        ]
        assert set(finished) <= {key for key, status in before.items() if status == "finished"}
        train(coordinator, rng)
        assert coordinator.is_exhausted
    after, after_values = statuses(folder), values(folder)
    assert after.keys() == {trial.key for trial in planned(sweep)}
    assert all(status.is_final for status in after.values())
    won = [key for key, status in calm.items() if status is TrialStatus.FINISHED]
    assert [after[key] for key in won] == [TrialStatus.FINISHED] * len(won)
    assert [after_values[key] for key in won] == [calm_values[key] for key in won]
    assert all(after[key] is TrialStatus.FINISHED for key in finished)
