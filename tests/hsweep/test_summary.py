"""What befell trials, in words: who was lost and why, and whose number came about otherwise."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from tiny import tiny_sweep
from tiny_studies import new_study, recording

from hsweep import Sweep, Transition, grid
from hsweep.design.trial import Report, Trial, TrialStatus
from hsweep.paths import Home
from hsweep.record.rows import LogRow, TrialRow
from hsweep.record.study import StudyFolder
from hsweep.record.summary import (
    WAITS_AT_RUNG,
    counts_in_words,
    first_line,
    remarks,
)

Invoke = Callable[..., Result]


def ends(shape: str, *statuses: str, **more: Any) -> list[TrialRow]:
    """Return trials at a point such as ``width=1``, with these statuses."""
    point = dict([shape.split("=")]) if shape else {}
    return [
        TrialRow(f"{shape} #{at}", 0, point, at, "", 9, {}, status=TrialStatus(status), **more)
        for at, status in enumerate(statuses)
    ]


def noted(rows: list[TrialRow], note: str) -> list[LogRow]:
    return [LogRow(1, 0.0, row.key, 1, "report", 1, {"note": note}) for row in rows]


class TestRemarks:
    def test_what_went_as_planned_is_not_mentioned(self) -> None:
        assert remarks(ends("width=1", "finished", "stopped_early", "running", "planned")) == []

    def test_lost_replicates_are_counted_among_those_of_their_shape(self) -> None:
        found = remarks(
            [
                *ends("heads=3", "finished", "finished", "finished", "planned"),
                *ends("heads=3", "diverged", "diverged", reason="not finite at step 7"),
                *ends("heads=4", "finished"),
            ]
        )
        assert [each.line for each in found] == [
            "2 diverged: 2 of 5 at heads=3; not finite at step 7 (2 times)"
        ]

    def test_each_way_of_losing_a_trial_has_its_own_words_and_reason(self) -> None:
        traceback = "ValueError: no such file at x.py:3\nTraceback (most recent call last):\n  ..."
        found = remarks(
            [
                *ends("width=1", "failed", reason=traceback),
                *ends("width=2", "too_large", reason="one example needs 9.1 GB"),
            ]
        )
        assert [each.line for each in found] == [
            "1 failed: 1 of 1 at width=1; ValueError: no such file at x.py:3",
            "1 too large for the device: 1 of 1 at width=2; one example needs 9.1 GB",
        ]

    def test_other_ways_to_a_number(self) -> None:
        last = ends("width=5", "finished")
        found = remarks(
            [
                *ends("width=1", "finished", failures=2),
                *ends("width=2", "finished", "finished", last={"micro_batch": 8}),
                *ends("width=3", "finished", reused_from="first"),
                *ends("width=4", "planned", reason="waits at rung 3 for the others"),
                *last,
            ],
            noted(last, "the checkpoint was damaged"),
        )
        assert [each.line for each in found] == [
            "1 tried again after failing: width=1; 2 failed attempts in all",
            "2 computed 8 examples at once (memory did not suffice for a whole batch): "
            "width=2 (2 times)",
            "1 taken from study first (trained there): width=3",
            "1 waiting at a rung for the others of their stratum: width=4",
            "1 with the note “the checkpoint was damaged”: width=5",
        ]

    def test_what_is_noted_of_every_trial_names_none(self) -> None:
        rows = [row for at in (1, 2) for row in ends(f"heads={at}", "finished", "finished")]
        assert [each.line for each in remarks(rows, noted(rows, "by 2 processes"))] == [
            "4 with the note “by 2 processes”: all of them"
        ]

    def test_many_shapes_and_reasons_are_counted_not_listed(self) -> None:
        lost = [
            end
            for at in range(30)
            for end in ends(f"width={at}", "failed", reason=f"ValueError: number {at}")
        ]
        (found,) = remarks(lost)
        assert found.trials == 30
        assert "and 22 more" in found.details
        assert found.details.endswith("and 27 more")
        assert len(found.line) < 400

    def test_a_reason_is_its_first_line_and_not_endless(self) -> None:
        assert first_line(" one \n two \n\n") == "one"
        assert first_line("") == ""
        long = first_line("x" * 9000 + " at sweep.py:12")
        assert len(long) == 200
        assert long.endswith("xx at sweep.py:12")

    def test_counts(self) -> None:
        counts = [("planned", 3), ("finished", 3), ("stopped_early", 0), ("too_large", 1)]
        assert (
            counts_in_words(
                counts, {"first": 2}, ends("", "planned", "planned", reason=WAITS_AT_RUNG)
            )
            == "3 planned (2 waiting at a rung), 3 finished (2 taken from study first), 1 too large"
        )


def sweep() -> Sweep:
    return tiny_sweep(
        space=grid(width=[1, 2, 3, 4]),
        replicates=3,
        question=Transition(x="width", by=None, scale="error"),
    )


@pytest.fixture
def study(home: Home) -> StudyFolder:
    """A study whose trials ended in every way."""
    study = new_study(home, sweep=sweep())
    with recording(study, sweep()) as (journal, trials):

        def train(trial: Trial, **more: Any) -> None:
            attempt = journal.begin_attempt(trial.key)
            for unit in (1, 2, 3):
                error = (1.0 if trial.point["width"] < 3 else 1e-3) * (1 + trial.replicate / 10)
                report = Report(unit, 4 * unit, {"nmse": error, "fit": 0.5}, 1.0, unit == 3, **more)
                status = TrialStatus.FINISHED if unit == 3 else TrialStatus.RUNNING
                journal.record(trial.key, attempt, report, status)

        for trial in trials:
            match (trial.point["width"], trial.replicate):
                case 2, 1 | 2:
                    attempt = journal.begin_attempt(trial.key)
                    lost = Report(1, 3, {"nmse": None, "fit": None}, 1.0, False, diverged_at=3)
                    journal.record(
                        trial.key, attempt, lost, TrialStatus.DIVERGED, "not finite at step 3"
                    )
                case 4, 0:
                    attempt = journal.begin_attempt(trial.key)
                    journal.set_status(
                        trial.key, attempt, TrialStatus.TOO_LARGE, "one example needs 9.1 GB"
                    )
                case 4, 1:
                    attempt = journal.begin_attempt(trial.key)
                    journal.set_status(
                        trial.key, attempt, TrialStatus.PLANNED, "the worker died", failures=1
                    )
                    train(trial)
                case 3, 0:
                    train(trial, micro_batch=2, note="the checkpoint was damaged")
                case 3, 2:
                    journal.append(journal.removal_entries([trial.key], "no longer in the space"))
                case _:
                    train(trial)
    study.write_tables()
    return study


class TestOnTheCommandLine:
    def test_show_says_what_befell_the_trials(self, hsweep: Invoke, study: StudyFolder) -> None:
        shown = hsweep("show", "mine").stdout
        for line in (
            "8 finished, 2 diverged, 1 too large;",
            "2 diverged: 2 of 3 at width=2; not finite at step 3 (2 times)",
            "1 too large for the device: 1 of 3 at width=4; one example needs 9.1 GB",
            "1 tried again after failing: width=4; 1 failed attempt in all",
            "1 computed 2 examples at once (memory did not suffice for a whole batch): width=3",
            "1 with the note “the checkpoint was damaged”: width=3",
            "1 orphaned: no longer in the space",
            "2 examples at once: memory",
        ):
            assert line in shown

    def test_list_counts_what_was_lost_and_what_is_orphaned(
        self, hsweep: Invoke, study: StudyFolder
    ) -> None:
        shown = hsweep("list").stdout
        assert "3: 2 diverged, 1 too large" in shown
        assert "11 (+1 orphaned)" in shown
        (row,) = json.loads(hsweep("list", "--json").stdout)
        names = ("finished", "too_large", "orphaned", "tried_again", "reused")
        assert [row[name] for name in names] == [8, 1, 1, 1, 0]

    def test_an_export_holds_the_orphans_only_if_asked(
        self, hsweep: Invoke, study: StudyFolder, tmp_path: Any
    ) -> None:
        assert "11 trials" in hsweep("export", "mine", tmp_path / "t.json").stdout
        path = tmp_path / "all.json"
        assert "12 trials" in hsweep("export", "mine", path, "--orphaned").stdout
        whys = {row["orphaned"] for row in json.loads(path.read_text())}
        assert whys == {None, "no longer in the space"}
        assert "orphaned" not in json.loads((tmp_path / "t.json").read_text())[0]

    def test_the_answer_says_which_cells_are_read_from_the_runs_left(
        self, hsweep: Invoke, study: StudyFolder
    ) -> None:
        said = hsweep("analyze", "mine").stdout
        assert (
            "2 of 4 cells are read from the runs that are left: 2 of 3 diverged at width=2; "
            "1 of 3 too large at width=4."
        ) in said
        content = json.loads(hsweep("analyze", "mine", "--json").stdout)
        ended = {cell["x"]: cell["ended"] for cell in content["counts"]}
        assert ended == {
            1: {"finished": 3},
            2: {"finished": 1, "diverged": 2},
            3: {"finished": 2},
            4: {"finished": 2, "too_large": 1},
        }

    def test_the_report_says_it_all(self, hsweep: Invoke, study: StudyFolder) -> None:
        assert hsweep("report", "mine").exit_code == 0
        page = study.paths.report.read_text()
        for said in (
            "<b>2 diverged</b>: 2 of 3 at width=2; not finite at step 3 (2 times)",
            "<b>1 too large for the device</b>: 1 of 3 at width=4; one example needs 9.1 GB",
            "<b>1 tried again after failing</b>: width=4; 1 failed attempt in all",
            "<b>1 orphaned</b>: no longer in the space",
        ):
            assert said in page

    def test_an_exported_table_is_understood_when_it_is_analysed(
        self, hsweep: Invoke, study: StudyFolder, tmp_path: Any
    ) -> None:
        path = tmp_path / "trials.csv"
        hsweep("export", "mine", path)
        asked = ("--kind", "transition", "--x", "width", "--by", "", "--metric", "nmse")
        said = hsweep("analyze", "--table", path, *asked)
        assert said.exit_code == 0, said.output
        assert "2 of 3 diverged at width=2; 1 of 3 too large at width=4" in said.stdout
        asked = ("--kind", "pareto", "--metric", "nmse", "--goal", "min")
        said = hsweep("analyze", "--table", path, *asked)
        assert said.exit_code == 0, said.output
        assert "1 left (2 of 3 diverged)" in said.stdout
        assert "width=2" in said.stdout
