"""A damaged study: always listed, read or refused with the way out, and made whole again."""

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
from hsweep.record.recovery import open_readable, open_whole, recover
from hsweep.record.study import Study, list_studies
from hsweep.record.study_lock import StudyLock

Invoke = Callable[..., Result]

FILES = ("study.json", "sweep.py", "plan.json", "journal.db", "journal.jsonl")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def study(home: Home) -> Study:
    """A study of which two trials have finished, and which has its tables."""
    study = new_study(home)
    with recording(study) as (journal, trials):
        for number, trial in enumerate(trials[:2]):
            finish(journal, trial, 0.5 - number / 10)
    study.write_tables()
    return study


def shown(study: Study) -> tuple[Any, ...]:
    """All that a reader is told of a study."""
    again = Study.at(study.paths)
    trials, reports = again.tables()
    return again.manifest, trials.to_pylist(), reports.to_pylist()


def garble(path: Path) -> None:
    path.write_bytes(b"\xffgarbage" * 99)


class TestFiles:
    @pytest.mark.parametrize("harm", [garble, Path.unlink, lambda path: path.write_bytes(b"")])
    @pytest.mark.parametrize("name", ["study.json", "journal.db", "journal.jsonl"])
    def test_any_one_of_them_is_restored_from_the_others(
        self, study: Study, home: Home, name: str, harm: Callable[[Path], None]
    ) -> None:
        before = shown(study)
        harm(study.paths.root / name)
        [said, *_] = recover(home, "mine")
        assert name in said
        assert shown(study) == before
        assert recover(home, "mine") == []

    def test_all_but_the_copy_of_the_record_can_go(self, study: Study, home: Home) -> None:
        before = shown(study)
        for path in study.paths.root.iterdir():
            if path.name != "journal.jsonl":
                path.unlink()
        said = recover(home, "mine")
        assert [line.split()[0] for line in said] == ["journal.db", "study.json", "sweep.py"]
        assert shown(study) == before
        assert study.paths.sweep_source.read_text() == SWEEP_FILE

    @pytest.mark.parametrize("harm", [garble, Path.unlink])
    def test_the_sweep_is_restored(
        self, study: Study, home: Home, harm: Callable[[Path], None]
    ) -> None:
        harm(study.paths.sweep_source)
        [said] = recover(home, "mine")
        assert said.startswith("sweep.py ")
        assert said.count("restored from the study's record") == 1
        assert study.paths.sweep_source.read_text() == SWEEP_FILE

    def test_tables_that_are_no_tables_are_written_anew(self, study: Study, home: Home) -> None:
        before = study.paths.trials_table.read_bytes()
        for path in (study.paths.trials_table, study.paths.reports_table):
            garble(path)
        said = recover(home, "mine")
        assert any("trials.parquet could not be read" in line for line in said)
        assert study.paths.trials_table.read_bytes() == before
        assert recover(home, "mine") == []

    def test_a_garbled_plan_or_analysis_is_put_aside(self, study: Study, home: Home) -> None:
        study.paths.analysis.write_text("{")
        garble(study.paths.plan)
        said = " ".join(recover(home, "mine"))
        assert f"`hsweep analyze mine --home {home.root}` writes it anew" in said
        assert f"`hsweep resume mine --home {study.paths.home}` writes it anew" in said
        assert study.paths.plan.with_name("plan.json.damaged-1").exists()
        assert recover(home, "mine") == []

    def test_a_study_without_copies_says_what_is_to_be_done(self, study: Study, home: Home) -> None:
        study.paths.journal_copy.unlink()
        with study.journal(read_only=False) as journal:
            journal.clear_metas("")
            journal.set_meta("schema_version", "2")
        study.paths.manifest.unlink()
        with pytest.raises(UserError, match=r"study\.json is missing, .* restore it from a backup"):
            recover(home, "mine")

    def test_garbled_speeds_are_measured_again(self, tmp_path: Path) -> None:
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
            assert calibration.estimate(trials) is None
            calibration.add([(trials[0], 3.0, 3)])
            assert Calibration(path, machine).estimate(trials) is not None


