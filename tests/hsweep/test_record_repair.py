"""A damaged record is rebuilt from its second copy, up to the last whole entry of every trial."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsweep import UserError
from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, LogRow, TrialRow
from hsweep.record.repair import repair_journal
from hsweep.record.text_copy import (
    LogLine,
    MetaLine,
    RecordCopy,
    TrialLine,
    copy_of,
    decode,
    read_lines,
)

KEYS = ("ta", "tb", "tc")
PAGE = 4096


def row(key: str, ordinal: int) -> TrialRow:
    point = {"width": ordinal, "act": "gélu"}
    return TrialRow(key, ordinal, point, 0, "width=1", 9, {"num_params": 6}, parts={"model": "m"})


def report(unit: int, nmse: float | None = 0.1 + 0.2) -> Report:
    return Report(unit, unit * 4, {"nmse": nmse, "fit": 1.0}, 1.0 / 3, is_last=unit == 9)


def write_record(path: Path) -> None:
    """Record one of everything that can happen to trials."""
    with Journal(path, create=True) as journal:
        journal.add_trials(row(key, number) for number, key in enumerate(KEYS))
        journal.set_meta("study_id", "5eed")
        for unit in (1, 2, 3):
            for key in KEYS[:2]:
                if unit == 1:
                    journal.begin_attempt(key)
                journal.record(key, 1, report(unit), 0.5 / unit)
        journal.note_failure("ta", 1, 2, "boom\nlast line")
        journal.set_alone("ta", 1, "too large beside others")
        journal.begin_attempt("ta")
        journal.record("ta", 2, report(9, None), None, TrialStatus.FINISHED)
        journal.set_meta("proposal:000000", '{"id": "0:0"}')
        journal.set_meta("forgotten:1", "x")
        journal.clear_metas("forgotten:")
        journal.set_orphaned(["tc"], "no longer in the space")
        journal.add_trials([row("td", 3)])
        reports = list(journal.reports("tb"))
        journal.adopt("td", reports, status=TrialStatus.FINISHED, value=0.5, reused_from="other")
        journal.reopen(["td"], "asked for again")


Record = tuple[list[TrialRow], list[LogRow], dict[str, str]]


def read(path: Path) -> Record:
    with Journal(path, read_only=True) as journal:
        return list(journal.trials(orphaned=True)), list(journal.log()), journal.metas("")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "journal.db"
    write_record(path)
    return path


@pytest.fixture(scope="module")
def whole(original: Path) -> Record:
    return read(original)


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A journal that a test may damage."""
    for file in original.parent.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / original.name


def assert_settled(path: Path) -> None:
    """Check that nothing is left to repair, and that the study can go on."""
    assert repair_journal(path) == []
    with Journal(path) as journal:
        trials = journal.trials()
        if trials:
            last = journal.last_seq()
            journal.begin_attempt(trials[0].key)
            assert journal.last_seq() > last


