"""What a program computed counts, that of processes which have left it included."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPUTE = "import time\nwhile time.process_time() < 1.6: pass"


def watched(facts: Path, program: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "benchmarks.whole", str(facts), sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, check=False)


def test_a_process_that_has_left_its_parent_counts(tmp_path: Path) -> None:
    # The parent ignores its children, as Ray's does: nobody waits for them.
    program = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {COMPUTE!r}], start_new_session=True).wait()
"""
    assert watched(tmp_path / "facts.json", program).returncode == 0
    found = json.loads((tmp_path / "facts.json").read_text())
    assert found["cpu_seconds"] > 0.9


@pytest.mark.parametrize("status", [0, 3])
def test_it_ends_as_the_program_ends(tmp_path: Path, status: int) -> None:
    ended = watched(tmp_path / "facts.json", f"raise SystemExit({status})")
    assert ended.returncode == status
    assert (tmp_path / "facts.json").exists()
