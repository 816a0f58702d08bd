"""A ranking that needs no download: which text does the first line of a docstring belong to?"""

import functools
from typing import TYPE_CHECKING, Final

from tasks.sources.docstrings import docstrings

if TYPE_CHECKING:
    from datasets import DatasetDict

_WORDS_OF_QUERY: Final = 3
_WORDS_OF_PASSAGE: Final = 8


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
    kept = [query for query, passage in pairs.items() if by_passage[passage] == query]
    names = [f"d{number}" for number in range(len(kept))]
    columns: dict[str | None, dict[str, list[object]]] = {
        "corpus": {"_id": [*names], "text": [pairs[query] for query in kept]},
        "queries": {"_id": [*names], "text": [*kept]},
        None: {"query-id": [*names], "corpus-id": [*names], "score": [1] * len(names)},
    }
    split = "train" if config is None else config
    return DatasetDict({split: Dataset.from_dict(columns[config])})


def _is_long(text: str, words: int) -> bool:
    return len(text.split()) >= words
