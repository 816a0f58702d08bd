"""A log in segments: what its owners wrote while the study was theirs, and nothing else."""

import itertools
import os
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsweep import UserError
from hsweep.paths import index_file
from hsweep.record.index import remove_index
from hsweep.record.journal import Journal, JournalReader
from hsweep.record.log import Log, begin_segment, owner_of, segment_file, segment_files
from hsweep.record.rows import TrialRow


class Owners:
    """All who ever had a study, each of whom may write at any time, and what of that counts."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self._logs: list[Log] = []
        self._ends: list[int] = []
        self._torn: set[int] = set()
        self._units = 0
        self.counting: list[int] = []
        folder.mkdir()
        self.take()
        self.reader = stack.enter_context(JournalReader(folder))

    def take(self) -> None:
        number = len(self._logs) + 1
        begin_segment(self.folder, number, {"id": number})
        log = self._stack.enter_context(closing(Log(self.folder, writes=number)))
        self._logs.append(log)
        self._ends.append(log.size)

    def write(self, owner: int) -> None:
        at = owner % len(self._logs)
        if at in self._torn:
            return
        self._units += 1
        report = {"report": "t", "time": 0.0, "attempt": 1, "unit": self._units, "payload": {}}
        self._ends[at] = self._logs[at].append([report], self._ends[at])
        if at == len(self._logs) - 1:
            self.counting.append(self._units)

    def tear(self, owner: int) -> None:
        """Let an owner die within a line."""
        at = owner % len(self._logs)
        self._torn.add(at)
        with segment_file(self.folder, at + 1).open("ab") as file:
            file.write(b'{"crc32":"0000')

    def read(self, _owner: int) -> None:
        assert [entry.unit for entry in self.reader.log_after(0, 10**6)] == self.counting

    def read_anew(self, _owner: int) -> None:
        remove_index(index_file(self.folder))
        with JournalReader(self.folder) as reader:
            assert [entry.unit for entry in reader.log_after(0, 10**6)] == self.counting

    def check(self) -> None:
        with closing(Log(self.folder)) as log:
            lines = list(log.lines())
            assert all(log.has_line(x.segment, x.start, x.end, x.checksum) for x in lines)
        units = [x.entries[0]["unit"] for x in lines if x.entries and not x.is_head]
        assert units == self.counting
        assert all(one.end <= other.start for one, other in itertools.pairwise(lines))


ACTIONS = st.sampled_from([Owners.write] * 5 + [Owners.read, Owners.read_anew, Owners.tear])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.none(), st.tuples(ACTIONS, st.integers(0, 9))), max_size=25))
def test_what_a_former_owner_writes_never_changes_what_is_read(actions: list) -> None:  # type: ignore[type-arg]
    with TemporaryDirectory() as folder, ExitStack() as stack:
        owners = Owners(Path(folder) / "journal", stack)
        for action in actions:
            if action is None:
                owners.take()
            else:
                action[0](owners, action[1])
            owners.check()
        owners.read(0)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A log of three segments, with a trial in each."""
    folder = tmp_path / "journal"
    for number in (1, 2, 3):
        if number > 1:
            begin_segment(folder, number, {"id": str(number)})
        with Journal(folder, create=True) as journal:
            journal.add_trials([TrialRow(f"t{number}", number, {}, 0, "", 9, {})])
    return folder


def keys(folder: Path) -> list[str]:
    with JournalReader(folder) as reader:
        found = [row.key for row in reader.trials()]
    with Journal(folder) as journal:
        assert [row.key for row in journal.trials()] == found
    return found


def test_one_that_has_lost_its_end_costs_what_stood_there(
    three: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = segment_file(three, 2).read_bytes()
    segment_file(three, 2).write_bytes(content[:-9])
    assert keys(three) == ["t1", "t3"]
    lost = len(segment_file(three, 1).read_bytes()) + content.index(b"\n") + 1
    assert f"the line at byte {lost} is damaged" in capsys.readouterr().err


def test_one_whose_head_is_damaged_is_read_all_the_same(three: Path) -> None:
    content = segment_file(three, 3).read_bytes()
    segment_file(three, 3).write_bytes(content[:30] + b"#" + content[31:])
    assert keys(three) == ["t1", "t2", "t3"]
    assert owner_of(segment_file(three, 3)) == {}


def test_one_that_is_missing_is_named(three: Path) -> None:
    segment_file(three, 2).unlink()
    with pytest.raises(UserError, match=r"000002\.jsonl cannot be read .it is missing; restore"):
        keys(three)


def test_a_process_begins_one_that_nobody_has_begun(three: Path) -> None:
    before = segment_file(three, 3).read_bytes()
    with pytest.raises(FileExistsError):
        begin_segment(three, 3, {"id": "another"})
    assert segment_file(three, 3).read_bytes() == before
    assert sorted(three.iterdir()) == segment_files(three)


def test_an_answer_that_was_lost_is_no_refusal(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def done_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr("hsweep.record.log.os.link", done_twice)
    begin_segment(three, 4, {"id": "mine"})
    assert owner_of(segment_file(three, 4)) == {"id": "mine"}
