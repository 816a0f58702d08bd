"""What is to be run of a study, however it is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hsweep.design.trial import Trial
from hsweep.planning.prepare import Prepared
from hsweep.planning.revision import Revision
from hsweep.record.study import Study
from hsweep.tracking.target import TrackingTarget


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be run of a study, and what its record takes over first.

    Attributes:
        record: enters into the record what the job brings, and returns the study; it is called once
            nothing stands in the way of the first trial.
        storage: where checkpoints lie; None for the study's own folder.
        new: trials that are tried out before anything is recorded.
        revision: what an edited sweep makes of the study.
        only: keys of the trials to run; None for all that are not finished.
    """

    name: str
    prepared: Prepared
    target: TrackingTarget
    record: Callable[[], Study]
    storage: str | None = None
    new: Sequence[Trial] = ()
    revision: Revision | None = None
    only: frozenset[str] | None = None
