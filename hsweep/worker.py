"""One trial in one process, as every runner drives it."""

from hsweep.trial import Assignment, Report


class TrialSession:
    """A trial in training: ask for its next report, or close it.

    Args:
        assignment: the trial, and where its checkpoints lie.

    Closing a session whose trial has not reported its last writes a checkpoint.
    """

    def __init__(self, assignment: Assignment) -> None:
        import torch

        from hsweep.train import train

        resources = assignment.trial.resources
        # Workers are reused between trials, so whatever a trial sets it sets for itself.
        torch.set_num_threads(resources.num_threads)
        self.assignment = assignment
        self._reports = train(assignment, torch.device("cuda" if resources.gpus else "cpu"))

    def next_report(self) -> Report:
        """Train up to the next report.

        Raises:
            StopIteration: the trial has said everything.
        """
        return next(self._reports)

    def close(self) -> None:
        """Stop training, keeping what is not yet on disk."""
        self._reports.close()