class TestTheManifest:
    def test_cut_at_any_byte_it_is_refused_with_the_way_out(self, study: Study, home: Home) -> None:
        content = study.paths.manifest.read_bytes()
        for cut in range(len(content) - 1):
            study.paths.manifest.write_bytes(content[:cut])
            with pytest.raises(UserError, match=r"`hsweep recover mine --home .* restores it"):
                Study.open(home, "mine")

    def test_a_flipped_byte_is_noticed_wherever_it_is(self, study: Study, home: Home) -> None:
        content = study.paths.manifest.read_bytes()
        before = shown(study)
        rng = random.Random(0)
        noticed = 0
        for at in range(len(content)):
            flipped = content[at] ^ (1 << rng.randrange(8))
            study.paths.manifest.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
            try:
                assert Study.open(home, "mine").manifest == before[0]
            except UserError:
                noticed += 1
        assert noticed > 0.8 * len(content)

    def test_one_that_was_edited_by_hand_is_taken_without_its_checksum(
        self, study: Study, home: Home
    ) -> None:
        content = json.loads(study.paths.manifest.read_text())
        content["description"] = "edited"
        study.paths.manifest.write_text(json.dumps(content))
        with pytest.raises(UserError, match="if you changed it yourself, remove the line"):
            Study.open(home, "mine")
        del content["checksum"]
        study.paths.manifest.write_text(json.dumps(content))
        assert Study.open(home, "mine").manifest.description == "edited"

    @pytest.mark.parametrize(
        ("field", "value"),
        [("created", "x"), ("metrics", 3), ("extensions", {}), ("limits", []), ("name", None)],
    )
    def test_content_of_another_kind_is_refused(
        self, study: Study, home: Home, field: str, value: object
    ) -> None:
        content = json.loads(study.paths.manifest.read_text())
        del content["checksum"]
        study.paths.manifest.write_text(json.dumps(content | {field: value}))
        with pytest.raises(UserError, match=f"study.json: .*{field}"):
            Study.open(home, "mine")


