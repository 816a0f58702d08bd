"""Whose code runs: sweep files anywhere, and names that cannot be taken over."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsweep.errors import UserError
from hsweep.planning.code import changed_files, code_of
from hsweep.planning.plan import make_plan
from hsweep.user_packages import (
    PACKAGES,
    SWEEP_FILE_VARIABLE,
    SWEEP_MODULE,
    add_user_packages,
    default_folders,
)
from hsweep.workspace import ROOT, another_sweep, load_sweep, pin_imports, worker_environment

SWEEP_FILE = '''
"""A note about the question."""

from dataclasses import dataclass

from hsweep import Sweep, epochs, grid
from tiny import TinyModel, TinyTask

SWEEP = Sweep(
    name="written",
    space=grid(width=[1, 2]),
    task=TinyTask(),
    model=lambda point: TinyModel(point.width),
    metric="nmse",
    goal="min",
    budget=epochs(2),
)
'''


ODD = "class Odd(Exception):\n    __str__ = __repr__ = lambda self: 1 / 0"
"""Something that no text can be made of."""


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def written(folder: Path, text: str = SWEEP_FILE, name: str = "mine.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def python(code: str | Path, cwd: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run code or a file in a process of its own, ``paths`` before the project on its import
    path."""
    search = os.pathsep.join(map(str, [*paths, ROOT]))
    return subprocess.run(
        [sys.executable, *([str(code)] if isinstance(code, Path) else ["-c", code])],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_sweep_file_is_loaded_with_its_docstring_as_description(tmp_path: Path) -> None:
    loaded = load_sweep(written(tmp_path))
    assert loaded.sweep.name == "written"
    assert loaded.sweep.description == "A note about the question."
    assert loaded.folder == tmp_path


def test_the_name_of_a_sweep_file_is_that_of_the_last_but_of_one_in_between(tmp_path: Path) -> None:
    one = load_sweep(written(tmp_path / "a"))
    with another_sweep():
        other = load_sweep(written(tmp_path / "b", SWEEP_FILE.replace('"written"', '"other"')))
        assert sys.modules[SWEEP_MODULE] is other.module
    assert (one.sweep.name, other.sweep.name) == ("written", "other")
    assert sys.modules[SWEEP_MODULE] is one.module
    assert os.environ[SWEEP_FILE_VARIABLE] == str(one.path)


def test_each_of_two_files_in_one_process_has_its_own_code(tmp_path: Path) -> None:
    codes = []
    for name in ("a", "b", "a"):
        file = written(tmp_path / name, f"{SWEEP_FILE}\nprint({name!r})\n")
        loaded = load_sweep(file)
        codes.append(code_of(loaded.sweep.task, loaded.module.__name__).digest)
    assert codes[0] == codes[2] != codes[1]


def test_modules_beside_the_sweep_file_can_be_imported_and_travel_with_it(tmp_path: Path) -> None:
    written(tmp_path, "FACTOR = 3\n", "helper_beside_the_sweep.py")
    source = SWEEP_FILE.replace("from tiny", "import helper_beside_the_sweep\nfrom tiny")
    loaded = load_sweep(written(tmp_path, source))
    names = [module.__name__ for module in loaded.own_modules()]
    assert names[0] == loaded.module.__name__
    assert names[1:] == ["helper_beside_the_sweep"]


def test_a_copy_of_the_file_finds_the_modules_beside_the_original(tmp_path: Path) -> None:
    written(tmp_path / "original", "FACTOR = 3\n", "helper_of_the_original.py")
    source = SWEEP_FILE.replace("from tiny", "import helper_of_the_original\nfrom tiny")
    copy = written(tmp_path / "study", source, "sweep.py")
    loaded = load_sweep(copy, siblings=tmp_path / "original")
    assert loaded.folder == tmp_path / "original"


def test_the_sweeps_folder_comes_last_on_the_import_path(tmp_path: Path) -> None:
    """A file of its own called like a module of the standard library shadows nothing."""
    written(tmp_path, "raise RuntimeError('mine, not the library')\n", "statistics.py")
    written(tmp_path, "raise RuntimeError('mine, not the library')\n", "tasks.py")
    load_sweep(written(tmp_path))
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.index(str(tmp_path)) > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no SWEEP"),
        ("SWEEP = 3\n", "defines SWEEP as 3"),
        ("import no_such_module_anywhere\n", "line 1 fails: ModuleNotFoundError"),
        ("x = 1\ny = 1 / 0\n", "line 2 fails: ZeroDivisionError"),
        ("x = (\n", "line 1 fails: SyntaxError"),
        ("raise SystemExit('bye')\n", "line 1 fails: SystemExit: bye"),
        ("raise GeneratorExit", "line 1 fails: GeneratorExit"),
        (f"{ODD}\nraise Odd", "line 3 fails: Odd"),
        (f"{ODD}\nSWEEP = Odd()", "defines SWEEP as a Odd"),
        ("def __getattr__(name): raise RuntimeError(name)", "defines no SWEEP"),
        ("from hsweep import epochs\nepochs(0)\n", "budget amount must be"),
    ],
)
def test_a_file_that_is_no_sweep_is_the_users_error(
    tmp_path: Path, text: str, message: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UserError, match=message) as error:
        load_sweep(file)
    assert str(file) in str(error.value)


