import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from task_contract import CPU, TaskContract, measured, same
from torch import Tensor, nn

from tasks.base import Task
from tasks.synthetic.retrieval import Retrieval, generate, maxima


class MaxOfLinear(nn.Module):
    """Sums maxima over fixed directions, exactly what the task computes."""

    def __init__(self, directions: Tensor) -> None:
        super().__init__()
        self.directions = nn.Parameter(directions.clone())

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.directions.T).amax(1).sum(1)


class ReadoutBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.readout_bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.readout_bias.expand(len(x), 1)


class TestRetrieval(TaskContract):
    generated = True

    @pytest.fixture
    def task(self) -> Task:
        return Retrieval(seq_len=6, num_train=30, num_validation=20)

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return Retrieval(seq_len=6, num_train=30, num_validation=21)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        generator = torch.Generator().manual_seed(0)
        return MaxOfLinear(torch.randn(2, 4, generator=generator))


class TestStreamWithSets(TestRetrieval):
    @pytest.fixture
    def task(self) -> Task:
        return Retrieval(
            seq_len=6, dim=3, sets="random", outer="sine", samples="stream", num_train=30
        )

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return dataclasses.replace(task, sets="blocks")  # type: ignore[type-var]


@pytest.mark.parametrize(("seq_len", "variance"), [(8, 1.492), (32, 0.967), (128, 0.701)])
def test_the_targets_variance_is_that_of_four_independent_maxima(
    seq_len: int, variance: float
) -> None:
    count = 40_000
    task = Retrieval(seq_len=seq_len, num_train=count, num_validation=2)
    y = generate(task, 7, CPU).train.y.double()
    # A maximum of normals is skewed, so the kurtosis of the sample gives the standard error.
    kurtosis = ((y - y.mean()) / y.std()).pow(4).mean().item()
    standard_error = variance * math.sqrt((kurtosis - 1) / count)
    assert y.var().item() == pytest.approx(variance, abs=4 * standard_error + 5e-4)
    assert standard_error < 0.02


def test_each_maximum_is_the_largest_projection_within_its_set() -> None:
    x = torch.tensor([[[1.0, 0.0], [0.0, 3.0], [-2.0, 1.0]]])
    everywhere = torch.ones(3, 2, dtype=torch.bool)
    assert maxima(x, torch.eye(2), everywhere).tolist() == [[1.0, 3.0]]
    assert maxima(x, -torch.eye(2), everywhere).tolist() == [[2.0, 0.0]]
    apart = torch.tensor([[False, True], [True, False], [True, False]])
    assert maxima(x, torch.eye(2), apart).tolist() == [[0.0, 0.0]]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["sum", "squares", "product", "sine"]),
    st.sampled_from(["all", "blocks", "random"]),
    st.integers(1, 4),
    st.integers(4, 9),
    st.integers(0, 2**31),
)
def test_the_target_is_the_outer_function_of_the_maxima_over_the_sets(
    outer: str, sets: str, dim: int, seq_len: int, data_seed: int
) -> None:
    task = Retrieval(seq_len=seq_len, dim=dim, outer=outer, sets=sets, num_train=3)  # type: ignore[arg-type]
    data = generate(task, data_seed, CPU)
    sizes = data.members.sum(0).tolist()
    if sets == "all":
        assert sizes == [seq_len] * dim
    elif sets == "blocks":
        assert sum(sizes) == seq_len
        assert max(sizes) - min(sizes) <= 1
    else:
        assert sizes == [(seq_len + 1) // 2] * dim
    for x, y in zip(data.train.x.double(), data.train.y.tolist(), strict=True):
        z = [
            max(
                float(data.directions[i].double() @ x[t, : task.vector_dim])
                for t in range(seq_len)
                if data.members[t, i]
            )
            for i in range(dim)
        ]
        expected = {
            "sum": sum(z),
            "squares": sum(value**2 for value in z),
            "product": math.prod(z),
            "sine": math.sin(sum(z)),
        }[outer]
        assert y == pytest.approx(expected, abs=2e-5, rel=2e-5)


def test_a_vector_says_where_it_stands_only_where_that_matters() -> None:
    plain = generate(Retrieval(seq_len=8, num_train=4), 3, CPU).train.x
    task = Retrieval(seq_len=8, num_train=4, sets="blocks")
    placed = generate(task, 3, CPU).train.x
    assert placed.shape == (4, 8, task.token_dim) == (4, 8, 5)
    assert torch.equal(placed[..., :4], plain)
    position = placed[0, :, 4]
    assert torch.equal(placed[..., 4], position.expand(4, 8))
    assert (position.diff() > 0).all()
    assert position.mean().item() == pytest.approx(0, abs=1e-6)


def test_a_stream_begins_with_the_fixed_set_and_never_repeats() -> None:
    fixed, stream = (
        Retrieval(seq_len=3, num_train=12, samples=samples).open(  # type: ignore[arg-type]
            data_seed=4, sampling_seed=5, batch_size=4, device=CPU
        )
        for samples in ("fixed", "stream")
    )
    epochs = [list(itertools.islice(data.batches(0), 12)) for data in (fixed, stream)]
    assert same(epochs[0][:3], epochs[1][:3])
    seen = torch.cat([x for x, _ in epochs[1]]).flatten(0, 1)
    assert len(torch.unique(seen, dim=0)) == len(seen) == 12 * 4 * 3
    assert len(torch.unique(torch.cat([x for x, _ in epochs[0]]).flatten(0, 1), dim=0)) == 12 * 3
    model = MaxOfLinear(torch.ones(1, 4))
    with torch.no_grad():
        assert measured(fixed, model) == measured(stream, model)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 2**63 - 1))
