import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_tables import WORDS, sentences, write_table
from tokenizers import Tokenizer

from tasks.base import DataError
from tasks.language.subwords import read_tokenizer, subwords, train_byte_level_bpe, train_wordpiece
from tasks.language.text_data import Corpus

TEXTS = sentences(200)
BPE = train_byte_level_bpe([TEXTS], 300)
WORDPIECE = train_wordpiece([TEXTS], 140)


class TestByteLevelBpe:
    @settings(max_examples=50, deadline=None)
    @given(st.text())
    def test_it_knows_every_text(self, text: str) -> None:
        assert BPE.decode(BPE.encode(text).ids) == text.replace("<|endoftext|>", "")

    def test_it_has_the_size_asked_for_with_room_for_every_byte(self) -> None:
        assert BPE.get_vocab_size() == 300
        with pytest.raises(DataError, match="vocab_size must be at least 257, not 256"):
            train_byte_level_bpe([TEXTS], 256)

    def test_frequent_words_become_one_token(self) -> None:
        whole = [word for word in WORDS if len(BPE.encode(f" {word}").ids) == 1]
        assert len(whole) > len(WORDS) / 2


class TestWordPiece:
    def test_the_same_text_gives_the_same_tokens_in_the_same_order(self) -> None:
        texts = sentences(400, seed=5, words=30)
        assert len({train_wordpiece([texts], 140).to_str() for _ in range(5)}) == 1

    def test_pieces_within_a_word_are_marked_and_put_together_again(self) -> None:
        encoded = WORDPIECE.encode("the Fox sawcat. Dogs", add_special_tokens=False)
        assert encoded.tokens == ["the", "fox", "saw", "##cat", ".", "dog", "##s"]
        assert WORDPIECE.decode(encoded.ids) == "the fox sawcat. dogs"

    def test_its_special_tokens_come_first(self) -> None:
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        assert [WORDPIECE.id_to_token(number) for number in range(5)] == names
        assert WORDPIECE.encode("[MASK] cat").tokens == ["[MASK]", "cat"]

    def test_a_character_it_has_never_seen_is_unknown(self) -> None:
        assert WORDPIECE.encode("ж").tokens == ["[UNK]"]

    def test_characters_alone_may_not_fill_it(self) -> None:
        with pytest.raises(DataError, match=r"vocab_size must be at least \d+, twice"):
            train_wordpiece([["".join(map(chr, range(0x4E00, 0x4E80)))]], 200)


class TestTraining:
    def test_it_is_done_once_for_each_text_and_size(self, tiny_texts: Path, cache: Path) -> None:
        corpus = Corpus(str(tiny_texts))
        first = subwords(None, "bpe", 280, corpus)
        written = sorted(cache.glob("subwords-*/tokenizer.json"))
        assert len(written) == 1
        stamp = written[0].stat().st_mtime_ns
        again = subwords(None, "bpe", 280, corpus)
        assert written[0].stat().st_mtime_ns == stamp
        assert (first.digest, first.tokenizer.to_str()) == (again.digest, again.tokenizer.to_str())
        others = [
            subwords(None, "bpe", 281, corpus),
            subwords(None, "wordpiece", 280, corpus),
            subwords(None, "bpe", 280, Corpus(str(tiny_texts), max_documents=50)),
        ]
        assert len({first.digest, *(other.digest for other in others)}) == 4

    def test_texts_to_validate_on_are_not_looked_at(self, tmp_path: Path) -> None:
        write_table(tmp_path / "d", "train", {"text": sentences(60)})
        write_table(tmp_path / "d", "validation", {"text": ["xylophone " * 500]})
        tokenizer = subwords(None, "bpe", 400, Corpus(str(tmp_path / "d"))).tokenizer
        assert len(tokenizer.encode("xylophone").ids) > 4

    def test_a_damaged_entry_is_named(self, tiny_texts: Path, cache: Path) -> None:
        subwords(None, "bpe", 280, Corpus(str(tiny_texts)))
        next(cache.glob("subwords-*/tokenizer.json")).write_text("{")
        with pytest.raises(DataError, match="is damaged"):
            subwords(None, "bpe", 280, Corpus(str(tiny_texts)))


class TestGivenFiles:
    def test_a_file_and_its_folder_are_the_same(self, tmp_path: Path) -> None:
        BPE.save(str(tmp_path / "tokenizer.json"))
        one, other = (
            read_tokenizer(str(tmp_path)),
            read_tokenizer(str(tmp_path / "tokenizer.json")),
        )
        assert one.digest == other.digest
        assert one.encode(["the cat"]) == [BPE.encode("the cat").ids]
        assert one.size == 300

    def test_truncation_and_padding_in_its_file_are_off(self, tmp_path: Path) -> None:
        cut = Tokenizer.from_str(WORDPIECE.to_str())
        cut.enable_truncation(2)
        cut.enable_padding(length=8)
        cut.save(str(tmp_path / "tokenizer.json"))
        assert len(read_tokenizer(str(tmp_path)).encode(["the cat sat"])[0]) == 3

    def test_a_file_that_changes_is_read_again(self, tmp_path: Path) -> None:
        BPE.save(str(tmp_path / "tokenizer.json"))
        first = read_tokenizer(str(tmp_path)).digest
        content = json.loads(BPE.to_str())
        content["pre_tokenizer"]["add_prefix_space"] = True
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        assert read_tokenizer(str(tmp_path)).digest != first

    def test_it_may_not_have_more_tokens_than_the_model(
        self, tmp_path: Path, tiny_texts: Path
    ) -> None:
        BPE.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(DataError, match=r"at least the 300 tokens .* not 299"):
            subwords(str(tmp_path), "bpe", 299, Corpus(str(tiny_texts)))

    def test_what_is_no_tokenizer_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(
            DataError, match=r"empty' cannot be read: .*; give a tokenizer\.json or its folder"
        ):
            read_tokenizer(str(tmp_path / "empty"))
        (tmp_path / "broken.json").write_text("{}")
        with pytest.raises(DataError, match=r"broken\.json' cannot be read"):
            read_tokenizer(str(tmp_path / "broken.json"))
        with pytest.raises(DataError, match=r"HSWEEP_HUB=1 .* leave it out"):
            read_tokenizer("gpt2")

    def test_a_hub_name_is_asked_for_only_when_downloads_are_turned_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        class Hub:
            @staticmethod
            def from_pretrained(name: str) -> Tokenizer:
                asked.append(name)
                return Tokenizer.from_str(BPE.to_str())

        monkeypatch.setattr("tokenizers.Tokenizer", Hub)
        with pytest.raises(DataError, match="HSWEEP_HUB=1"):
            read_tokenizer("someone/tokenizer")
        assert asked == []
        monkeypatch.setenv("HSWEEP_HUB", "1")
        assert read_tokenizer("someone/tokenizer").encode(["the cat"]) == [
            BPE.encode("the cat").ids
        ]
        assert asked == ["someone/tokenizer"]

    def test_a_role_without_a_token_is_named(self, tmp_path: Path) -> None:
        BPE.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(DataError, match=r"role 'mask', called '\[MASK\]' or '<mask>'"):
            read_tokenizer(str(tmp_path)).special("mask")
