"""The ranking that comes with Python: docstrings, and vectors of words that need no model."""

import hashlib

import numpy as np
import pytest
from task_contract import CPU, same

from tasks.base import DataError
from tasks.ranking.passage_pool import candidates, docstring_splits
from tasks.ranking.passage_vectors import WORDS_WIDTH, word_mean_vectors
from tasks.ranking.passages import Passages
from tasks.sources.docstrings import docstrings


def test_each_docstrings_beginning_is_to_be_matched_with_its_rest() -> None:
    queries, corpus = (docstring_splits(config)[config] for config in ("queries", "corpus"))
    judged = docstring_splits(None)["train"]
    assert len(queries) == len(corpus) == len(judged) > 1_200
    assert len(set(queries["text"])) == len(set(corpus["text"])) == len(queries)
    whole = {" ".join(text.split()) for text in docstrings()}
    passages = dict(zip(corpus["_id"], corpus["text"], strict=True))
    texts = dict(zip(queries["_id"], queries["text"], strict=True))
    pairs = zip(judged["query-id"], judged["corpus-id"], strict=True)
    assert {f"{texts[query]} {passages[passage]}" for query, passage in pairs} <= whole


def test_a_task_of_them_opens_without_a_file_and_depends_on_the_data_alone() -> None:
    task = Passages(seq_len=4, data="docstrings", encoder="words", mined=7, max_train=1_200)
    assert task.input_dim() == 2 * WORDS_WIDTH
    data = task.open(data_seed=0, sampling_seed=0, batch_size=100, device=CPU)
    assert data.steps_per_epoch == 12
    x, y = next(data.batches(0))
    assert x.shape == (100, 4, 2 * WORDS_WIDTH)
    again = task.open(data_seed=9, sampling_seed=0, batch_size=100, device=CPU)
    assert same((x, y), next(again.batches(0)))
    found = candidates(task, task.mining_digest())
    assert not (found.negatives == found.positives[:, None]).any()


def test_the_vector_of_a_word_is_the_same_everywhere_and_texts_keep_their_angles() -> None:
    (vector,) = word_mean_vectors(["Attention"], max_tokens=9)
    bits = np.packbits(vector > 0).tobytes()
    assert bits == hashlib.shake_256(b"attention").digest(WORDS_WIDTH // 8)
    texts = ["one two three four", "Four, three: two ONE", "one two five six", "", "one two x x"]
    vectors = word_mean_vectors(texts, max_tokens=4)
    assert np.array_equal(vectors[0], vectors[1])
    assert not vectors[3].any()
    cosine = vectors[0] @ vectors[2] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[2])
    assert cosine == pytest.approx(0.5, abs=0.1)
    (cut,) = word_mean_vectors([texts[4]], max_tokens=2)
    assert np.array_equal(cut, word_mean_vectors(["one two"], max_tokens=2)[0])


def test_an_unknown_encoder_is_told_of_words() -> None:
    task = Passages(seq_len=4, data="docstrings", encoder="wordz")
    with pytest.raises(DataError, match="'words', unless downloads are turned on: 'wordz'"):
        task.fingerprint()
