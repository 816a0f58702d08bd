"""When a command looks for garbage, and a program that only uses this package."""

import subprocess
import sys

COMMAND = """
import gc
import sys
usual = gc.get_threshold()
sys.argv = ["hsweep", "--help"]
import hsweep.cli
from hsweep.garbage import search_as_usual
assert gc.get_threshold() > usual
search_as_usual()
assert gc.get_threshold() == usual
assert gc.get_freeze_count() > 0
"""
GUEST = """
import gc
usual = gc.get_threshold()
import hsweep.cli
import hsweep.running.run
from hsweep.garbage import search_as_usual
search_as_usual()
assert gc.get_threshold() == usual
assert gc.get_freeze_count() == 0
"""


def test_a_command_searches_less_until_it_trains() -> None:
    subprocess.run([sys.executable, "-c", COMMAND], check=True)


def test_a_program_that_uses_this_package_searches_as_it_did() -> None:
    subprocess.run([sys.executable, "-c", GUEST], check=True)