class TestTheCopy:
    def test_it_alone_gives_the_record_back(self, path: Path, whole: Record) -> None:
        path.unlink()
        [said] = repair_journal(path)
        assert (
            "journal.db was damaged (it is missing): rebuilt with 4 trials and 10 reports" in said
        )
        assert read(path) == whole
        assert_settled(path)

    def test_it_is_never_behind_after_a_change(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        with Journal(path, create=True) as journal:
            journal.add_trials([row("ta", 0)])
            attempt = journal.begin_attempt("ta")
            for unit in (1, 2, 3):
                journal.record("ta", attempt, report(unit), 0.5)
                lines = [line for line in read_lines(copy_of(path)) if isinstance(line, LogLine)]
                assert lines[-1].log[-1][0] == journal.last_seq()

    def test_a_change_that_was_rolled_back_is_not_in_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "journal.db"
        with Journal(path, create=True) as journal:
            journal.add_trials([row("ta", 0)])
            before = copy_of(path).read_bytes()
            monkeypatch.setattr(journal, "_log_status", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                journal.record("ta", 1, report(9), 0.5, TrialStatus.FINISHED)
            monkeypatch.undo()
            assert copy_of(path).read_bytes() == before
            journal.set_meta("a", "b")
        assert [type(line) for line in read_lines(copy_of(path))] == [TrialLine, MetaLine]

    def test_every_line_has_a_checksum(self, path: Path) -> None:
        lines = copy_of(path).read_bytes().splitlines(keepends=True)
        rng = random.Random(0)
        for line in lines:
            at = rng.randrange(len(line) - 1)
            copy_of(path).write_bytes(line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :])
            assert [found for found in read_lines(copy_of(path)) if found is not None] == []

    def test_a_study_goes_on_while_it_cannot_be_written_and_it_catches_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "journal.db"
        with Journal(path, create=True) as journal:
            journal.add_trials([row("ta", 0)])

            def full(_file: int, data: bytes) -> int:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr("hsweep.record.text_copy.os.write", full)
            journal.record("ta", 1, report(1), 0.5)
            assert journal.copy_problem == "No space left on device"
            monkeypatch.undo()
            halves = iter([7, 10**9])
            write = os.write
            monkeypatch.setattr(
                "hsweep.record.text_copy.os.write",
                lambda file, data: write(file, data[: next(halves)]),
            )
            journal.record("ta", 1, report(2), 0.5)
            assert journal.copy_problem == "no space left"
            journal.record("ta", 1, report(3), 0.5)
            assert journal.copy_problem == ""
        before = read(path)
        path.unlink()
        repair_journal(path)
        assert read(path) == before

    def test_a_record_of_before_there_was_a_copy_is_given_one(
        self, path: Path, whole: Record
    ) -> None:
        copy_of(path).unlink()
        [said] = repair_journal(path)
        assert said == "journal.jsonl was missing or empty: written from journal.db"
        assert_settled(path)
        shutil.copy(path, path.with_name("before.db"))
        path.unlink()
        repair_journal(path)
        assert read(path)[1] == read(path.with_name("before.db"))[1]

    def test_a_journal_of_version_1_is_given_checksums_and_a_copy(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.db"
        write_version_1(path)
        before = read(path)
        assert [trial.status for trial in before[0]] == ["finished", "planned"]
        assert len(repair_journal(path)) == 1
        with Journal(path) as journal:
            journal.begin_attempt("tb")
        path.unlink()
        repair_journal(path)
        trials, log, _ = read(path)
        assert trials[0] == before[0][0]
        assert trials[1] == replace(before[0][1], status=TrialStatus.RUNNING, attempt=1)
        assert log[:-1] == before[1]


def write_version_1(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE trials (key TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, point TEXT NOT NULL,
            replicate INTEGER NOT NULL, stratum TEXT NOT NULL, budget INTEGER NOT NULL,
            counts TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
            attempt INTEGER NOT NULL DEFAULT 0, unit INTEGER NOT NULL DEFAULT 0, value REAL,
            wall_seconds REAL NOT NULL DEFAULT 0);
        CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL,
            key TEXT NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL, unit INTEGER,
            payload TEXT NOT NULL);
        CREATE TABLE cursors (name TEXT PRIMARY KEY, seq INTEGER NOT NULL);
        INSERT INTO meta VALUES ('schema_version', '1');
        INSERT INTO trials VALUES ('ta', 0, '{"width": 1}', 0, '', 3, '{}', 'finished', '', 1, 3,
            0.25, 2.5);
        INSERT INTO trials (key, ordinal, point, replicate, stratum, budget, counts, status)
            VALUES ('tb', 1, '{"width": 2}', 0, '', 3, '{}', 'planned');
        INSERT INTO log (time, key, attempt, kind, unit, payload)
            VALUES (1.5, 'ta', 1, 'report', 3, '{"step": 3, "metrics": {"nmse": 0.25}}'),
                (1.5, 'ta', 1, 'status', NULL, '{"status": "finished", "reason": ""}');
    """)
    connection.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from hsweep.record import text_copy as record_copy
from hsweep.record.journal import Journal
from hsweep.design.trial import Report, TrialStatus

written = int(sys.argv[2])
journal = Journal(Path(sys.argv[1]))
journal.begin_attempt("tb")
write = os.write

def die(file, data):
    write(file, data[:written])
    os.kill(os.getpid(), signal.SIGKILL)

record_copy.os.write = die
journal.record("tb", 2, Report(9, 9, {"nmse": 0.1}, 1.0, True), 0.1, TrialStatus.FINISHED)
"""


@pytest.mark.parametrize("written", [0, 40])
def test_a_kill_between_a_change_and_its_line_loses_neither(path: Path, written: int) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), str(written)], capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    repair_journal(path)
    recorded = read(path)
    assert recorded[0][1].status is TrialStatus.FINISHED
    assert_same_from_the_copy_alone(path, recorded)


