"""The auditor finds what it is there to find."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from chaos.audit import Endings, Shown, audit, lost_work, read_record
from tiny import tiny_sweep
from tiny_runs import planned
from tiny_studies import finish, new_study, recording

from hsweep.paths import Home, index_file
from hsweep.record.journal_reader import JournalReader

FIRST = planned(tiny_sweep())[0].key


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that is as it should be."""
    study = new_study(Home(tmp_path_factory.mktemp("whole")))
    with recording(study) as (journal, trials):
        for trial in trials:
            finish(journal, trial, 0.5)
    study.write_tables()
    return study.paths.root


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    copy = Path(shutil.copytree(whole, tmp_path / "study"))
    JournalReader(copy / "journal").close()  # which makes its index
    return copy


@pytest.fixture(scope="module")
def calm(whole: Path) -> Endings:
    return read_record(whole).endings()


def doctor(study: Path, *statements: str) -> None:
    with closing(sqlite3.connect(index_file(study / "journal"), isolation_level=None)) as record:
        for statement in statements:
            record.execute(statement.format(key=FIRST))


def test_nothing_is_found_in_a_study_that_is_as_it_should_be(study: Path, calm: Endings) -> None:
    found = audit(study, calm)
    assert (found.planned, found.once, found.problems) == (3, 3, [])


AGAIN = (
    "INSERT INTO log (time, key, attempt, kind, unit, payload) SELECT time, key, attempt, kind,"
    " unit, payload FROM log WHERE key = '{key}' AND "
)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DELETE FROM trials WHERE key = '{key}'", "lost"),
        ("DELETE FROM log WHERE key = '{key}' AND kind = 'report'", "lost"),
        ("DELETE FROM log WHERE key = '{key}' AND payload LIKE '%finished%'", "lost"),
        ("UPDATE trials SET status = 'planned' WHERE key = '{key}'", "lost"),
        (AGAIN + "kind = 'report'", "doubled"),
        (AGAIN + "payload LIKE '%finished%'", "doubled"),
    ],
)
def test_a_trial_that_is_lost_or_doubled_is_found(
    study: Path, calm: Endings, statement: str, kind: str
) -> None:
    doctor(study, statement)
    found = audit(study, calm)
    assert found.once == 2
    assert set(getattr(found, kind)) == {FIRST}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log SET payload = replace(payload, '0.5', '0.5000000000000001')",
        "UPDATE trials SET unit = 2 WHERE key = '{key}'",
        "UPDATE trials SET status = 'diverged' WHERE key = '{key}'",
    ],
)
def test_what_is_not_as_undisturbed_is_found(study: Path, calm: Endings, statement: str) -> None:
    doctor(study, statement)
    assert audit(study, calm).problems != []


def test_a_report_that_was_shown_and_is_gone_is_found(study: Path, calm: Endings) -> None:
    found = audit(study, calm, [(FIRST, Shown(2, '{"nmse": 0.7}'))])
    assert set(found.lost) == {FIRST}


@pytest.mark.parametrize("spoil", [lambda f: f.touch(), lambda f: f.write_bytes(b"half")])
def test_a_checkpoint_of_an_ended_trial_is_found(
    study: Path, calm: Endings, spoil: Callable[[Path], object]
) -> None:
    file = study / "checkpoints" / FIRST / ".000000001-00001-0123456789abcdef.pt.tmp"
    file.parent.mkdir(parents=True)
    spoil(file)
    assert "checkpoints" in audit(study, calm).problems[0]


def test_work_beyond_the_newest_whole_checkpoint_is_lost(study: Path) -> None:
    doctor(study, "UPDATE trials SET status = 'running' WHERE key = '{key}'")
    assert lost_work(study) == {FIRST: 1.0}
