"""A damaged study: listed, read or refused with the way out, and built again from its log."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import small_disks
from click.testing import Result
from tiny import tiny_sweep
from tiny_runs import coordinating, histories, statuses
from tiny_studies import SWEEP_FILE, finish, new_study, recording

from hsweep import Transition, UserError
from hsweep.coordination.runner import InlineRunner
from hsweep.paths import Home, StudyPaths
from hsweep.planning.calibration import Calibration
from hsweep.planning.plan import make_plan
from hsweep.record.journal import Journal
from hsweep.record.lease import holding, is_held, read_holder
from hsweep.record.log import segment_file, segment_files
from hsweep.record.study import StudyFolder, list_studies

Invoke = Callable[..., Result]

FILES = ("study.json", "sweep.py", "plan.json", "journal/000001.jsonl")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def study(home: Home) -> StudyFolder:
    """A study of which two trials have finished, and which has its tables."""
    study = new_study(home)
    with recording(study) as (journal, trials):
        for number, trial in enumerate(trials[:2]):
            finish(journal, trial, 0.5 - number / 10)
    study.write_tables()
    return study


def shown(study: StudyFolder) -> tuple[Any, ...]:
    """All that a reader is told of a study."""
    again = StudyFolder.at(study.paths)
    trials, reports = again.tables()
    return again.manifest, trials.to_pylist(), reports.to_pylist()


def garble(path: Path) -> None:
    path.write_bytes(b"\xffgarbage" * 99)


def damage_the_manifest(study: StudyFolder) -> int:
    """Damage the line of the log that holds the manifest, and return where it begins."""
    segment = segment_file(study.paths.journal, 1)
    head, line, *rest = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([head, line[:40] + b"#" + line[41:], *rest]))
    study.paths.index.unlink()
    return len(head)


class TestFiles:
    @pytest.mark.parametrize("harm", [garble, Path.unlink, lambda path: path.write_bytes(b"")])
    @pytest.mark.parametrize("name", ["study.json", "index", "plan.json", "trials.parquet"])
    def test_any_but_the_log_can_be_damaged_or_lost(
        self, study: StudyFolder, home: Home, name: str, harm: Callable[[Path], None]
    ) -> None:
        before = shown(study)
        harm(study.paths.index if name == "index" else study.paths.root / name)
        assert shown(study) == before

    def test_the_log_alone_gives_the_study_back(self, study: StudyFolder, home: Home) -> None:
        before = shown(study)
        for path in study.paths.root.iterdir():
            if path != study.paths.journal:
                path.unlink()
        study.paths.index.unlink()
        assert shown(study) == before
        study.export()
        assert study.paths.sweep_source.read_text() == SWEEP_FILE
        assert json.loads(study.paths.manifest.read_text())["name"] == "mine"

    @pytest.mark.parametrize("harm", [garble, lambda path: path.write_text("# edited")])
    def test_a_sweep_that_was_changed_is_kept_beside_the_recorded_one(
        self, study: StudyFolder, harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        harm(study.paths.sweep_source)
        changed = study.paths.sweep_source.read_bytes()
        assert study.sweep_file().read_text() == SWEEP_FILE
        assert study.paths.root.joinpath("sweep.changed-1.py").read_bytes() == changed
        assert "it is kept as" in capsys.readouterr().err
        study.export()
        assert capsys.readouterr().err == ""

    def test_a_manifest_whose_line_is_damaged_comes_from_its_file(
        self, study: StudyFolder, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = shown(study)
        at = damage_the_manifest(study)
        again = StudyFolder.open_to_run(home, "mine")
        assert again.manifest == before[0]
        assert f"the line at byte {at} is damaged" in capsys.readouterr().err
        with again.writer():
            pass
        study.paths.manifest.unlink()
        study.paths.sweep_source.unlink()
        assert shown(study) == before
        assert study.sweep_text() == SWEEP_FILE

    def test_a_study_that_has_lost_both_says_what_is_to_be_done(
        self, study: StudyFolder, home: Home
    ) -> None:
        damage_the_manifest(study)
        study.paths.manifest.unlink()
        with pytest.raises(UserError, match=r"study\.json: No such file .* from a backup"):
            StudyFolder.open(home, "mine")


def test_garbled_speeds_are_measured_again(tmp_path: Path) -> None:
    trials = make_plan(tiny_sweep(), preset="quick", study_seed=0).trials
    path = tmp_path / "calibration.json"
    machine: dict[str, Any] = {}
    Calibration(path, machine).add([(trials[0], 3.0, 3)])
    content = json.loads(path.read_text())
    [[name, kinds]] = content.items()
    [[kind, _]] = kinds.items()
    garbled: list[Any] = [
        [], 3, {name: 3}, {name: []}, {name: {kind: 3}}, {name: {kind: [[1]]}},
        {name: {kind: [["a", "b"]]}}, {name: {kind: [[1.0, None]]}}, {name: {kind: [3]}},
    ]  # fmt: skip
    for each in garbled:
        path.write_text(json.dumps(each))
        calibration = Calibration(path, machine)
        assert calibration.estimate((each, 3) for each in trials) is None
        calibration.add([(trials[0], 3.0, 3)])
        again = Calibration(path, machine)
        assert again.estimate((each, 3) for each in trials) is not None


class TestFromTheCommandLine:
    def test_list_never_crashes_whatever_has_become_of_a_study(
        self, hsweep: Invoke, study: StudyFolder, home: Home
    ) -> None:
        rng = random.Random(2)
        contents = {name: (study.paths.root / name).read_bytes() for name in FILES}
        for number in range(40):
            damaged = home.study(f"damaged-{number}").root
            (damaged / "journal").mkdir(parents=True)
            for name, content in contents.items():
                harm = rng.randrange(4)
                if harm == 0:
                    content = content[: rng.randrange(len(content))]
                elif harm == 1:
                    at = rng.randrange(len(content))
                    content = content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]
                if harm < 3:
                    (damaged / name).write_bytes(content)
        (home.study("folders").root / "journal" / "000001.jsonl").mkdir(parents=True)
        (home.study("folders").root / "study.json").write_bytes(contents["study.json"])
        (home.studies / "file").write_text("no folder")
        (home.studies / "loop").symlink_to("loop")
        result = hsweep("list", "--json")
        assert result.exit_code == 0, result.output
        listed = {row["study"]: row["state"] for row in json.loads(result.stdout)}
        assert listed["mine"] == "interrupted"
        assert listed["folders"] == "unreadable"
        assert list(listed.values()).count("unreadable") > 10
        assert hsweep("list").exit_code == 0

    def test_a_resumed_study_goes_on_from_its_log_and_ends_as_it_would_have(
        self, hsweep: Invoke, home: Home, tmp_path: Path, empty_database: Path
    ) -> None:
        with coordinating(tiny_sweep(), tmp_path / "calm") as calm:
            InlineRunner().run(calm)
        paths = new_study(home).paths
        with Journal(paths.journal) as journal:
            journal.begin_attempt(journal.trials()[0].key)
        StudyFolder.open(home, "mine").status()
        paths.index.write_bytes(paths.index.read_bytes()[:9_000])
        paths.manifest.write_text("{")
        garble(paths.sweep_source)
        paths.plan.unlink()
        shutil.copy(empty_database, tmp_path / "mlflow.db")
        store = f"sqlite:///{tmp_path / 'mlflow.db'}"
        resumed = hsweep("resume", "mine", "--runner", "inline", "--tracking-uri", store)
        assert resumed.exit_code == 0, resumed.output
        assert "sweep.py was not what is on record" in resumed.stderr
        assert json.loads(paths.manifest.read_text())["name"] == "mine"
        assert json.loads(paths.plan.read_text())["trials"]
        assert histories(paths.root) == histories(tmp_path / "calm")
        assert set(statuses(paths.root).values()) == {"finished"}

    def test_what_sqlite_says_in_the_middle_of_a_verb_is_no_traceback(
        self, hsweep: Invoke, study: StudyFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr("hsweep.record.study.StudyFolder.status", full)
        result = hsweep("show", "mine")
        assert result.exit_code == 2
        assert "a record cannot be read or written (database or disk is full)" in result.stderr


HOLD = """
import os, sys
from pathlib import Path
from hsweep.paths import Home
from hsweep.record.study import StudyFolder
from hsweep.record.lease import holding, is_held, read_holder
from hsweep.record.log import segment_file, segment_files
with holding(StudyFolder.open(Home(Path(sys.argv[1])), "mine").paths):
    if len(sys.argv) > 2 and not (child := os.fork()):
        sys.stdin.read()
        os._exit(0)
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


