import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from task_contract import CPU, TaskContract, measured, same
from text_tables import sentences, write_table
from torch import Tensor, nn

from tasks.base import DataError, Task
from tasks.language.masked_text import MaskedText, MaskedTextData, Masking
from tasks.language.subwords import train_byte_level_bpe, train_wordpiece
from tasks.sampling import generator

SIZE = 150


class Neighbours(nn.Module):
    """Logits from a token and those beside it."""

    def __init__(self, vocab_size: int = SIZE) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, 3 * vocab_size)
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.tokens.weight.normal_(generator=random)

    def forward(self, tokens: Tensor) -> Tensor:
        left, here, right = self.tokens(tokens).chunk(3, dim=-1)
        logits: Tensor = left.roll(1, 1) + here + right.roll(-1, 1)
        return logits


class Reader(Neighbours):
    """The same, for those positions alone that are asked for."""

    def forward(self, tokens: Tensor, *, read_at: Tensor | None = None) -> Tensor:
        assert read_at is not None
        return super().forward(tokens).take_along_dim(read_at[:, :, None], dim=1)


def opened(task: MaskedText, batch_size: int = 4) -> MaskedTextData:
    data = task.open(data_seed=1, sampling_seed=2, batch_size=batch_size, device=CPU)
    assert isinstance(data, MaskedTextData)
    return data


def batches(data: MaskedTextData, count: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    return list(itertools.islice(data.batches(0), count))


@pytest.fixture
def text(tiny_texts: Path) -> MaskedText:
    return MaskedText(str(tiny_texts), seq_len=16, vocab_size=SIZE)


class TestMaskedText(TaskContract):
    @pytest.fixture
    def task(self, text: MaskedText) -> Task:
        return text

    @pytest.fixture
    def variant(self, text: MaskedText) -> Task:
        return replace(text, masked_share=0.15)

    @pytest.fixture
    def model(self) -> nn.Module:
        return Neighbours()


class TestMasking:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 999))
    def test_what_is_hidden_is_exact_in_number_and_kind(
        self, predicted: int, batch: int, seed: int
    ) -> None:
        special = torch.zeros(50, dtype=torch.bool)
        special[:5] = True
        # Words that are hidden by another one are hidden by one of the last ten.
        masking = Masking(predicted, 4, torch.arange(40, 50), special)
        tokens = torch.randint(5, 40, (batch, 40), generator=generator(seed))
        shown, positions, targets = masking.hide(tokens, generator(seed, 1))
        assert all(len(set(row)) == predicted for row in positions.tolist())
        assert torch.equal(tokens.gather(1, positions), targets)
        assert torch.equal(shown.scatter(1, positions, targets), tokens)
        at = shown.gather(1, positions)
        masked = (at == 4).sum(1).tolist()
        replaced = (at >= 40).sum(1).tolist()
        kept = (at == targets).sum(1).tolist()
        assert masked == [round(0.8 * predicted)] * batch
        assert replaced == [min(round(0.1 * predicted), predicted - masked[0])] * batch
        assert [sum(row) for row in zip(masked, replaced, kept, strict=True)] == [predicted] * batch

    def test_special_tokens_are_predicted_only_when_nothing_else_is_left(self) -> None:
        special = torch.zeros(50, dtype=torch.bool)
        special[:5] = True
        tokens = torch.tensor([[3, 3, 3, 3, 3, 3, 20, 21]]).expand(200, 8)
        _, positions, _ = Masking(2, 4, torch.arange(5, 50), special).hide(tokens, generator(0))
        assert {frozenset(row) for row in positions.tolist()} == {frozenset({6, 7})}
        _, positions, _ = Masking(3, 4, torch.arange(5, 50), special).hide(tokens, generator(0))
        assert all({6, 7} < set(row) for row in positions.tolist())

    def test_every_position_has_the_same_chance(self) -> None:
        special = torch.zeros(50, dtype=torch.bool)
        masking = Masking(4, 4, torch.arange(5, 50), special)
        _, positions, _ = masking.hide(torch.full((4000, 16), 7), generator(0))
        counts = positions.flatten().bincount(minlength=16)
        assert (counts - 1000).abs().max() < 120


class TestBatches:
    def test_sequences_are_full_and_each_document_ends_with_a_separator(
        self, text: MaskedText
    ) -> None:
        subwords = text.subwords()
        line = [
            token
            for each in sentences(60)
            for token in [*subwords.encode([each])[0], subwords.special("separator")]
        ]
        data = opened(text, batch_size=1)
        rows = [
            tuple(tokens.scatter(1, positions, targets)[0].tolist())
            for tokens, positions, targets in batches(data, data.steps_per_epoch)
        ]
        expected = [tuple(line[start : start + 16]) for start in range(0, len(line) - 15, 16)]
        assert sorted(rows) == sorted(expected)

    def test_a_quarter_of_the_positions_is_predicted_and_others_every_epoch(
        self, text: MaskedText
    ) -> None:
        data = opened(text, batch_size=1)
        epochs = batches(data, 2 * data.steps_per_epoch)
        assert all(positions.shape == (1, 4) for _, positions, _ in epochs)
        hidden: dict[tuple[int, ...], set[frozenset[int]]] = {}
        for tokens, positions, targets in epochs:
            original = tuple(tokens.scatter(1, positions, targets)[0].tolist())
            hidden.setdefault(original, set()).add(frozenset(positions[0].tolist()))
        assert sum(len(sets) == 2 for sets in hidden.values()) > len(hidden) / 2


