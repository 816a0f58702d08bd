"""The record holds whole entries and keeps first reports, alone or several together."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, JournalReader, LogRow, TrialRow

KEYS = ("ta", "tb", "tc")


def row(key: str, ordinal: int = 0, **point: Any) -> TrialRow:
    return TrialRow(key, ordinal, point or {"width": 1}, 0, "", 9, {"num_params": 6})


def report(unit: int, nmse: float | None = 0.5, seconds: float = 1.0) -> Report:
    return Report(unit, unit * 4, {"nmse": nmse}, seconds, is_last=unit == 9)


def planned(folder: Path) -> Journal:
    journal = Journal(folder / "journal", create=True)
    journal.add_trials(row(key, ordinal) for ordinal, key in enumerate(KEYS))
    return journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with planned(tmp_path) as journal:
        yield journal


def statuses(journal: Journal, key: str) -> list[str]:
    entries = [entry for entry in journal.log_after(0, 10_000) if entry.key == key]
    return [entry.payload["status"] for entry in entries if entry.kind == "status"]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.text(), st.text(st.characters(categories=["Cs", "Cc", "Ll"]), max_size=8))
def test_any_text_can_be_stored_and_reads_as_the_writer_has_it(reason: str, name: str) -> None:
    with TemporaryDirectory() as folder, planned(Path(folder)) as journal:
        journal.set_status("ta", 1, TrialStatus.FAILED, reason)
        journal.set_meta(f"note {name}", reason)
        with JournalReader(Path(folder) / "journal") as reader:
            assert reader.trials() == journal.trials()
            assert reader.metas("note ") == journal.metas("note ")
        if reason.isprintable():
            assert journal.rows["ta"].reason == reason


class TestTrials:
    def test_planned_trials_come_back_as_they_were_in_the_order_of_the_plan(
        self, journal: Journal
    ) -> None:
        point = {"width": 2, "lr": 0.1, "act": "gelu", "clip": None, "bias": True}
        journal.add_trials([TrialRow("td", 3, point, 4, "width=2", 7, {"num_params": 12})])
        assert [row.key for row in journal.trials()] == ["ta", "tb", "tc", "td"]
        assert journal.trials()[-1] == TrialRow(
            "td", 3, point, 4, "width=2", 7, {"num_params": 12}, status=TrialStatus.PLANNED
        )

    def test_a_trial_that_is_there_already_keeps_its_state(self, journal: Journal) -> None:
        attempt = journal.begin_attempt("ta")
        journal.record("ta", attempt, report(9), TrialStatus.FINISHED)
        journal.add_trials([row("ta"), row("td", 3)])
        assert [row.status for row in journal.trials()] == ["finished", *["planned"] * 3]

    def test_attempts_count_up_and_begin_afresh(self, journal: Journal) -> None:
        assert journal.begin_attempt("ta") == 1
        journal.set_status("ta", 1, TrialStatus.PLANNED, "out of memory")
        assert journal.begin_attempt("ta") == 2
        assert journal.begin_attempt("tb") == 1
        assert (journal.trials()[0].status, journal.trials()[0].reason) == ("running", "")
        assert statuses(journal, "ta") == ["running", "planned", "running"]


class TestReports:
    def test_a_report_and_the_status_it_leads_to_are_one(self, journal: Journal) -> None:
        attempt = journal.begin_attempt("ta")
        journal.record("ta", attempt, report(3, 0.25, 2.0), TrialStatus.STOPPED_EARLY, "worst")
        [stopped, *_] = journal.trials()
        assert (stopped.status, stopped.reason) == (TrialStatus.STOPPED_EARLY, "worst")
        assert (stopped.unit, stopped.metrics["nmse"], stopped.wall_seconds) == (3, 0.25, 2.0)
        assert statuses(journal, "ta")[-1] == "stopped_early"

    def test_the_first_report_of_a_unit_stays(self, journal: Journal) -> None:
        assert journal.record("ta", 1, report(3, 0.5))
        assert not journal.record("ta", 2, report(3, 0.7))
        [kept] = journal.reports(["ta"])
        assert (kept.attempt, kept.payload["metrics"]) == (1, {"nmse": 0.5})
        assert journal.trials()[0].metrics["nmse"] == 0.5

    @settings(deadline=None, derandomize=True, max_examples=25)
    @given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 9)), max_size=30))
    def test_each_trial_has_its_units_once_and_stands_at_the_highest(
        self, told: list[tuple[str, int]]
    ) -> None:
        with TemporaryDirectory() as folder, planned(Path(folder)) as journal:
            for key, unit in told:
                journal.record(key, 1, report(unit, unit / 10))
            for kept in journal.trials():
                units = [unit for key, unit in told if key == kept.key]
                recorded = [entry.unit for entry in journal.reports([kept.key])]
                # What lies behind the last report is the same training again.
                assert recorded == [u for at, u in enumerate(units) if u > max([0, *units[:at]])]
                assert kept.unit == max(units, default=0)
                assert kept.metrics.get("nmse") == (max(units) / 10 if units else None)

    def test_the_log_can_be_read_in_parts(self, journal: Journal) -> None:
        for unit in range(1, 6):
            journal.record("ta", 1, report(unit))
        parts: list[LogRow] = []
        while part := journal.log_after(parts[-1].seq if parts else 0, 2):
            parts += part
        assert [entry.unit for entry in parts] == [1, 2, 3, 4, 5]
        assert journal.last_seq() == parts[-1].seq
        assert journal.count_after(parts[2].seq) == 2


class TestBesideAWriter:
    def test_a_reader_sees_what_was_recorded_while_the_writer_goes_on(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        with JournalReader(tmp_path / "journal") as reader:
            journal.record("ta", 1, report(1))
            assert [entry.unit for entry in reader.reports()] == [1]
            journal.record("ta", 1, report(2))
            assert [entry.unit for entry in reader.reports()] == [1, 2]


def test_the_share_of_time_that_trials_waited_for_data_is_that_of_their_last_reports(
    journal: Journal,
) -> None:
    assert journal.totals()["data_wait_share"] is None
    for key, unit, trained, waited in (("ta", 3, 10, 9), ("ta", 6, 30, 9), ("tb", 3, 70, 1)):
        attempt = journal.begin_attempt(key)
        timed = replace(report(unit), train_seconds=float(trained), data_seconds=float(waited))
        journal.record(key, attempt, timed)
    assert journal.totals()["data_wait_share"] == pytest.approx(10 / 100)


class TestTogether:
    def test_what_is_recorded_together_is_one_line(self, journal: Journal, tmp_path: Path) -> None:
        log = tmp_path / "journal" / "000001.jsonl"
        journal.record("ta", 1, report(1))
        before = log.read_text()
        journal.record("ta", 1, report(2), TrialStatus.STOPPED_EARLY)
        assert log.read_text().removeprefix(before).count("\n") == 1
        before = log.read_text()
        with JournalReader(tmp_path / "journal") as reader:
            reports = list(journal.reports(["ta"]))
            journal.append(
                journal.adoption_entries(
                    "tb", reports, status=TrialStatus.FINISHED, origins=["torch 2"]
                )
            )
            assert [entry.unit for entry in reader.reports(["tb"])] == [1, 2]
            assert reader.origins("tb") == {"tb": ["torch 2"]}
        assert log.read_text().removeprefix(before).count("\n") == 1

    def test_a_trial_that_is_not_on_record_is_refused_and_nothing_is_written(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        before = (tmp_path / "journal" / "000001.jsonl").read_bytes()
        with pytest.raises(KeyError):
            journal.record("nowhere", 1, report(1))
        with pytest.raises(KeyError):
            journal.set_status("nowhere", 1, TrialStatus.FAILED)
        assert (tmp_path / "journal" / "000001.jsonl").read_bytes() == before

    def test_the_state_of_the_writer_is_that_of_the_index(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        attempt = journal.begin_attempt("ta", "torch 2")
        journal.record("ta", attempt, report(3), TrialStatus.STOPPED_EARLY, "worst")
        journal.set_status("tb", 0, TrialStatus.PLANNED, "alone", exclusive=True)
        journal.append(journal.removal_entries(["tc"], "gone"))
        with JournalReader(tmp_path / "journal") as reader:
            assert reader.trials(orphaned=True) == journal.trials(orphaned=True)
            assert reader.trials() == journal.trials()
            assert reader.metas("") == journal.metas("")
        with Journal(tmp_path / "journal") as again:
            assert again.rows == journal.rows


@pytest.mark.parametrize("key", ["12345678901234567e89", "007", "inf"])
def test_a_key_that_reads_as_a_number_is_a_text(tmp_path: Path, key: str) -> None:
    with Journal(tmp_path / "journal", create=True) as journal:
        journal.add_trials([row(key)])
        journal.append([row(key, 3).plan_entry()])
        attempt = journal.begin_attempt(key)
        journal.record(key, attempt, report(9), TrialStatus.FINISHED)
        [trial] = journal.trials()
    assert (trial.key, trial.ordinal, trial.status) == (key, 3, "finished")
    with JournalReader(tmp_path / "journal") as reader:
        assert reader.trials() == [trial]


def test_values_are_set_and_forgotten_together_and_found_by_prefix(journal: Journal) -> None:
    journal.set_metas({"run:a": "1", "run:b": "2", "runs": "3", "rum": "4", "run:\U0001f600": "5"})
    assert journal.metas("run:") == {"a": "1", "b": "2", "\U0001f600": "5"}
    journal.set_meta("run:b", "0")
    journal.set_metas({"run:a": None, "run:b": "6", "nobody": None})
    assert journal.metas("run:") == {"b": "6", "\U0001f600": "5"}
    assert (journal.meta("run:b"), journal.meta("run:a")) == ("6", None)
    journal.set_metas({"run:b": None, "run:\U0001f600": None})
    assert journal.metas("run:") == {}
    assert journal.metas("ru") == {"ns": "3", "m": "4"}


def test_trials_asked_for_by_key_are_those_of_the_whole(journal: Journal) -> None:
    keys = [f"{number}" for number in range(1203)]
    journal.add_trials(row(key, ordinal) for ordinal, key in enumerate(keys))
    journal.append(journal.removal_entries(["7"], "gone"))
    assert journal.trials_of(["9", "7", "9", "nobody"]).keys() == {"7", "9"}
    everything = {row.key: row for row in journal.trials(orphaned=True)}
    assert journal.trials_of(reversed([*keys, *KEYS])) == everything


def test_the_last_report_before_an_entry(journal: Journal) -> None:
    for key in KEYS:
        for unit in range(1, 4):
            journal.record(key, 1, report(unit))
    reports = list(journal.reports(["ta"]))
    assert journal.last_report("ta", before=10**9) == reports[-1]
    assert journal.last_report("ta", before=reports[-1].seq) == reports[-2]
    assert journal.last_report("ta", before=reports[0].seq) is None
