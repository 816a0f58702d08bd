"""One study seed, many independent streams.

A replicate's three streams (initial weights, data, sampling) are spawned from the study seed by
numpy's SeedSequence, so that changing one never moves another. They do not depend on the point:
replicate 0 of every shape sees the same data, which makes comparisons between shapes paired.
"""

import itertools
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_REPLICATES: Final = 10_000
_LARGEST_STUDY_SEED: Final = 200_000


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds of one replicate, each a 63-bit integer.

    Attributes:
        init: initial weights.
        data: what a synthetic data set contains, or how a real one is split.
        sampling: order of examples, augmentation, dropout.
        program: one seed for a program that takes no more, below 2^31: the replicate's number, and
            10,000 more for each study seed. Of study seeds above 200,000 it is any such number.
    """

    init: int
    data: int
    sampling: int
    program: int

    def below(self, bound: int) -> "Seeds":
        """Return seeds smaller than ``bound``, for libraries that take no larger ones."""
        return Seeds(
            self.init % bound, self.data % bound, self.sampling % bound, self.program % bound
        )


def replicate_seeds(study_seed: int, replicate: int) -> Seeds:
    """Return the seeds of ``replicate`` (0, 1, ...) under ``study_seed``."""
    init, data, sampling = (_seed(study_seed, (replicate, stream)) for stream in range(3))
    is_small = 0 <= study_seed <= _LARGEST_STUDY_SEED and replicate < _REPLICATES
    program = study_seed * _REPLICATES + replicate if is_small else init % 2**31
    return Seeds(init, data, sampling, program)


def derived_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part and on their order."""
    return _seed(parts)


def _seed(entropy: int | Sequence[int], spawn_key: tuple[int, ...] = ()) -> int:
    import numpy as np

    sequence = np.random.SeedSequence(entropy, spawn_key=spawn_key)
    return int(sequence.generate_state(1, np.uint64)[0]) & ((1 << 63) - 1)


class ChildSeed:
    """Seeds the processes that multiprocessing spawns from this one, and those that they spawn: it
    travels with each. A fork has the states of its parent.
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._numbers = seed, itertools.count()

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_child, (derived_seed(self._seed, next(self._numbers)),)

    def act(self) -> None:
        """Seed Python's and numpy's generators, and torch's where it is imported."""
        import numpy as np

        random.seed(self._seed)
        np.random.seed(self._seed % 2**32)
        if torch := sys.modules.get("torch"):
            torch.manual_seed(self._seed)


_OF_CHILD: Final[list[ChildSeed]] = []


def _in_child(seed: int) -> ChildSeed:
    _OF_CHILD[:] = [ChildSeed(seed)]
    seed_child()
    return _OF_CHILD[0]


def seed_child() -> None:
    """Seed this process if it was spawned by a trial, whose file it may just have imported."""
    for child in _OF_CHILD:
        child.act()