class Holder:
    """Another process that holds the study."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(home.root), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.pid = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL

    def close(self) -> None:
        """Let the child, if there is one, come to its end as well."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.process.wait()


@pytest.fixture
def held(study: StudyFolder, home: Home) -> Iterator[Holder]:
    holder = Holder(home)
    yield holder
    holder.close()


class TestTwoAtOnce:
    def test_a_second_is_refused_with_process_and_host(
        self, hsweep: Invoke, study: StudyFolder, held: Holder
    ) -> None:
        assert study.status()["state"] == "running"
        result = hsweep("resume", "mine", "--runner", "inline")
        assert result.exit_code == 2
        assert f"'mine' is being run by process {held.pid} on {os.uname().nodename}" in (
            result.stderr
        )

    def test_a_garbled_note_of_the_holder_changes_nothing(
        self, study: StudyFolder, held: Holder
    ) -> None:
        for note in (b"\xff", b"[]", None):
            if note is None:
                study.paths.holder.unlink()
            else:
                study.paths.holder.write_bytes(note)
            with pytest.raises(UserError, match=f"is being run by process {held.pid} on"):
                holding(study.paths).__enter__()
        held.kill()
        assert not study.is_running()
        with holding(study.paths):
            assert str(read_holder(study.paths)).startswith(f"process {os.getpid()} on")

    def test_what_a_dead_process_left_is_taken_over(
        self, study: StudyFolder, home: Home, held: Holder
    ) -> None:
        held.kill()
        assert f"process {held.pid}" in str(read_holder(study.paths))
        assert not study.is_running()
        assert StudyFolder.open_to_run(home, "mine").name == "mine"

    def test_a_child_that_outlives_the_holder_does_not_hold_the_study(
        self, study: StudyFolder, home: Home
    ) -> None:
        holder = Holder(home, "with a child")
        holder.kill()
        with holding(study.paths):
            pass
        holder.close()

    def test_it_is_free_again_after_an_error(self, study: StudyFolder) -> None:
        with pytest.raises(RuntimeError, match="boom"), holding(study.paths):
            raise RuntimeError("boom")
        assert not study.is_running()
        holder = read_holder(study.paths)
        assert holder is not None
        assert holder.is_released

    def test_asking_leaves_nothing_behind(self, study: StudyFolder) -> None:
        before = sorted(study.paths.journal.iterdir())
        assert not study.is_running()
        assert sorted(study.paths.journal.iterdir()) == before == segment_files(study.paths.journal)


