import itertools
import multiprocessing
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lra_models import MeanOfTokens
from scipy.stats import chisquare
from task_contract import CPU, TaskContract
from torch import nn

from tasks.base import DataError, Task
from tasks.lra.listops import ListOps, generated
from tasks.lra.listops_trees import (
    CLOSE,
    DIGITS,
    MAX,
    MED,
    MIN,
    SM,
    WORDS,
    expressions,
)
from tasks.lra.tokens import TokenTensors, load
from tasks.sources.progress import progress_to

SMALL = {"min_length": 5, "max_length": 33, "max_depth": 4, "max_args": 4}
COUNTS = {"num_train": 40, "num_validation": 15, "num_test": 10}

VALUE = {MIN: min, MAX: max, MED: lambda args: int(median(args)), SM: lambda args: sum(args) % 10}


def parsed(symbols: bytes) -> tuple[int, int, list[int], list[int]]:
    """Return value, depth, the operators and the numbers of arguments of one expression."""
    operators: list[int] = []
    arities: list[int] = []

    def node(place: int) -> tuple[int, int, int]:
        if symbols[place] < DIGITS:
            return symbols[place], 1, place + 1
        operators.append(symbols[place])
        values, depths, after = [], [], place + 1
        while symbols[after] != CLOSE:
            value, depth, after = node(after)
            values.append(value)
            depths.append(depth)
        arities.append(len(values))
        return VALUE[symbols[place]](values), 1 + max(depths), after + 1

    value, depth, end = node(0)
    assert end == len(symbols)
    return value, depth, operators, arities


def loaded(task: ListOps, data_seed: int) -> TokenTensors:
    return load(task, task.fingerprint(), data_seed, CPU)


