"""Memory that training frees: kept for the next update, given back before the next trial."""

import json
import os
import subprocess
import sys

PROGRAM = """
import json
import resource
import torch
from hsweep.training.devices import reuse_freed_memory

PAGE = resource.getpagesize()

def held():
    return int(open("/proc/self/statm").read().split()[1]) * PAGE

def update():
    # Pieces of 4 MiB, as activations are: made, and all freed at the end.
    pieces = [torch.ones(2**20) for _ in range(8)]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

reuse_freed_memory()
for _ in range(5):
    update()
before = faults()
for _ in range(20):
    update()
taken, kept = (faults() - before) / 20, held()
reuse_freed_memory()
print(json.dumps({"pages": taken, "given_back": kept - held()}))
"""
WITHOUT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
MIB = 2**20


def found(**chosen: str) -> dict[str, float]:
    environment = {name: value for name, value in os.environ.items() if name not in WITHOUT}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, **chosen},
        check=True,
        capture_output=True,
        text=True,
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def test_an_update_asks_the_system_for_no_memory_that_the_one_before_it_has_freed() -> None:
    kept = found()
    assert kept["pages"] < 50


def test_what_a_trial_has_freed_is_given_back_before_the_next_one() -> None:
    assert found()["given_back"] > 24 * MIB


def test_whoever_has_chosen_otherwise_is_left_alone() -> None:
    # Also what shows that pages are counted here: without a choice, whether the C library gives
    # memory back hangs on what happens to lie behind it.
    chosen = found(MALLOC_MMAP_THRESHOLD_="65536")
    assert chosen["pages"] > 1000
