"""When a command looks for garbage, and a program that only uses this package."""

import gc
import subprocess
import sys

import pytest

from hsweep.garbage import Collection

COMMAND = """
import gc, sys
usual = gc.get_threshold()
sys.argv = ["hsweep", "--help"]
import hsweep.cli
from hsweep.garbage import collect_as_usual
assert gc.get_threshold() > usual
collect_as_usual()
assert gc.get_threshold() == usual
assert gc.get_freeze_count() > 0
"""
GUEST = """
import gc
usual, frozen = gc.get_threshold(), gc.get_freeze_count()
import hsweep.cli
from hsweep.garbage import collect_as_usual
collect_as_usual()
assert gc.get_threshold() == usual
# Some versions of Python begin with frozen objects of their own.
assert gc.get_freeze_count() == frozen
"""


@pytest.mark.parametrize("program", [COMMAND, GUEST])
def test_a_command_looks_seldom_until_it_trains_and_a_users_program_as_ever(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_garbage_is_collected_between_trials_where_that_is_cheap_beside_them() -> None:
    """On a clock of the test's own, in which to look takes a second."""
    times, collected = iter(range(100)), list[str]()

    def note(phase: str, _info: dict[str, int]) -> None:
        collected.append(phase)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hsweep.garbage.time.perf_counter", lambda: next(times))
        gc.disable()
        gc.callbacks.append(note)
        try:
            collection = Collection()
            told = []
            for seconds in (0.1, 0.1, 19, 2, 100):
                collected.clear()
                collection.after(seconds)
                told.append("stop" in collected)
        finally:
            gc.callbacks.remove(note)
            gc.enable()
    assert told == [True, False, False, True, True]
