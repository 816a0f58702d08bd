"""The process in which torch works with the shadow device."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shadow.guard import compiler

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def on_shadow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Run a case by its name, and return what was seen of it."""
    if not sys.platform.startswith("linux") or compiler() is None:
        pytest.skip("the guard of the shadow device is compiled on Linux by a C++ compiler (CXX)")
    folder = tmp_path_factory.mktemp("shadow")
    messages = folder / "messages.txt"
    paths = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    with (
        messages.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "shadow", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "HSWEEP_HOME": str(folder / "home")},
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        requests, answers = process.stdin, process.stdout

        def run(case: str) -> Any:
            print(case, file=requests, flush=True)
            line = answers.readline()
            assert line, messages.read_text("utf-8", "replace")[-4000:]
            return json.loads(line)

        yield run
        requests.close()
