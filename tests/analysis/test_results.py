"""The table that stands above an answer: what was measured, by cell, by shape, or of the best."""

from collections.abc import Callable
from typing import Any

import pytest
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from analysis.ask import answer_study
from analysis.questions.base import Section, StudyRuns
from analysis.results import no_results, results_section
from hsweep import Sweep, Transition, epochs, grid, lean
from hsweep.design.trial import Trial, TrialStatus
from hsweep.paths import Home
from hsweep.record.study import StudyFolder


def study_of(
    home: Home, sweep: Sweep, value: Callable[[Trial], float | None], **changes: Any
) -> StudyFolder:
    """Make a study that has run; a trial without a value has failed."""
    study = new_study(home, sweep=sweep, **changes)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            found = value(trial)
            if found is None:
                attempt = journal.begin_attempt(trial.key)
                reason = "RuntimeError: no data at sweep.py:3\nTraceback ..."
                journal.set_status(trial.key, attempt, TrialStatus.FAILED, reason)
            else:
                finish(journal, trial, found)
    return study


def section(study: StudyFolder, width: int = 200) -> Section:
    with study.reading() as tables:
        found = results_section(StudyRuns(study.manifest, tables), width)
    assert found is not None
    return found


CELLS = tiny_sweep(
    space=grid(width=[1, 2], dropout=[0.1, 0.2]),
    budget=epochs(4),
    replicates=3,
    question=Transition(x="width", by="dropout"),
)


def error(trial: Trial) -> float:
    return (1 + 2 * trial.point["dropout"] + 0.1 * trial.replicate) / trial.point["width"]


def test_the_cells_of_a_transition_are_crossed_where_there_is_room(home: Home) -> None:
    study = study_of(home, CELLS, error)
    title, table, _ = section(study)
    assert title == "nmse (lower is better) after 4 epochs"
    assert table.header == ("width", "dropout=0.1", "dropout=0.2")
    assert table.rows == (
        ("1", "1.3 (1.2 to 1.4)", "1.5 (1.4 to 1.6)"),
        ("2", "0.65 (0.6 to 0.7)", "0.75 (0.7 to 0.8)"),
    )
    assert "median of 3 seeds" in table.note
    narrow = section(study, width=20).table
    assert narrow.header == ("width", "dropout", "median", "lowest", "highest", "seeds")
    assert narrow.rows[1] == ("1", "0.2", "1.5", "1.4", "1.6", "3")


def test_what_was_lost_stands_beside_the_seeds_that_are_left(home: Home) -> None:
    study = study_of(home, CELLS, lambda trial: None if trial.ordinal == 0 else error(trial))
    assert section(study).table.rows[0] == (
        "1",
        "1.35 (1.3 to 1.4), n=2 (1 of 3 failed)",
        "1.5 (1.4 to 1.6), n=3",
    )


def test_cells_are_taken_at_their_best_setting_and_each_once(home: Home) -> None:
    sweep = tiny_sweep(
        space=grid(width=[1, 2], dropout=[0.1, 0.2]),
        budget=epochs(4),
        replicates=3,
        question=Transition(x="width", by=None, nuisance=("dropout",)),
    )
    title, table, _ = section(study_of(home, sweep, error))
    assert title.endswith("after 4 epochs, each cell at its best dropout")
    assert [row[:2] for row in table.rows] == [("1", "1.3"), ("2", "0.65")]


def test_shapes_come_best_first_and_no_more_than_a_screen_holds(home: Home) -> None:
    sweep = tiny_sweep(
        space=grid(width=list(range(1, 61))),
        budget=epochs(4),
        replicates=2,
        question=lean({"width": 60}, margin=0.1),
    )
    _, table, _ = section(study_of(home, sweep, lambda trial: 1 / trial.point["width"]))
    assert len(table.rows) == 40
    assert table.rows[0][:3] == ("60", "360", "0.0167")
    assert "The first 40 of 60 rows" in table.note


def test_without_a_question_the_best_five_are_shown(home: Home) -> None:
    sweep = tiny_sweep(space=grid(width=list(range(1, 9))), budget=epochs(4))
    study = study_of(
        home, sweep, lambda trial: None if trial.ordinal == 0 else 1 / trial.point["width"]
    )
    title, table, _ = section(study)
    assert title.startswith("the best 5 of 8 points, by nmse (lower is better)")
    assert table.header == ("width", "parameters", "nmse")
    assert [row[0] for row in table.rows] == ["8", "7", "6", "5", "4"]


@pytest.mark.parametrize("question", [None, Transition(x="width", by="dropout")])
def test_where_all_failed_that_is_the_answer_with_the_commonest_reason(
    home: Home, question: Transition | None
) -> None:
    sweep = tiny_sweep(
        space=grid(width=[1, 2], dropout=[0.1, 0.2]), budget=epochs(4), question=question
    )
    study = study_of(home, sweep, lambda _: None)
    with study.reading() as tables:
        runs = StudyRuns(study.manifest, tables)
        assert results_section(runs) is None
        told = no_results(runs)
    assert told == (
        "none of the 4 runs has a result: 4 failed (RuntimeError: no data at sweep.py:3)"
    )
    assert answer_study(study).text == f"No answer: {told}."
    # One that is still to come may have a result.
    with recording(study, sweep) as (journal, trials):
        journal.append(journal.reopening_entries([trials[0].key], "asked for again"))
    with study.reading() as tables:
        assert no_results(StudyRuns(study.manifest, tables)) == ""
