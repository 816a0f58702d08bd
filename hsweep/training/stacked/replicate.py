"""One of the trials that are trained as one program, with what is its own."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hsweep.design.trial import Assignment, Report
from hsweep.seeding import derived_seed
from hsweep.training.batches import num_examples
from hsweep.training.checkpoints import StorageError
from hsweep.training.evaluation import Reporter
from hsweep.training.opening import open_trial
from hsweep.training.process_state import seed_all
from hsweep.training.updates import figures_of
from tasks.base import Batch


class Clock:
    """A trial's share of the time that passes here; all of it while ``running``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started: float | None = None

    def __call__(self) -> float:
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self.seconds + running

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count all time that passes."""
        self._started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds, self._started = self(), None


class Replicate:
    """A trial's data, model, state, batches and reports.

    Args:
        assignment: the trial, and where its checkpoints lie.
        count: how many trials are trained with it, itself included.
        device: where they train.

    Attributes:
        sent_through: the last unit whose report was returned; the record has it.
        unsent: reports that the record lacks.
        problem: why a checkpoint could not be written.
        batch: the last one.
        step: updates done at the last report.
    """

    def __init__(self, assignment: Assignment, count: int, device: torch.device) -> None:
        self.assignment = assignment
        self.trial = assignment.trial
        self.clock = Clock()
        # Of the trials' time in common no more is at risk than of one trial's.
        share = replace(assignment, checkpoint_seconds=assignment.checkpoint_seconds / count)
        opened = open_trial(share, device, self.clock)
        self.data, self.model, self.state = opened.data, opened.model, opened.state
        self.autocast = opened.autocast
        self.sent_through = assignment.recorded_through
        self.unsent = self.state.unrecorded()
        self.problem: StorageError | None = None
        self.batch: Batch | None = None
        self.step = self.state.history[-1].step if self.state.history else 0
        self._batches = self.data.batches(self.step)
        self._reporter = Reporter(assignment, opened)
        self._others = count - 1
        self._is_noted = False

    def next_batch(self) -> Batch:
        self.batch = next(self._batches)
        return self.batch

    def report(
        self,
        unit: int,
        step: int,
        losses: Sequence[Tensor],
        grad_norm: float,
        make_room: Callable[[], None],
    ) -> Report:
        # The state of the random generator at a report is a function of the position.
        seed_all(derived_seed(self.trial.seeds.sampling, self.step))
        with self.clock.running():
            report = self._reporter.report(unit, step, losses, self.batch, make_room)
        notes = (self.state.take_note(unit), self._company(unit))
        figures = self._figures(unit, step, grad_norm)
        report = replace(report, note="; ".join(filter(None, notes)), **figures)
        if self._others:
            # What all hold is no measure of one: data and workspaces are common.
            report = replace(report, peak_memory_bytes=None)
        self.problem = self.state.add(report)
        self.sent_through, self.step = unit, step
        self.state.resume_clock()
        return report

    def _figures(self, unit: int, step: int, grad_norm: float) -> dict[str, Any]:
        recipe, history = self.trial.recipe, self.state.history
        seconds = self.state.train_seconds - (history[-1].train_seconds if history else 0.0)
        num_steps = self.trial.budget.amount * (step // unit)
        examples = (step - self.step) * (num_examples(self.batch) or recipe.batch_size)
        return figures_of(recipe.lr_at(step - 1, num_steps), grad_norm, examples, seconds)

    def _company(self, unit: int) -> str:
        """Return what the first report that is new to the record says of the other trials."""
        if not self._others or self._is_noted or unit <= self.assignment.recorded_through:
            return ""
        self._is_noted = True
        return (
            f"trained as one program with {self._others} other trials of its shape: as "
            "separately, up to rounding"
        )
