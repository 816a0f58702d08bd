"""What a study is doing now, read from its record."""

import json

import pytest
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from hsweep import epochs, grid
from hsweep.design.trial import Report, Trial, TrialStatus
from hsweep.paths import Home
from hsweep.record.journal import Journal
from hsweep.record.lease import holding
from hsweep.record.study import StudyFolder
from hsweep.watching.now import Now, study_now

SWEEP = tiny_sweep(space=grid(width=[1, 2, 4]), budget=epochs(4))


def now_of(study: StudyFolder) -> Now:
    with study.journal() as journal, journal.snapshot():
        return study_now(study, journal)


def report(
    journal: Journal,
    trial: Trial,
    attempt: int,
    unit: int,
    value: float | None,
    *ending: TrialStatus | str,
) -> None:
    said = Report(unit, 4 * unit, {} if value is None else {"nmse": value}, 2.0 * unit, False)
    journal.record(trial.key, attempt, said, *ending)  # type: ignore[arg-type]


@pytest.fixture
def study(home: Home) -> StudyFolder:
    return new_study(home, sweep=SWEEP)


def test_a_study_that_waits_has_nothing_to_show_yet(study: StudyFolder) -> None:
    now = now_of(study)
    assert (now["state"], now["ended"], now["share"]) == ("interrupted", 0, 0.0)
    assert (now["counts"], now["time"]) == ("0 of 3 runs ended: 3 waiting", "")
    assert [now["training"]["rows"], now["lately"]["rows"], now["curves"]] == [[], [], []]


def test_trials_in_training_grow_their_curves(study: StudyFolder) -> None:
    with holding(study.paths), recording(study, SWEEP) as (journal, (one, two, three)):
        finish(journal, one, 0.5)
        attempt = journal.begin_attempt(two.key)
        report(journal, two, attempt, 1, 0.25)
        report(journal, two, attempt, 2, None)
        report(journal, two, attempt, 3, 0.125)
        journal.begin_attempt(three.key)
        now = now_of(study)
    assert (now["state"], now["ended"], round(now["share"], 3)) == ("running", 1, 0.333)
    assert now["counts"] == "1 of 3 runs ended: 2 in training, 1 finished"
    assert [row[:3] for row in now["training"]["rows"]] == [
        ("width=2 #0", "3 of 4 epochs", "0.125"),
        ("width=4 #0", "0 of 4 epochs", "-"),
    ]
    first, second = now["curves"]
    assert (first["name"], first["units"], first["values"]) == (
        "width=2 #0",
        (1, 2, 3),
        (0.25, None, 0.125),
    )
    assert second["units"] == ()
    assert (now["metric"], now["unit"], now["log"]) == ("nmse", "epochs", True)
    assert [row[1:4] for row in now["lately"]["rows"]] == [("width=1 #0", "finished", "0.5")]
    # Nobody trains them any more.
    after = now_of(study)
    assert (after["state"], after["counts"]) == (
        "interrupted",
        "1 of 3 runs ended: 2 interrupted, 1 finished",
    )
    assert after["training"]["rows"] == []


def test_a_long_curve_keeps_its_ends_and_its_newest_point(home: Home) -> None:
    sweep = tiny_sweep(space=grid(width=[1]), budget=epochs(1000))
    study = new_study(home, sweep=sweep)
    with holding(study.paths), recording(study, sweep) as (journal, (trial,)):
        attempt = journal.begin_attempt(trial.key)
        for unit in range(1, 778):
            report(journal, trial, attempt, unit, 1 / unit)
        (curve,) = now_of(study)["curves"]
    assert len(curve["units"]) <= 200
    assert curve["units"][-1] == 777
    assert curve["units"][0] <= 4


def test_a_curve_with_a_zero_has_no_logarithm(study: StudyFolder) -> None:
    with holding(study.paths), recording(study, SWEEP) as (journal, (one, *_)):
        report(journal, one, journal.begin_attempt(one.key), 1, 0.0)
        assert not now_of(study)["log"]


def test_the_time_left_is_what_the_driver_noted(study: StudyFolder) -> None:
    with holding(study.paths) as lease, recording(study, SWEEP) as (journal, (one, *_)):
        report(journal, one, journal.begin_attempt(one.key), 1, 0.5)
        lease.seconds_left = 125.0
        lease.beat()
        told = now_of(study)["time"]
        assert "running for 0." in told
        assert "2.0 s of training, about 2 min 0" in told
        assert "last news at " in told
    assert now_of(study)["time"] == "2.0 s of training"


def test_a_trial_that_is_planned_again_has_not_ended(study: StudyFolder) -> None:
    with recording(study, SWEEP) as (journal, (one, *_)):
        attempt = journal.begin_attempt(one.key)
        journal.set_status(one.key, attempt, TrialStatus.FAILED, "RuntimeError: no\nmore")
        (row,) = now_of(study)["lately"]["rows"]
        assert row[1:] == ("width=1 #0", "failed", "-", "RuntimeError: no")
        journal.append(journal.reopening_entries([one.key], "asked for again"))
        assert now_of(study)["lately"]["rows"] == []


def test_what_is_shown_is_plain_json(study: StudyFolder) -> None:
    with holding(study.paths), recording(study, SWEEP) as (journal, (one, *_)):
        report(journal, one, journal.begin_attempt(one.key), 1, None)
        content = now_of(study)
    assert json.loads(json.dumps(content, allow_nan=False))["state"] == "running"
