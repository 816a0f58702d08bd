import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.sampling import epochs_from, stream_seed, whole_batches


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 200), st.integers(0, 2**63 - 1))
def test_any_step_is_reached_without_those_before_it(
    num_examples: int, batch_size: int, step: int, seed: int
) -> None:
    size, num_batches = whole_batches(num_examples, batch_size)
    first = next(epochs_from(step, num_examples, batch_size, seed))
    epochs = epochs_from(0, num_examples, batch_size, seed)
    walked = next(itertools.islice(epochs, step // num_batches, None))
    assert (first.epoch, first.first_batch) == divmod(step, num_batches)
    assert torch.equal(first.order, walked.order)
    assert len(first.order) == size * num_batches
    assert len(set(first.order.tolist())) == len(first.order)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_only_a_partial_batch_is_dropped(num_examples: int, batch_size: int) -> None:
    size, num_batches = whole_batches(num_examples, batch_size)
    assert num_batches >= 1
    assert 0 <= num_examples - size * num_batches < size
    assert size == min(batch_size, num_examples)


def test_a_batch_needs_an_example() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        whole_batches(10, 0)


def test_seeds_depend_on_every_part_and_their_order() -> None:
    seeds = {stream_seed(*parts) for parts in itertools.permutations((1, 2, 3))}
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)
