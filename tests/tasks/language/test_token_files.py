from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_tables import sentences, write_table

from tasks.base import DataError
from tasks.language import subwords as tokenizers
from tasks.language.subwords import (
    Subwords,
    evenly_spaced,
    subwords,
    token_line,
    train_byte_level_bpe,
)
from tasks.language.text_data import Corpus
from tasks.sources.progress import progress_to

END = 0


@pytest.fixture
def corpus(tiny_texts: Path) -> Corpus:
    return Corpus(str(tiny_texts))


@pytest.fixture
def bpe(corpus: Corpus) -> Subwords:
    return subwords(None, "bpe", 300, corpus)


def test_documents_follow_each_other_each_with_its_end(corpus: Corpus, bpe: Subwords) -> None:
    line = token_line(corpus, "train", bpe, end=END)
    expected = [token for text in sentences(60) for token in [*bpe.tokenizer.encode(text).ids, END]]
    assert line.tolist() == expected


def test_an_ending_is_part_of_the_text(corpus: Corpus, bpe: Subwords) -> None:
    line = token_line(corpus, "validation", bpe, ending="\n")
    assert bpe.tokenizer.decode(line.tolist()) == "".join(
        f"{text}\n" for text in sentences(20, seed=1)
    )


def test_it_is_made_once_and_mapped_from_disk(
    corpus: Corpus, bpe: Subwords, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = token_line(corpus, "train", bpe, end=END)
    monkeypatch.setattr(Subwords, "encode", None)
    again = token_line(corpus, "train", bpe, end=END)
    assert isinstance(again, np.memmap)
    assert np.array_equal(first, again)
    again[:] = 0
    assert token_line(corpus, "train", bpe, end=END).any()
    assert len(list(cache.glob("tokens-*/*.uint16"))) == 1


def test_what_was_made_before_an_interruption_is_not_made_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "d", "train", {"text": sentences(5_500, words=3)})
    corpus = Corpus(str(tmp_path / "d"), validation=0.5)
    bpe = Subwords(train_byte_level_bpe([sentences(60)], 300), "bpe")
    monkeypatch.setattr(tokenizers, "_BATCHES_A_PART", 1)
    encode, called = Subwords.encode, 0

    def interrupted(self: Subwords, texts: list[str]) -> list[list[int]]:
        nonlocal called
        called += 1
        if called == 4:
            raise KeyboardInterrupt
        return encode(self, texts)

    monkeypatch.setattr(Subwords, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        token_line(corpus, "train", bpe, end=END)
    told: list[tuple[str, int, int]] = []
    with progress_to(lambda *progress: told.append(progress)):
        line = token_line(corpus, "train", bpe, end=END)
    texts = [text for batch in corpus.documents("train") for text in batch]
    assert line.tolist() == [token for each in encode(bpe, texts) for token in [*each, END]]
    assert called == 4 + 6 - 3
    assert told[0] == ("documents for train", 500, 2_750)
    assert told[-1] == ("documents for train", 2_750, 2_750)
    assert [path.name for path in cache.glob("tokens-*part*")] == []


def test_another_part_tokenizer_or_end_is_another_file(corpus: Corpus, bpe: Subwords) -> None:
    other = subwords(None, "bpe", 310, corpus)
    lines = [
        token_line(corpus, "train", bpe, end=END),
        token_line(corpus, "validation", bpe, end=END),
        token_line(corpus, "train", bpe),
        token_line(corpus, "train", bpe, ending="\n"),
        token_line(corpus, "train", other, end=END),
    ]
    assert len({line.tobytes() for line in lines}) == 5


def test_a_large_vocabulary_takes_wider_numbers(corpus: Corpus) -> None:
    tokenizer = train_byte_level_bpe([sentences(60)], 300)
    tokenizer.add_tokens([f"<{number}>" for number in range(1 << 16)])
    line = token_line(corpus, "train", Subwords(tokenizer, "large"), end=70_000)
    assert line.dtype == np.uint32
    assert int(line[-1]) == 70_000


def test_a_file_of_another_size_is_refused(corpus: Corpus, bpe: Subwords, cache: Path) -> None:
    token_line(corpus, "train", bpe, end=END)
    file = next(cache.glob("tokens-*/*.uint16"))
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(DataError, match="is damaged; delete it"):
        token_line(corpus, "train", bpe, end=END)


@given(st.integers(1, 500), st.none() | st.integers(1, 600))
def test_evenly_spaced_numbers_are_distinct_in_order_and_cover_the_range(
    count: int, most: int | None
) -> None:
    rows = evenly_spaced(count, most)
    assert len(rows) == min(count, most or count)
    assert (np.diff(rows) >= count // len(rows)).all()
    assert rows[0] == 0
    assert rows[-1] < count
    assert count - rows[-1] <= -(-count // len(rows))
