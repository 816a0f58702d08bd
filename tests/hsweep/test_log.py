"""The log is all there is: its index is built again from it, and a damaged line costs itself."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import small_disks
from hypothesis import given, settings
from hypothesis import strategies as st

from hsweep import UserError
from hsweep.design.trial import Report, TrialStatus
from hsweep.paths import index_file
from hsweep.record.index import remove_index
from hsweep.record.journal import Journal, JournalReader, LogRow, TrialRow
from hsweep.record.log import Log, LogLine, segment_file

KEYS = ("trial-a", "trial-b", "trial-c")
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
                journal.record(key, 1, report(unit))
        journal.set_status("trial-a", 1, TrialStatus.PLANNED, "boom\nlast line", failures=1)
        journal.set_status(
            "trial-a", 1, TrialStatus.PLANNED, "too large beside others", exclusive=True
        )
        journal.begin_attempt("trial-a")
        journal.record("trial-a", 2, report(9, None), TrialStatus.FINISHED)
        journal.set_meta("proposal:000000", '{"id": "0:0"}')
        journal.set_meta("forgotten:1", "x")
        journal.set_metas({"forgotten:1": None})
        journal.append(journal.removal_entries(["trial-c"], "no longer in the space"))
        journal.add_trials([row("trial-d", 3)])
        reports = list(journal.reports(["trial-b"]))
        journal.append(
            journal.adoption_entries(
                "trial-d", reports, status=TrialStatus.FINISHED, reused_from="other"
            )
        )
        journal.append(journal.reopening_entries(["trial-d"], "asked for again"))


Record = tuple[list[TrialRow], list[LogRow], dict[str, str]]


def read(path: Path) -> Record:
    with JournalReader(path) as journal:
        return list(journal.trials(orphaned=True)), journal.log_after(0, 10**9), journal.metas("")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "journal"
    write_record(path)
    return path


@pytest.fixture(scope="module")
def whole(original: Path) -> Record:
    return read(original)


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A journal that a test may damage."""
    path = Path(shutil.copytree(original, tmp_path / "journal"))
    shutil.copy(index_file(original), index_file(path))
    return path


def index_of(path: Path) -> Path:
    return index_file(path)


def segment_of(path: Path) -> Path:
    return segment_file(path, 1)


def lines_of(path: Path) -> list[LogLine]:
    with closing(Log(path)) as log:
        return list(log.lines())


def without_index(path: Path) -> None:
    remove_index(index_of(path))


def assert_goes_on(path: Path) -> None:
    with Journal(path) as journal:
        last = journal.last_seq()
        journal.begin_attempt(journal.trials()[0].key)
        assert journal.last_seq() > last


def test_every_line_is_json_with_a_checksum(path: Path) -> None:
    for raw in segment_of(path).read_text().splitlines():
        content = json.loads(raw)
        assert set(content) == {"crc32", "entries"}
        body = raw.removeprefix(f'{{"crc32":"{content["crc32"]}","entries":').removesuffix("}")
        assert f"{zlib.crc32(body.encode()):08x}" == content["crc32"]


def other_version(index: Path) -> None:
    with closing(sqlite3.connect(index)) as database:
        database.execute("PRAGMA user_version=7")


def of_another_log(index: Path) -> None:
    other = index.parent / "other"
    with Journal(other, create=True) as journal:
        journal.add_trials([row("elsewhere", 0)])
    read(other)
    shutil.copy(index_of(other), index)


