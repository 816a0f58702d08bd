"""What every task promises, as claims that each task's test class inherits."""

import atexit
import dataclasses
import functools
import itertools
import math
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hsweep.training.batches import Parts, parts_of
from tasks.base import (
    Exemplary,
    FurtherEvaluated,
    Metric,
    Task,
    TaskData,
    TrainingEvaluated,
)

PROJECT = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")


@functools.cache
def _other_process() -> "subprocess.Popen[bytes]":
    """Return a process that prints the fingerprint of every task that it reads, each under the
    environment that comes with it. All tests share one, because its imports take seconds."""
    code = """
import os, pickle, sys
while content := sys.stdin.buffer.peek(1):
    environment, task = pickle.load(sys.stdin.buffer)
    os.environ.clear()
    os.environ.update(environment)
    print(pickle.loads(task).fingerprint(), flush=True)
"""
    other = subprocess.Popen(
        [sys.executable, "-c", code], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(other.kill)
    return other


class TaskContract:
    """Subclass as ``Test...`` and fill in the fixtures ``task``, ``variant`` and ``model``.

    Attributes:
        batch_size: leaves at least two batches an epoch.
        generated: whether the data seed decides what the training set contains.
    """

    batch_size = 8
    generated = False

    @pytest.fixture
    def task(self) -> Task:
        raise NotImplementedError

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        """The task with one field changed that changes what is learned."""
        raise NotImplementedError

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        """A tiny model that accepts the task's batches."""
        raise NotImplementedError

    def open(self, task: Task, data_seed: int = 1, sampling_seed: int = 2) -> TaskData:
        return task.open(
            data_seed=data_seed,
            sampling_seed=sampling_seed,
            batch_size=self.batch_size,
            device=CPU,
        )

    def first(self, data: TaskData, count: int, start_step: int = 0) -> list[Any]:
        return list(itertools.islice(data.batches(start_step), count))

    def test_it_fulfils_the_task_protocol(self, task: Task) -> None:
        assert isinstance(task, Task)
        assert task.name
        assert task.metrics
        assert all(isinstance(metric, Metric) for metric in task.metrics)

    def test_it_is_frozen_and_hashable_and_equal_by_content(self, task: Task) -> None:
        copy = dataclasses.replace(task)  # type: ignore[type-var]
        assert copy == task
        assert hash(copy) == hash(task)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(task, dataclasses.fields(task)[0].name, None)  # type: ignore[arg-type]

    def test_it_survives_pickling(self, task: Task) -> None:
        assert pickle.loads(pickle.dumps(task)) == task

    def test_its_fingerprint_is_the_same_in_another_process(self, task: Task) -> None:
        other = _other_process()
        assert other.stdin is not None
        assert other.stdout is not None
        pickle.dump((dict(os.environ), pickle.dumps(task)), other.stdin)
        other.stdin.flush()
        assert other.stdout.readline().decode().split() == [task.fingerprint()]

    def test_its_fingerprint_tells_another_definition(self, task: Task, variant: Task) -> None:
        assert variant.fingerprint() != task.fingerprint()

    def test_equal_seeds_give_equal_batches(self, task: Task) -> None:
        count = self.open(task).steps_per_epoch + 2
        assert same(self.first(self.open(task), count), self.first(self.open(task), count))

    def test_starting_at_a_step_equals_skipping_the_steps_before_it(self, task: Task) -> None:
        data = self.open(task)
        skipped = data.steps_per_epoch + 1
        straight = self.first(data, skipped + 2)
        assert same(self.first(data, 2, start_step=skipped), straight[skipped:])
        assert same(self.first(data, 2, start_step=1), straight[1:3])

    def test_a_second_epoch_comes_in_another_order(self, task: Task) -> None:
        data = self.open(task)
        epoch = data.steps_per_epoch
        batches = self.first(data, 2 * epoch)
        assert not same(batches[:epoch], batches[epoch:])

    def test_another_sampling_seed_changes_the_order_and_not_the_data(
        self, task: Task, model: nn.Module
    ) -> None:
        one, other = self.open(task), self.open(task, sampling_seed=3)
        assert not same(self.first(one, 1), self.first(other, 1))
        assert self.evaluate(one, model) == self.evaluate(other, model)

    def test_the_data_seed_decides_generated_data(self, task: Task, model: nn.Module) -> None:
        one, other = self.open(task), self.open(task, data_seed=4)
        assert (self.evaluate(one, model) != self.evaluate(other, model)) is self.generated

    def test_an_epoch_has_as_many_batches_as_announced_and_all_are_whole(self, task: Task) -> None:
        data = self.open(task)
        assert data.steps_per_epoch >= 2
        sizes = {len(tensors(batch)[0]) for batch in self.first(data, data.steps_per_epoch)}
        assert sizes == {self.batch_size}

    def test_a_training_set_smaller_than_a_batch_is_one_batch(self, task: Task) -> None:
        data = task.open(data_seed=1, sampling_seed=2, batch_size=1_000_000, device=CPU)
        assert data.steps_per_epoch == 1
        assert len(tensors(self.first(data, 1)[0])[0]) < 1_000_000

    @pytest.mark.parametrize("batch_size", [0, -1])
    def test_a_batch_needs_an_example(self, task: Task, batch_size: int) -> None:
        with pytest.raises(ValueError, match="batch_size"):
            task.open(data_seed=1, sampling_seed=2, batch_size=batch_size, device=CPU)

    def test_a_step_before_the_first_is_refused(self, task: Task) -> None:
        with pytest.raises(ValueError, match="start_step"):
            next(iter(self.open(task).batches(-1)))

    def test_its_loss_is_a_differentiable_scalar(self, task: Task, model: nn.Module) -> None:
        data = self.open(task)
        loss = data.loss(model, self.first(data, 1)[0])
        assert loss.shape == ()
        assert loss.isfinite()
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert any(bool(gradient.abs().sum() > 0) for gradient in gradients)

    def test_its_example_is_like_an_example_of_a_batch(self, task: Task) -> None:
        if not isinstance(task, Exemplary):
            pytest.skip("the task gives no example")
        examples = tensors(task.example_input())
        for one, batch in zip(examples, tensors(self.first(self.open(task), 1)[0]), strict=False):
            assert (one.shape, one.dtype) == (batch[:1].shape, batch.dtype)

    def test_its_loss_is_the_mean_over_the_batch(self, task: Task, model: nn.Module) -> None:
        data = self.open(task)
        batch = self.first(data, 1)[0]
        halves = [
            data.loss(model, take(batch, rows)).item()
            for rows in (slice(None, self.batch_size // 2), slice(self.batch_size // 2, None))
        ]
        assert data.loss(model, batch).item() == pytest.approx(sum(halves) / 2, rel=1e-4)

    @pytest.mark.parametrize("at_once", [3, 4])
    def test_the_gradient_accumulated_over_parts_is_the_whole_batchs(
        self, task: Task, model: nn.Module, at_once: int
    ) -> None:
        data = self.open(task)
        batch = self.first(data, 1)[0]
        # Dropout would draw other masks for parts.
        model.eval()
        whole = self.accumulated(data, model, [(batch, 1.0)])
        parts = parts_of(data, batch, at_once)
        sizes = [len(tensors(part)[0]) for part, _ in parts]
        assert (sum(sizes), max(sizes)) == (self.batch_size, at_once)
        assert sum(share for _, share in parts) == pytest.approx(1.0)
        accumulated = self.accumulated(data, model, parts)
        assert len(whole) == len(accumulated) > 0
        for one, other in zip(whole, accumulated, strict=True):
            assert (one - other).norm() <= 1e-4 * max(g.norm() for g in whole)

    def accumulated(self, data: TaskData, model: nn.Module, parts: Parts) -> list[Tensor]:
        """The sum of the parts' gradients, and of their losses, each times its share."""
        model.zero_grad(set_to_none=True)
        total = torch.zeros(())
        for part, share in parts:
            loss = data.loss(model, part) * share
            loss.backward()
            total += loss.detach()
        return [total, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    def test_evaluating_returns_every_declared_metric_finite(
        self, task: Task, model: nn.Module
    ) -> None:
        data = self.open(task)
        if isinstance(data, TrainingEvaluated):
            of_training = {metric.name for metric in task.metrics if metric.of_training}
            with torch.no_grad():
                assert set(data.evaluate_training(model)) == of_training
                assert not of_training & set(data.evaluate(model))
        values = self.evaluate(data, model)
        if isinstance(data, FurtherEvaluated):
            values |= data.evaluate_further(model, is_last=True)
        assert set(values) == {metric.name for metric in task.metrics}
        assert all(type(value) is float and math.isfinite(value) for value in values.values())
        assert data.eval_size >= 1

    def test_evaluating_twice_gives_equal_numbers(self, task: Task, model: nn.Module) -> None:
        data = self.open(task)
        assert self.evaluate(data, model) == self.evaluate(data, model)

    def test_warm_starting_leaves_a_model_without_a_readout_bias_alone(
        self, task: Task, model: nn.Module
    ) -> None:
        before = [p.detach().clone() for p in model.parameters()]
        self.open(task).warm_start(model)
        assert same(before, [p.detach() for p in model.parameters()])

    def test_global_random_states_are_left_alone(self, task: Task, model: nn.Module) -> None:
        with unchanged_global_state():
            data = self.open(task)
            self.first(data, 2)
            self.evaluate(data, model)
            task.fingerprint()

    def test_global_random_states_do_not_decide_anything(self, task: Task) -> None:
        batches = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            batches.append(self.first(self.open(task), 2))
        assert same(*batches)

    def evaluate(self, data: TaskData, model: nn.Module) -> dict[str, float]:
        model.eval()
        with torch.no_grad():
            return measured(data, model)


def measured(data: TaskData, model: nn.Module) -> dict[str, float]:
    """Return the metrics of both kinds of examples."""
    of_training = data.evaluate_training(model) if isinstance(data, TrainingEvaluated) else {}
    return {**data.evaluate(model), **of_training}


def tensors(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch, however nested."""
    if isinstance(batch, Tensor):
        return [batch]
    values = batch.values() if isinstance(batch, dict) else batch
    return [tensor for value in values for tensor in tensors(value)]


def same(one: Any, other: Any) -> bool:
    """Whether two nests of tensors are equal bit for bit."""
    pairs = list(zip(tensors(one), tensors(other), strict=True))
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def take(batch: Any, rows: slice) -> Any:
    """Return the given rows of every tensor of a batch."""
    if isinstance(batch, Tensor):
        return batch[rows]
    if isinstance(batch, dict):
        return {key: take(value, rows) for key, value in batch.items()}
    return tuple(take(value, rows) for value in batch)


@contextmanager
def unchanged_global_state() -> Iterator[None]:
    """Fail when a random generator, or a global setting of torch, differs at the end."""
    before = _global_state()
    yield
    after = _global_state()
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"global state changed: {changed}"


def _global_state() -> dict[str, Any]:
    return {
        "random": random.getstate(),
        "numpy": np.random.get_state()[1].tobytes(),  # type: ignore[union-attr, index]
        "torch": torch.get_rng_state().numpy().tobytes(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