def test_a_torn_line_is_ended_by_whoever_writes_next(path: Path, whole: Record) -> None:
    copy = copy_of(path)
    copy.write_bytes(copy.read_bytes()[:-20])
    with Journal(path) as journal:
        journal.set_meta("next", "line")
    assert list(read_lines(copy)).count(None) == 1
    [said] = repair_journal(path)
    assert said == "journal.jsonl had a torn or garbled line: written anew from journal.db"
    assert_same_from_the_copy_alone(path, (whole[0], whole[1], whole[2] | {"next": "line"}))


def assert_same_from_the_copy_alone(path: Path, recorded: Record) -> None:
    for file in (path, path.with_name("journal.db-wal"), path.with_name("journal.db-shm")):
        file.unlink(missing_ok=True)
    repair_journal(path)
    assert read(path) == recorded


class TestADamagedDatabase:
    def test_cut_anywhere_it_is_recovered_whole(self, path: Path, whole: Record) -> None:
        content = path.read_bytes()
        borders = [page + off for page in range(0, len(content), PAGE) for off in (-1, 0, 1)]
        cuts = {*borders, *range(0, 110, 9), *range(0, len(content), len(content) // 20)}
        for cut in sorted(cut for cut in cuts if 0 <= cut < len(content)):
            path.write_bytes(content[:cut])
            assert_clear_or_right(path, whole)
            repair_journal(path)
            # Where only the unused end of a page is gone, so is nothing that was recorded.
            assert read(path) == whole, cut
        assert_settled(path)

    def test_the_damaged_file_is_kept_beside_the_new_one(self, path: Path) -> None:
        for content in (b"garbage", b"more garbage"):
            path.write_bytes(content)
            repair_journal(path)
        kept = [path.with_name(f"journal.db.damaged-{number}") for number in (1, 2)]
        assert [file.read_bytes() for file in kept] == [b"garbage", b"more garbage"]

    def test_flipped_bytes_are_never_taken_for_what_was_recorded(
        self, path: Path, whole: Record
    ) -> None:
        content = path.read_bytes()
        rng = random.Random(1)
        for _ in range(120):
            at, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
            path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            assert_clear_or_right(path, whole)
            repair_journal(path)
            assert read(path) == whole, (at, bit)

    @pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.99])
    def test_a_log_of_the_database_that_is_cut_costs_nothing(
        self, tmp_path: Path, share: float
    ) -> None:
        """SQLite takes such a file for an older state, and reads that without complaint."""
        path = tmp_path / "journal.db"
        write_record(path)
        with Journal(path) as journal:
            for unit in (4, 5, 6):
                journal.record("tb", 1, report(unit), 0.5)
            recorded = read(path)
            # As they lie while a study runs: a process that ends would tidy up.
            for ending in ("", "-wal"):
                file = path.with_name(path.name + ending)
                shutil.copy(file, file.with_name(f"copied.db{ending}"))
        shutil.copy(copy_of(path), tmp_path / "copied.jsonl")
        log = tmp_path / "copied.db-wal"
        log.write_bytes(log.read_bytes()[: int(share * log.stat().st_size)])
        repair_journal(tmp_path / "copied.db")
        assert read(tmp_path / "copied.db") == recorded

    def test_an_older_database_is_brought_up_to_its_copy(self, path: Path, whole: Record) -> None:
        older = path.read_bytes()
        with Journal(path) as journal:
            journal.record("tb", 1, report(4), 0.5)
            journal.set_meta("later", "value")
        recorded = read(path)
        path.write_bytes(older)
        [said] = repair_journal(path)
        assert "it lacks 1 log entries, lacks 1 values that its copy holds" in said
        assert read(path) == recorded

    def test_without_a_copy_it_is_refused_and_left_as_it_is(self, path: Path) -> None:
        copy_of(path).unlink()
        path.write_bytes(path.read_bytes()[:PAGE])
        before = path.read_bytes()
        with pytest.raises(UserError, match=r"no copy journal\.jsonl .*restore either from a"):
            repair_journal(path)
        assert path.read_bytes() == before

    def test_numbers_are_not_given_twice(self, path: Path) -> None:
        """Whoever follows the log would miss what comes under a number it has passed."""
        with Journal(path) as journal:
            last = journal.last_seq()
        path.unlink()
        lines = copy_of(path).read_bytes().splitlines(keepends=True)
        copy_of(path).write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[4:]]))
        repair_journal(path)
        with Journal(path) as journal:
            journal.begin_attempt("tb")
            assert journal.last_seq() > last


