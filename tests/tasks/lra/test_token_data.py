import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import every_task
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lra_models import MeanOfTokens
from task_contract import CPU, measured, same
from torch import Tensor, nn

from tasks.lra.texts import Examples, Texts, join_texts, number_texts
from tasks.lra.tokens import TokenData, TokenSpec, TokenTask, TokenTensors

TEXTS = [b"\x01\x02\x03", b"\x04", b"\x05\x06", b"\x07\x08\x09\x0a", b"\x0b\x00", b"\x02\x02"]
LABELS = np.array([0, 1, 0, 1, 1, 0])


@dataclass(frozen=True)
class Made(TokenTask):
    """Texts and examples that a test brings."""

    texts: Texts
    roles: dict[str, Examples]
    token_spec: TokenSpec
    start: int = 1

    @property
    def first_id(self) -> int:
        return self.start

    def spec(self) -> TokenSpec:
        return self.token_spec

    def examples(self, data_seed: int) -> tuple[Texts, dict[str, Examples]]:
        return self.texts, self.roles


def tensors(pair: bool = False) -> TokenTensors:
    texts = np.array([[0, 1], [2, 3], [1, 4], [5, 0]]) if pair else np.arange(6)[:, None]
    examples = Examples(texts, LABELS[: len(texts)])
    roles = {"train": examples, "validation": examples.rows(np.array([1, 2]))}
    spec = TokenSpec(3, 16, 2, num_texts=texts.shape[1])
    return TokenTensors(Made(texts=join_texts(TEXTS), roles=roles, token_spec=spec), 0, CPU)


def opened(**settings: Any) -> TokenData:
    return TokenData(TokenTask(**settings), tensors(), 0, 2)


class Answers(nn.Module):
    """Says for every example the class that its first token stands for, with certainty."""

    def __init__(self, answers: dict[int, int]) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, tokens: Tensor) -> Tensor:
        said = torch.tensor([self.answers[int(row[0])] for row in tokens])
        return nn.functional.one_hot(said, 2) * 20.0


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(0, 2),
)
def test_every_text_is_cut_or_padded_to_the_length(
    pieces: list[bytes], seq_len: int, first_id: int
) -> None:
    examples = number_texts({"train": np.zeros(len(pieces), dtype=np.int64)})
    roles = {**examples, "validation": examples["train"]}
    spec = TokenSpec(seq_len, 258, 2)
    task = Made(texts=join_texts(pieces), roles=roles, token_spec=spec, start=first_id)
    held = TokenTensors(task, 0, CPU)
    for row, piece in zip(held.tokens(held.train.texts).tolist(), pieces, strict=True):
        kept = [byte + first_id for byte in piece[:seq_len]]
        assert row == kept + [0] * (seq_len - len(kept))


def test_a_pair_is_two_texts() -> None:
    held = tensors(pair=True)
    tokens = held.tokens(held.train.texts)
    assert tokens.shape == (4, 2, 3)
    assert tokens[1].tolist() == [[6, 7, 0], [8, 9, 10]]


def test_accuracy_and_loss_are_those_of_the_answers() -> None:
    # The first tokens are 2, 5, 6, 8, 12 and 3; the classes are 0, 1, 0, 1, 1, 0.
    model = Answers({2: 0, 5: 1, 6: 1, 8: 1, 12: 1, 3: 0})
    scores = measured(opened(), model)
    assert scores["train_accuracy"] == pytest.approx(5 / 6)
    assert scores["train_loss"] == pytest.approx(20 / 6, rel=1e-4)
    assert scores["accuracy"] == 0.5
    assert "test_accuracy" not in scores


def test_label_smoothing_changes_the_loss_and_not_the_metrics() -> None:
    model = MeanOfTokens(16, 2)
    plain, smooth = opened(), opened(label_smoothing=0.3)
    tokens, labels = batch = next(iter(plain.batches(0)))
    expected = nn.functional.cross_entropy(model(tokens), labels, label_smoothing=0.3)
    assert smooth.loss(model, batch).item() == pytest.approx(expected.item())
    assert plain.loss(model, batch).item() != pytest.approx(expected.item())
    with torch.no_grad():
        assert measured(plain, model) == measured(smooth, model)


def test_an_epoch_may_be_a_number_of_batches() -> None:
    usual, own = opened(), opened(steps_per_epoch=7)
    assert (usual.steps_per_epoch, own.steps_per_epoch) == (3, 7)
    assert same(*(list(itertools.islice(data.batches(4), 5)) for data in (usual, own)))


def test_other_logits_than_one_a_class_are_refused() -> None:
    data = opened()
    with pytest.raises(ValueError, match=r"logits of shape \(2, 2\) for 2 examples, not \(2, 3\)"):
        data.loss(MeanOfTokens(16, 3), next(iter(data.batches(0))))


@pytest.mark.parametrize("name", ["listops", "byte-text", "document-pairs", "pathfinder"])
def test_what_is_read_is_mapped_into_memory_and_not_copied(
    name: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.lra.pathfinder._STARTED_AT_ONCE", 64)
    task = every_task.pair(name, tmp_path / "data").task
    data = task.open(data_seed=0, sampling_seed=0, batch_size=16, device=CPU)
    x, _ = next(iter(data.batches(0)))
    assert len(x) == 16
    symbols = data._tensors._symbols
    ranges = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    mapped = [
        Path(fields[-1])
        for fields in ranges
        for start, end in [(int(bound, 16) for bound in fields[0].split("-"))]
        if start <= symbols.data_ptr() < end
    ]
    assert [path.suffix for path in mapped] == [".npy"]
    assert mapped[0].is_relative_to(cache)
