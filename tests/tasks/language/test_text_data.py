from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_tables import sentences, undecodable, write_table

from tasks.base import DataError
from tasks.language.text_data import PARTS, Corpus, Part


class Tail(Corpus):
    @property
    def holds_out_tail(self) -> bool:
        return True


def documents(corpus: Corpus, part: Part = "train") -> list[str]:
    return [text for batch in corpus.documents(part) for text in batch]


def found(corpus: Corpus, part: Part) -> list[str]:
    """The documents of a part, none if nothing is left for it."""
    try:
        return documents(corpus, part)
    except DataError:
        return []


class TestDocuments:
    def test_they_come_in_the_order_of_their_split(self, tiny_texts: Path) -> None:
        corpus = Corpus(str(tiny_texts))
        assert documents(corpus) == sentences(60)
        assert documents(corpus, "validation") == sentences(20, seed=1)

    def test_more_than_a_chunk_is_read_whole(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"text": sentences(2_345, words=1)})
        corpus = Corpus(str(tmp_path / "d"), validation=0.5)
        both = documents(corpus) + documents(corpus, "validation")
        assert sorted(both) == sorted(sentences(2_345, words=1))

    def test_the_first_ones_can_be_chosen(self, tiny_texts: Path) -> None:
        corpus = Corpus(str(tiny_texts), max_documents=7)
        assert documents(corpus) == sentences(60)[:7]
        assert len(documents(corpus, "validation")) == 20

    @settings(max_examples=10, deadline=None)
    @given(st.floats(0.02, 0.9), st.booleans())
    def test_held_out_ones_are_as_many_as_asked_and_never_trained_on(
        self, held_out: float, is_tail: bool
    ) -> None:
        corpus = (Tail if is_tail else Corpus)(validation=held_out, max_documents=300)
        train, validation = documents(corpus), documents(corpus, "validation")
        assert not set(train) & set(validation)
        assert len(train) + len(validation) == 300
        if not is_tail:
            assert abs(len(validation) - held_out * 300) <= 1

    def test_the_tail_is_the_last_of_the_text(self, tiny_texts: Path) -> None:
        corpus = Tail(str(tiny_texts))
        train, validation = documents(corpus), documents(corpus, "validation")
        assert train + validation == sentences(60)
        total = sum(map(len, sentences(60)))
        assert sum(map(len, train)) <= 0.9 * total < sum(map(len, [*train, validation[0]]))

    def test_docstrings_are_there_without_any_file(self) -> None:
        corpus = Corpus()
        train, validation = documents(corpus), documents(corpus, "validation")
        assert len(validation) == pytest.approx(len(train) / 9, rel=0.01)
        assert len(set(train + validation)) == len(train + validation)
        assert sum(map(len, train)) > 300_000

    def test_a_column_may_have_another_name_or_hold_bytes(self, tmp_path: Path) -> None:
        content = pa.array([b"one", "zwölf".encode()], pa.binary())
        write_table(tmp_path / "d", "train", {"body": content, "n": [1, 2]})
        corpus = Corpus(str(tmp_path / "d"), validation=0.5, text_column="body")
        assert documents(corpus) + documents(corpus, "validation") == ["one", "zwölf"]


class TestNumber:
    @settings(max_examples=10, deadline=None)
    @given(st.floats(0.02, 0.9), st.integers(10, 400))
    def test_of_documents_is_known_before_they_are_read(self, held_out: float, most: int) -> None:
        corpus = Corpus(validation=held_out, max_documents=most)
        for part in PARTS:
            assert corpus.num_documents(part) == sum(1 for _ in found(corpus, part))

    def test_of_a_tail_is_about_right(self, tiny_texts: Path) -> None:
        corpus = Tail(str(tiny_texts))
        assert [corpus.num_documents(part) for part in PARTS] == [54, 6]
        assert abs(len(documents(corpus)) - 54) <= 2

    def test_of_a_split_is_that_of_its_rows(self, tiny_texts: Path) -> None:
        assert Corpus(str(tiny_texts)).num_documents("validation") == 20
        assert Corpus(str(tiny_texts), max_documents=7).num_documents("train") == 7


