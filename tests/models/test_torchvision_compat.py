"""Each claim is checked in a process of its own: operators cannot be undeclared."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

Run = Callable[..., None]

# Importing torch takes longer than what is claimed here; processes are forked after it.
FORKER = """
import gc, json, os, sys, traceback

import torch
from models.torchvision_compat import make_torchvision_importable

gc.freeze()  # a child's collections would copy every page of it
for line in sys.stdin:
    program, folders = json.loads(line)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what it prints is no answer
        sys.path[:0] = folders
        try:
            exec(program, {"torch": torch, "fix": make_torchvision_importable})
        except BaseException:
            os.write(writing, traceback.format_exc()[-4096:].encode())
            sys.exit(1)
        sys.exit(0)
    os.close(writing)
    with open(reading) as said:
        complaint = said.read()
    _, status = os.waitpid(child, 0)
    print(json.dumps([status, complaint]), flush=True)
"""


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a program in a process that has imported torch, and no model library, with ``folders``
    first on its import path; fail with what it raised."""
    with subprocess.Popen(
        [sys.executable, "-W", "error::UserWarning", "-c", FORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as forker:
        assert forker.stdin is not None
        assert forker.stdout is not None
        said, told = forker.stdin, forker.stdout

        def run_in_a_fork(program: str, *folders: Path) -> None:
            said.write(json.dumps([program, [str(folder) for folder in folders]]) + "\n")
            said.flush()
            status, complaint = json.loads(told.readline())
            assert status == 0, complaint

        yield run_in_a_fork


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_timm_transformers_and_torchvision_import_after_it(run: Run) -> None:
    run("fix(); import timm, torchvision; from transformers import GPT2Model")


def test_a_second_call_changes_nothing(run: Run) -> None:
    run("fix(); assert fix() is False")


def test_nothing_is_declared_where_torchvision_is_absent(run: Run) -> None:
    run(
        "import importlib.util as u, models.torchvision_compat as c\n"
        "c.find_spec = lambda name: None if name == 'torchvision' else u.find_spec(name)\n"
        "assert fix() is False and not hasattr(torch.ops.torchvision, 'nms')"
    )


def test_nothing_is_declared_where_the_operators_are_loaded(run: Run) -> None:
    run(
        "schema = '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor'\n"
        "for name in ('nms', 'qnms'): torch.library.define('torchvision::' + name, schema)\n"
        "assert fix() is False"
    )


def test_a_package_without_a_compiled_library_gets_both_schemas(run: Run, tmp_path: Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    run(
        "assert fix() is True\n"
        "assert hasattr(torch.ops.torchvision, 'nms') and hasattr(torch.ops.torchvision, 'qnms')",
        tmp_path,
    )


@pytest.mark.parametrize("name", ["_C", "_C_stable"])
def test_nothing_is_declared_before_a_library_that_declares_it(
    run: Run, tmp_path: Path, name: str
) -> None:
    """Or a healthy torchvision ends the process: an operator is declared once."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / f"{name}.so").write_bytes(b"")
    run(
        "schema = '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor'\n"
        "def load(path):\n"
        f"    assert path.endswith('/{name}.so')\n"
        "    for each in ('nms', 'qnms'): torch.library.define('torchvision::' + each, schema)\n"
        "torch.ops.load_library = load\n"
        "assert fix() is False",
        tmp_path,
    )


def test_calling_a_declared_operator_still_fails(run: Run) -> None:
    run(
        "if fix():\n"
        "    try: torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)\n"
        "    except NotImplementedError: pass\n"
        "    else: raise SystemExit('the operator ran')"
    )
