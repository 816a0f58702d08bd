import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from task_contract import CPU, TaskContract, measured, same
from torch import Tensor, nn

from tasks.base import Task, TaskData
from tasks.sampling import generator
from tasks.synthetic.nearest_neighbor import (
    NearestNeighbor,
    Sequences,
    draw,
    farthest_points,
    made_ahead,
)


class FullRankHead(nn.Module):
    """One head that attends to -x_i: the paper's construction with K'Q = -t I and VO = I."""

    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(sharpness))

    def forward(self, x: Tensor) -> Tensor:
        return (-self.sharpness * x @ x.mT).softmax(2) @ x


class Constant(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        return x * 0 + self.value


def opened(task: NearestNeighbor, data_seed: int = 1, batch_size: int = 8) -> TaskData:
    return task.open(data_seed=data_seed, sampling_seed=2, batch_size=batch_size, device=CPU)


class NearestNeighborContract(TaskContract):
    generated = True

    @pytest.fixture
    def variant(self, task: NearestNeighbor) -> Task:
        return NearestNeighbor(seq_len=task.seq_len + 1, dim=task.dim)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return FullRankHead(3.0)

    def test_a_training_set_smaller_than_a_batch_is_one_batch(self, task: Task) -> None:
        """A stream is never smaller: a batch has as many sequences as are asked for."""
        data = task.open(data_seed=1, sampling_seed=2, batch_size=10_000, device=CPU)
        assert len(self.first(data, 1)[0][0]) == 10_000


class TestFreshStream(NearestNeighborContract):
    @pytest.fixture
    def task(self) -> Task:
        return NearestNeighbor(seq_len=5, dim=4, steps_per_epoch=3, num_validation=20)


class TestReplay(NearestNeighborContract):
    @pytest.fixture
    def task(self) -> Task:
        return NearestNeighbor(
            seq_len=5, dim=4, steps_per_epoch=3, num_validation=20, replay_batches=3
        )

    def test_a_second_epoch_comes_in_another_order(self, task: Task) -> None:
        """Published runs meet the same batches in the same order in every epoch."""
        batches = self.first(self.open(task), 6)
        assert same(batches[:3], batches[3:])
        assert not same(batches[0], batches[1])


def test_a_stream_never_repeats_a_point() -> None:
    task = NearestNeighbor(seq_len=4, dim=6, steps_per_epoch=2, num_validation=50)
    data = opened(task)
    seen = [x for x, _ in itertools.islice(data.batches(0), 40)]
    seen.append(next(iter(opened(task).batches(10**12)))[0])
    held_out = draw(task, 50, generator(1, 1)).x
    points = torch.cat([x.flatten(0, 1) for x in (*seen, held_out)])
    assert len(torch.unique(points, dim=0)) == len(points)


def test_batches_made_ahead_are_those_of_their_steps_in_order() -> None:
    task = NearestNeighbor(seq_len=4, dim=3)

    def made(step: int) -> Sequences:
        if step == 9:
            raise RuntimeError("no such step")
        return draw(task, 2, generator(step))

    ahead = made_ahead(made, 5)
    assert same(list(itertools.islice(ahead, 4)), [made(step) for step in range(5, 9)])
    with pytest.raises(RuntimeError, match="no such step"):
        next(ahead)


def test_the_error_of_replayed_sequences_is_reported_beside_that_of_held_out_ones() -> None:
    task = NearestNeighbor(seq_len=8, dim=2, replay_batches=2, num_validation=4)
    data = opened(task)
    model = FullRankHead(1.0)
    with torch.no_grad():
        replayed = [
            data.loss(model, batch).item() for batch in itertools.islice(data.batches(5), 2)
        ]
        values = measured(data, model)
    assert values["train_squared_error"] == pytest.approx(sum(replayed) / 2, rel=1e-6)
    assert values["squared_error"] != pytest.approx(values["train_squared_error"], rel=1e-3)
    assert [metric.name for metric in NearestNeighbor(seq_len=8).metrics] == ["squared_error"]


def test_replayed_batches_are_the_same_whether_they_are_kept_or_drawn_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = NearestNeighbor(seq_len=4, dim=3, replay_batches=3)
    kept = list(itertools.islice(opened(task).batches(0), 7))
    monkeypatch.setattr("tasks.synthetic.nearest_neighbor._MOST_NUMBERS_ON_DEVICE", 0)
    assert same(list(itertools.islice(opened(task).batches(0), 7)), kept)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 7), st.integers(1, 9), st.integers(0, 2**31))
