"""Running code that draws from global random generators, without letting it show.

timm's and torchvision's transforms know no other source of chance.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the generators of random, numpy and torch (CPU); put them back as they were at the end.

    Not for use while another thread draws from the same generators.

    Args:
        seed: a whole number from 0 to 2**63 - 1.
    """
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # torch.manual_seed would seed the accelerators too, which are not put back.
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
