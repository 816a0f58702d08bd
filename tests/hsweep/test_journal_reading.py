"""What is asked of a record without reading all of it is what the whole says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow_stores import plan, report

from hsweep.record.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.db", create=True) as journal:
        yield journal


def test_trials_asked_for_by_key_are_those_of_the_whole(journal: Journal) -> None:
    keys = [f"{number}" for number in range(1203)]
    plan(journal, *keys)
    journal.set_orphaned(["7"], "gone")
    assert journal.trials_of(["9", "7", "9", "nobody"]).keys() == {"7", "9"}
    everything = {row.key: row for row in journal.trials(orphaned=True)}
    assert journal.trials_of(reversed(keys)) == everything


def test_the_last_report_before_an_entry(journal: Journal) -> None:
    plan(journal, "a", "b")
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 4))
    reports = list(journal.reports("a"))
    assert journal.last_report("a", before=10**9) == reports[-1]
    assert journal.last_report("a", before=reports[-1].seq) == reports[-2]
    assert journal.last_report("a", before=reports[0].seq) is None


def test_values_are_set_and_forgotten_together_and_found_by_prefix(journal: Journal) -> None:
    journal.set_metas({"run:a": "1", "run:b": "2", "runs": "3", "rum": "4", "run:\U0001f600": "5"})
    assert journal.metas("run:") == {"a": "1", "b": "2", "\U0001f600": "5"}
    journal.set_metas({"run:a": None, "run:b": "6", "nobody": None})
    assert journal.metas("run:") == {"b": "6", "\U0001f600": "5"}
    journal.clear_metas("run:")
    assert journal.metas("run:") == {}
    assert journal.metas("ru") == {"ns": "3", "m": "4"}
