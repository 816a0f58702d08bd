"""When a command looks for garbage, and a program that only uses this package."""

import subprocess
import sys

import pytest

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
