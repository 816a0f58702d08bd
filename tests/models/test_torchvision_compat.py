"""Each claim is checked in an interpreter of its own: operators cannot be undeclared."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SETUP = "import torch; from models.torchvision_compat import make_torchvision_importable as fix\n"


def run(program: str, *folders: Path) -> None:
    """Run ``program`` with ``folders`` first on the import path; fail with its output."""
    paths = "".join(f"import sys; sys.path.insert(0, {str(folder)!r})\n" for folder in folders)
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", paths + SETUP + program],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_timm_transformers_and_torchvision_import_after_it() -> None:
    run("fix(); import timm, torchvision; from transformers import GPT2Model")


def test_a_second_call_changes_nothing() -> None:
    run("fix(); assert fix() is False")


def test_nothing_is_declared_where_torchvision_is_absent() -> None:
    run(
        "import importlib.util as u, models.torchvision_compat as c\n"
        "c.find_spec = lambda name: None if name == 'torchvision' else u.find_spec(name)\n"
        "assert fix() is False and not hasattr(torch.ops.torchvision, 'nms')"
    )


def test_nothing_is_declared_where_the_operators_are_loaded() -> None:
    run(
        "schema = '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor'\n"
        "for name in ('nms', 'qnms'): torch.library.define('torchvision::' + name, schema)\n"
        "assert fix() is False"
    )


def test_a_package_without_a_compiled_library_gets_both_schemas(tmp_path: Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    run(
        "assert fix() is True\n"
        "assert hasattr(torch.ops.torchvision, 'nms') and hasattr(torch.ops.torchvision, 'qnms')",
        tmp_path,
    )


def test_calling_a_declared_operator_still_fails() -> None:
    run(
        "if fix():\n"
        "    try: torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)\n"
        "    except NotImplementedError: pass\n"
        "    else: raise SystemExit('the operator ran')"
    )
