"""A study is one folder: made whole or not at all, run by one process, readable by all."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import FileSystem
from tiny import tiny_sweep
from tiny_studies import SWEEP_FILE, finish, manifest, new_study, recording

from hsweep import UserError
from hsweep.design.trial import TrialStatus
from hsweep.files import write_json
from hsweep.paths import Home, below, check_study_name
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import RawReport
from hsweep.record.study import StudyFolder, list_studies
from hsweep.watching.now import study_now


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


class TestNames:
    @settings(deadline=None, derandomize=True, max_examples=300)
    @given(st.text(max_size=6) | st.text("./\\-_~aA0 \n\0", max_size=6))
    def test_whatever_its_name_a_study_lies_in_its_own_folder_of_the_home(self, name: str) -> None:
        root = Path("/somewhere/home")
        try:
            folder = Home(root).study(name).root
        except UserError:
            return
        assert folder.parent == root / "studies"
        assert folder.resolve().parent == root / "studies"
        assert folder.name == name
        assert not name.startswith(".")

    @pytest.mark.parametrize("name", ["a", "vit_lean-quick", "0", "a.b-c_d", "x" * 100])
    def test_ordinary_names_are_taken(self, name: str) -> None:
        assert check_study_name(name) == name

    @pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "/etc", "-x", "a\n", "x" * 101, "é"])
    def test_others_are_refused_and_quoted(self, name: str) -> None:
        with pytest.raises(UserError) as refused:
            check_study_name(name)
        assert repr(name) in str(refused.value)


class TestHome:
    def test_a_home_that_cannot_be_made_says_how_to_give_another(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match="--home or HSWEEP_HOME"):
            Home(tmp_path / "file" / "home").create()

    def test_every_file_of_a_study_lies_in_its_folder(self, home: Home) -> None:
        paths = home.study("mine")
        names = [name for name in vars(type(paths)) if not name.startswith("_")]
        elsewhere = ("root", "home", "index")
        values = [getattr(paths, name) for name in names if name not in elsewhere]
        files = [value for value in values if isinstance(value, Path)]
        assert len(set(files)) == len(files) > 10
        assert all(file.is_relative_to(paths.root) for file in files)
        assert not paths.index.is_relative_to(paths.root)


class TestCreate:
    def test_a_study_holds_what_is_needed_to_read_and_repeat_it(self, home: Home) -> None:
        study = new_study(home)
        assert study.paths.sweep_source.read_text() == SWEEP_FILE
        assert len(json.loads(study.paths.plan.read_text())["trials"]) == 3
        assert [row.status for row in study.journal().trials()] == ["planned"] * 3
        assert StudyFolder.open(home, "mine").manifest == study.manifest

    def test_a_taken_name_offers_to_resume(self, home: Home) -> None:
        before = new_study(home).paths.manifest.read_bytes()
        with pytest.raises(UserError, match=r"`hsweep resume mine --home .*`, or start"):
            new_study(home)
        assert home.study("mine").manifest.read_bytes() == before
        assert [folder.name for folder in home.studies.iterdir()] == ["mine"]

    def test_something_else_in_its_place_is_left_alone(self, home: Home) -> None:
        (home.studies / "mine").mkdir(parents=True)
        (home.studies / "mine" / "notes.txt").write_text("mine")
        with pytest.raises(UserError, match="if something else is there remove it"):
            new_study(home)
        assert (home.studies / "mine" / "notes.txt").read_text() == "mine"

    def test_one_that_breaks_off_is_no_study_and_does_not_take_the_name(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("hsweep.record.study.Journal", killed)
        with pytest.raises(KeyboardInterrupt):
            new_study(home)
        monkeypatch.undo()
        assert list_studies(home) == []
        # The same process would meet its own draft; another has another number.
        monkeypatch.setattr("hsweep.record.study.os.getpid", lambda: 1)
        assert new_study(home).name == "mine"


class TestOpen:
    def test_an_unknown_name_lists_the_known_ones(self, home: Home) -> None:
        with pytest.raises(UserError, match=r"no study called 'mine' in .*; it holds no study yet"):
            StudyFolder.open(home, "mine")
        new_study(home, "one")
        new_study(home, "two")
        with pytest.raises(UserError, match=r"studies there: (one, two|two, one)"):
            StudyFolder.open(home, "mine")

    def test_studies_are_listed_newest_first(self, home: Home) -> None:
        for age, name in ((1, "newest"), (3, "oldest"), (2, "middle")):
            os.utime(new_study(home, name).paths.manifest, (10**9 - age, 10**9 - age))
        (home.studies / "no study").mkdir()
        assert [paths.name for paths in list_studies(home)] == ["newest", "middle", "oldest"]


class TestStatus:
    def test_it_counts_trials_and_says_whether_all_is_done(self, home: Home) -> None:
        study = new_study(home)
        assert (study.status()["state"], study.status()["planned"]) == ("interrupted", 3)
        with recording(study) as (journal, trials):
            for trial in trials:
                finish(journal, trial, 0.5)
        status = study.status()
        assert (status["state"], status["finished"], status["trials"]) == ("complete", 3, 3)
        assert (status["units_done"], status["budget"], status["wall_seconds"]) == (9, 3, 3.0)
        assert set(map(str, TrialStatus)) <= set(status)

    def test_a_report_that_comes_while_the_tables_are_read_is_in_both_or_in_none(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study = new_study(home)
        read = JournalReader.report_batches

        def read_late(journal: JournalReader) -> Iterator[list[RawReport]]:
            with recording(study) as (other, trials):
                finish(other, trials[0], 0.5)
            return read(journal)

        monkeypatch.setattr(JournalReader, "report_batches", read_late)
        before = study.tables()
        monkeypatch.undo()
        after = study.tables()
        assert [(max(t["reached"].to_pylist()), r.num_rows) for t, r in (before, after)] == [
            (0, 0), (3, 1),
        ]  # fmt: skip


class TestStorage:
    def test_checkpoints_lie_with_the_study_unless_put_elsewhere(self, home: Home) -> None:
        here = StudyFolder(home.study("mine"), manifest())
        assert here.checkpoints() == str(home.study("mine").checkpoints)
        there = StudyFolder(home.study("mine"), manifest(storage="s3://bucket/runs/"))
        assert there.checkpoints() == "s3://bucket/runs/mine/checkpoints"
        assert there.paths.stored("/shared/", there.paths.ray) == "/shared/mine/ray"

    @pytest.mark.parametrize(
        ("root", "expected"),
        [
            ("/shared/what?", "/shared/what?/a/b"),
            ("/", "/a/b"),
            ("s3://bucket", "s3://bucket/a/b"),
            ("s3://bucket/?region=x", "s3://bucket/a/b?region=x"),
            (
                "s3://bucket/f?endpoint_override=http://h:1/",
                "s3://bucket/f/a/b?endpoint_override=http://h:1/",
            ),
            ("file:///", "file:///a/b"),
        ],
    )
    def test_a_folder_below_a_uri_stands_before_its_query(self, root: str, expected: str) -> None:
        assert below(root, "a", "b") == expected

    @settings(deadline=None, derandomize=True, max_examples=100)
    @given(
        folder=st.lists(
            st.text("ab%20.-", min_size=1).filter(lambda name: name.strip(".")), max_size=3
        ),
        query=st.dictionaries(
            st.sampled_from(["region", "scheme", "x"]), st.text("ab/:1"), max_size=2
        ),
    )
    def test_pyarrow_finds_below_a_uri_the_folder_below_what_it_finds_there(
        self, folder: list[str], query: dict[str, str]
    ) -> None:
        """With a file system of its own that holds nothing."""
        uri = f"mock:///{'/'.join(map(quote, folder))}?{urlencode(query)}"
        _, path = FileSystem.from_uri(uri)
        _, found = FileSystem.from_uri(below(uri, "mine", "checkpoints"))
        assert found == "/".join(filter(None, [path, "mine", "checkpoints"]))


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})
    cyclic: list[object] = []
    cyclic.append(cyclic)
    with pytest.raises(ValueError, match="Circular"):
        write_json(path, cyclic)
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_study_that_ended_before_its_trials_were_recorded_is_not_complete(home: Home) -> None:
    content = manifest("mine", tiny_sweep())
    study = StudyFolder.create(home, content, sweep_source=SWEEP_FILE, plan={})
    assert study.status()["state"] == "interrupted"
    with study.journal() as journal:
        assert journal.trials() == []
        assert study_now(study, journal)["state"] == "interrupted"
