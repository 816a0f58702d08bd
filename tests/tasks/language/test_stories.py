import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from task_contract import CPU, TaskContract, measured
from text_tables import sentences, write_tokenizer
from torch import Tensor, nn

from tasks.base import DataError, Task
from tasks.language.stories import Stories, StoryData, published_stories
from tasks.language.subwords import train_byte_level_bpe


class Bigram(nn.Module):
    """The next token's logits, from the last token alone."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.table.weight.normal_(generator=random)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.table(tokens)
        return logits


def opened(task: Stories, batch_size: int = 4, sampling_seed: int = 2) -> StoryData:
    data = task.open(data_seed=1, sampling_seed=sampling_seed, batch_size=batch_size, device=CPU)
    assert isinstance(data, StoryData)
    return data


def batches(data: StoryData, count: int, start_step: int = 0) -> list[Tensor]:
    return list(itertools.islice(data.batches(start_step), count))


def seen(data: StoryData) -> float:
    with torch.no_grad():
        return measured(data, Bigram(300).eval())["tokens_seen"]


@pytest.fixture
def packed(tiny_texts: Path) -> Stories:
    return Stories(str(tiny_texts), seq_len=8, vocab_size=300)


@pytest.fixture
def windows(packed: Stories) -> Stories:
    return replace(packed, layout="windows")


class TestPacked(TaskContract):
    @pytest.fixture
    def task(self, packed: Stories) -> Task:
        return packed

    @pytest.fixture
    def variant(self, packed: Stories) -> Task:
        return replace(packed, max_documents=59)

    @pytest.fixture
    def model(self, task: Stories) -> nn.Module:
        return Bigram(task.vocab_size)


class TestWindows(TaskContract):
    @pytest.fixture
    def task(self, windows: Stories) -> Task:
        return windows

    @pytest.fixture
    def variant(self, packed: Stories) -> Task:
        return packed

    @pytest.fixture
    def model(self, task: Stories) -> nn.Module:
        return Bigram(task.vocab_size)


class TestBatches:
    def test_an_epoch_of_packed_sequences_predicts_every_token_once(self, packed: Stories) -> None:
        subwords = packed.subwords()
        line = [
            token
            for text in sentences(60)
            for token in [*subwords.tokenizer.encode(text).ids, subwords.special("end of text")]
        ]
        data = opened(packed, batch_size=1)
        rows = torch.cat(batches(data, data.steps_per_epoch))
        assert data.steps_per_epoch == (len(line) - 1) // 8
        expected = [tuple(line[start : start + 9]) for start in range(0, len(line) - 8, 8)]
        assert sorted(map(tuple, rows.tolist())) == sorted(expected)

    def test_windows_begin_anywhere(self, windows: Stories) -> None:
        data = opened(windows, batch_size=64)
        line = data._lines["train"]
        text = line.astype(np.int64).tolist()
        starts = {tuple(text[start : start + 9]): start for start in range(len(text) - 8)}
        rows = torch.cat(batches(data, 30)).tolist()
        assert all(tuple(row) in starts for row in rows)
        offsets = {starts[tuple(row)] % 8 for row in rows}
        assert offsets == set(range(8))

    def test_windows_never_reach_into_the_held_out_text(self, windows: Stories) -> None:
        data = opened(windows)
        decode = windows.subwords().tokenizer.decode
        train = decode(data._lines["train"].tolist())
        validation = decode(data._lines["validation"].tolist())
        assert train + validation == "".join(f"{text}\n" for text in sentences(60))
        assert len(validation) / len(train + validation) == pytest.approx(0.1, abs=0.02)

    def test_an_epoch_of_windows_has_as_many_tokens_as_the_text(self, windows: Stories) -> None:
        data = opened(windows)
        tokens = len(data._lines["train"])
        assert tokens - 4 * 8 * 2 < data.steps_per_epoch * 4 * 8 <= tokens


class TestMetrics:
    def test_they_agree_with_counting_by_hand(self, packed: Stories) -> None:
        data, model = opened(packed), Bigram(300).eval()
        line = torch.from_numpy(data._lines["validation"].astype(np.int64))
        used = (len(line) - 1) // 8 * 8
        log_p = model.table.weight.detach().double().log_softmax(1)
        expected = -log_p[line[:used], line[1 : used + 1]].mean().item()
        with torch.no_grad():
            values = measured(data, model)
        assert values["validation_loss"] == pytest.approx(expected, rel=1e-6)
        assert values["perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
        assert data.eval_size == used

    def test_tokens_seen_follow_from_the_batches_trained_on(self, packed: Stories) -> None:
        data, model = opened(packed), Bigram(300)
        count = data.steps_per_epoch + 3
        for batch in batches(data, count):
            data.loss(model, batch)
        assert seen(data) == count * 4 * 8 > data._token_counts()["tokens_available"]
        with torch.no_grad():
            data.loss(model, batch)
        assert seen(data) == count * 4 * 8

    def test_batches_that_were_made_ahead_are_not_seen(self, packed: Stories) -> None:
        data = opened(packed)
        ahead = batches(data, 7)
        assert seen(data) == 0
        data.loss(Bigram(300), ahead[0])
        assert seen(data) == 4 * 8

    def test_a_batch_is_seen_once_in_however_many_parts_and_attempts(self, packed: Stories) -> None:
        data, model = opened(packed), Bigram(300)
        for number, batch in enumerate(batches(data, 5), start=1):
            for attempt in ([batch], batch.split(3), batch.split(1)):
                for part in attempt:
                    data.loss(model, part)
            assert seen(data) == number * 4 * 8

    def test_a_resumed_trial_has_seen_what_it_had(self, packed: Stories) -> None:
        data = opened(packed)
        stream = data.batches(11)
        assert seen(data) == 11 * 4 * 8
        data.loss(Bigram(300), next(stream))
        assert seen(data) == 12 * 4 * 8

    def test_fewer_sequences_can_be_evaluated(self, packed: Stories) -> None:
        few = opened(replace(packed, max_validation=3))
        assert few.eval_size == 24
        assert few._to_evaluate("validation")[-1] > 2 * few._sequences["validation"] // 4
        assert len(few._to_evaluate("train")) == 3
        assert len(opened(replace(packed, max_train_eval=5))._to_evaluate("train")) == 5

    def test_a_hopeless_loss_has_an_infinite_perplexity(self, packed: Stories) -> None:
        model = Bigram(300).eval()
        with torch.no_grad():
            model.table.weight.mul_(1e4)
            assert measured(opened(packed), model)["perplexity"] == math.inf

    def test_a_model_of_another_vocabulary_is_refused(self, packed: Stories) -> None:
        data = opened(packed)
        with pytest.raises(ValueError, match=r"shape \(4, 8, 300\) .* not \(4, 8, 301\)"):
            data.loss(Bigram(301), batches(data, 1)[0])

    def test_what_can_be_learned_is_learned(self, packed: Stories) -> None:
        data, model = opened(packed, batch_size=8), Bigram(300)
        with torch.no_grad():
            before = measured(data, model)["validation_loss"]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for batch in batches(data, 60):
            optimizer.zero_grad()
            data.loss(model, batch).backward()
            optimizer.step()
        with torch.no_grad():
            assert measured(data, model)["validation_loss"] < before - 2


class TestTokenizers:
    def test_a_given_one_decides_the_tokens_wherever_it_lies(
        self, packed: Stories, tmp_path: Path
    ) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            train_byte_level_bpe([sentences(5)], 270).save(str(tmp_path / name / "tokenizer.json"))
        one, two = (replace(packed, tokenizer=str(tmp_path / name)) for name in ("one", "two"))
        assert one.fingerprint() == two.fingerprint() != packed.fingerprint()
        assert int(opened(one)._lines["train"].max()) < 270

    def test_one_that_is_missing_is_known_before_training(self, packed: Stories) -> None:
        with pytest.raises(DataError, match="tokenizer must be an existing file"):
            replace(packed, tokenizer="gpt2").fingerprint()


class TestWhatIsWrongIsNamed:
    def test_a_text_shorter_than_a_sequence(self, packed: Stories) -> None:
        with pytest.raises(DataError, match=r"9999 tokens needs 10000, and .* for train"):
            opened(replace(packed, seq_len=9999))

    def test_a_model_of_another_vocabulary_before_training(self, packed: Stories) -> None:
        with pytest.raises(ValueError, match=r"shape \(1, 8, 300\) .* not \(1, 8, 250\)"):
            opened(packed).warm_start(Bigram(250))

    def test_a_tokenizer_that_does_not_fit_is_known_when_planning(
        self, packed: Stories, tmp_path: Path
    ) -> None:
        write_tokenizer(tmp_path, ("[PAD]", "[UNK]", "[MASK]", "cat"))
        with pytest.raises(DataError, match="role 'end of text'"):
            replace(packed, tokenizer=str(tmp_path)).fingerprint()
        with pytest.raises(DataError, match=r"at least the 4 tokens .* not 3"):
            replace(packed, tokenizer=str(tmp_path), vocab_size=3).fingerprint()
        with pytest.raises(ValueError, match="vocab_size must be at least 257"):
            replace(packed, vocab_size=256)


class TestTinyStories:
    def test_its_splits_are_read_as_they_are(self, shared_data: Callable[[str], str]) -> None:
        task = Stories(shared_data("tinystories"), seq_len=64, vocab_size=1024)
        data = opened(task, batch_size=16)
        end = task.subwords().special("end of text")
        stories = [int((data._lines[part] == end).sum()) for part in ("train", "validation")]
        assert stories == [2100, 216]
        decode = task.subwords().tokenizer.decode
        assert decode(data._lines["train"][:8].tolist()).startswith("One day, a little girl named")

    def test_the_published_run_holds_out_the_last_tenth(
        self, shared_data: Callable[[str], str], tmp_path: Path
    ) -> None:
        tokenizer = train_byte_level_bpe([sentences(5)], 300)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        task = published_stories(
            data=shared_data("tinystories"), tokenizer=str(tmp_path), max_documents=200
        )
        data = opened(task, batch_size=128)
        lengths = [len(data._lines[part]) for part in ("train", "validation")]
        assert lengths[1] / sum(lengths) == pytest.approx(0.1, abs=0.01)
        assert next(data.batches(0)).shape == (128, 65)