class TestReading:
    def test_a_model_that_can_is_asked_for_the_predicted_positions_alone(
        self, text: MaskedText
    ) -> None:
        data = opened(text)
        batch = batches(data, 1)[0]
        assert data.loss(Reader(), batch).item() == data.loss(Neighbours(), batch).item()
        with torch.no_grad():
            assert measured(data, Reader()) == measured(data, Neighbours())

    def test_the_loss_is_over_the_predicted_positions(self, text: MaskedText) -> None:
        data, model = opened(text), Neighbours()
        tokens, positions, targets = batches(data, 1)[0]
        log_p = model(tokens).log_softmax(-1)
        by_hand = [
            -log_p[row, position, target].item()
            for row in range(4)
            for position, target in zip(positions[row], targets[row], strict=True)
        ]
        loss = data.loss(model, (tokens, positions, targets)).item()
        assert loss == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-5)

    def test_a_model_of_another_vocabulary_is_refused(self, text: MaskedText) -> None:
        data = opened(text)
        with pytest.raises(ValueError, match=r"shape \(4, 4, 150\) .* not \(4, 4, 151\)"):
            data.loss(Neighbours(SIZE + 1), batches(data, 1)[0])


class TestMetrics:
    def test_an_oracle_is_always_right(self, text: MaskedText) -> None:
        data = opened(text)

        class Oracle(nn.Module):
            def forward(self, tokens: Tensor, *, read_at: Tensor) -> Tensor:
                return nn.functional.one_hot(data.answers, SIZE).float() * 100

        original = data._hidden

        def remembering(*arguments: object) -> tuple[Tensor, Tensor, Tensor]:
            batch = original(*arguments)  # type: ignore[arg-type]
            data.answers = batch[2]  # type: ignore[attr-defined]
            return batch

        data._hidden = remembering  # type: ignore[method-assign, assignment]
        values = measured(data, Oracle())
        assert values["masked_accuracy"] == 1
        assert values["masked_loss"] == pytest.approx(0, abs=1e-6)

    def test_masks_to_validate_on_are_the_same_in_every_trial(self, text: MaskedText) -> None:
        one = opened(text)
        other = text.open(data_seed=7, sampling_seed=8, batch_size=2, device=CPU)
        with torch.no_grad():
            values = [dict(measured(data, Neighbours())) for data in (one, other)]
        assert values[0] == values[1]

    def test_what_can_be_learned_is_learned(self, text: MaskedText) -> None:
        data, model = opened(text, batch_size=8), Neighbours()
        with torch.no_grad():
            before = measured(data, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for batch in batches(data, 60):
            optimizer.zero_grad()
            data.loss(model, batch).backward()
            optimizer.step()
        with torch.no_grad():
            after = measured(data, model)
        assert after["masked_loss"] < before["masked_loss"] - 1
        assert after["masked_accuracy"] > before["masked_accuracy"]
        assert after["tokens_seen"] == 60 * 8 * 16


class TestWhatIsWrongIsNamed:
    def test_a_model_of_another_vocabulary_before_training(self, text: MaskedText) -> None:
        with pytest.raises(ValueError, match=rf"shape \(1, 4, {SIZE}\) .* not \(1, 4, 99\)"):
            opened(text).warm_start(Neighbours(99))

    def test_a_tokenizer_without_a_mask(self, text: MaskedText, tmp_path: Path) -> None:
        train_byte_level_bpe([sentences(5)], 270).save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(DataError, match="role 'mask'"):
            replace(text, vocab_size=300, tokenizer=str(tmp_path)).fingerprint()

    def test_a_text_shorter_than_a_sequence(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"text": sentences(30)})
        write_table(tmp_path / "d", "test", {"text": ["the cat"]})
        task = MaskedText(str(tmp_path / "d"), seq_len=16, vocab_size=SIZE)
        with pytest.raises(DataError, match=r"16 tokens needs 16, and .* for validation"):
            opened(task)


def test_a_given_tokenizer_is_used(text: MaskedText, tmp_path: Path) -> None:
    train_wordpiece([sentences(9)], 130).save(str(tmp_path / "tokenizer.json"))
    task = replace(text, tokenizer=str(tmp_path))
    assert task.fingerprint() != text.fingerprint()
    assert same(*[batches(opened(task), 2) for _ in range(2)])


def test_real_stories_are_read(shared_data: Callable[[str], str]) -> None:
    task = MaskedText(shared_data("tinystories"), vocab_size=1024, max_documents=300)
    tokens, positions, targets = next(opened(task, batch_size=32).batches(0))
    assert tokens.shape == (32, 128)
    assert positions.shape == targets.shape == (32, 32)
    assert (tokens == task.subwords().special("mask")).sum(1).tolist() == [26] * 32
