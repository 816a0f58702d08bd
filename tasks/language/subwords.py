"""Tokenizers, from files or the hub by name or trained on a task's own text; and texts as one long
line of tokens, which is made once and shared by all trials of a node."""

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.language.text_data import Corpus, Part
from tasks.sources.cache import Arrays, cached_folder, cached_part, content_key, remove_parts
from tasks.sources.hub import HUB_VARIABLE, ROOT_VARIABLE, downloads_allowed
from tasks.sources.progress import report_progress

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Tokens = NDArray[np.unsignedinteger[Any]]
Kind = Literal["bpe", "wordpiece"]
Role = Literal["end of text", "padding", "unknown", "first", "separator", "mask"]

_TRAINING: Final = "subwords-1"
"""To be changed with the code that trains, so that tokenizers trained before are not used again."""

_TOKENISING: Final = "tokens-1"
"""To be changed with the code that tokenises, so that files made before are not used again."""

_BATCHES_A_PART: Final = 10
"""Some ten thousand documents, which take seconds."""
_FILE: Final = "tokenizer.json"
_WORD_START: Final = "▁"
_NAMES: Final[dict[Role, tuple[str, ...]]] = {
    "end of text": ("<|endoftext|>", "</s>", "<eos>", "[SEP]"),
    "padding": ("[PAD]", "<pad>", "<|endoftext|>"),
    "unknown": ("[UNK]", "<unk>"),
    "first": ("[CLS]", "<s>"),
    "separator": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_WORDPIECE_SPECIALS: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Subwords(NamedTuple):
    """A tokenizer.

    Attributes:
        tokenizer: neither truncates nor pads.
        digest: hash of all that decides which tokens it gives.
    """

    tokenizer: "Tokenizer"
    digest: str

    @property
    def size(self) -> int:
        """One more than the largest token."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def special(self, role: Role) -> int:
        """Return the token with a role.

        Raises:
            DataError: the tokenizer has none of the usual names for it.
        """
        for name in _NAMES[role]:
            token = self.tokenizer.token_to_id(name)
            if token is not None:
                return int(token)
        raise DataError(
            f"the tokenizer needs a token for the role {role!r}, called "
            f"{' or '.join(map(repr, _NAMES[role]))}; give another tokenizer"
        )

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the tokens of each text, without any special ones around it."""
        encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [text.ids for text in encoded]


def subwords(tokenizer: str | None, kind: Kind, vocab_size: int, corpus: Corpus) -> Subwords:
    """Return the tokenizer called ``tokenizer``, or for None one trained on the training text.

    Training is done once and kept by the text's content; it gives the same result everywhere.

    Args:
        tokenizer: see ``read_tokenizer``.
        kind: of the trained tokenizer: byte-level BPE as GPT-2's, cased, which knows every text;
            or lower-case WordPiece as BERT's.
        vocab_size: tokens a model tells apart: the most that a tokenizer may have.
        corpus: what to train it on.

    Raises:
        DataError: a tokenizer is missing, unreadable or too large, the text is missing or
            unusable, or it has too many different characters for the size.
    """
    if tokenizer is None:
        return _trained(kind, vocab_size, corpus)
    known = read_tokenizer(tokenizer)
    if known.size > vocab_size:
        raise DataError(
            f"vocab_size must be at least the {known.size} tokens of the tokenizer "
            f"{tokenizer!r}, not {vocab_size}"
        )
    return known


def read_tokenizer(tokenizer: str) -> Subwords:
    """Return a tokenizer from its files, or, when HSWEEP_HUB is 1, from the Hugging Face hub.

    Args:
        tokenizer: a ``tokenizer.json``, a folder with one, or a hub name.

    Raises:
        DataError: it is missing or unreadable, or downloads are not turned on.
    """
    path = Path(tokenizer).expanduser()
    try:
        if path.is_file():
            return _read_tokenizer(str(path), path.stat().st_mtime_ns)
        if path.is_dir():
            newest = max((file.stat().st_mtime_ns for file in path.iterdir()), default=0)
            return _read_tokenizer(str(path), newest)
    except OSError as error:
        raise DataError(f"cannot read the tokenizer {path}: {error}") from error
    if not downloads_allowed():
        raise DataError(
            "tokenizer must be an existing file or folder, unless downloads are turned on: "
            f"{tokenizer!r} does not exist; give a local path, put it under the folder that "
            f"{ROOT_VARIABLE} names, set {HUB_VARIABLE}=1 to have that name downloaded from the "
            "Hugging Face hub, or leave it out to have one trained on the training text"
        )
    return _read_tokenizer(tokenizer, 0)


@functools.lru_cache(maxsize=4)
def _read_tokenizer(tokenizer: str, _changed_ns: int) -> Subwords:
    from tokenizers import Tokenizer

    path = Path(tokenizer)
    try:
        if path.is_file():
            read = Tokenizer.from_file(tokenizer)
        elif path.is_dir():
            read = Tokenizer.from_file(str(path / _FILE))
        else:
            read = Tokenizer.from_pretrained(tokenizer)
    except Exception as error:  # the library raises bare exceptions
        raise DataError(
            f"the tokenizer {tokenizer!r} cannot be read: {error}; give a {_FILE} or its folder"
        ) from error
    read.no_truncation()
    read.no_padding()
    return Subwords(read, hashlib.sha256(read.to_str().encode()).hexdigest())


def _trained(kind: Kind, vocab_size: int, corpus: Corpus) -> Subwords:
    content = repr((_TRAINING, kind, vocab_size, corpus.corpus_digest()))
    digest = hashlib.sha256(content.encode()).hexdigest()

    def write(folder: Path) -> None:
        train = train_byte_level_bpe if kind == "bpe" else train_wordpiece
        train(corpus.documents("train"), vocab_size).save(str(folder / _FILE))

    folder = cached_folder(f"{_TRAINING}-{digest[:32]}", write)
    try:
        stat = (folder / _FILE).stat()
        return Subwords(_read(str(folder / _FILE), stat.st_size, stat.st_mtime_ns), digest)
    except Exception as error:  # the library raises bare exceptions
        raise DataError(
            f"{folder} is damaged ({error}); delete it to have it made again"
        ) from error


@functools.lru_cache(maxsize=4)
def _read(file: str, _size: int, _changed_ns: int) -> "Tokenizer":
    from tokenizers import Tokenizer

    return Tokenizer.from_file(file)


def train_byte_level_bpe(documents: Iterable[list[str]], vocab_size: int) -> "Tokenizer":
    """Return a byte-level BPE (as GPT-2's: Radford et al. 2019, section 2.2).

    Args:
        documents: batches of texts.
        vocab_size: most tokens, the 256 bytes and one that ends a text among them.

    Raises:
        DataError: a size that leaves no room for the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    (end, *_), alphabet = _NAMES["end of text"], pre_tokenizers.ByteLevel.alphabet()
    if vocab_size <= len(alphabet):
        raise DataError(f"vocab_size must be at least {len(alphabet) + 1}, not {vocab_size}")
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[end],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    made.train_from_iterator(iter(documents), trainer)
    return made


def train_wordpiece(documents: Iterable[list[str]], vocab_size: int) -> "Tokenizer":
    """Return a lower-case WordPiece tokenizer with BERT's special tokens.

    Its pieces are those that BPE merges first within words, the start of a word marked, as the
    library's own trainer chooses them; that one numbers them by chance and breaks ties by number.

    Args:
        documents: batches of texts.
        vocab_size: most tokens.

    Raises:
        DataError: a size of which half would go to single characters.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    words = pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.BertNormalizer(lowercase=True)
    merged = Tokenizer(models.BPE())
    merged.normalizer = normalizer
    merged.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.Metaspace(_WORD_START, prepend_scheme="always", split=False)]
    )
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False)
    merged.train_from_iterator(iter(documents), trainer)
    by_number = sorted((number, token) for token, number in merged.get_vocab().items())
    pieces = list(_pieces(token for _, token in by_number))
    characters = sum(len(piece.removeprefix("##")) == 1 for piece in pieces)
    if 2 * characters > vocab_size:
        raise DataError(
            f"vocab_size must be at least {2 * characters}, twice the pieces of one character that "
            f"the text has, not {vocab_size}; give a tokenizer, or a larger size"
        )
    vocabulary = [*_WORDPIECE_SPECIALS, *pieces][:vocab_size]
    numbered = {piece: number for number, piece in enumerate(vocabulary)}
    wordpiece = Tokenizer(models.WordPiece(numbered, unk_token="[UNK]"))
    wordpiece.normalizer = normalizer
    wordpiece.pre_tokenizer = words
    wordpiece.decoder = decoders.WordPiece()
    wordpiece.add_special_tokens(list(_WORDPIECE_SPECIALS))
    return wordpiece


