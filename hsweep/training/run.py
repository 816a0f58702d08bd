"""The argument ``run`` of a training function: the trial, its reports, and its end."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hsweep.design.budget import BudgetUnit
from hsweep.design.trial import Event
from hsweep.seeding import Seeds

if TYPE_CHECKING:
    import torch


class StopTrial(BaseException):
    """The trial ends here: early stopping, Ctrl-C, or a notice that the machine goes away.

    A report raises it, and a ``save``. User code need not catch it; code that does may clean up and
    return. It is no ``Exception``, so that ``except Exception`` around a step of training lets it
    through.
    """


class Channel:
    """Where a trial's events go. This one goes nowhere, as for the ranks above 0 of a trial, which
    agree with rank 0 on what follows from a report."""

    @property
    def is_stopped(self) -> bool:
        """Whether the trial must end before its next report."""
        return False

    def begins(self) -> None:
        """Note that training itself begins: the process is ready for it."""

    def put(self, event: Event, /) -> bool:  # noqa: ARG002
        """Hand an event over, wait for a decision where early stopping decides, and return whether
        the trial goes on."""
        return False


class Run(Protocol):
    """One trial as its training function sees it: ``train(point, run)``.

    A trial of several processes calls the function in each of them, with the same arguments but
    for ``rank`` and ``device``.

    Attributes:
        budget: how many units to train in all, those of earlier attempts included.
        budget_unit: what the budget counts: ``epochs``, ``steps`` or ``seconds``.
        seeds: of this replicate, for initial weights, data and sampling. Each is below 2^31: NumPy
            and others take no larger ones, and there is room for what is derived from them.
        device: of this process.
        folder: for this trial alone: empty in its first attempt; later attempts on this machine
            find it as it was left.
        checkpoint: the newest, to go on from: a folder, or a file where the report gave a file;
            None to begin. Nothing that is written there is kept. It may be older than the newest
            report on record: units that are trained and reported again are not recorded twice, not
            even those of a function that begins from unit 1 whatever its checkpoint.
        rank: the number of this process among those of the trial, from 0.
        world_size: how many processes train the trial.
    """

    budget: int
    budget_unit: BudgetUnit
    seeds: Seeds
    device: "torch.device"
    folder: Path
    checkpoint: Path | None
    rank: int
    world_size: int

    def report(
        self, unit: int, checkpoint: Path | str | None = None, **metrics: float | None
    ) -> None:
        """Report the metrics after ``unit`` units of the budget.

        Every process of the trial calls it; the metrics and the checkpoint of rank 0 count, and
        all processes go on or end together. The last report is of unit ``budget``.

        Early stopping decides at reports of certain units, and pauses trials there: a trial that
        waits for others ends and is called again later, with its checkpoint.

        Processes that the function starts cannot report, and end with the trial.

        Args:
            unit: units done in all, more than at the report before. Of a budget in seconds these
                are seconds of training over all attempts, by the function's own clock (a
                checkpoint should hold it): each multiple of ``report_every`` is reported when it
                has passed, and the budget at last.
            checkpoint: a folder, under ``folder`` or elsewhere, or a file, from which training can
                go on. It is copied before the call returns, if so much work would be lost without
                it (``checkpoint_seconds`` of the sweep) or if the trial ends here; so the function
                may change or remove it afterwards.
            metrics: the sweep's metric, and any others; None is a metric that is missing here, as
                is one that is not finite. Where the sweep's own is not finite, the trial has
                diverged. The first report may say ``num_params``.

        Raises:
            StopTrial: the trial ends here, and so does each report after this one.
            UserError: a unit that does not go forward or leaves out one at which early stopping
                decides, a metric that is no number, or a checkpoint that is not there. The trial
                has failed then, even if the error is caught.
        """
        ...

    def finish(self) -> None:
        """End this training before its budget, as one that has a patience of its own does: its last
        report counts, or its best (``final`` of the sweep), as that of a whole training.

        A function that returns after a report has ended so, too. After this nothing can be
        reported. Every process of the trial calls it.

        Raises:
            UserError: nothing was reported.
        """
        ...

    @property
    def should_checkpoint(self) -> bool:
        """Whether a checkpoint now would save much: ``checkpoint_seconds`` of the sweep have been
        trained since the last one, or the trial has to end at its next report or ``save``.

        Every process of the trial asks this at the same points, and has the same answer.
        """
        ...

    def save(self, checkpoint: Path | str) -> None:
        """Offer a checkpoint between two reports, from which training can go on within a unit.

        It is copied before the call returns where ``should_checkpoint`` is true, else nothing is
        done. What is in it is the function's own: ``run.checkpoint`` gives it back, and the next
        report is of the unit after the last one.

        Args:
            checkpoint: as for ``report``; every process of the trial calls this, and that of rank 0
                counts.

        Raises:
            StopTrial: the trial ends here.
            UserError: a checkpoint that is not there.
        """
        ...