def test_a_module_beside_it_that_parses_a_command_line_is_named(tmp_path: Path) -> None:
    source = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\n"
    )
    beside = written(tmp_path, f"{source}ARGS = p.parse_args([])\n", "parses_as_it_is_imported.py")
    with pytest.raises(UserError, match=f"SystemExit: 2 at {beside}:4; .* under `if __name__ == "):
        load_sweep(written(tmp_path, "import parses_as_it_is_imported\n"))


def test_a_file_that_is_not_there_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_sweep(tmp_path / "nowhere.py")
    with pytest.raises(UserError, match="is a folder"):
        load_sweep(tmp_path)
    with pytest.raises(UserError, match=r"ending \.py"):
        load_sweep(written(tmp_path, name="sweep.txt"))


def test_pinning_again_changes_nothing() -> None:
    before = {name: sys.modules.get(name) for name in PACKAGES}
    pin_imports()
    assert {name: sys.modules[name] for name in PACKAGES if before[name]} == {
        name: module for name, module in before.items() if module
    }


@pytest.mark.parametrize("name", ["models", "tasks"])
def test_a_foreign_module_imported_first_is_an_error_that_names_both(
    tmp_path: Path, name: str
) -> None:
    foreign = written(tmp_path / name, "", "__init__.py")
    done = python(f"import {name}\nfrom hsweep import Sweep", tmp_path, tmp_path)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "UserError" in last
    assert str(foreign) in last
    assert str(ROOT / name / "__init__.py") in last


def test_workers_find_the_same_project_and_the_folder_of_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    (tmp_path / "added").mkdir()
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(tmp_path / "added"), str(tmp_path / "no")])
    environment = worker_environment(tmp_path)
    first, *others = environment["HSWEEP_SWEEP_FOLDERS"].split(os.pathsep)
    assert (first, others[-1]) == (str(tmp_path), str(tmp_path / "added"))
    assert not {str(ROOT), str(Path(sys.executable).parent)} & set(others)
    assert environment["PYTHONPATH"] == f"{ROOT}{os.pathsep}/elsewhere"
    assert "HSWEEP_SWEEP_FOLDERS" not in worker_environment(None)


OWN_NET = """from dataclasses import dataclass
from models.base import PARAM_GROUPS, Counts
from tiny import TinyModel

@dataclass(frozen=True)
class Net(TinyModel):
    pass
"""