def assert_clear_or_right(path: Path, whole: Record) -> None:
    """Read without repairing: what is read is right, or the error says what to do."""
    said = ""
    try:
        assert read(path)[:2] == whole[:2]
    except UserError as error:
        said = str(error)
    assert not said or ("cannot be read" in said and "`hsweep recover " in said)


class TestADamagedCopy:
    def test_cut_at_many_bytes_beside_a_whole_database_it_is_completed(
        self, path: Path, whole: Record
    ) -> None:
        content = copy_of(path).read_bytes()
        for cut in range(0, len(content), 97):
            copy_of(path).write_bytes(content[:cut])
            repair_journal(path)
            assert read(path) == whole
            assert None not in list(read_lines(copy_of(path)))
            assert repair_journal(path) == []

    def test_cut_at_every_byte_it_gives_every_whole_line_before_the_cut(self, path: Path) -> None:
        first, *others = copy_of(path).read_bytes().splitlines(keepends=True)
        [kept, *_] = read_lines(copy_of(path))
        for line in others:
            assert all(decode(line[:cut]) is None for cut in range(len(line) - 1))
            for cut in (1, len(line) // 2, len(line) - 1):
                copy_of(path).write_bytes(first + line[:cut])
                assert list(read_lines(copy_of(path))) == [kept, None]

    def test_cut_at_every_line_without_a_database_all_before_the_cut_is_recovered(
        self, path: Path, whole: Record
    ) -> None:
        lines = copy_of(path).read_bytes().splitlines(keepends=True)
        for number in range(1, len(lines)):
            path.unlink(missing_ok=True)
            copy_of(path).write_bytes(b"".join(lines[:number]) + lines[number][:-1])
            repair_journal(path)
            _, log, _ = read(path)
            said = [line for line in read_lines(copy_of(path)) if isinstance(line, LogLine)]
            assert log == whole[1][: len(log)]
            assert len(log) == sum(len(line.log) for line in said)
            assert repair_journal(path) == []

    def test_a_line_lost_in_the_middle_costs_its_trial_what_follows_and_others_nothing(
        self, path: Path, whole: Record
    ) -> None:
        content = copy_of(path).read_bytes().splitlines(keepends=True)
        for number, line in enumerate(list(read_lines(copy_of(path)))):
            for file in path.parent.iterdir():
                file.unlink()
            garbled = b"{" + content[number][3:]
            copy_of(path).write_bytes(
                b"".join([*content[:number], garbled, *content[number + 1 :]])
            )
            said = repair_journal(path)
            trials, log, _ = read(path)
            lost = line.key if isinstance(line, LogLine) else None
            if isinstance(line, TrialLine):
                lost = line.row[0]
            if lost is not None and isinstance(line, LogLine):
                first = line.log[0][0]
                assert [e for e in log if e.key == lost] == [
                    e for e in whole[1] if e.key == lost and e.seq < first
                ]
                is_last = line.log[-1][0] == max(e.seq for e in whole[1] if e.key == lost)
                what = "had a torn or garbled line" if is_last else "are left out"
                assert any(what in each for each in said)
            others = [entry for entry in whole[1] if entry.key != lost]
            assert [entry for entry in log if entry.key != lost] == others
            for trial in trials:
                units = [e.unit for e in log if e.key == trial.key and e.unit is not None]
                assert trial.unit == max(units, default=0)
            assert_settled(path)


class TestWhereNothingCanBeWritten:
    @pytest.fixture
    def read_only(self, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
        """A folder, and the same folder where nothing can be written."""
        inside, outside = tmp_path / "inside", tmp_path / "outside"
        inside.mkdir()
        outside.mkdir()
        if os.geteuid() != 0 or shutil.which("mount") is None:
            pytest.skip("mounting read-only needs root")
        bind = subprocess.run(["mount", "--bind", inside, outside], capture_output=True)
        if bind.returncode:
            pytest.skip("mounting is not allowed here")
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", outside], check=True)
            yield inside, outside
        finally:
            subprocess.run(["umount", outside], check=True)

    def test_a_closed_record_is_read(self, read_only: tuple[Path, Path]) -> None:
        inside, outside = read_only
        write_record(inside / "journal.db")
        assert not (inside / "journal.db-wal").exists()
        assert read(outside / "journal.db") == read(inside / "journal.db")

    def test_a_record_that_a_killed_process_left_is_read_with_its_last_entries(
        self, read_only: tuple[Path, Path]
    ) -> None:
        inside, outside = read_only
        path = inside / "journal.db"
        write_record(path)
        killed = subprocess.run([sys.executable, "-c", KILLED, str(path), "0"])
        assert killed.returncode == -signal.SIGKILL
        assert (inside / "journal.db-wal").stat().st_size > 0
        found = read(outside / "journal.db")
        assert found[0][1].status is TrialStatus.FINISHED
        assert found == read(path)

    def test_a_damaged_record_is_said(self, read_only: tuple[Path, Path]) -> None:
        inside, outside = read_only
        write_record(inside / "journal.db")
        (inside / "journal.db").write_bytes(b"garbage" * 999)
        with pytest.raises(UserError, match=r"`hsweep recover outside --home .*` rebuilds it"):
            read(outside / "journal.db")

    def test_writing_is_refused_in_words(self, read_only: tuple[Path, Path]) -> None:
        inside, outside = read_only
        write_record(inside / "journal.db")
        with pytest.raises(UserError, match=r"cannot be written \(unable to open"):
            Journal(outside / "journal.db")


class TestAFullDisk:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Path]:
        folder = tmp_path / "small"
        folder.mkdir()
        if os.geteuid() != 0 or shutil.which("mount") is None:
            pytest.skip("a small disk needs root")
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True)

    def test_what_was_recorded_stays_and_more_is_recorded_when_there_is_space(
        self, small: Path
    ) -> None:
        path = small / "journal.db"
        with Journal(path, create=True) as journal:
            journal.add_trials([row("ta", 0)])
            recorded = fill(journal)
            assert 10 < len(recorded) < 5_000
            assert [entry.unit for entry in journal.reports()] == recorded
            with Journal(path, read_only=True) as reader:
                assert [entry.unit for entry in reader.reports()] == recorded
        (small / "ballast").unlink()
        repair_journal(path)
        with Journal(path) as journal:
            assert [entry.unit for entry in journal.reports()] == recorded
            assert journal.record("ta", 1, report(len(recorded) + 1), 0.5)
        assert_same_from_the_copy_alone(path, read(path))


def fill(journal: Journal) -> list[int]:
    """Record until the disk is full, and return the units that were recorded."""
    ballast = journal._path.with_name("ballast")
    ballast.write_bytes(b"x" * 200_000)
    recorded: list[int] = []

    def record_until_it_is_full() -> None:
        for unit in range(1, 10_000):
            journal.record("ta", 1, report(unit), 0.5)
            recorded.append(unit)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        record_until_it_is_full()
    return recorded


def test_a_copy_that_nobody_wrote_to_is_not_made(tmp_path: Path) -> None:
    copy = RecordCopy(tmp_path / "journal.jsonl")
    copy.append(())
    copy.close()
    assert not (tmp_path / "journal.jsonl").exists()


def test_the_lines_are_plain_enough_to_be_read_by_anything(path: Path) -> None:
    import json
    import zlib

    for raw in copy_of(path).read_text().splitlines():
        content: dict[str, Any] = json.loads(raw)
        assert set(content) == {"crc32", "is"}
        body = raw.removeprefix(f'{{"crc32":"{content["crc32"]}","is":').removesuffix("}")
        assert f"{zlib.crc32(body.encode()):08x}" == content["crc32"]