def _pieces(tokens: Iterable[str]) -> Iterator[str]:
    """Yield WordPiece's names of BPE's tokens, single characters first, each once."""
    characters, longer = [], []
    for token in tokens:
        starts_a_word = token.startswith(_WORD_START)
        letters = token.removeprefix(_WORD_START)
        if len(letters) == 1:
            characters.append(letters)
        elif letters:
            longer.append(letters if starts_a_word else f"##{letters}")
    singles = sorted(set(characters))
    yield from dict.fromkeys([*singles, *(f"##{letter}" for letter in singles), *longer])


def token_line(
    corpus: Corpus,
    part: Part,
    subwords: Subwords,
    *,
    end: int | None = None,
    ending: str = "",
) -> Tokens:
    """Return the tokens of all documents of a corpus, one document after the other.

    They are made part by part; what was made before an interruption is not made again.

    Args:
        corpus: the documents.
        part: which of them.
        subwords: the tokenizer.
        end: token put after each document; None for none.
        ending: text put after each document before it is tokenised.

    Returns:
        (tokens,), uint16 or, where that is too small for the tokenizer, uint32; memory-mapped copy
        on write.

    Raises:
        DataError: the corpus is missing, unusable or without tokens, or the cache cannot be
            written or is damaged.
    """
    key = content_key(_TOKENISING, corpus.corpus_digest(), part, subwords.digest, end, ending)
    kind = np.dtype(np.uint16 if subwords.size <= 1 << 16 else np.uint32)
    last = [] if end is None else [end]

    def tokenised(texts: list[str]) -> Arrays:
        encoded = subwords.encode([text + ending for text in texts])
        lines = [np.array([*tokens, *last], dtype=kind) for tokens in encoded]
        return {"tokens": np.concatenate(lines)}

    def write(folder: Path) -> None:
        count = done = 0
        total = corpus.num_documents(part)
        documents = corpus.documents(part)
        # The name, given at the end, says what to expect.
        unfinished = folder / "tokens"
        with unfinished.open("wb") as line:
            for number in itertools.count():
                texts = [*itertools.chain(*itertools.islice(documents, _BATCHES_A_PART))]
                if not texts:
                    break
                make = functools.partial(tokenised, texts)
                tokens = cached_part(key, str(number), make)["tokens"]
                tokens.tofile(line)
                count += len(tokens)
                done += len(texts)
                report_progress(f"documents for {part}", done, total)
        if not count:
            raise DataError(f"the texts of {corpus.data!r} for {part} have no tokens")
        unfinished.rename(folder / f"{count}.{kind.name}")

    folder = cached_folder(key, write)
    remove_parts(key)
    file = next(folder.glob(f"*.{kind.name}"), None)
    if file is None or file.stat().st_size != int(file.stem) * kind.itemsize:
        raise DataError(f"{folder} is damaged; delete it to have it made again")
    return np.memmap(file, dtype=kind, mode="c")


def evenly_spaced(count: int, limit: int | None) -> NDArray[np.int64]:
    """Return at most ``limit`` of the numbers 0, ..., count - 1, ascending and evenly spaced."""
    size = count if limit is None else min(count, limit)
    return np.arange(size, dtype=np.int64) * count // max(size, 1)
