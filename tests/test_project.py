"""What the project's own files promise: that they agree with each other and name no machine."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
PACKAGES = PYPROJECT["tool"]["setuptools"]["packages"]
CODE = [*PACKAGES, "benchmarks", "benchmarks.baselines"]
EXTRAS = {
    extra: [each for each in map(Requirement, lines) if each.name != PROJECT["name"]]
    for extra, lines in PROJECT["optional-dependencies"].items()
}
TEST = EXTRAS.pop("test")
RUN = [
    *map(Requirement, PROJECT["dependencies"]),
    *(each for requirements in EXTRAS.values() for each in requirements),
]
"""What hsweep itself needs, one extra or another included."""


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def committed_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``make`` in ``folder``, which gets the files that the Makefile needs if it has none."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        if not (folder / name).exists():
            shutil.copy(ROOT / name, folder)
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def commands_of(target: str, folder: Path) -> list[str]:
    """Return what ``make`` runs for ``target`` in a folder that has no venv yet."""
    lines = make(folder, "-n", target).stdout.splitlines()
    return [line for line in lines if not line.startswith("touch ")]


@needs_make
@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_readme_lists_what_make_runs(target: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert commands_of(target, tmp_path) in [block.splitlines() for block in blocks]


@needs_make
def test_every_demo_is_a_study_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "hsweep-home" / "studies" / "demo-1").mkdir(parents=True)
    assert commands_of("demo", tmp_path)[-1].endswith("--study demo-2")


A_PYTHON_WHOSE_VENVS_ONLY_TAKE_NOTES = """#!/bin/sh
mkdir -p .venv/bin
for name in pip hsweep; do
    printf '#!/bin/sh\\necho %s >> notes\\nexit ${FAILS:-0}\\n' $name > .venv/bin/$name
    chmod +x .venv/bin/$name
done
"""


@needs_make
def test_installing_is_repeated_after_a_failure_or_a_change_and_not_otherwise(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text(A_PYTHON_WHOSE_VENVS_ONLY_TAKE_NOTES)
    python.chmod(0o755)

    def demo(**variables: str) -> tuple[bool, list[str]]:
        (tmp_path / "notes").write_text("")
        done = make(tmp_path, "demo", f"PYTHON={python}", **variables)
        return done.returncode == 0, (tmp_path / "notes").read_text().split()

    assert demo(FAILS="1") == (False, ["pip"])
    assert demo() == (True, ["pip", "hsweep"])
    assert demo() == (True, ["hsweep"])
    later = (tmp_path / "constraints.txt").stat().st_mtime + 3600
    os.utime(tmp_path / "constraints.txt", (later, later))
    assert demo() == (True, ["pip", "hsweep"])


def test_every_package_is_listed() -> None:
    folders = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for top in CODE
        for path in (ROOT / top).rglob("*.py")
    }
    assert folders == set(CODE)


def undeclared(code: Iterable[str], requirements: Iterable[Requirement]) -> set[str]:
    """Return the libraries that packages of ``code`` import and no requirement brings."""
    declared = {canonicalize_name(each.name) for each in requirements}
    provided = packages_distributions()
    imported = {
        name.split(".")[0]
        for top in code
        for path in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    # timm requires torchvision, and only a module that heals it imports it.
    known = {*CODE, *sys.stdlib_module_names, "_typeshed", "torchvision"}
    return {
        name
        for name in imported - known
        if not declared & {canonicalize_name(one) for one in provided.get(name, [name])}
    }


def test_every_imported_library_is_declared() -> None:
    assert undeclared(CODE, (*RUN, *TEST)) == set()


def test_one_installation_brings_all_that_shipped_sweeps_and_pages_import() -> None:
    """But for two rare options, and for what only notebooks and users of lightning import."""
    core = map(Requirement, PROJECT["dependencies"])
    assert undeclared(PACKAGES, core) == {"IPython", "moocore", "lightning", "wandb"}


def test_no_python_is_excluded_by_an_upper_bound() -> None:
    assert all(each.operator == ">=" for each in SpecifierSet(PROJECT["requires-python"]))


@pytest.mark.parametrize(
    "requirement", {str(each): each for each in (*RUN, *TEST)}.values(), ids=str
)
def test_the_constraints_pin_what_is_declared(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("requirement", {str(each): each for each in RUN}.values(), ids=str)
def test_no_version_is_declared_that_is_below_the_tested_one_or_of_another_major(
    requirement: Requirement,
) -> None:
    tested = pins()[canonicalize_name(requirement.name)]
    below = f"{tested.major}.{tested.minor - 1}" if tested.minor else f"{tested.major - 1}.99"
    for other in (below, f"{tested.major + 1}.0"):
        assert not requirement.specifier.contains(other)


def test_the_constraints_suit_every_index() -> None:
    assert [name for name, version in pins().items() if version.local] == []
    assert [name for name in pins() if name.startswith("nvidia")] == []


MACHINE = re.compile(
    r"pypi\.(?:org|io)|pythonhosted|download\.pytorch|registry\.npmjs|deb\.debian"
    r"|(?<![\w.$}<])/(?:root/|work/|opt/|(?:home|Users)/(?!ann\b))\w"  # Ann is in the examples
)


def test_no_committed_file_names_a_registry_or_a_developers_folder() -> None:
    named = {
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in committed_files()
        if path != Path(__file__)
        for found in MACHINE.finditer(path.read_text("utf-8", errors="ignore"))
    }
    assert named == set()


def test_tests_that_share_something_stay_in_one_process(tmp_path: Path) -> None:
    """Or each process would start a Ray and a browser of its own, unseen."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_four.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.xdist_group('one')\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test_worker(number, worker_id):\n"
        "    print(f'in {worker_id}')\n"
    )
    options = ["-n", "2", "--dist", "loadgroup", "-rP", "-p", "no:cacheprovider"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path, env=outside, capture_output=True, text=True, check=False,
    )  # fmt: skip
    workers = re.findall(r"^in (gw\d)$", done.stdout, re.MULTILINE)
    assert len(workers) == 4, done.stdout
    assert len(set(workers)) == 1


def test_all_text_is_read_and_written_as_utf_8() -> None:
    def is_binary(call: ast.Call) -> bool:
        modes = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
        return any(isinstance(mode, ast.Constant) and "b" in str(mode.value) for mode in modes)

    def names_no_encoding(call: ast.Call) -> bool:
        words = {word.arg for word in call.keywords}
        name = ast.unparse(call.func).rpartition(".")[2]
        if "encoding" in words or "utf-8" in ast.unparse(call):
            return False
        is_file = name in ("read_text", "write_text") and isinstance(call.func, ast.Attribute)
        is_opened = ast.unparse(call.func) == "open" or name in ("fdopen", "TemporaryFile")
        return (
            is_file
            or (is_opened and not is_binary(call))
            or (name in ("run", "Popen") and "text" in words)
        )

    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ("hsweep", "models", "tasks", "analysis", "sweeps", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and names_no_encoding(node)
    ]
    assert wrong == []
