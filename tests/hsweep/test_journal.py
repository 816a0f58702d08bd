"""The record holds whole entries, keeps first reports, and says so when it cannot be read."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsweep import UserError
from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, LogRow, Reported, TrialRow
from hsweep.record.repair import repair_journal
from hsweep.record.text_copy import LogLine, copy_of, read_lines

KEYS = ("ta", "tb", "tc")


def row(key: str, ordinal: int = 0, **point: Any) -> TrialRow:
    return TrialRow(key, ordinal, point or {"width": 1}, 0, "", 9, {"num_params": 6})


def report(unit: int, nmse: float | None = 0.5, seconds: float = 1.0) -> Report:
    return Report(unit, unit * 4, {"nmse": nmse}, seconds, is_last=unit == 9)


def planned(folder: Path) -> Journal:
    journal = Journal(folder / "journal.db", create=True)
    journal.add_trials(row(key, ordinal) for ordinal, key in enumerate(KEYS))
    return journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with planned(tmp_path) as journal:
        yield journal


def statuses(journal: Journal, key: str) -> list[str]:
    entries = [entry for entry in journal.log_after(0, 10_000) if entry.key == key]
    return [entry.payload["status"] for entry in entries if entry.kind == "status"]


class TestTrials:
    def test_planned_trials_come_back_as_they_were_in_the_order_of_the_plan(
        self, journal: Journal
    ) -> None:
        point = {"width": 2, "lr": 0.1, "act": "gelu", "clip": None, "bias": True}
        journal.add_trials([TrialRow("td", 3, point, 4, "width=2", 7, {"num_params": 12})])
        assert [row.key for row in journal.trials()] == ["ta", "tb", "tc", "td"]
        assert journal.trials()[-1] == TrialRow(
            "td", 3, point, 4, "width=2", 7, {"num_params": 12}, TrialStatus.PLANNED
        )

    def test_a_trial_that_is_there_already_keeps_its_state(self, journal: Journal) -> None:
        attempt = journal.begin_attempt("ta")
        journal.record("ta", attempt, report(9), 0.5, TrialStatus.FINISHED)
        journal.add_trials([row("ta"), row("td", 3)])
        assert [row.status for row in journal.trials()] == ["finished", *["planned"] * 3]

    def test_attempts_count_up_and_begin_afresh(self, journal: Journal) -> None:
        assert journal.begin_attempt("ta") == 1
        journal.set_status("ta", 1, TrialStatus.PLANNED, "out of memory")
        assert journal.begin_attempt("ta") == 2
        assert journal.begin_attempt("tb") == 1
        assert (journal.trials()[0].status, journal.trials()[0].reason) == ("running", "")
        assert statuses(journal, "ta") == ["running", "planned", "running"]

    def test_every_status_is_counted_also_those_that_none_has(self, journal: Journal) -> None:
        journal.begin_attempt("ta")
        counts = journal.status_counts()
        assert set(counts) == set(TrialStatus)
        assert (counts[TrialStatus.RUNNING], counts[TrialStatus.PLANNED]) == (1, 2)


class TestReports:
    def test_a_report_and_the_status_it_leads_to_are_one(self, journal: Journal) -> None:
        attempt = journal.begin_attempt("ta")
        journal.record(
            "ta", attempt, report(3, 0.25, 2.0), 0.25, TrialStatus.STOPPED_EARLY, "worst"
        )
        [stopped, *_] = journal.trials()
        assert (stopped.status, stopped.reason) == (TrialStatus.STOPPED_EARLY, "worst")
        assert (stopped.unit, stopped.value, stopped.wall_seconds) == (3, 0.25, 2.0)
        assert statuses(journal, "ta")[-1] == "stopped_early"

    def test_neither_is_recorded_if_one_cannot_be(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempt = journal.begin_attempt("ta")
        before = journal.last_seq()

        def fail(*_: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(journal, "_log_status", fail)
        with pytest.raises(OSError, match="no space left"):
            journal.record("ta", attempt, report(9), 0.5, TrialStatus.FINISHED)
        assert journal.last_seq() == before
        assert (journal.trials()[0].status, journal.trials()[0].unit) == ("running", 0)

    def test_the_first_report_of_a_unit_stays(self, journal: Journal) -> None:
        assert journal.record("ta", 1, report(3, 0.5), 0.5)
        assert not journal.record("ta", 2, report(3, 0.7), 0.7)
        [kept] = journal.reports("ta")
        assert (kept.attempt, kept.payload["metrics"]) == (1, {"nmse": 0.5})
        assert journal.trials()[0].value == 0.5

    def test_a_value_that_is_not_finite_is_none(self, journal: Journal) -> None:
        journal.record("ta", 1, report(3, None), None)
        [kept] = journal.reports("ta")
        assert kept.payload["metrics"] == {"nmse": None}
        assert journal.trials()[0].value is None

    @settings(deadline=None, derandomize=True, max_examples=25)
    @given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 9)), max_size=30))
    def test_each_trial_has_its_units_once_and_stands_at_the_highest(
        self, told: list[tuple[str, int]]
    ) -> None:
        with TemporaryDirectory() as folder, planned(Path(folder)) as journal:
            for key, unit in told:
                journal.record(key, 1, report(unit, unit / 10), unit / 10)
            for kept in journal.trials():
                units = [unit for key, unit in told if key == kept.key]
                recorded = [entry.unit for entry in journal.reports(kept.key)]
                assert recorded == list(dict.fromkeys(units))
                assert kept.unit == max(units, default=0)
                assert kept.value == (max(units) / 10 if units else None)

    def test_the_log_can_be_read_in_parts(self, journal: Journal) -> None:
        for unit in range(1, 6):
            journal.record("ta", 1, report(unit), 0.5)
        parts: list[LogRow] = []
        while part := journal.log_after(parts[-1].seq if parts else 0, 2):
            parts += part
        assert [entry.unit for entry in parts] == [1, 2, 3, 4, 5]
        assert journal.last_seq() == parts[-1].seq
        assert journal.count_after(parts[2].seq) == 2


class TestMeta:
    def test_values_are_set_replaced_and_found_by_prefix(self, journal: Journal) -> None:
        for name, value in (("a:1", "x"), ("a:2", "y"), ("b:1", "z"), ("a:1", "w")):
            journal.set_meta(name, value)
        assert journal.meta("a:1") == "w"
        assert journal.meta("nothing") is None
        assert journal.metas("a:") == {"1": "w", "2": "y"}
        journal.clear_metas("a:")
        assert journal.metas("a:") == {}
        assert journal.meta("b:1") == "z"

    def test_readers_remember_how_far_they_came(self, journal: Journal) -> None:
        assert journal.cursor("mlflow") == 0
        journal.set_cursor("mlflow", 7)
        journal.set_cursor("other", 2)
        assert (journal.cursor("mlflow"), journal.cursor("other")) == (7, 2)


class TestBesideAWriter:
    def test_a_reader_sees_what_was_recorded_while_the_writer_goes_on(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        with Journal(tmp_path / "journal.db", read_only=True) as reader:
            journal.record("ta", 1, report(1), 0.5)
            assert [entry.unit for entry in reader.reports()] == [1]
            journal.record("ta", 1, report(2), 0.5)
            assert [entry.unit for entry in reader.reports()] == [1, 2]

    def test_a_reader_in_the_middle_of_a_list_does_not_hinder_the_writer(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        for unit in (1, 2, 3):
            journal.record("ta", 1, report(unit), 0.5)
        with Journal(tmp_path / "journal.db", read_only=True) as reader:
            reports = reader.reports()
            next(reports)
            journal.record("ta", 1, report(4), 0.5)
            assert len(list(reports)) == 2

    def test_a_reader_cannot_write(self, journal: Journal, tmp_path: Path) -> None:
        with (
            Journal(tmp_path / "journal.db", read_only=True) as reader,
            pytest.raises(sqlite3.OperationalError, match="readonly"),
        ):
            reader.set_meta("name", "value")


KILLED = """
import os, signal, sys
from pathlib import Path
from hsweep.record.journal import Journal
from hsweep.design.trial import Report, TrialStatus

