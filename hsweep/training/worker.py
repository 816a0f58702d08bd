"""One trial in one process, as every runner drives it."""

from hsweep.design.trial import Assignment, Report, Setback


class TrialSession:
    """A trial in training: ask for its next report, or close it.

    Args:
        assignment: the trial, and where its checkpoints lie.

    Closing a session whose trial has not reported its last writes a checkpoint.
    """

    def __init__(self, assignment: Assignment) -> None:
        import torch

        from hsweep.training.train import train

        resources = assignment.resources
        # Workers are reused between trials, so whatever a trial sets it sets for itself.
        torch.set_num_threads(resources.num_threads)
        self.assignment = assignment
        self._device = torch.device("cuda" if resources.gpus else "cpu")
        self._reports = train(assignment, self._device)

    def next_report(self) -> Report | Setback:
        """Train up to the next report, or to where the trial cannot go on; then close it.

        Raises:
            StopIteration: the trial has said everything.
        """
        return next(self._reports)

    def close(self) -> None:
        """Stop training, keeping what is not yet on disk, and give the device's memory back.

        Work that cannot be kept is lost: the trial then goes on from an older checkpoint.
        """
        self._reports.close()
        if self._device.type == "cuda":
            from hsweep.training.memory import release

            release(self._device)