class TestPackagesOfTheUsers:
    """A project has a ``models`` folder of its own, beside which ours lives on."""

    @pytest.fixture(autouse=True)
    def as_before(self) -> Iterator[None]:
        yield
        add_user_packages(default_folders())

    def sweep(self, folder: Path, importing: str, net: str = "Net") -> Path:
        source = SWEEP_FILE.replace("from tiny", f"{importing}\nfrom tiny")
        return written(folder, source.replace("TinyModel(point", f"{net}(point"))

    def test_modules_of_it_are_imported_and_travel_to_workers(self, tmp_path: Path) -> None:
        written(tmp_path / "models", OWN_NET, "tiny_net.py")
        written(tmp_path / "models" / "nested", "from . import deep", "__init__.py")
        written(tmp_path / "models" / "nested", "VALUE = 3", "deep.py")
        file = self.sweep(
            tmp_path,
            "import models.nested.deep\nfrom models.tiny_net import Net\nimport models.vit",
        )
        loaded = load_sweep(file)
        (first, *_) = make_plan(loaded.sweep, preset="quick", study_seed=0).trials
        assert type(first.model).__module__ == "models.tiny_net"
        travelling = {module.__name__ for module in loaded.own_modules()}
        assert {"models.tiny_net", "models.nested", "models.nested.deep"} <= travelling
        assert not {"models.vit", "models.base", "models"} & travelling
        files = code_of(first.model).files
        assert {"models/tiny_net.py", "models/base.py"} <= files.keys()
        written(tmp_path / "models", OWN_NET.replace("pass", "more = 1"), "tiny_net.py")
        add_user_packages([])
        reloaded = load_sweep(file)
        (again, *_) = make_plan(reloaded.sweep, preset="quick", study_seed=0).trials
        assert again.key != first.key
        assert changed_files(files, code_of(again.model).files) == ["models/tiny_net.py"]

    def test_the_sweeps_folder_comes_before_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
        written(project / "models", "VALUE = 'project'", "both_have.py")
        written(elsewhere / "models", "VALUE = 'elsewhere'", "both_have.py")
        written(elsewhere / "tasks", "VALUE = 'elsewhere'", "one_has.py")
        monkeypatch.chdir(elsewhere)
        source = "from models.both_have import VALUE as one\nfrom tasks.one_has import VALUE as two"
        module = load_sweep(self.sweep(project, source, "TinyModel")).module
        assert (vars(module)["one"], vars(module)["two"]) == ("project", "elsewhere")

    @pytest.mark.parametrize(
        ("path", "ours"),
        [("models/vit.py", "models/vit.py"), ("tasks/vision/mine.py", "tasks/vision")],
    )
    def test_what_both_have_is_an_error_that_names_both(
        self, tmp_path: Path, path: str, ours: str
    ) -> None:
        written((tmp_path / path).parent, "", Path(path).name)
        with pytest.raises(UserError, match="rename yours") as error:
            load_sweep(written(tmp_path))
        assert str(tmp_path / ours) in str(error.value)
        assert str(ROOT / ours) in str(error.value)

    def test_a_folder_of_weights_is_no_package(self, tmp_path: Path) -> None:
        written(tmp_path / "models" / "vit", "no code", "weights.bin")
        load_sweep(written(tmp_path))
        import models

        assert list(models.__path__) == [str(ROOT / "models")]

    def test_its_init_file_is_run_when_it_is_needed_and_what_it_defines_is_found(
        self, tmp_path: Path
    ) -> None:
        init = "from dataclasses import dataclass\nfrom .wide_net import Net as Wide\nKNOWN = {}\n"
        own = f"{OWN_NET}class Base:\n    pass\n"
        written(tmp_path / "models", f"{init}{own}", "__init__.py")
        written(tmp_path / "models", f"import models\n{OWN_NET}", "wide_net.py")
        loaded = load_sweep(self.sweep(tmp_path, "from models import KNOWN, Net, Wide"))
        assert vars(loaded.module)["KNOWN"] == {}
        (first, *_) = make_plan(loaded.sweep, preset="quick", study_seed=0).trials
        assert type(first.model).__name__ == "Net"
        names = {module.__name__ for module in loaded.own_modules()}
        assert {"models.__init__", "models.wide_net"} <= names
        files = code_of(first.model).files
        assert {"models/__init__.py of yours", "models/wide_net.py"} <= files.keys()

    def test_what_uses_a_name_of_the_init_file_has_it_in_its_key(self, tmp_path: Path) -> None:
        written(tmp_path / "models", "from .widths import WIDTH", "__init__.py")
        written(tmp_path / "models", "WIDTH = 3", "widths.py")
        written(tmp_path / "models", f"from models import WIDTH\n{OWN_NET}", "net.py")
        loaded = load_sweep(self.sweep(tmp_path, "from models.net import Net"))
        (first, *_) = make_plan(loaded.sweep, preset="quick", study_seed=0).trials
        assert {
            "models/net.py",
            "models/__init__.py of yours",
            "models/widths.py",
        } <= code_of(first.model).files.keys()

    @pytest.mark.parametrize(
        ("init", "message"),
        [
            ("raise RuntimeError('mine is broken')", "mine is broken"),
            ("def vit():\n    pass", "is also hsweep's module models.vit"),
        ],
    )
    def test_an_init_file_that_fails_says_so_each_time_and_only_when_asked(
        self, tmp_path: Path, init: str, message: str
    ) -> None:
        written(tmp_path / "models", init, "__init__.py")
        load_sweep(written(tmp_path))
        for _ in range(2):
            with pytest.raises(UserError, match=message):
                load_sweep(self.sweep(tmp_path, "from models import Net"))

    def test_a_bare_script_has_them_beside_the_projects_own(self, tmp_path: Path) -> None:
        """From its folder, which comes first on the path, and from the working directory."""
        for name in ("models", "tasks", "analysis", "sweeps"):
            written(tmp_path / "scripts" / name, "raise RuntimeError('foreign')\n", "__init__.py")
        written(tmp_path / "scripts" / "models", "", "of_script.py")
        written(tmp_path / "folder" / "tasks", "", "of_folder.py")
        script = (
            "from hsweep import Sweep\n"
            "import models.of_script, tasks.of_folder, models.vit, tasks.synthetic.retrieval\n"
            "import analysis\n"
            "print(models.__file__, tasks.__file__, analysis.__file__, sep='\\n')"
        )
        file = written(tmp_path / "scripts", script, "script.py")
        done = python(file, tmp_path / "folder")
        assert done.returncode == 0, done.stderr
        assert [Path(line).parents[1] for line in done.stdout.split()] == [ROOT] * 3
        written(tmp_path / "scripts" / "models", "", "base.py")
        done = python(file, tmp_path / "folder")
        assert done.returncode != 0
        last = done.stderr.strip().splitlines()[-1]
        assert str(tmp_path / "scripts" / "models" / "base.py") in last
        assert str(ROOT / "models" / "base.py") in last

    def test_a_worker_of_a_cluster_forgets_how_its_node_was_started(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("SLURM_PROCID", "SLURM_JOB_ID", "WORLD_SIZE"):
            monkeypatch.setenv(name, "1")
        done = python(
            "import os\n"
            "from hsweep.workspace import set_up_cluster_worker\n"
            "set_up_cluster_worker()\n"
            "print(*[n for n in os.environ if n.startswith(('SLURM', 'WORLD'))])",
            tmp_path,
        )
        assert done.stdout.split() == ["SLURM_JOB_ID"], done.stderr

    def test_a_worker_has_them_where_the_driver_looked_and_helpers_of_the_sweep(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = tmp_path / "project"
        written(project / "models", "VALUE = 3", "of_project.py")
        written(project / "models", "KNOWN = 4", "__init__.py")
        written(project, "FACTOR = 5\n", "helper_of_a_worker.py")
        written(tmp_path / "models", "", "base.py")  # where the worker starts: not asked
        load_sweep(written(project))
        for name, value in worker_environment(project).items():
            monkeypatch.setenv(name, value)
        done = python(
            "from hsweep.workspace import set_up_worker\n"
            "set_up_worker()\n"
            "import models, models.of_project, helper_of_a_worker\n"
            "print(models.__file__, models.of_project.VALUE, models.KNOWN)\n"
            "print(helper_of_a_worker.FACTOR)",
            tmp_path,
        )
        ours = str(ROOT / "models" / "__init__.py")
        assert done.stdout.split() == [ours, "3", "4", "5"], done.stderr