class TestTheIndex:
    @pytest.mark.parametrize(
        ("harm", "message"),
        [
            (Path.unlink, ""),
            (lambda index: index.write_bytes(b"garbage"), ".db is damaged ("),
            (lambda index: index.write_bytes(b"SQLite format 3\0" + b"x" * 5000), "is damaged ("),
            (other_version, "is of another version of hsweep"),
            (of_another_log, "is of another log"),
        ],
        ids=["missing", "no database", "no tables", "other version", "another log"],
    )
    def test_is_built_again_where_it_cannot_be_used(
        self, path: Path, whole: Record, capsys: pytest.CaptureFixture[str], harm: Any, message: str
    ) -> None:
        harm(index_of(path))
        # A writer does not need it.
        Journal(path).close()
        assert read(path) == whole
        printed = capsys.readouterr().err
        assert message in printed
        assert bool(message) == bool(printed)
        assert_goes_on(path)

    def test_cut_anywhere_it_is_built_again(self, path: Path, whole: Record) -> None:
        content = index_of(path).read_bytes()
        borders = [page + off for page in range(0, len(content), PAGE) for off in (-1, 0, 1)]
        for cut in sorted({0, 9, 50, *(cut for cut in borders if 0 <= cut < len(content))}):
            index_of(path).write_bytes(content[:cut])
            assert read(path) == whole, cut
        assert_goes_on(path)

    def test_one_that_turns_out_to_be_damaged_is_built_again_the_next_time(
        self, path: Path, whole: Record
    ) -> None:
        with closing(sqlite3.connect(index_of(path), isolation_level=None)) as database:
            database.execute("UPDATE log SET payload = '{' WHERE kind = 'report'")
        with pytest.raises(UserError, match="give the command again: it is built from the study's"):
            read(path)
        assert read(path) == whole

    def test_an_older_one_is_given_what_it_lacks(
        self, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        older = index_of(path).read_bytes()
        with Journal(path) as journal:
            journal.record("trial-b", 1, report(4))
            journal.set_meta("later", "value")
        recorded = read(path)
        without_index(path)
        index_of(path).write_bytes(older)
        assert read(path) == recorded
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
    def test_a_write_ahead_log_that_is_cut_costs_nothing(
        self, tmp_path: Path, share: float
    ) -> None:
        path = tmp_path / "journal"
        write_record(path)
        there = tmp_path / "there"
        with Journal(path) as journal, JournalReader(path) as reader:
            for unit in (4, 5, 6):
                journal.record("trial-b", 1, report(unit))
                reader.trials()
            recorded = read(path)
            # As they lie while a study runs: a process that ends would tidy up.
            shutil.copytree(path, there)
            index, wal = index_file(there), index_file(there).with_suffix(".db-wal")
            shutil.copy(index_file(path), index)
            shutil.copy(index_file(path).with_suffix(".db-wal"), wal)
        wal.write_bytes(wal.read_bytes()[: int(share * wal.stat().st_size)])
        assert read(there) == recorded


class TestAKill:
    KILLED = """
import os, signal, sys
from pathlib import Path
from hsweep.record import log
from hsweep.record.journal import Journal
from hsweep.record.rows import StudyState
from hsweep.design.trial import Report, TrialStatus

journal, when = Journal(Path(sys.argv[1])), sys.argv[2]
write = os.write

def die(*arguments):
    if when == "in the line":
        write(arguments[0], arguments[1][:40])
    os.kill(os.getpid(), signal.SIGKILL)

if when == "after the line":
    StudyState.apply = die
else:
    log.os.write = die
journal.record("trial-b", 2, Report(9, 9, {"nmse": 0.1}, 1.0, True), TrialStatus.FINISHED)
"""

    @pytest.mark.parametrize("when", ["before the line", "in the line", "after the line"])
    def test_leaves_all_of_a_transaction_or_nothing(
        self, path: Path, whole: Record, when: str
    ) -> None:
        command = [sys.executable, "-c", self.KILLED, str(path), when]
        killed = subprocess.run(command, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        for opening in (JournalReader, Journal):
            opening(path).close()
            if when == "after the line":
                assert read(path)[0][1].status is TrialStatus.FINISHED
            else:
                assert read(path) == whole
        assert_goes_on(path)
        assert all(line.entries is not None for line in lines_of(path))
        recorded = read(path)
        without_index(path)
        assert read(path) == recorded


class TestDamagedLines:
    def test_cut_anywhere_all_whole_lines_before_the_cut_are_on_record(
        self, path: Path, whole: Record
    ) -> None:
        content = segment_of(path).read_bytes()
        rng = random.Random(3)
        first = lines_of(path)[0].end
        for cut in sorted(rng.sample(range(first, len(content)), 60)):
            segment_of(path).write_bytes(content[:cut])
            kept = lines_of(path)
            _, log, _ = read(path)
            entries = [entry for line in kept for entry in line.entries or ()]
            assert log == whole[1][: len(log)]
            assert len(log) == sum("report" in e or "status" in e for e in entries)

    def test_what_the_index_held_beyond_a_cut_is_kept_aside(
        self, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        segment_of(path).write_bytes(segment_of(path).read_bytes()[:-200])
        held = index_of(path).read_bytes()
        read(path)
        assert "kept as" in capsys.readouterr().err
        assert index_of(path).with_name(f"{index_of(path).stem}.old-1.db").read_bytes() == held

    def test_any_flipped_bit_is_noticed(self, path: Path) -> None:
        rng = random.Random(0)
        for line in lines_of(path):
            at = rng.randrange(len(line.content) - 1)
            flipped = line.content[at] ^ (1 << rng.randrange(8))
            segment_of(path).write_bytes(
                line.content[:at] + bytes([flipped]) + line.content[at + 1 :]
            )
            assert [found for found in lines_of(path) if found.entries is not None] == []

    def test_a_line_costs_the_entries_it_held_and_they_are_named(
        self, path: Path, whole: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = lines_of(path)
        content = segment_of(path).read_bytes()
        for line in lines:
            without_index(path)
            at = line.end - 10
            segment_of(path).write_bytes(content[:at] + b"#" + content[at + 1 :])
            capsys.readouterr()
            trials, log, _ = read(path)
            said = capsys.readouterr().err
            assert f"the line at byte {line.start} is damaged" in said
            held = range(line.start + 1, line.end + 1)
            assert log == [entry for entry in whole[1] if entry.seq not in held]
            for entry in line.entries or ():
                key = entry.get("report") or entry.get("status")
                assert key is None or f"of trial {key}" in said
            for trial in trials:
                units = [e.unit for e in log if e.key == trial.key and e.unit is not None]
                assert trial.unit == max(units, default=0)

    def test_a_trial_whose_plan_is_lost_goes_on_once_it_is_planned_again(
        self, path: Path, whole: Record
    ) -> None:
        content = segment_of(path).read_bytes()
        segment_of(path).write_bytes(content.replace(b'{"trial":"trial-a"', b'{"trial":"trial-?"'))
        without_index(path)
        assert "is damaged" in next(t.orphaned for t in read(path)[0] if t.key == "trial-a")
        with Journal(path) as journal:
            journal.add_trials([row("trial-a", 0)])
        assert read(path)[0] == whole[0]

    def test_a_loss_is_said_whenever_the_index_is_built(
        self, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        content = segment_of(path).read_bytes()
        segment_of(path).write_bytes(content[:300] + b"#" + content[301:])
        without_index(path)
        for is_said in (True, False):
            read(path)
            Journal(path).close()
            assert ("is damaged and what it held" in capsys.readouterr().err) == is_said

    def test_a_log_that_is_lost_is_refused_and_the_index_stays(self, path: Path) -> None:
        held = index_of(path).read_bytes()
        segment_of(path).write_bytes(b"garbage" * 99)
        for why in ("it holds no whole line", "it is missing"):
            for read_only in (True, False):
                with pytest.raises(UserError, match=f"cannot be read .{why}; restore it"):
                    (JournalReader if read_only else Journal)(path)
            segment_of(path).unlink(missing_ok=True)
        assert index_of(path).read_bytes() == held


class TestWhereNothingCanBeWritten:
    @pytest.fixture
    def read_only(self, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
        """A folder with a record, and the same folder where nothing can be written."""
        inside = tmp_path / "inside"
        with small_disks.read_only(inside, tmp_path / "outside") as outside:
            write_record(inside / "journal")
            yield inside, outside

    def test_a_closed_record_is_read(self, read_only: tuple[Path, Path]) -> None:
        inside, outside = read_only
        assert read(outside / "journal") == read(inside / "journal")

    @pytest.mark.parametrize("when", ["in the line", "after the line"])
    def test_a_record_that_a_killed_process_left_is_read_with_its_last_entries(
        self, read_only: tuple[Path, Path], when: str
    ) -> None:
        inside, outside = read_only
        command = [sys.executable, "-c", TestAKill.KILLED, str(inside / "journal"), when]
        assert subprocess.run(command).returncode == -signal.SIGKILL
        found = read(outside / "journal")
        assert (found[0][1].status is TrialStatus.FINISHED) == (when == "after the line")
        assert found == read(inside / "journal")

    @pytest.mark.parametrize("content", [None, b"garbage" * 999])
    def test_without_an_index_one_is_built_elsewhere(
        self, read_only: tuple[Path, Path], content: bytes | None
    ) -> None:
        inside, outside = read_only
        recorded = read(inside / "journal")
        without_index(inside / "journal")
        if content is not None:
            index_of(outside / "journal").write_bytes(content)
        assert read(outside / "journal") == recorded

    def test_writing_is_refused_in_words(self, read_only: tuple[Path, Path]) -> None:
        _, outside = read_only
        with pytest.raises(UserError, match=r"cannot be written .Read-only file system"):
            Journal(outside / "journal")


class TestAFullDisk:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Path]:
        with small_disks.small_disk(tmp_path / "small", "2m") as folder:
            yield folder

    def test_what_was_recorded_stays_and_more_is_recorded_when_there_is_space(
        self, small: Path
    ) -> None:
        path = small / "journal"
        with Journal(path, create=True) as journal:
            journal.add_trials([row("trial-a", 0)])
            recorded = fill(journal, small)
            assert 10 < len(recorded) < 9_000
            assert [entry.unit for entry in journal.reports()] == recorded
            with JournalReader(path) as reader:
                assert [entry.unit for entry in reader.reports()] == recorded
            (small / "ballast").unlink()
            assert journal.record("trial-a", 1, report(len(recorded) + 1))
        recorded.append(len(recorded) + 1)
        for opening in (Journal, JournalReader):
            with opening(path) as journal:
                assert [entry.unit for entry in journal.reports()] == recorded


def fill(journal: Journal, folder: Path) -> list[int]:
    """Record until the disk is full, and return the units that were recorded."""
    (folder / "ballast").write_bytes(b"x" * 200_000)
    recorded: list[int] = []

    def record_until_it_is_full() -> None:
        for unit in range(1, 10_000):
            journal.record("trial-a", 1, report(unit))
            recorded.append(unit)

    with pytest.raises((sqlite3.OperationalError, OSError), match=r"full|No space"):
        record_until_it_is_full()
    return recorded


def test_a_line_that_cannot_be_written_whole_is_taken_back(
    path: Path, whole: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    halves = iter([7])

    def half_full(file: int, content: bytes) -> int:
        try:
            return write(file, content[: next(halves)])
        except StopIteration:
            raise OSError(28, "No space left on device") from None

    before = segment_of(path).read_bytes()
    with Journal(path) as journal:
        monkeypatch.setattr("hsweep.record.log.os.write", half_full)
        with pytest.raises(OSError, match="No space left"):
            journal.record("trial-b", 1, report(9), TrialStatus.FINISHED)
        monkeypatch.undo()
        assert segment_of(path).read_bytes() == before
        assert read(path) == whole
        journal.record("trial-b", 1, report(9))
    assert len(lines_of(path)) == before.count(b"\n") + 1


@settings(deadline=None, max_examples=20)
@given(st.one_of(st.none(), st.floats(), st.integers(-9, 9)), st.floats(0, 1e300), st.data())
def test_what_is_built_from_the_log_is_what_was_recorded(
    value: float | None, seconds: float, data: st.DataObject
) -> None:
    zero = data.draw(st.sampled_from([0.0, -0.0, 1.0]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with Journal(path, create=True) as journal:
            journal.add_trials([row("trial-a", 0)])
            told = replace(report(3), metrics={"nmse": value}, wall_seconds=seconds * zero)
            journal.record("trial-a", 1, told, TrialStatus.FINISHED, 'é\u2028"')
        before = read(path)
        Journal(path).close()
        assert repr(read(path)) == repr(before)


def test_a_study_that_was_removed_and_made_again_has_an_index_of_its_own(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        shutil.rmtree(path)
        with Journal(path, create=True) as journal:
            journal.add_trials([row("elsewhere", 0)])
        assert [trial.key for trial in read(path)[0]] == ["elsewhere"]
        assert "is of another log: building it" in capsys.readouterr().err
    assert not list(index_of(path).parent.glob(f"{index_of(path).stem}.old-*"))


def read_again_and_again(path: Path, is_remover: bool) -> list[str]:
    """Return what a process is told that reads a record 60 times."""
    told = []
    for _ in range(60):
        if is_remover:
            without_index(path)
        try:
            read(path)
        except UserError as error:
            told.append(str(error))
    return told


def test_processes_that_read_while_the_index_is_removed_and_built_find_the_record(
    path: Path,
) -> None:
    """As ``status`` does beside a ``resume``, which builds the index of its study again."""
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        told = pool.map(read_again_and_again, [path] * 4, [True, True, False, False])
        assert [*chain.from_iterable(told)] == []