def test_the_target_is_the_point_with_the_smallest_scalar_product(
    seq_len: int, dim: int, seed: int
) -> None:
    x, y = draw(NearestNeighbor(seq_len=seq_len, dim=dim), 3, generator(seed))
    torch.testing.assert_close(x.norm(dim=2), torch.ones(3, seq_len))
    for points, targets in zip(x.tolist(), y.tolist(), strict=True):
        for point, target in zip(points, targets, strict=True):
            products = [sum(map(float.__mul__, point, other)) for other in points]
            assert sum(map(float.__mul__, point, target)) == pytest.approx(min(products), abs=1e-6)
            assert target in points


def test_the_first_of_equally_far_points_is_taken() -> None:
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    assert farthest_points(x).tolist() == [[[0.0, 1.0], [0.0, -1.0], [0.0, 1.0]]]


def test_iid_points_are_uniform_on_the_sphere() -> None:
    x = draw(NearestNeighbor(seq_len=2, dim=3), 20_000, generator(0)).x.flatten(0, 1).double()
    count = len(x)
    # Each coordinate of a uniform point of the 2-sphere is uniform on (-1, 1) (Archimedes).
    assert x.mean(0).abs().max() < 5 * math.sqrt(1 / 3 / count)
    for quarter in torch.linspace(-0.75, 0.75, 7).tolist():
        below = (x < quarter).double().mean(0)
        assert (below - (1 + quarter) / 2).abs().max() < 5 * 0.5 / math.sqrt(count)
    covariance = x.T @ x / count - torch.eye(3) / 3
    assert covariance.abs().max() < 5 / 3 / math.sqrt(count)


@pytest.mark.parametrize("seq_len", [2, 5, 6])
def test_orthonormal_points_are_orthonormal_and_their_target_is_the_first_other_one(
    seq_len: int,
) -> None:
    x, y = draw(NearestNeighbor(seq_len=seq_len, dim=6, points="orthonormal"), 4, generator(3))
    torch.testing.assert_close(x @ x.mT, torch.eye(seq_len).expand(4, -1, -1), atol=1e-5, rtol=0)
    assert torch.equal(y[:, 0], x[:, 1])
    assert all(torch.equal(y[:, token], x[:, 0]) for token in range(1, seq_len))
    assert not torch.equal(x[0], x[1])


@pytest.mark.parametrize("points", ["iid", "orthonormal"])
def test_the_target_of_doubled_points_is_the_opposite(points: str) -> None:
    task = NearestNeighbor(seq_len=6, dim=3, points=points, doubled=True)  # type: ignore[arg-type]
    x, y = draw(task, 4, generator(3))
    assert torch.equal(x[:, 3:], -x[:, :3])
    assert torch.equal(y, -x)
    assert torch.equal(farthest_points(x), y)


def test_predicting_zero_has_error_one_and_a_sharp_full_rank_head_has_next_to_none() -> None:
    data = opened(NearestNeighbor(seq_len=16, dim=8, num_validation=200))
    with torch.no_grad():
        assert measured(data, Constant(0.0))["squared_error"] == pytest.approx(1, abs=1e-6)
        assert measured(data, FullRankHead(1.0))["squared_error"] > 0.2
        assert measured(data, FullRankHead(5e3))["squared_error"] < 0.01


def test_the_loss_is_the_squared_error_a_token() -> None:
    data = opened(NearestNeighbor(seq_len=4, dim=16))
    batch = next(iter(data.batches(0)))
    assert data.loss(Constant(0.0), batch).item() == pytest.approx(1, abs=1e-6)
    # ||y - c||^2 = 1 - 2 c sum(y) + 16 c^2
    expected = 1 - 0.2 * batch[1].sum(2).mean().item() + 0.16
    assert data.loss(Constant(0.1), batch).item() == pytest.approx(expected, rel=1e-5)


def test_a_model_of_another_output_shape_is_refused() -> None:
    data = opened(NearestNeighbor(seq_len=4, dim=3))
    with pytest.raises(ValueError, match=r"must return shape \(8, 4, 3\).*not \(8, 4, 5\)"):
        data.loss(nn.Linear(3, 5), next(iter(data.batches(0))))


def test_opposites_do_not_count_against_orthonormality() -> None:
    assert NearestNeighbor(seq_len=8, dim=4, points="orthonormal", doubled=True).num_drawn == 4
