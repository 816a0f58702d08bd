"""A study is deleted: with all that is its own, and nothing that is another's."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tiny_runs import histories
from tiny_studies import SWEEP_FILE, new_study, trained

from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.python import load
from hsweep.record.lease import holding
from hsweep.record.log import segment_file
from hsweep.record.study import StudyFolder, list_studies

Invoke = Callable[..., Result]
KEEPING = SWEEP_FILE.replace("tiny_sweep()", "tiny_sweep(keep='last')")


def names(home: Home) -> set[str]:
    return {paths.name for paths in list_studies(home)}


def test_what_other_studies_have_taken_stays_theirs(
    hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    storage = tmp_path / "storage"
    trained(home.root, tmp_path, KEEPING, "--storage", str(storage), study="first")
    trained(home.root, tmp_path, KEEPING, study="second")
    taken = histories(home.study("second").root)
    (storage / "others").write_text("not the study's")
    done = hsweep("delete", "first", "--yes")
    assert done.exit_code == 0, done.output
    for told in (
        "the record of 3 trials, 3 of them finished, with checkpoints and final weights",
        f"what it has in {storage}/first",
        f"What stays: its runs in MLflow (sqlite:///{home.mlflow_database})",
        "first is deleted",
    ):
        assert told in done.output
    assert names(home) == {"second"}
    assert [path.name for path in storage.rglob("*") if path.is_file()] == ["others"]
    assert not list(home.studies.glob(".*"))
    # Also with all that was the other's.
    second = load("second", home.root)
    assert histories(home.study("second").root) == taken
    assert all(second.trial(key).load_model() is not None for key in taken)
    again = trained(home.root, tmp_path, KEEPING, "--no-reuse", study="first")
    assert load("first", again.root).status["finished"] == 3


def test_nothing_is_deleted_unasked_or_while_it_runs(hsweep: Invoke, home: Home) -> None:
    study = new_study(home)
    refused = hsweep("delete", "mine")
    assert (refused.exit_code, "give --yes" in refused.stderr) == (2, True)
    with holding(study.paths):
        refused = hsweep("delete", "mine", "--yes")
        assert (refused.exit_code, "is being run by" in refused.stderr) == (2, True)
        with pytest.raises(UserError, match="is being run by"):
            load("mine", home.root).delete()
    assert StudyFolder.open(home, "mine").status()["trials"] == 3
    load("mine", home.root).delete()
    assert names(home) == set()
    # Nor does a process that is about to run it make its folder again, in the way of another.
    with pytest.raises(UserError, match="No such file"), holding(study.paths):
        pass
    assert new_study(home).status()["trials"] == 3
    again = load("mine", home.root)
    again.delete()
    assert repr(again).startswith("<study mine: the record ")
    assert "no study called 'mine'" in hsweep("delete", "mine", "--yes").stderr


def test_a_study_that_cannot_be_read_can_be_deleted(hsweep: Invoke, home: Home) -> None:
    study = new_study(home)
    segment_file(study.paths.journal, 1).write_bytes(b"\xff\x00 no log")
    study.paths.index.unlink(missing_ok=True)
    assert hsweep("show", "mine").exit_code == 2
    assert hsweep("delete", "mine", "--yes").exit_code == 0
    assert names(home) == set()
