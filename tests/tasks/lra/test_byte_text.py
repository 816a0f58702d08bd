import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lra_models import MeanOfTokens
from review_files import texts, write_texts
from task_contract import CPU, TaskContract
from torch import nn

from tasks.base import DataError, Task
from tasks.lra.byte_text import ByteText
from tasks.lra.tokens import load
from tasks.sources.progress import progress_to


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    folder = tmp_path / "reviews"
    write_texts(folder, "train", texts(40), [row % 2 for row in range(40)])
    write_texts(folder, "test", texts(10, seed=1), [row % 2 for row in range(10)])
    return folder


def loaded(task: ByteText, data_seed: int = 0):  # type: ignore[no-untyped-def]
    return load(task, task.fingerprint(), data_seed, CPU)


def decoded(tokens: torch.Tensor) -> list[str]:
    return [bytes(token - 1 for token in row.tolist() if token).decode() for row in tokens]


class TestByteText(TaskContract):
    generated = True  # the data seed decides what is held out

    @pytest.fixture
    def task(self, reviews: Path) -> Task:
        return ByteText(str(reviews), seq_len=48, max_train_eval=10)

    @pytest.fixture
    def variant(self, reviews: Path) -> Task:
        return ByteText(str(reviews), seq_len=32, max_train_eval=10)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return MeanOfTokens(257, 2)


class TestValidationSplit(TaskContract):
    @pytest.fixture
    def task(self, reviews: Path) -> Task:
        return ByteText(str(reviews), seq_len=48, validation="test", test=None)

    @pytest.fixture
    def variant(self, reviews: Path) -> Task:
        return ByteText(str(reviews), seq_len=48, validation="test")

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return MeanOfTokens(257, 2)


def test_tokens_are_the_bytes_of_the_text_cut_and_padded(reviews: Path) -> None:
    rows = texts(40)
    task = ByteText(str(reviews), seq_len=40, max_bytes=30, validation="test")
    tensors = loaded(task)
    tokens = tensors.tokens(tensors.train.texts)
    assert tokens.shape == (40, 40)
    for row, text in zip(tokens.tolist(), rows, strict=True):
        kept = text.encode()[:30]
        assert row == [*(byte + 1 for byte in kept)] + [0] * (40 - len(kept))
    assert (tokens[:, 30:] == 0).all()
    assert max(map(len, rows)) > 30 > min(map(len, rows))


def test_validation_texts_are_a_share_of_each_class_of_the_training_split(reviews: Path) -> None:
    tensors = loaded(ByteText(str(reviews), seq_len=90, validation=0.25))
    train, validation, test = (
        decoded(tensors.tokens(part.texts))
        for part in (tensors.train, tensors.validation, tensors.test)
    )
    assert sorted(train + validation) == sorted(texts(40))
    assert test == texts(10, seed=1)
    assert torch.bincount(tensors.validation.labels).tolist() == [5, 5]
    assert decoded(tensors.tokens(loaded_again(reviews).validation.texts)) != validation


def loaded_again(reviews: Path):  # type: ignore[no-untyped-def]
    return loaded(ByteText(str(reviews), seq_len=90, validation=0.25), data_seed=1)


def test_labels_stay_with_their_texts(reviews: Path) -> None:
    label_of = {text: row % 2 for row, text in enumerate(texts(40))}
    tensors = loaded(ByteText(str(reviews), seq_len=90, max_train=20), data_seed=4)
    found = zip(decoded(tensors.tokens(tensors.train.texts)), tensors.train.labels, strict=True)
    assert all(label_of[text] == label for text, label in found)
    assert len(tensors.train.labels) == 20


