import os
from pathlib import Path

import pytest
import torch
from lra_models import MeanOfTokens
from review_files import texts
from task_contract import CPU, TaskContract
from torch import nn

from tasks.base import DataError, Task
from tasks.lra.document_pairs import DocumentPairs
from tasks.lra.tokens import TokenTensors, load

DOCUMENTS = texts(12)
COUNTS = {"train": 24, "eval": 8, "test": 6}


def pair(row: int, shift: int) -> tuple[int, int, int]:
    """Label and documents: those whose numbers are both even or both odd are related."""
    first, second = (row * 5 + shift) % 12, (row * 7 + shift + 1) % 12
    return int(first % 2 == second % 2), first, second


def line(label: object, first: int, second: int) -> str:
    return f"{label}\tP{first}\tP{second}\t{DOCUMENTS[first]}\t{DOCUMENTS[second]}\n"


@pytest.fixture
def anthology(tmp_path: Path) -> Path:
    folder = tmp_path / "aan"
    folder.mkdir()
    for shift, (name, count) in enumerate(COUNTS.items()):
        lines = [line(f"{pair(row, shift)[0]}.0", *pair(row, shift)[1:]) for row in range(count)]
        (folder / f"new_aan_pairs.{name}.tsv").write_text("".join(lines), "utf-8")
    return folder


def loaded(task: DocumentPairs) -> TokenTensors:
    return load(task, task.fingerprint(), 0, CPU)


class TestDocumentPairs(TaskContract):
    @pytest.fixture
    def task(self, anthology: Path) -> Task:
        return DocumentPairs(str(anthology), seq_len=30)

    @pytest.fixture
    def variant(self, anthology: Path) -> Task:
        return DocumentPairs(str(anthology), seq_len=40)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return MeanOfTokens(257, 2)


def test_a_pair_is_both_documents_cut_and_padded(anthology: Path) -> None:
    tensors = loaded(DocumentPairs(str(anthology), seq_len=40, max_bytes=30))
    for shift, part in enumerate((tensors.train, tensors.validation, tensors.test)):
        assert part is not None
        tokens = tensors.tokens(part.texts)
        assert tokens.shape == (len(part.labels), 2, 40)
        for row, (both, label) in enumerate(zip(tokens, part.labels, strict=True)):
            expected, *numbers = pair(row, shift)
            assert label == expected
            for document, number in zip(both, numbers, strict=True):
                kept = DOCUMENTS[number].encode()[:30]
                assert document.tolist() == [*(byte + 1 for byte in kept)] + [0] * (40 - len(kept))


def test_a_document_is_kept_once_however_many_pairs_it_is_part_of(
    anthology: Path, cache: Path
) -> None:
    tensors = loaded(DocumentPairs(str(anthology), seq_len=200))
    assert len(torch.unique(tensors.train.texts)) == 12
    (symbols,) = cache.glob("document-pairs-*/symbols.npy")
    kept = sum(len(document.encode()) for document in DOCUMENTS)
    assert kept <= symbols.stat().st_size <= kept + 128  # the header of an array's file


def test_files_are_read_once_until_they_change(
    anthology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = DocumentPairs(str(anthology), seq_len=30)
    loaded(task)
    load.cache_clear()
    monkeypatch.setattr("tasks.lra.document_pairs._read", None)
    loaded(task)
    load.cache_clear()
    os.utime(anthology / "new_aan_pairs.test.tsv", (0, 0))
    with pytest.raises(TypeError):
        loaded(task)


def test_only_some_pairs_may_be_used(anthology: Path) -> None:
    tensors = loaded(
        DocumentPairs(
            str(anthology), **{"max_train": 9, "max_validation": 3, "max_test": 2}, max_train_eval=4
        )
    )
    held = (tensors.train, tensors.validation, tensors.test, tensors.train_eval)
    assert [len(part.labels) for part in held if part is not None] == [9, 3, 2, 4]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"1\tP1\tP2\tone text\n", r"train\.tsv, line 25: a line must have 5 fields .* not 4"),
        (b"2.0\tP1\tP2\ta\tb\n", r"line 25: the label must be 0 or 1, not '2\.0'"),
        (b"label\tid1\tid2\ta\tb\n", r"line 25: the label must be 0 or 1, not 'label'"),
        (b"1\tP1\tP2\tcaf\xe9\tb\n", r"line 25: the text is not valid UTF-8 .*0xe9"),
        (b"1\tP1\tP2\ta\t\n", r"line 25: the text is empty"),
    ],
)
def test_an_unusable_line_is_named(anthology: Path, bad: bytes, message: str) -> None:
    with (anthology / "new_aan_pairs.train.tsv").open("ab") as file:
        file.write(bad)
    with pytest.raises(DataError, match=message):
        loaded(DocumentPairs(str(anthology)))


def test_missing_and_doubtful_files_are_said_by_the_fingerprint(anthology: Path) -> None:
    with pytest.raises(DataError, match="'no/such/pairs' is none; give its path"):
        DocumentPairs("no/such/pairs").fingerprint()
    (anthology / "other.test.tsv").touch()
    with pytest.raises(DataError, match=r"\.test\.tsv; it has new_aan.*, other\.test\.tsv"):
        DocumentPairs(str(anthology)).fingerprint()
    (anthology / "other.test.tsv").unlink()
    (anthology / "new_aan_pairs.eval.tsv").write_bytes(b"")
    with pytest.raises(DataError, match=r"eval\.tsv has no lines"):
        DocumentPairs(str(anthology)).fingerprint()
    (anthology / "new_aan_pairs.eval.tsv").unlink()
    with pytest.raises(DataError, match=r"must have one file that ends in \.eval\.tsv; .* none"):
        DocumentPairs(str(anthology)).fingerprint()


def test_the_folder_is_found_under_the_data_root(
    anthology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HSWEEP_DATA", str(anthology.parent))
    assert DocumentPairs().fingerprint() == DocumentPairs(str(anthology)).fingerprint()


def test_metrics_and_shapes_are_known_without_data() -> None:
    spec = DocumentPairs("no/such/pairs", max_bytes=4_000).spec()
    assert (spec.seq_len, spec.vocab_size, spec.num_texts) == (4096, 257, 2)
    assert DocumentPairs().metrics[1].name == "test_accuracy"