class TestFromTheCommandLine:
    def test_list_never_crashes_whatever_has_become_of_a_study(
        self, hsweep: Invoke, study: Study, home: Home
    ) -> None:
        rng = random.Random(2)
        contents = {name: (study.paths.root / name).read_bytes() for name in FILES}
        for number in range(40):
            damaged = home.study(f"damaged-{number}").root
            damaged.mkdir()
            for name, content in contents.items():
                harm = rng.randrange(4)
                if harm == 0:
                    content = content[: rng.randrange(len(content))]
                elif harm == 1:
                    at = rng.randrange(len(content))
                    content = content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]
                if harm < 3:
                    (damaged / name).write_bytes(content)
        (home.study("folders").root / "journal.db").mkdir(parents=True)
        (home.study("folders").root / "study.json").write_bytes(contents["study.json"])
        (home.studies / "file").write_text("no folder")
        (home.studies / "loop").symlink_to("loop")
        result = hsweep("list", "--json")
        assert result.exit_code == 0, result.output
        listed = {row["study"]: row["state"] for row in json.loads(result.stdout)}
        assert listed["mine"] == "interrupted"
        assert listed["folders"] == "unreadable"
        assert list(listed.values()).count("unreadable") > 20
        assert hsweep("list").exit_code == 0

    @pytest.mark.parametrize("verb", ["show", "analyze", "report", "export"])
    @pytest.mark.parametrize("name", ["study.json", "journal.db"])
    def test_verbs_that_read_name_the_damage_and_the_command(
        self, hsweep: Invoke, study: Study, tmp_path: Path, verb: str, name: str
    ) -> None:
        garble(study.paths.root / name)
        extra = [tmp_path / "out.csv"] if verb == "export" else []
        result = hsweep(verb, "mine", *extra)
        assert (result.exit_code, result.stdout) == (2, "")
        assert name in result.stderr
        assert f"`hsweep recover mine --home {study.paths.root.parent.parent}`" in result.stderr

    def test_recover_says_what_it_found_and_did(self, hsweep: Invoke, study: Study) -> None:
        assert hsweep("recover", "mine").stdout == "mine: nothing is damaged\n"
        garble(study.paths.journal)
        said = hsweep("recover", "mine")
        assert said.exit_code == 0
        assert "mine: journal.db was damaged (file is not a database): rebuilt" in said.stdout
        assert "3 trials and 2 reports" in said.stdout
        assert "kept as journal.db.damaged-1" in said.stdout
        content = json.loads(hsweep("recover", "mine", "--json").stdout)
        assert content == {"study": "mine", "damaged": False, "done": []}
        assert "no study called 'none'" in hsweep("recover", "none").stderr

    def test_a_resumed_study_is_restored_first_and_ends_as_it_would_have(
        self, hsweep: Invoke, home: Home, tmp_path: Path, empty_database: Path
    ) -> None:
        with coordinating(tiny_sweep(), tmp_path / "calm") as calm:
            InlineRunner().run(calm)
        paths = new_study(home).paths
        with Journal(paths.journal) as journal:
            journal.begin_attempt(journal.trials()[0].key)
        paths.journal.write_bytes(paths.journal.read_bytes()[:9_000])
        paths.manifest.write_text("{")
        garble(paths.sweep_source)
        paths.plan.unlink()
        shutil.copy(empty_database, tmp_path / "mlflow.db")
        store = f"sqlite:///{tmp_path / 'mlflow.db'}"
        resumed = hsweep("resume", "mine", "--runner", "inline", "--tracking-uri", store)
        assert resumed.exit_code == 0, resumed.output
        for name in (
            "journal.db was damaged",
            "study.json cannot be read",
            "sweep.py is no Python",
        ):
            assert name in resumed.output
        assert json.loads(paths.plan.read_text())["trials"]
        assert histories(paths.root) == histories(tmp_path / "calm")
        assert set(statuses(paths.root).values()) == {"finished"}

    def test_what_sqlite_says_in_the_middle_of_a_verb_is_no_traceback(
        self, hsweep: Invoke, study: Study, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr("hsweep.record.study.Study.status", full)
        result = hsweep("show", "mine")
        assert result.exit_code == 2
        assert "a record cannot be read or written (database or disk is full)" in result.stderr

    def test_only_missing_restores_first_too(
        self, hsweep: Invoke, study: Study, tmp_path: Path
    ) -> None:
        path = tmp_path / "question.py"
        path.write_text(SWEEP_FILE)
        garble(study.paths.journal)
        said = hsweep("run", path, "--study", "mine", "--only-missing", "--runner", "inline")
        assert "journal.db was damaged" in said.output


def test_a_verb_that_adds_little_looks_closely_only_at_what_it_cannot_read(
    study: Study, home: Home
) -> None:
    said: list[str] = []
    study.paths.journal_copy.unlink()
    assert open_readable(home, "mine", said.append).name == "mine"
    assert said == []
    assert open_whole(home, "mine", said.append).name == "mine"
    assert said == ["journal.jsonl was missing or empty: written from journal.db"]
    garble(study.paths.journal)
    assert open_readable(home, "mine", said.append).status()["finished"] == 2
    assert len(said) == 2


HOLD = """
import os, sys
from pathlib import Path
from hsweep.paths import Home
from hsweep.record.study import Study
with Study.open(Home(Path(sys.argv[1])), "mine").locked():
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
def held(study: Study, home: Home) -> Iterator[Holder]:
    holder = Holder(home)
    yield holder
    holder.close()


class TestTwoAtOnce:
    @pytest.mark.parametrize(
        "arguments", [("resume", "mine", "--runner", "inline"), ("recover", "mine")]
    )
    def test_a_second_is_refused_with_process_and_host(
        self, hsweep: Invoke, held: Holder, arguments: tuple[str, ...]
    ) -> None:
        result = hsweep(*arguments)
        assert result.exit_code == 2
        assert f"'mine' is being run by process {held.pid} on {os.uname().nodename}" in (
            result.stderr
        )

    @pytest.mark.parametrize("note", [None, b"", b"\xff", b"[]", b"3", b'{"pid": "x", "host": 1}'])
    def test_a_garbled_note_of_the_holder_changes_nothing(
        self, study: Study, held: Holder, note: bytes | None
    ) -> None:
        if note is None:
            study.paths.holder.unlink()
        else:
            study.paths.holder.write_bytes(note)
        with pytest.raises(UserError, match=r"another process .*`fuser .*lock` finds it"):
            study.locked().__enter__()
        assert study.is_running()
        held.kill()
        assert not study.is_running()
        with study.locked():
            noted = json.loads(study.paths.holder.read_text())
            assert noted["pid"] == os.getpid()

    def test_what_a_dead_process_left_is_taken_over(
        self, study: Study, home: Home, held: Holder
    ) -> None:
        held.kill()
        assert json.loads(study.paths.holder.read_text())["pid"] == int(held.pid)
        assert not study.is_running()
        assert recover(home, "mine") == []

    def test_a_child_that_outlives_the_holder_does_not_hold_the_study(
        self, study: Study, home: Home
    ) -> None:
        holder = Holder(home, "with a child")
        holder.kill()
        with study.locked():
            pass
        holder.close()

    def test_a_note_of_a_dead_process_is_not_believed(self, study: Study, held: Holder) -> None:
        with subprocess.Popen([sys.executable, "-c", ""]) as dead:
            pass
        note = json.loads(study.paths.holder.read_text())
        study.paths.holder.write_text(json.dumps(note | {"pid": dead.pid}))
        with pytest.raises(UserError, match=f"process {dead.pid} on .* started before it ended"):
            study.locked().__enter__()

    def test_asking_leaves_nothing_behind(self, study: Study) -> None:
        study.paths.lock.unlink(missing_ok=True)
        assert not study.is_running()
        assert not study.paths.lock.exists()


@pytest.fixture
def read_only(home: Home, tmp_path: Path) -> Iterator[Home]:
    """The home once more, where nothing can be written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    home.root.mkdir(exist_ok=True)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting read-only needs root")
    if subprocess.run(["mount", "--bind", home.root, outside], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", outside], check=True)
        yield Home(outside)
    finally:
        subprocess.run(["umount", outside], check=True)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Home]:
    """A home on a disk with room for the folders alone."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield Home(folder / "home").create()
    finally:
        subprocess.run(["umount", folder], check=True)


class TestAFullDisk:
    def test_no_half_a_study_is_left_of_one_that_cannot_begin(self, full: Home) -> None:
        with pytest.raises(UserError, match=r"cannot be made .*full.* free some space"):
            new_study(full)
        assert list_studies(full) == []
        assert list(full.studies.iterdir()) == []

    def test_one_that_cannot_be_held_is_refused_in_words(
        self, hsweep: Invoke, study: Study, full: Home
    ) -> None:
        (full.root / "ballast").write_bytes(b"x" * 16_000)
        there = full.study("mine").root
        there.mkdir()
        shutil.copy(study.paths.manifest, there)
        with pytest.raises(OSError, match="No space left"):
            (full.root / "more").write_bytes(b"x" * 200_000)
        refused = hsweep("recover", "mine", "--home", full.root)
        assert refused.exit_code == 2
        assert "cannot be written to (No space left on device)" in refused.stderr
        (full.root / "more").unlink()


class TestReadOnlyStorage:
    def test_a_study_is_read_listed_and_exported(
        self, hsweep: Invoke, study: Study, read_only: Home, tmp_path: Path
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

    def test_it_is_seen_to_be_running(self, study: Study, held: Holder, read_only: Home) -> None:
        assert StudyLock(read_only.study("mine")).is_held()
        held.kill()
        assert not StudyLock(read_only.study("mine")).is_held()

    @pytest.mark.parametrize(
        "arguments", [("resume", "mine", "--runner", "inline"), ("recover", "mine")]
    )
    def test_running_it_is_refused_in_words(
        self, hsweep: Invoke, study: Study, read_only: Home, arguments: tuple[str, ...]
    ) -> None:
        refused = hsweep(*arguments, "--home", read_only.root)
        assert refused.exit_code == 2
        assert "cannot be written to (Read-only file system)" in refused.stderr
        assert "`analyze` and `export` read it as it is" in refused.stderr


def test_studies_are_found_by_any_of_their_files(study: Study, home: Home) -> None:
    for name in ("study.json", "journal.db"):
        (study.paths.root / name).unlink()
        assert [paths.name for paths in list_studies(home)] == ["mine"]
        with pytest.raises(UserError, match="hsweep recover mine"):
            Study.open(home, "mine")
    (study.paths.root / "journal.jsonl").unlink()
    assert list_studies(home) == []
    assert isinstance(home.study("mine"), StudyPaths)
