"""One study seed, many independent streams.

A replicate's three streams (initial weights, data, sampling) are spawned from the study seed by
numpy's SeedSequence, so that changing one never moves another. They do not depend on the point:
replicate 0 of every shape sees the same data, which makes comparisons between shapes paired.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds of one replicate, each a 63-bit integer.

    Attributes:
        init: initial weights.
        data: what a synthetic data set contains, or how a real one is split.
        sampling: order of examples, augmentation, dropout.
    """

    init: int
    data: int
    sampling: int

    def below(self, bound: int) -> "Seeds":
        """Return seeds smaller than ``bound``, for libraries that take no larger ones."""
        return Seeds(self.init % bound, self.data % bound, self.sampling % bound)


def replicate_seeds(study_seed: int, replicate: int) -> Seeds:
    """Return the seeds of ``replicate`` (0, 1, ...) under ``study_seed``."""
    return Seeds(*(_seed(study_seed, (replicate, stream)) for stream in range(len(fields(Seeds)))))


def derived_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part and on their order."""
    return _seed(parts)


def _seed(entropy: int | Sequence[int], spawn_key: tuple[int, ...] = ()) -> int:
    import numpy as np

    sequence = np.random.SeedSequence(entropy, spawn_key=spawn_key)
    return int(sequence.generate_state(1, np.uint64)[0]) & ((1 << 63) - 1)