def test_directions_are_orthonormal_rows(dim: int, spare: int, data_seed: int) -> None:
    task = Retrieval(seq_len=2, dim=dim, input_dim=dim + spare, num_train=2, num_validation=2)
    directions = generate(task, data_seed, CPU).directions
    assert directions.shape == (dim, dim + spare)
    torch.testing.assert_close(directions @ directions.T, torch.eye(dim), atol=1e-5, rtol=0)


def test_iid_directions_are_unit_vectors_that_may_outnumber_the_dimensions() -> None:
    task = Retrieval(seq_len=2, dim=7, input_dim=3, directions="iid", num_train=2)
    directions = generate(task, 5, CPU).directions
    torch.testing.assert_close(directions.norm(dim=1), torch.ones(7))
    assert (directions @ directions.T - torch.eye(7)).abs().max() > 0.1


def test_batches_have_the_announced_shapes() -> None:
    task = Retrieval(seq_len=5, dim=2, input_dim=3, num_train=10)
    data = task.open(data_seed=0, sampling_seed=0, batch_size=4, device=CPU)
    x, y = next(iter(data.batches(0)))
    assert x.shape == (4, 5, task.token_dim) == (4, 5, 3)
    assert y.shape == (4,)
    assert x.dtype == y.dtype == torch.float32


def test_an_epoch_visits_every_sequence_at_most_once() -> None:
    data = Retrieval(seq_len=2, num_train=11).open(
        data_seed=0, sampling_seed=0, batch_size=3, device=CPU
    )
    batches = data.batches(0)
    targets = [y for _ in range(data.steps_per_epoch) for y in next(batches)[1].tolist()]
    assert len(targets) == 9
    assert len(set(targets)) == 9


def test_more_training_sequences_leave_validation_and_directions_as_they_are() -> None:
    few = generate(Retrieval(seq_len=4, num_train=10), 3, CPU)
    many = generate(Retrieval(seq_len=4, num_train=20), 3, CPU)
    assert same(few.validation, many.validation)
    assert torch.equal(few.directions, many.directions)


def test_the_exact_rule_has_no_error_and_the_mean_has_error_one() -> None:
    task = Retrieval(seq_len=16, num_train=500, num_validation=400)
    data = task.open(data_seed=9, sampling_seed=0, batch_size=32, device=CPU)
    exact = MaxOfLinear(generate(task, 9, CPU).directions)
    constant = ReadoutBias()
    data.warm_start(constant)
    with torch.no_grad():
        assert measured(data, exact)["nmse"] < 1e-12
        # The best constant leaves the whole variance of the training targets.
        assert measured(data, constant)["train_nmse"] == pytest.approx(1, abs=1e-6)
        assert measured(data, constant)["nmse"] == pytest.approx(1, abs=0.02)


def test_a_model_may_return_one_column_or_none_but_nothing_else() -> None:
    task = Retrieval(seq_len=3, num_train=8)
    data = task.open(data_seed=0, sampling_seed=0, batch_size=4, device=CPU)
    x, y = next(iter(data.batches(0)))
    column = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
    squeezed = nn.Sequential(column, nn.Flatten(0))
    assert data.loss(column, (x, y)).item() == data.loss(squeezed, (x, y)).item()
    with pytest.raises(ValueError, match=r"not \(4, 2\)"):
        data.loss(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), (x, y))


def test_data_of_equal_settings_are_made_once_a_process() -> None:
    one = generate(Retrieval(seq_len=3, num_train=8), 1, CPU)
    assert generate(Retrieval(seq_len=3, num_train=8), 1, CPU) is one