class TestDigest:
    def test_it_tells_contents_and_settings_and_not_places(
        self, tiny_texts: Path, tmp_path: Path
    ) -> None:
        copy = tmp_path / "elsewhere"
        write_table(copy, "train", {"text": sentences(60)})
        write_table(copy, "validation", {"text": sentences(20, seed=1)})
        first = Corpus(str(tiny_texts)).corpus_digest()
        assert Corpus(str(copy)).corpus_digest() == first
        others = [
            Corpus(str(tiny_texts), max_documents=5),
            Corpus(str(tiny_texts), validation=0.2),
            Tail(str(tiny_texts)),
            Corpus(),
        ]
        assert len({first, *(corpus.corpus_digest() for corpus in others)}) == 5
        write_table(copy, "train", {"text": sentences(61)})
        assert Corpus(str(copy)).corpus_digest() != first


class TestWhatIsWrongIsNamed:
    @pytest.mark.parametrize("as_bytes", [False, True])
    def test_bytes_that_are_no_text_with_split_and_row(
        self, tmp_path: Path, as_bytes: bool
    ) -> None:
        texts = [b"good", b"also good", b"b\xffad"]
        column = pa.array(texts, pa.binary()) if as_bytes else undecodable(texts)
        write_table(tmp_path / "d", "train", {"text": column})
        with pytest.raises(DataError, match=r"d, split 'train', row 2: .* byte 1 is 0xff"):
            documents(Corpus(str(tmp_path / "d"), validation=0.1))
        with pytest.raises(DataError, match=r"byte 1 is 0xff"):
            Corpus(str(tmp_path / "d"), validation=0.1).check_texts()
        assert documents(Corpus(str(tmp_path / "d"), validation=0.5, max_documents=2)) == ["good"]
        Corpus(str(tmp_path / "d"), validation=0.5, max_documents=2).check_texts()

    def test_a_missing_text(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"text": ["good", None]})
        with pytest.raises(DataError, match=r"row 1: the text is missing"):
            Corpus(str(tmp_path / "d"), validation=0.1).check_texts()

    def test_a_missing_column(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"body": ["x"]})
        with pytest.raises(DataError, match=r"'train' .* 'text' or .* has 'body'; .*text_column"):
            Corpus(str(tmp_path / "d"), validation=0.1).check_texts()
        with pytest.raises(DataError, match="text column 'words'; it has 'body'"):
            Corpus(str(tmp_path / "d"), validation=0.1, text_column="words").check_texts()

    def test_a_column_of_something_else(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"text": [1, 2]})
        with pytest.raises(DataError, match="split 'train', must hold texts, not int64"):
            Corpus(str(tmp_path / "d"), validation=0.1).check_texts()

    def test_a_missing_split(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"text": ["x"]})
        with pytest.raises(DataError, match=r"'validation' or .* has 'train'\. .*validation=0\.1"):
            Corpus(str(tmp_path / "d")).check_texts()
        write_table(tmp_path / "e", "test", {"text": ["x"]})
        with pytest.raises(DataError, match="must have a split 'train'; it has 'test'"):
            Corpus(str(tmp_path / "e")).check_texts()

    def test_nothing_left_to_train_on(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"text": ["x"]})
        corpus = Corpus(str(tmp_path / "d"), validation=0.1)
        for read in (corpus.check_texts, lambda: documents(corpus, "validation")):
            with pytest.raises(DataError, match=r"no text left for validation when 0\.1"):
                read()
        with pytest.raises(DataError, match="no text left for train"):
            Tail(str(tmp_path / "d")).check_texts()

    def test_data_that_are_not_there(self) -> None:
        with pytest.raises(DataError, match="HSWEEP_HUB=1"):
            Corpus("someone/stories").check_texts()

    @pytest.mark.parametrize(
        ("field", "value", "match"),
        [
            ("data", "", "not empty"),
            ("validation", 0, "not 0"),
            ("validation", 1.5, "must lie in"),
            ("validation", True, "must lie in"),
            ("validation", "test", "docstrings have no splits"),
            ("max_documents", 0, "max_documents"),
        ],
    )
    def test_a_setting_out_of_its_range(self, field: str, value: object, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            Corpus(**{field: value})  # type: ignore[arg-type]