def test_texts_are_read_once_and_then_mapped(
    reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = ByteText(str(reviews), seq_len=48)
    first = loaded(task)
    load.cache_clear()
    monkeypatch.setattr("tasks.lra.byte_text.join_texts", None)
    again = loaded(task)
    assert torch.equal(first.tokens(first.train.texts), again.tokens(again.train.texts))


def test_configurations_of_one_folder_are_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for seed, config in enumerate(("one", "other")):
        write_texts(folder / config, "train", texts(12, seed=seed), [row % 2 for row in range(12)])
    (folder / "README.md").write_text(
        "---\nconfigs:\n"
        + "".join(
            f"- config_name: {config}\n"
            f"  data_files:\n  - {{split: train, path: {config}/train-*}}\n"
            for config in ("one", "other")
        )
        + "---\n"
    )
    for seed, config in enumerate(("one", "other")):
        task = ByteText(str(folder), config=config, seq_len=90, test=None, validation=0.5)
        tensors = loaded(task)
        held = torch.cat([tensors.train.texts, tensors.validation.texts])
        assert sorted(decoded(tensors.tokens(held))) == sorted(texts(12, seed=seed))


def test_progress_is_told(reviews: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with progress_to(lambda *now: told.append(now)):
        loaded(ByteText(str(reviews), seq_len=48))
    assert told == [("texts", 50, 50)]


def test_reviews_are_learned_from_their_letters(shared_data: Callable[[str], str]) -> None:
    """The sample is small, but enough to show that texts and labels belong together."""
    from sklearn.linear_model import LogisticRegression

    tensors = loaded(ByteText(shared_data("imdb"), seq_len=2048, validation="test", test=None))

    def hashed_words(part: str) -> np.ndarray:
        counts = np.zeros((len(getattr(tensors, part).labels), 1 << 14))
        for row, tokens in enumerate(tensors.tokens(getattr(tensors, part).texts)):
            kept = bytes(token - 1 for token in tokens.tolist() if token)
            text = kept.decode(errors="ignore").lower()
            for word in text.split():
                counts[row, sum(map(int.__mul__, word.encode(), range(3, 99, 2))) % (1 << 14)] = 1
        return counts

    model = LogisticRegression(C=0.1, max_iter=500).fit(
        hashed_words("train"), tensors.train.labels.numpy()
    )
    # 200 reviews by chance: 0.5 with standard error 0.035.
    assert model.score(hashed_words("validation"), tensors.validation.labels.numpy()) > 0.66


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"caf\xe9", r"texts must be UTF-8, and byte 3 is 0xe9"),
        ("", "the text is empty; remove the row"),
        (None, "the text is missing; remove the row"),
    ],
)
def test_an_unusable_text_is_named_by_its_row(
    tmp_path: Path, bad: str | bytes | None, message: str
) -> None:
    rows: list[str | bytes | None] = [*texts(7), bad, *texts(4, seed=2)]
    write_texts(tmp_path / "set", "train", rows, [row % 2 for row in range(12)])
    task = ByteText(str(tmp_path / "set"), test=None, validation=0.5)
    where = r"split 'train', row 7: "
    with pytest.raises(DataError, match=where + message):
        task.fingerprint()


def test_missing_splits_and_columns_and_wrong_labels_are_said_by_the_fingerprint(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "set"
    write_texts(folder, "train", texts(6), [0, 1, 0, 2, 1, 0])
    with pytest.raises(DataError, match=r"row 3: labels must lie in 0\.\.1, not 2"):
        ByteText(str(folder), test=None).fingerprint()
    with pytest.raises(DataError, match="must have a split 'dev'; it has 'train'"):
        ByteText(str(folder), num_classes=3, validation="dev").fingerprint()
    with pytest.raises(DataError, match=r"must have the text column 'review'.*text_column"):
        ByteText(str(folder), num_classes=3, test=None, text_column="review").fingerprint()
    with pytest.raises(DataError, match="must have the label column 'stars'"):
        ByteText(str(folder), num_classes=3, test=None, label_column="stars").fingerprint()


def test_a_split_without_rows_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\ngood,1\nbad,0\n")
    (folder / "test.csv").write_text("text,label\n")
    with pytest.raises(DataError, match=r"'test'.* has no rows|cannot load"):
        ByteText(str(folder)).fingerprint()


def test_a_column_of_numbers_is_no_text(reviews: Path) -> None:
    task = ByteText(str(reviews), text_column="label")
    with pytest.raises(DataError, match=r"column 'label' of .*, must hold texts, not int64"):
        task.fingerprint()


def test_holding_out_nothing_is_refused(reviews: Path) -> None:
    task = ByteText(str(reviews), validation=0.01)
    with pytest.raises(DataError, match=r"has 40 rows: holding out 0\.01 .* none to hold out"):
        task.fingerprint()


def test_missing_data_are_a_data_error_and_metrics_are_known_without_them() -> None:
    task = ByteText("no/such/reviews")
    assert [metric.name for metric in task.metrics][:2] == ["accuracy", "test_accuracy"]
    assert task.spec().vocab_size == 257
    with pytest.raises(DataError, match="'no/such/reviews' does not exist"):
        task.fingerprint()


def test_describing_a_task_loads_no_libraries_of_data() -> None:
    code = (
        "import sys\n"
        "from tasks.lra.byte_text import ByteText\n"
        "from tasks.lra.listops import ListOps\n"
        "from tasks.synthetic.nearest_neighbor import NearestNeighbor\n"
        "ByteText().spec(); ListOps().fingerprint(); NearestNeighbor(seq_len=4).fingerprint()\n"
        "print([name for name in ('timm', 'datasets', 'pyarrow') if name in sys.modules])\n"
    )
    project = Path(__file__).resolve().parents[3]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=project, check=True)
    assert run.stdout.decode().strip() == "[]"
