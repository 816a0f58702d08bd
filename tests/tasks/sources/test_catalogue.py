import ast
from pathlib import Path

import pytest

from tasks.base import DataError
from tasks.sources.catalogue import CATALOGUE, by_name, find

ROOT = Path(__file__).parents[3]


def test_the_tasks_named_are_classes_of_the_project() -> None:
    classes = {
        node.name
        for path in (ROOT / "tasks").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    assert {task for data_set in CATALOGUE for task in data_set.tasks} <= classes


def test_names_are_unique() -> None:
    assert len({data_set.name for data_set in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize("folder", ["cifar10", "uoft-cs/cifar10"])
def test_a_data_set_is_found_by_its_short_and_by_its_hub_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("HSWEEP_DATA", str(tmp_path))
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "rows.parquet").write_bytes(b"12345")
    found = find(by_name("cifar10"))
    assert (found.folder, found.num_files, found.num_bytes) == (tmp_path / folder, 1, 5)
    before = found.fingerprint()
    (tmp_path / folder / "rows.parquet").write_bytes(b"12346")
    assert find(by_name("uoft-cs/cifar10")).fingerprint() not in (before, None)


def test_a_data_set_that_is_not_there_has_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HSWEEP_DATA", raising=False)
    found = find(by_name("imdb"))
    assert (found.folder, found.num_bytes, found.fingerprint()) == (None, 0, None)


def test_an_unknown_name_is_refused_with_those_known() -> None:
    with pytest.raises(DataError, match="no data set 'cifar11' in the catalogue; it has digits, d"):
        by_name("cifar11")