@pytest.fixture
def read_only(home: Home, tmp_path: Path) -> Iterator[Home]:
    """The home once more, where nothing can be written."""
    with small_disks.read_only(home.root, tmp_path / "outside") as outside:
        yield Home(outside)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Home]:
    """A home on a disk with room for the folders alone."""
    with small_disks.small_disk(tmp_path / "small", "48k") as folder:
        yield Home(folder / "home").create()


class TestAFullDisk:
    def test_no_half_a_study_is_left_of_one_that_cannot_begin(self, full: Home) -> None:
        (full.root / "ballast").write_bytes(b"x" * 40_000)
        with pytest.raises(UserError, match=r"cannot be made .*No space.* free some space"):
            new_study(full)
        assert list_studies(full) == []
        assert list(full.studies.iterdir()) == []

    def test_one_that_cannot_be_held_is_refused_in_words(
        self, hsweep: Invoke, study: StudyFolder, full: Home
    ) -> None:
        (full.root / "ballast").write_bytes(b"x" * 16_000)
        there = full.study("mine").root
        shutil.copytree(study.paths.journal, there / "journal")
        with pytest.raises(OSError, match="No space left"):
            (full.root / "more").write_bytes(b"x" * 200_000)
        refused = hsweep("resume", "mine", "--runner", "inline", "--home", full.root)
        assert refused.exit_code == 2
        assert "cannot be written to (No space left on device)" in refused.stderr
        (full.root / "more").unlink()


class TestReadOnlyStorage:
    def test_it_is_no_home_for_a_new_study(self, read_only: Home, home: Home) -> None:
        home.create()
        with pytest.raises(UserError, match=r"the home .*outside cannot be written to \(Perm"):
            read_only.create()

    def test_a_study_is_read_listed_and_exported(
        self, hsweep: Invoke, study: StudyFolder, read_only: Home, tmp_path: Path
    ) -> None:
        with recording(study) as (journal, trials):
            journal.begin_attempt(trials[2].key)
            there = ("--home", read_only.root)
            assert "interrupted" in hsweep("show", "mine", *there).stdout
            [row] = json.loads(hsweep("list", "--json", *there).stdout)
            assert (row["state"], row["finished"], row["running"]) == ("interrupted", 2, 1)
            exported = hsweep("export", "mine", tmp_path / "t.csv", *there)
            assert (tmp_path / "t.csv").exists(), exported.output

    def test_it_is_analysed(self, hsweep: Invoke, home: Home, read_only: Home) -> None:
        asking = tiny_sweep(question=Transition(x="width", by=None))
        new_study(home, "asked", asking)
        analysed = hsweep("analyze", "asked", "--home", read_only.root)
        assert analysed.exit_code == 0, analysed.output
        assert "No answer: no trial has run to its full budget yet." in analysed.stdout

    def test_it_is_seen_to_be_running(
        self, study: StudyFolder, held: Holder, read_only: Home
    ) -> None:
        assert is_held(read_only.study("mine"))
        held.kill()
        assert not is_held(read_only.study("mine"))

    def test_running_it_is_refused_in_words(
        self, hsweep: Invoke, study: StudyFolder, read_only: Home
    ) -> None:
        refused = hsweep("resume", "mine", "--runner", "inline", "--home", read_only.root)
        assert refused.exit_code == 2
        assert "cannot be written to (Read-only file system)" in refused.stderr
        assert "`analyze` and `export` read it as it is" in refused.stderr


def test_studies_are_found_by_any_of_their_files(study: StudyFolder, home: Home) -> None:
    study.paths.manifest.unlink()
    segment_file(study.paths.journal, 1).unlink()
    assert [paths.name for paths in list_studies(home)] == ["mine"]
    with pytest.raises(UserError, match="restore it from a backup"):
        StudyFolder.open(home, "mine")
    shutil.rmtree(study.paths.journal)
    assert list_studies(home) == []
    assert isinstance(home.study("mine"), StudyPaths)
