"""A trial: one point of the space and one replicate; its resources, assignment and reports."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

from hsweep.design.budget import Budget
from hsweep.design.recipe import Recipe
from hsweep.design.scales import Goal
from hsweep.design.trial_status import TrialStatus
from hsweep.errors import UserError, check_whole, is_number, shown
from hsweep.seeding import Seeds
from models.base import AnyModelConfig, Counts
from models.conditioning import Conditioning
from tasks.base import Learnable, Task

__all__ = ["TrialStatus"]

_NOT_REMEMBERED: Final = ("is_last", "peak_memory_bytes")
"""Fields of reports that checkpoints leave out."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that one trial occupies while it trains.

    A trial of several processes trains with ``torch.distributed``; a command gets the resources of
    all processes and starts the processes itself (``{processes}``, as for torchrun).

    Attributes:
        cpus: processor cores of each process, which computes with as many threads on the CPU.
        gpus: devices of the whole trial; above 0 it trains on CUDA. A share of a device is for a
            trial of one process; several processes have one device each.
        processes: how many train the trial; by default one for each device, and one on the CPU.
        spread: whether its processes may run on several nodes, where no single one has room.

    Raises:
        UserError: an amount that is negative or not finite, none at all, or processes and devices
            that do not go together.
    """

    cpus: float = 1
    gpus: float = 0
    processes: int = 0
    spread: bool = False

    def __post_init__(self) -> None:
        gpus = self.gpus
        amounts = (self.cpus, gpus)
        if not all(is_number(amount) and amount >= 0 for amount in amounts) or not any(amounts):
            raise UserError(
                "a trial needs cpus or gpus, numbers that are neither negative nor infinite; "
                f"got cpus={shown(self.cpus)}, gpus={shown(gpus)}"
            )
        if gpus > 1 and gpus != int(gpus):
            raise UserError(
                "a trial has a share of one device (gpus from 0 to 1) or several whole ones, not "
                f"{gpus:g}"
            )
        check_whole("processes", self.processes, 0)
        number = self.processes or max(1, int(gpus))
        object.__setattr__(self, "processes", number)
        if gpus and number != max(1, gpus):
            raise UserError(
                f"every process of a trial has one device, and gpus={gpus:g} does not go with "
                f"processes={number}; leave processes out, or give as many gpus or none"
            )

    @property
    def all_cpus(self) -> float:
        """Processor cores of the whole trial."""
        return self.cpus * self.processes

    @property
    def num_threads(self) -> int:
        """Threads that each process computes with on the CPU."""
        return max(1, int(self.cpus))


@dataclass(frozen=True, slots=True)
class Trial:
    """All that determines a trial, without the circumstances of a run (worker, attempt, storage).

    Attributes:
        key: content hash of all that determines the result (see ``hsweep.planning.identity``).
        ordinal: position in the plan, from 0.
        point: the axis values.
        replicate: number of the seed, from 0.
        stratum: the group whose trials compete in early stopping; empty when all do.
        task: what is learned; a user's training where there is no model.
        counts: what the model costs; None where a user's training does not say.
        train_memory_bytes: expected at most; None where that is not known.
        parts: the hashes that the key is made of (see ``hsweep.planning.identity``).
        origin: the code and package versions that train it in this process, as text; empty if
            unknown.
        previous: key of the trial that is the same but for the previous budget of the ladder; empty
            for none.
        shared: number of budget units that both trials have in common: this trial goes on from
            there.
    """

    key: str
    ordinal: int
    point: Mapping[str, Any]
    replicate: int
    stratum: str
    task: Learnable
    model: AnyModelConfig | None
    recipe: Recipe
    budget: Budget
    seeds: Seeds
    resources: Resources
    metric: str
    goal: Goal
    counts: Counts | None
    train_memory_bytes: int | None
    parts: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    previous: str = ""
    shared: int = 0

    @property
    def length_dependence(self) -> str:
        """Why trainings of other lengths have no beginning in common with this one; empty if they
        have."""
        if self.model is None:
            return "training of your own knows its budget, and may train otherwise from the start"
        if self.budget.unit == "seconds":
            return "how many updates a second holds depends on the machine"
        return self.recipe.length_dependence

    def shared_with(self, amount: int) -> int:
        """Return how many budget units this trial shares, to the bit, with the same trial of
        ``amount`` units: up to the last report of both before the learning rate of the shorter one
        begins to depend on its length."""
        if self.length_dependence:
            return 0
        interval = self.budget.report_every
        return self.recipe.shared(min(amount, self.budget.amount)) // interval * interval

    @property
    def branch_point(self) -> int:
        """Budget units after which a longer training can go on from this one's checkpoint, which is
        written and kept; 0 for none."""
        return self.shared_with(self.budget.amount)

    @property
    def units_to_train(self) -> int:
        """Budget units that this trial trains after the budget before it in the ladder has been
        trained."""
        return self.budget.amount - self.shared

    @property
    def training_metrics(self) -> frozenset[str]:
        """Names of the task's metrics of training examples."""
        return frozenset(metric.name for metric in self.task.metrics if metric.of_training)

    @property
    def is_decided_in_training(self) -> bool:
        """Whether the metric that decides is of training examples."""
        return self.metric in self.training_metrics

    @property
    def built(self) -> tuple[Task, AnyModelConfig]:
        """The task and the model of a trial that this project's loop trains."""
        assert self.model is not None
        return cast(Task, self.task), self.model

    @property
    def ending_seconds(self) -> float:
        """How long another program that trains it may take to end."""
        return float(getattr(self.task, "ending_seconds", 0.0))

    @property
    def num_ranks(self) -> int:
        """Number of processes that a worker starts to train the trial; a command starts its own
        processes."""
        is_command = getattr(self.task, "part", "") == "command"
        return 1 if is_command else self.resources.processes

    def result_at(self, report: "Report") -> dict[str, Any]:
        """Return the header of a file of final weights."""
        return {
            "trial": self.key,
            "point": dict(self.point),
            "seeds": asdict(self.seeds),
            "unit": report.unit,
            "metric": self.metric,
            "value": report.metrics.get(self.metric),
            "metrics": dict(report.metrics),
            "model_code": self.parts.get("model_code", ""),
        }

    @property
    def forward_flops(self) -> int:
        """Operations of a forward pass over one example; 0 if unknown."""
        return self.counts.forward_flops if self.counts is not None else 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A trial handed to a worker.

    Attributes:
        label: the trial in words.
        attempt: 1 for the first start; files of a later attempt replace those of an earlier one.
        recorded_through: the last unit whose report the record already holds (0: none); reports
            of later units that a checkpoint remembers are sent again.
        recorded_seconds: training time at that report.
        checkpoints: URI or path of the folder that holds every trial's checkpoints.
        checkpoint_seconds: work at risk: the most training time between two checkpoints; where
            reports are further apart, each has one.
        probe: what to measure of the model's attention beside the task's metrics. It changes
            nothing about the training, so it is no part of the trial.
        is_exclusive: the trial did not fit beside others, so it trains alone, with a whole device
            in place of a share.
        continues: key of the same training with a shorter budget, whose checkpoints it goes on
            from as long as it has none of its own; None for none.
        shared: the last unit that both trainings have in common.
        report_timeout: seconds without a report after which the process counts as hung and is
            ended; None waits for ever.
        waits_at: units at which the trial may be stopped or have to wait for others, so that it
            goes on only when told to.
        isolate: this trial is its process's first and last.
        weights: URI or path of the folder for final weights; empty where none are kept.
        measures_training: whether metrics of training examples are measured at every report.
        offset: what an earlier trial's script was found to count from; see ``Counting``.
    """

    trial: Trial
    attempt: int
    recorded_through: int
    checkpoints: str
    checkpoint_seconds: float
    recorded_seconds: float = 0.0
    label: str = ""
    probe: Conditioning | None = None
    is_exclusive: bool = False
    continues: str | None = None
    shared: int = 0
    report_timeout: float | None = None
    waits_at: frozenset[int] = frozenset()
    isolate: bool = False
    weights: str = ""
    measures_training: bool = False
    offset: float | None = None

    @property
    def resources(self) -> Resources:
        """The resources of the trial in this attempt."""
        request = self.trial.resources
        if self.is_exclusive and request.gpus and request.processes == 1:
            return replace(request, gpus=1.0)
        return request

    @property
    def patience_seconds(self) -> float | None:
        """Seconds without a report after which the driver ends the process; None for never.

        The worker ends a hanging script before the driver ends the worker, so that time is added.
        """
        if self.report_timeout is None:
            return None
        return self.report_timeout + self.trial.ending_seconds


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a trial at one point of its budget.

    Attributes:
        unit: budget units done (epochs or steps).
        step: optimizer updates done.
        metrics: every metric, and what a probe measured if one was due; a non-finite value is
            None, never a made-up number.
        wall_seconds: time so far, evaluation included, over all attempts.
        train_seconds: the part of ``wall_seconds`` spent on updates and on their data.
        data_seconds: the part of ``train_seconds`` spent waiting for data.
        latency_seconds: of a forward pass over one training batch, loss included and gradients
            not; measured once the budget is used up, None before.
        is_last: the budget is used up.
        diverged_at: the first update with a non-finite loss or the update after which the metric
            that decides was not finite; None while all is well.
        micro_batch: examples computed at once, where memory did not suffice for a whole batch and
            gradients were accumulated over it; None for whole batches.
        note: remark on this report for readers of the record; may be empty.
        learning_rate: of the last update before the report; with a layer decay, the highest of all
            layers. This and the next three are None if no update was done since the last report, or
            if a user's training reports.
        grad_norm: of that update's gradient before it was clipped; None also where not finite.
        running_loss: the mean loss of the updates since the last report, each before its update and
            with all that training does to examples and model (augmentation, dropout); None also
            where not finite.
        examples_per_second: training examples a second since the last report, waiting for data
            included.
        peak_memory_bytes: the most that the process has held on its device since the trial began
            there, beside CUDA's own; None on the CPU.
    """

    unit: int
    step: int
    metrics: Mapping[str, float | None]
    wall_seconds: float
    is_last: bool
    diverged_at: int | None = None
    train_seconds: float = 0.0
    data_seconds: float = 0.0
    latency_seconds: float | None = None
    micro_batch: int | None = None
    note: str = ""
    learning_rate: float | None = None
    grad_norm: float | None = None
    running_loss: float | None = None
    examples_per_second: float | None = None
    peak_memory_bytes: int | None = None

    def remembered(self) -> dict[str, Any]:
        """Return the fields that a checkpoint holds."""
        return {name: value for name, value in asdict(self).items() if name not in _NOT_REMEMBERED}


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A single example did not fit the free memory of the device. The trial itself is sound, and
    its reports stay.

    Attributes:
        message: what happened, for people: the rule, the value and what to do.
    """

    message: str


@dataclass(frozen=True, slots=True)
class StorageFailure:
    """Checkpoints cannot be written (full, read-only, not permitted), so the trial cannot go on.

    Attributes:
        message: what happened, for people.
    """

    message: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A user's training has ended by itself after its last report, before its budget."""


@dataclass(frozen=True, slots=True)
class Counting:
    """A script counts its budget from 0 or from 1.

    Attributes:
        offset: what is added to its counts; None while it trains on and its rows do not show it.
    """

    offset: float | None


Event = Report | OutOfMemory | StorageFailure | Ended | Counting
"""A message of a trial in training to its driver."""


def cost_columns(trial: Trial) -> dict[str, int]:
    """Return a trial's costs, as far as known, under the names that tables and trackers use."""
    columns: dict[str, int] = {}
    if trial.counts is not None:
        columns["num_params"] = trial.counts.num_params
        if trial.counts.forward_flops:
            columns["flops_per_example"] = trial.counts.forward_flops
            columns["train_flops_per_example"] = trial.counts.train_flops
    if trial.train_memory_bytes is not None:
        columns["train_memory_bytes"] = trial.train_memory_bytes
    if trial.resources.processes > 1:
        columns["processes"] = trial.resources.processes
    return columns