class TestListOps(TaskContract):
    generated = True

    @pytest.fixture
    def task(self) -> Task:
        return ListOps(seq_len=32, **SMALL, **COUNTS)

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return ListOps(seq_len=32, **SMALL | {"max_args": 5}, **COUNTS)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return MeanOfTokens(16, 10)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 30), st.integers(0, 2**31))
def test_every_expression_is_well_formed_within_bounds_and_labelled_with_its_value(
    max_depth: int, max_args: int, min_length: int, seed: int
) -> None:
    longest = 1
    for _ in range(max_depth - 1):
        longest = 2 + longest * max_args
    low = min(min_length, longest // 2)
    made = expressions(
        np.random.default_rng(seed),
        **{"min_length": low, "max_length": longest + 1},
        **{"max_depth": max_depth, "max_args": max_args},
    )
    for expression in itertools.islice(made, 100):
        value, depth, _, arities = parsed(expression.symbols)
        assert expression.value == value
        assert low < len(expression.symbols) <= longest
        assert depth <= max_depth
        assert all(2 <= arity <= max_args for arity in arities)


def test_every_operator_computes_what_it_says() -> None:
    made = expressions(
        np.random.default_rng(0), min_length=4, max_length=8, max_depth=2, max_args=5
    )
    seen = {}
    for expression in itertools.islice(made, 2_000):
        words = " ".join(WORDS[symbol] for symbol in expression.symbols)
        seen[words] = expression.value
    assert {words.split()[0] for words in seen} == {"[MIN", "[MAX", "[MED", "[SM"}
    for words, value in seen.items():
        operator, *arguments = words.removesuffix(" ]").split()
        digits = sorted(map(int, arguments))
        expected = {
            "[MIN": digits[0],
            "[MAX": digits[-1],
            "[MED": int(median(digits)),
            "[SM": sum(digits) % 10,
        }
        assert value == expected[operator], words


def test_nodes_operators_and_arguments_follow_the_published_distribution() -> None:
    # Without bounds on the length, every node at depths 1 and 2 is an independent draw.
    made = expressions(
        np.random.default_rng(1), min_length=0, max_length=10_000, max_depth=3, max_args=10
    )
    roots: Counter[bool] = Counter()
    operators: Counter[int] = Counter()
    arities: Counter[int] = Counter()
    digits: Counter[int] = Counter()
    for expression in itertools.islice(made, 20_000):
        _, _, found, counts = parsed(expression.symbols)
        roots[bool(found)] += 1
        operators.update(found)
        arities.update(counts)
        digits.update(symbol for symbol in expression.symbols if symbol < DIGITS)
    assert chisquare([roots[True], roots[False]], [5_000, 15_000]).pvalue > 1e-3
    for counter, choices in ((operators, 4), (arities, 9), (digits, 10)):
        assert len(counter) == choices
        assert chisquare(list(counter.values())).pvalue > 1e-3


def test_published_bounds_keep_a_twelfth_of_all_trees_with_a_mean_length_of_about_1035() -> None:
    # Of 200,000 trees grown by plain recursion, 8.31 % are accepted (standard error 0.06), with a
    # mean length of 1,035 (standard error 3).
    bounds = {"max_depth": 10, "max_args": 10}
    everything = expressions(np.random.default_rng(2), min_length=0, max_length=2_000, **bounds)
    lengths = np.array([len(each.symbols) for each in itertools.islice(everything, 12_000)])
    # Trees of 2,000 and more are not seen here; they are few.
    accepted = lengths[lengths > 500]
    standard_error = accepted.std() / len(accepted) ** 0.5
    assert accepted.mean() == pytest.approx(1035, abs=3 * standard_error)
    assert standard_error < 20
    assert 0.08 < len(accepted) / len(lengths) < 0.11


def test_no_two_expressions_are_alike_whatever_their_split() -> None:
    # Of the 400 expressions with two arguments, most are drawn more than once here.
    counts = {"num_train": 200, "num_validation": 60, "num_test": 40}
    task = ListOps(seq_len=8, min_length=3, max_length=5, max_depth=2, **counts)
    made = [each.symbols for split in generated(task, 3).values() for each in split]
    assert len(made) == len(set(made)) == 300


def test_more_training_expressions_leave_validation_and_test_as_they_are() -> None:
    few = generated(ListOps(seq_len=32, **SMALL, **COUNTS), 3)
    many = generated(ListOps(seq_len=32, **SMALL, **COUNTS | {"num_train": 80}), 3)
    assert few["validation"] == many["validation"]
    assert few["test"] == many["test"]
    assert few["train"] == many["train"][:40]


def test_tokens_are_one_more_than_symbols_and_the_rest_is_padding() -> None:
    task = ListOps(seq_len=40, **SMALL, **COUNTS)
    tensors = loaded(task, 5)
    made = generated(task, 5)
    for split in ("train", "validation", "test"):
        texts, labels = getattr(tensors, split)
        tokens = tensors.tokens(texts)
        assert tokens.shape == (len(labels), 40)
        assert tokens.dtype == labels.dtype == torch.int64
        for row, label, expression in zip(tokens, labels, made[split], strict=True):
            assert row.tolist() == [*(s + 1 for s in expression.symbols)] + [0] * (
                40 - len(expression.symbols)
            )
            assert label == expression.value


def test_how_a_set_is_used_does_not_have_it_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = loaded(ListOps(seq_len=32, **SMALL, **COUNTS), 5)
    monkeypatch.setattr("tasks.lra.listops.generated", None)
    longer = loaded(ListOps(seq_len=64, max_train_eval=7, **SMALL, **COUNTS), 5)
    assert torch.equal(longer.tokens(longer.test.texts)[:, :32], first.tokens(first.test.texts))
    assert len(longer.train_eval.labels) == 7


def test_processes_that_start_together_share_one_set(cache: Path) -> None:
    task = ListOps(seq_len=32, **SMALL, **COUNTS)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        made = pool.map(task.examples, [8] * 3)
    assert len({texts.symbols.tobytes() for texts, _ in made}) == 1
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    with progress_to(lambda *now: told.append(now)):
        ListOps(seq_len=32, **SMALL, **COUNTS).examples(6)
    assert told[-1] == ("expressions", 65, 65)
    assert told == sorted(told)


def test_running_out_of_different_expressions_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.lra.listops._BARREN_PARTS", 2)
    task = ListOps(seq_len=8, min_length=0, max_length=3, num_validation=5, num_test=4, num_train=5)
    with pytest.raises(DataError, match="hardly more than 10 different expressions"):
        generated(task, 0)


def test_the_fingerprint_is_the_definition_and_needs_no_data(cache: Path) -> None:
    assert ListOps().fingerprint() != ListOps(num_train=96_001).fingerprint()
    assert not cache.exists()
