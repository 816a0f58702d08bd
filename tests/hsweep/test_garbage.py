"""When a command looks for garbage, and a program that only uses this package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
frozen = gc.get_freeze_count()
import hsweep.cli
import hsweep.running.run
from hsweep.garbage import search_as_usual
search_as_usual()
assert gc.get_threshold() == usual
# Some versions of Python begin with frozen objects of their own.
assert gc.get_freeze_count() == frozen
"""
AT_THE_END = """
import atexit
import sys
sys.argv = ["hsweep", *{words!r}]
import hsweep.cli
class Left:
    def __del__(self):
        print("taken apart", flush=True)
left = Left()
left.itself = left
atexit.register(lambda: print("registered"))
hsweep.cli.main()
"""


@pytest.mark.parametrize(("words", "code"), [(["list"], 0), (["show", "none"], 2)])
def test_a_command_ends_with_its_code_and_without_taking_memory_apart(
    words: list[str], code: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END.format(words=words)],
        env={**os.environ, "HSWEEP_HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stdout.endswith("registered\n")


def test_a_command_searches_less_until_it_trains() -> None:
    subprocess.run([sys.executable, "-c", COMMAND], check=True)


def test_a_program_that_uses_this_package_searches_as_it_did() -> None:
    subprocess.run([sys.executable, "-c", GUEST], check=True)
