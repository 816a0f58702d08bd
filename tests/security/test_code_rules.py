"""What the code itself may not do: run what came as data, or unpickle what lies on a disk."""

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.base import DataError
from tasks.sources.cache import CACHE_VARIABLE, cached_arrays, cached_folder

ROOT = Path(__file__).parents[2]
PACKAGES = ("hsweep", "models", "tasks", "analysis", "benchmarks", "sweeps")
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
UNPICKLING = {
    *("pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "_pickle", "jsonpickle"),
    *("yaml", "ruamel", "numpy.lib.npyio"),
}
RUNNING = {"eval", "exec", "__import__", "execfile", "runpy.run_path"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
UNPACKING = {"tarfile", "zipfile", "shutil.unpack_archive"}
REMOTE_CODE = "trust_remote_code"


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> object:
    for given in call.keywords:
        if given.arg == name:
            return given.value.value if isinstance(given.value, ast.Constant) else "not constant"
    return None


def found(rule: object) -> list[str]:
    assert callable(rule)
    return [
        f"{file}:{call.lineno} {name}"
        for file, tree in TREES.items()
        for name, call in calls(tree)
        if rule(name, call)
    ]


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # An error's class unpickles nothing, and neither does what only writes.
            names = [
                alias.name for alias in node.names if not re.search("Error$|[Dd]ump", alias.name)
            ]
            yield from [node.module] * bool(names)
            yield from (f"{node.module}.{name}" for name in names)


def test_the_whole_project_is_looked_at() -> None:
    assert len(TREES) > 200
    assert {file.split("/")[0] for file in TREES} == set(PACKAGES)


def test_nothing_imports_what_unpickles_or_unpacks() -> None:
    wrong = [
        (file, name)
        for file, tree in TREES.items()
        for name in imported(tree)
        if {name, name.split(".")[0], name.rpartition(".")[0]} & (UNPICKLING | UNPACKING)
    ]
    assert wrong == []


def test_no_text_is_run_as_code() -> None:
    # A sweep file is imported by its path, and so is the ``__init__`` of a package of the user's
    # that is called like one of this project's, and a sweep file by its one name; each in one
    # place, which is there for it.
    assert found(lambda name, call: name in RUNNING) == []
    loaders = {
        file for file, tree in TREES.items() for name, _ in calls(tree) if "exec_module" in name
    }
    files = ("workspace", "user_packages", "sweep_file")
    assert loaders == {f"hsweep/{name}.py" for name in files}


def test_checkpoints_and_other_tensors_are_loaded_as_weights_only() -> None:
    loads = found(lambda name, call: name.endswith("torch.load") or name == "torch.jit.load")
    assert loads, "the rule looks at nothing"
    assert (
        found(
            lambda name, call: (
                name.endswith("torch.load") and keyword(call, "weights_only") is not True
            )
        )
        == []
    )


def test_arrays_are_loaded_without_pickles() -> None:
    assert (
        found(
            lambda name, call: (
                name.split(".")[-1] in ("load", "fromfile", "memmap")
                and keyword(call, "allow_pickle") not in (None, False)
            )
        )
        == []
    )
    assert found(lambda name, call: name.split(".")[-1] in ("read_pickle", "to_pickle")) == []


def test_no_command_goes_through_a_shell() -> None:
    assert found(lambda name, call: name in SHELLS) == []
    assert found(lambda name, call: keyword(call, "shell") not in (None, False)) == []


def test_no_library_may_run_code_that_lies_beside_data() -> None:
    assert found(lambda name, call: keyword(call, REMOTE_CODE) not in (None, False)) == []
    # transformers asks on the terminal unless it is told.
    loading = found(
        lambda name, call: (
            name.endswith(".from_pretrained")
            and name.startswith("Auto")
            and keyword(call, REMOTE_CODE) is not False
        )
    )
    assert loading == []


def test_pages_escape_and_nothing_else_makes_html() -> None:
    makers = {file for file, tree in TREES.items() for name, _ in calls(tree) if name == "Markup"}
    assert makers == {"analysis/report/page.py"}
    assert found(lambda name, call: keyword(call, "autoescape") not in (None, True)) == []
    assert len(found(lambda name, call: keyword(call, "autoescape") is True)) == 1
    for template in (ROOT / "analysis/report/templates").iterdir():
        text = template.read_text("utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, (template.name, word)


def named_values(node: ast.AST) -> Iterator[tuple[object, ast.expr]]:
    """Yield what a dictionary or a call gives names to."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield key.value, value
    elif isinstance(node, ast.Call):
        for keyword in node.keywords:
            yield keyword.arg, keyword.value


def test_a_local_ray_names_the_address_of_its_dashboard() -> None:
    hosts = [
        ast.unparse(value)
        for node in ast.walk(TREES["hsweep/ray_tune/local.py"])
        for name, value in named_values(node)
        if name == "dashboard_host"
    ]
    assert hosts == ["'127.0.0.1'"]


class _Planted:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("unpickled",))


def test_a_pickle_in_place_of_a_checkpoint_runs_nothing(tmp_path: Path) -> None:
    from hsweep.training.checkpoints import CheckpointStore

    store = CheckpointStore(str(tmp_path), "t0", attempt=1)
    store.save(1, {"weights": torch.ones(2)})
    store.save(2, {"weights": _Planted()})
    try:
        loaded = store.search().state
    except pickle.UnpicklingError:  # refused by torch
        return
    assert loaded is None or torch.equal(loaded["weights"], torch.ones(2))


def test_a_pickle_in_place_of_a_cached_array_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    cached_arrays("set", lambda: {"rows": np.arange(3)})
    planted = np.empty(1, dtype=object)
    planted[0] = _Planted()
    np.save(tmp_path / "set" / "rows.npy", planted, allow_pickle=True)
    with pytest.raises(DataError, match="is damaged"):
        cached_arrays("set", lambda: {"rows": np.arange(3)})


@pytest.mark.parametrize("key", ["..", ".", "", "a/b", "/tmp/x", "../x", ".hidden", "a\0b", "a\nb"])
def test_a_cache_entry_is_a_file_name_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="names a file in the cache"):
        cached_folder(key, lambda folder: (folder / "made").touch())
    assert [path.name for path in tmp_path.rglob("*")] in ([], ["cache"])
