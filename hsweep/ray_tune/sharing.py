"""How the studies that run on one cluster share it: each says there what it wants, and reckons from
what all of them say how much of the cluster is its own."""

import json
import math
import time
import uuid
from dataclasses import dataclass, field
from typing import Final

from hsweep.ray_tune.private import exchange

_DEAD_SECONDS: Final = 30.0
"""A driver that has said nothing new for so long has gone, or is stopped."""


@dataclass(slots=True)
class Sharing:
    """A study's part of a cluster: of a higher ``priority`` it comes first, with equals it shares
    evenly.

    Attributes:
        study: its name, for the users of others.
        rivals: names of the studies that come before it, or are equals.
    """

    study: str
    priority: int
    rivals: list[str] = field(default_factory=list)
    key: str = field(default_factory=lambda: f"{time.time():017.6f}-{uuid.uuid4().hex}")
    _heard: dict[str, tuple[str, float]] = field(default_factory=dict)

    def slots(self, device: str, wanted: int, fitting: int) -> int:
        """Say that the study would train ``wanted`` trials at once; return how many it may.

        Args:
            device: what its trials take turns on, CPU or GPU.
            fitting: how many fit the whole cluster.
        """
        now, order = time.monotonic(), []
        claim = [-self.priority, min(1.0, wanted / fitting), self.key, self.study, device, now]
        for key, text in exchange(self.key, json.dumps(claim)).items():
            # Heard by this machine's clock: those of others may be wrong.
            if self._heard.get(key, ("", 0.0))[0] != text:
                self._heard[key] = text, now
            if now - self._heard[key][1] < _DEAD_SECONDS:
                order.append(json.loads(text))
        order = sorted(other for other in order if other[4] == device)
        taken = end = 0.0
        for place, (rank, share, key, *_) in enumerate(order):
            # Who wants less than its even share leaves the rest to its equals.
            num_equals = sum(other[0] == rank for other in order[place:])
            taken, end = end, end + min(share, (1.0 - end) / num_equals)
            if key == self.key:
                self.rivals = sorted(o[3] for o in order if o[0] <= rank and o[2] != key)
                break
        # So rounded the parts of all studies come to all slots.
        return math.ceil(end * fitting - 1e-6) - math.ceil(taken * fitting - 1e-6)