path, when = Path(sys.argv[1]), sys.argv[2]
journal = Journal(path)
attempt = journal.begin_attempt("ta")
for unit in range(1, 6):
    journal.record("ta", attempt, Report(unit, unit, {"nmse": 0.5}, 1.0, False), 0.5)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if when == "in the transaction":
    journal._log_status = die
last = Report(9, 9, {"nmse": 0.1}, 1.0, True)
journal.record("ta", attempt, last, 0.1, TrialStatus.FINISHED)
die()
"""


class TestAKill:
    @pytest.mark.parametrize(
        ("when", "units", "status"),
        [
            ("in the transaction", [1, 2, 3, 4, 5], "running"),
            ("after it", [1, 2, 3, 4, 5, 9], "finished"),
        ],
    )
    def test_leaves_whole_entries(
        self, journal: Journal, tmp_path: Path, when: str, units: list[int], status: str
    ) -> None:
        journal.close()
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path / "journal.db"), when],
            capture_output=True,
            text=True,
        )
        assert killed.returncode == -9, killed.stderr
        with Journal(tmp_path / "journal.db") as after:
            assert [entry.unit for entry in after.reports("ta")] == units
            [trial, *_] = after.trials()
            assert (trial.status, trial.unit) == (status, units[-1])
            assert after.begin_attempt("ta") == 2


class TestUnreadableFiles:
    def test_a_missing_journal_is_not_made_unless_asked_for(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"journal\.db cannot be read \(it is missing\)"):
            Journal(tmp_path / "journal.db")
        assert not (tmp_path / "journal.db").exists()

    @pytest.mark.parametrize("read_only", [True, False])
    @pytest.mark.parametrize("content", [b"", b"garbage", b"SQLite format 3\0" + b"x" * 5000])
    def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(
        self, tmp_path: Path, content: bytes, read_only: bool
    ) -> None:
        path = tmp_path / "journal.db"
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"journal\.db cannot be read"):
            Journal(path, read_only=read_only)
        assert path.read_bytes() == content

    @pytest.mark.parametrize("read_only", [True, False])
    @pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 0.9])
    def test_a_truncated_journal_is_refused_when_opened(
        self, journal: Journal, tmp_path: Path, share: float, read_only: bool
    ) -> None:
        for unit in range(1, 300):
            journal.record("ta", 1, report(unit), 0.5)
        journal.close()
        path = tmp_path / "journal.db"
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
        with pytest.raises(UserError, match=r"journal\.db cannot be read"):
            Journal(path, read_only=read_only)

    def test_pages_overwritten_by_something_else_are_noticed_when_read(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        for unit in range(1, 300):
            journal.record("ta", 1, report(unit), 0.5)
        journal.close()
        path = tmp_path / "journal.db"
        content = path.read_bytes()
        path.write_bytes(content[:12_288] + b"\xff" * (len(content) - 12_288))
        with (
            pytest.raises(UserError, match=r"journal\.db cannot be read"),
            Journal(path, read_only=True) as damaged,
        ):
            _read_everything(damaged)

    def test_a_file_of_a_later_version_is_refused(self, journal: Journal, tmp_path: Path) -> None:
        journal.set_meta("schema_version", "99")
        journal.close()
        for read_only in (True, False):
            with pytest.raises(UserError, match=r"later version of hsweep \(schema 99"):
                Journal(tmp_path / "journal.db", read_only=read_only)

    def test_the_schema_is_the_one_that_recorded_studies_have(self, journal: Journal) -> None:
        assert journal.meta("schema_version") == "2"


def _read_everything(journal: Journal) -> None:
    json.dumps([str(entry) for entry in journal.reports()])
    journal.trials()
    journal.status_counts()
    journal.log_after(0, 10**6)


def test_the_share_of_time_that_trials_waited_for_data_is_that_of_their_last_reports(
    journal: Journal,
) -> None:
    assert journal.data_wait_share() is None
    for key, unit, trained, waited in (("ta", 3, 10, 9), ("ta", 6, 30, 9), ("tb", 3, 70, 1)):
        attempt = journal.begin_attempt(key)
        timed = replace(report(unit), train_seconds=float(trained), data_seconds=float(waited))
        journal.record(key, attempt, timed, 0.5)
    assert journal.data_wait_share() == pytest.approx(10 / 100)


class TestTogether:
    def test_several_reports_are_what_they_would_be_one_by_one(self, tmp_path: Path) -> None:
        told = [
            Reported("ta", 1, report(1), 0.5),
            Reported("tb", 1, report(1), 0.25),
            Reported("ta", 1, report(1, 0.7), 0.7),
            Reported("ta", 1, report(9), 0.125, TrialStatus.FINISHED),
            Reported("tb", 1, report(3), None, TrialStatus.DIVERGED, "not finite"),
        ]
        found = []
        for name, at_once in (("one by one", 1), ("together", len(told))):
            (tmp_path / name).mkdir()
            with planned(tmp_path / name) as journal:
                new: list[bool] = []
                for first in range(0, len(told), at_once):
                    new += journal.record_many(told[first : first + at_once])
                log = [replace(entry, time=0.0) for entry in journal.log()]
                found.append((new, journal.trials(), log, lines_without_times(tmp_path / name)))
        assert found[0] == found[1]
        assert found[0][0] == [True, True, False, True, True]

    def test_one_write_to_the_copy_and_one_transaction(
        self, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writes: list[int] = []
        write = os.write

        def counted(file: int, content: bytes) -> int:
            writes.append(content.count(b"\n"))
            return write(file, content)

        monkeypatch.setattr(os, "write", counted)
        with Journal(tmp_path / "journal.db", read_only=True) as reader:
            with journal.together():
                journal.begin_attempt("ta")
                journal.record_many([Reported("ta", 1, report(unit), 0.5) for unit in (1, 2)])
                journal.set_meta("name", "value")
                assert reader.last_seq() == 0
                assert writes == []
            assert [entry.unit for entry in reader.reports()] == [1, 2]
        assert writes == [4]

    @pytest.mark.parametrize("is_caught", [True, False])
    def test_what_fails_takes_back_all_that_belongs_to_it(
        self, journal: Journal, tmp_path: Path, is_caught: bool
    ) -> None:
        journal.begin_attempt("ta")
        before = journal.trials(), list(journal.log()), copy_of(tmp_path / "journal.db").read_text()

        def fail() -> None:
            with journal.together():
                journal.record("ta", 1, report(1), 0.5)
                try:
                    journal.record("nowhere", 1, report(1), 0.5)
                except KeyError:
                    if not is_caught:
                        raise
                journal.set_status("ta", 1, TrialStatus.FAILED, "late")

        with pytest.raises(sqlite3.Error if is_caught else KeyError):
            fail()
        after = journal.trials(), list(journal.log()), copy_of(tmp_path / "journal.db").read_text()
        assert after == before
        # What was known of the trial in between is forgotten with it.
        assert journal.record("ta", 1, report(1), 0.25)
        assert journal.trials()[0].value == 0.25

    def test_a_kill_within_leaves_nothing_of_it(self, journal: Journal, tmp_path: Path) -> None:
        journal.close()
        within = "block = journal.together()\nblock.__enter__()\nlast = Report"
        program = KILLED.replace("last = Report", within)
        killed = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "journal.db"), "at the end"],
            capture_output=True,
            text=True,
        )
        assert killed.returncode == -9, killed.stderr
        with Journal(tmp_path / "journal.db") as after:
            assert [entry.unit for entry in after.reports("ta")] == [1, 2, 3, 4, 5]
            assert after.trials()[0].status == "running"


def lines_without_times(folder: Path) -> list[Any]:
    found = []
    for line in read_lines(copy_of(folder / "journal.db")):
        if isinstance(line, LogLine):
            line = replace(line, log=tuple((seq, 0.0, *rest) for seq, _, *rest in line.log))
        found.append(line)
    return found


@pytest.mark.parametrize("key", ["1" * 20, "12345678901234567e89", "007", "1.50", "inf"])
def test_a_key_that_reads_as_a_number_is_a_text(tmp_path: Path, key: str) -> None:
    with Journal(tmp_path / "journal.db", create=True) as journal:
        journal.add_trials([row(key)])
        journal.place_trials([row(key, 3)])
        attempt = journal.begin_attempt(key)
        journal.record(key, attempt, report(9), 0.5, TrialStatus.FINISHED)
        [trial] = journal.trials()
    assert (trial.key, trial.ordinal, trial.status) == (key, 3, "finished")
    assert repair_journal(tmp_path / "journal.db") == []


@settings(deadline=None, max_examples=20)
@given(st.one_of(st.none(), st.floats(), st.integers(-9, 9)), st.floats(0, 1e300), st.data())
def test_a_row_is_sealed_as_it_will_be_read(
    value: float | None, seconds: float, data: st.DataObject
) -> None:
    zero = data.draw(st.sampled_from([0.0, -0.0, 1.0]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with planned(Path(folder)) as journal:
            told = replace(report(3), metrics={"nmse": value}, wall_seconds=seconds * zero)
            journal.record("ta", 1, told, value, TrialStatus.FINISHED, 'é\u2028"')
        with Journal(path, read_only=True) as journal:
            before = journal.trials(), list(journal.log())
        assert repair_journal(path) == []
        path.unlink()
        repair_journal(path)
        with Journal(path, read_only=True) as journal:
            assert repr((journal.trials(), list(journal.log()))) == repr(before)
