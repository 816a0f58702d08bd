"""Dependencies run one way, and each outside library has one owner."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("hsweep", "models", "tasks", "analysis", "sweeps", "benchmarks", "results")
MAY_IMPORT = {
    "benchmarks": ("benchmarks", "sweeps", "hsweep", "tasks", "models", "analysis"),
    "results": ("results", "hsweep", "analysis"),
    "sweeps": ("sweeps", "hsweep", "tasks", "models"),
    "hsweep": (
        *("hsweep", "tasks.base", "tasks.division", "tasks.sources.digest"),
        *(
            "models.attention_probe",
            "models.base",
            "models.conditioning",
            "models.counts",
            "models.meta_build",
            "models.torchvision_compat",
            "models.tracing",
        ),
    ),
    "tasks": ("tasks", "models.fields", "models.torchvision_compat"),
    "models": ("models",),
    "analysis": (
        *("analysis", "hsweep.command_line", "hsweep.errors", "hsweep.files", "hsweep.paths"),
        "hsweep.design",
        *("hsweep.record.study", "hsweep.record.tables", "hsweep.record.journal"),
        *("hsweep.record.manifest", "hsweep.record.summary"),
    ),
}
# The commands.
MAY_CALL_ANYTHING = (
    *("hsweep/commands/analyze.py", "hsweep/commands/compare.py"),
    *("hsweep/commands/conclusion.py", "hsweep/commands/data.py"),
    *("hsweep/commands/power.py", "hsweep/commands/report.py", "hsweep/commands/run.py"),
    *("hsweep/api.py", "hsweep/python.py", "hsweep/optuna_study.py"),
    *("hsweep/commands/watch.py", "hsweep/watching/pages.py"),
)
QUESTIONS = {
    ("hsweep/api.py", f"analysis.questions.{kind}.question")
    for kind in ("lean", "pareto", "transition")
}
"""What a sweep file names of the analysis; no other module of hsweep knows them."""
OWNERS = {
    "ray": ("hsweep/ray_tune/*.py",),
    "mlflow": ("hsweep/tracking/store.py", "hsweep/tracking/ui.py"),
    "wandb": ("hsweep/tracking/wandb_runs.py",),
    "tensorboardX": ("hsweep/tracking/tensorboard_runs.py", "hsweep/training/own/rows.py"),
    "optuna": (
        *("hsweep/design/space.py", "hsweep/design/search.py"),
        *("hsweep/coordination/search.py", "hsweep/optuna_study.py", "hsweep/python.py"),
    ),
    "matplotlib": ("analysis/charts/matplotlib_print.py",),
    "plotly": ("analysis/charts/plotly_page.py", "hsweep/python.py"),
    "lightning": ("hsweep/integrations/lightning*.py",),
    "starlette": ("hsweep/watching/server.py", "hsweep/tracking/ui.py"),
    "uvicorn": ("hsweep/serving.py", "hsweep/watching/server.py"),
}
TORCH_AT_THE_TOP = (
    *("models/*.py", "tasks/*.py", "hsweep/integrations/*.py"),
    *(
        f"hsweep/training/{name}.py"
        for name in (
            *("batches", "checkpoints", "devices", "division", "evaluation", "loop"),
            *("micro_batches", "opening", "optimizers"),
            *("process_state", "rehearsal", "trial_run", "own/function"),
        )
    ),
)
ROOMS = (
    *("design", "training", "integrations", "record", "planning", "coordination", "tracking"),
    *("ray_tune", "clusters", "running", "watching", "commands"),
)
"""The folders of hsweep; each uses those before it and none after it."""

ANALYSIS_ROOMS = (
    *("analysis.statistics", "analysis.values", "analysis.runs", "analysis.sensitivity"),
    *("analysis.rounds", "analysis.text"),
    *("analysis.charts", "analysis.questions", "analysis.answer"),
    *("analysis.report", "analysis.terminal", "analysis.results"),
    *("analysis.ask", "analysis.result_files", "analysis.compare"),
)
"""The folders of the analysis, and its modules above them, in the same way."""


class Import(NamedTuple):
    module: str
    when: str  # "import" of the file, "call" of a function, or "types" (for type checkers alone)

    @property
    def library(self) -> str:
        return self.module.split(".")[0]


def imports(node: ast.AST, when: str = "import") -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, when) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module, "relative imports hide where a name comes from"
            package = (ROOT / child.module.replace(".", "/")).is_dir()
            names = (alias.name for alias in child.names)
            modules = {f"{child.module}.{name}" if package else child.module for name in names}
            yield from (Import(module, when) for module in sorted(modules))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports(child, "call")
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from imports(child, "types")
        else:
            yield from imports(child, when)


FILES = {
    path.relative_to(ROOT).as_posix(): list(imports(ast.parse(path.read_text("utf-8"))))
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def known(module: str) -> str:
    """Return the module that holds a name: ``a.b.c`` where ``c`` may be a function of ``a.b``."""
    path = module.replace(".", "/")
    if f"{path}.py" in FILES or f"{path}/__init__.py" in FILES:
        return module
    package, _, name = module.rpartition(".")
    if package == "hsweep":
        # Which passes names on, each from where it is.
        return "hsweep.python" if name in ("load", "plan", "run") else "hsweep.api"
    return package


PRODUCT = {file: found for file, found in FILES.items() if not file.startswith("benchmarks/")}
"""What is no measurement: those hold it against the libraries themselves."""

MODULES = {module_of(file) for file in PRODUCT}
GRAPH = {
    module_of(file): {known(found.module) for found in all_found if found.when != "types"} & MODULES
    for file, all_found in PRODUCT.items()
}
"""Which module imports which of the others when the program runs: of a type alone, none does."""


LONGEST_CHAIN = 14
"""Modules on the longest way along imports, from ``python -m hsweep`` to the errors."""


def matches(file: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(file, pattern) for pattern in patterns)


def within(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_the_packages_below_it(package: str) -> None:
    wrong = [
        (file, found.module)
        for file, all_found in FILES.items()
        for found in all_found
        if file.startswith(f"{package}/")
        and found.library in PACKAGES
        and not within(found.module, MAY_IMPORT[package])
        and not (file in MAY_CALL_ANYTHING and found.when != "import")
        and (file, found.module) not in QUESTIONS
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_folder_of_hsweep_imports_only_those_before_it(room: str) -> None:
    above = tuple(f"hsweep.{other}" for other in (*ROOMS[ROOMS.index(room) + 1 :], "cli"))
    wrong = [
        (file, found.module)
        for file, all_found in FILES.items()
        for found in all_found
        if file.startswith(f"hsweep/{room}/") and within(found.module, above)
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ANALYSIS_ROOMS)
def test_a_folder_of_the_analysis_imports_only_those_before_it(room: str) -> None:
    own = ANALYSIS_ROOMS[: ANALYSIS_ROOMS.index(room) + 1]
    wrong = [
        (file, found.module)
        for file, all_found in FILES.items()
        for found in all_found
        if within(module_of(file), (room,))
        and found.library == "analysis"
        and not within(found.module, own)
    ]
    assert wrong == []


def test_the_rooms_of_the_analysis_are_all_there_is_of_it() -> None:
    modules = {module_of(file) for file in FILES if file.startswith("analysis/")}
    assert {name for name in modules if not within(name, ANALYSIS_ROOMS)} == {"analysis"}


def test_statistics_know_numbers_alone() -> None:
    used = {
        found.module
        for file, all_found in FILES.items()
        for found in all_found
        if file.startswith("analysis/statistics/") and found.library in PACKAGES
    }
    assert {name for name in used if not within(name, ("analysis.statistics",))} <= {
        "hsweep.errors"
    }


def test_no_import_leads_back_to_where_it_began() -> None:
    """Imports inside functions count: they would only hide a circle."""
    graphlib.TopologicalSorter(GRAPH).prepare()


def test_no_chain_of_imports_is_longer_than_one_can_follow() -> None:
    chains: dict[str, list[str]] = {}
    for name in graphlib.TopologicalSorter(GRAPH).static_order():
        below = max((chains[other] for other in GRAPH[name]), key=len, default=[])
        chains[name] = [name, *below]
    longest = max(chains.values(), key=len)
    assert len(longest) <= LONGEST_CHAIN, " > ".join(longest)


def test_every_module_of_hsweep_is_in_a_folder_but_what_all_of_them_use() -> None:
    folders = {path.name for path in (ROOT / "hsweep").iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ROOMS)
    files = {file for file in FILES if file.startswith("hsweep/") and file.count("/") == 1}
    names = [
        "__init__",
        "__main__",
        "api",
        "cli",
        "command_line",
        "errors",
        "files",
        "garbage",
        "sweep_from_python",
        "options",
        "optuna_study",
        "sweep_file",
        "user_packages",
        "paths",
        "python",
        "reporting",
        "secrets",
        "seeding",
        "serving",
        "signals",
        "streams",
        "telemetry",
        "terminal",
        "threads",
        "trained",
        "workspace",
    ]
    assert files == {f"hsweep/{name}.py" for name in names}


@pytest.mark.parametrize("library", OWNERS)
def test_only_its_owner_imports_a_library(library: str) -> None:
    users = {file for file, found in PRODUCT.items() if library in {one.library for one in found}}
    assert {file for file in users if not matches(file, OWNERS[library])} == set()


def test_torch_is_imported_at_the_top_only_where_tensors_are_the_subject() -> None:
    users = {file for file, found in PRODUCT.items() if Import("torch", "import") in found}
    assert {file for file in users if not matches(file, TORCH_AT_THE_TOP)} == set()


def test_analysis_never_imports_torch() -> None:
    users = {file for file, found in FILES.items() if "torch" in {one.library for one in found}}
    assert {file for file in users if file.startswith("analysis/")} == set()


ANALYSIS = [
    file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    for file in FILES
    if file.startswith("analysis/")
]


def test_importing_the_analysis_stays_clear_of_what_trains() -> None:
    heavy = {"torch", "ray", "mlflow"}
    code = f"import sys, {', '.join(ANALYSIS)}\nprint(*{heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
