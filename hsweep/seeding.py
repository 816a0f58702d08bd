"""One study seed, many independent streams.

A replicate's three streams (initial weights, data, sampling) are spawned from the study seed by
numpy's SeedSequence, so that changing one never moves another. They do not depend on the point:
replicate 0 of every shape sees the same data, which makes comparisons between shapes paired.
"""

from dataclasses import dataclass
from typing import Final

_STREAMS: Final = ("init", "data", "sampling")
_MASK_63_BITS: Final = (1 << 63) - 1


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


def replicate_seeds(study_seed: int, replicate: int) -> Seeds:
    """Return the seeds of ``replicate`` (0, 1, ...) under ``study_seed``."""
    import numpy as np

    streams = [
        int(
            np.random.SeedSequence(study_seed, spawn_key=(replicate, stream)).generate_state(
                1, np.uint64
            )[0]
        )
        & _MASK_63_BITS
        for stream in range(len(_STREAMS))
    ]
    return Seeds(*streams)


def derived_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part and on their order."""
    import numpy as np

    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) & _MASK_63_BITS
