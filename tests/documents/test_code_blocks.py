"""What the documents show as code works as it stands there."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner

from hsweep.cli import main

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ROOT / "AGENTS.md"
PAGES = [ROOT / "README.md", AGENTS, *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
IN_ORDER = ("design-a-study.md", "extending.md", "gallery.md")
"""Pages whose commands go on from one another, in one home."""
SLOW = ("gallery.md",)
"""Pages whose commands train more than seconds."""
RUN = (
    *("index.md", "how-to.md", "sweep-file.md", "running.md", "coming-from.md", "reuse.md"),
    *IN_ORDER,
)
"""Pages of which each command is run; of the others each is read."""
NOT_RUN = {
    "hsweep ui": "serves until it is stopped",
    "hsweep watch": "serves until it is stopped",
    "--storage /shared": "needs a folder that several machines see",
    "--table": "reads a table of one's own",
}
# No Ray of its own for each of them, and the power of a design from few simulated sweeps.
DEFAULTS = {
    "run": {"runner": "inline"}, "resume": {"runner": "inline"}, "plan": {"simulated": 4},
}  # fmt: skip
FEWER = {"epochs=100": "epochs=6"}
"""What stands for a budget that a page shows: as well longer than that of the study before, and
not trained for a minute."""
SMALLER = {
    "digits_sweep.py": ["lr=0.01", "replicates=1"],
    "my_vit.py": ["epochs=1", "replicates=2", "heads=2,4", "depth=1,4"],
    "vit_lean": ["epochs=3", "heads=4", "depth=1,4"],
    "retrieval_heads": ["epochs=4", "lr=0.02", "heads=3,4", "replicates=1"],
    "script_sweep.py": ["lr=0.01", "heads=1"],
    "longer": ["epochs=6"],
}
"""Settings of sweeps and presets that take seconds a trial: fewer or shorter ones of the kind."""

WANDB = "class Run:\n    log = finish = lambda *_, **__: None\n\ndef init(**_): return Run()\n"
"""What stands for W&B's client, which asks for an account."""
WITHOUT_RESULTS = {"delete", "join", "kuberay", "new", "slurm", "ui", "watch"}
"""Commands that print none: they remove or write what they were told, start or serve."""


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text("utf-8"))]


def commands(page: Path) -> Iterator[list[str]]:
    """Each command of hsweep's that a page shows, split as a shell would."""
    for block in blocks(page):
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words and words[0] == "hsweep":
                    yield words[1:]


def by_name(name: str) -> Path:
    return next(page for page in PAGES if page.name == name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_is_one_and_has_such_options(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        for word in words:
            if re.fullmatch(r"[\w/]+\.(py|csv|parquet)", word):
                (tmp_path / word).parent.mkdir(exist_ok=True)
                (tmp_path / word).touch()
        command: click.Command = main
        context, rest = click.Context(main, info_name="hsweep"), words
        while isinstance(command, click.Group):
            name, found, rest = command.resolve_command(context, rest)
            assert found is not None, words
            command = found
            if isinstance(command, click.Group):
                context = click.Context(command, info_name=name, parent=context)
        # Reads and checks what a shell would give, and calls nothing.
        with command.make_context(command.name, list(rest), parent=context):
            pass


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_python_block_is_python(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python" and "--8<--" not in block.text:
            ast.parse(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_for_the_shell_is_such(page: Path) -> None:
    for block in blocks(page):
        if block.language in ("sh", "bash"):
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows; a title may say of which tool each is."""
    for block in blocks(page):
        if block.title:
            (folder / block.title.split(": ")[-1]).write_text(block.text)


def call(words: list[str], home: Path) -> str:
    done = CliRunner().invoke(main, words, default_map=DEFAULTS, env={"HSWEEP_HOME": str(home)})
    assert done.exit_code == 0, f"{shlex.join(words)}\n{done.output}"
    return done.stdout


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the studies of which the pages speak."""
    folder = tmp_path_factory.mktemp("studies")
    write_files(by_name("sweep-file.md"), folder)
    call(["run", str(folder / "my_shapes.py")], folder / "home")
    write_files(by_name("index.md"), folder)
    run = ["run", str(folder / "my_heads.py"), "--set", "keep=best"]
    call(run, folder / "home")
    # Their trials are taken from the first.
    call([*run, "--study", "other-study"], folder / "home")
    call([*run, "--study", "my_study"], folder / "home")
    return folder / "home"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RUN],
)
def test_what_a_page_shows_runs(
    name: str, studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    page = by_name(name)
    for each in (by_name("sweep-file.md"), by_name("index.md"), page):
        write_files(each, tmp_path)
    (tmp_path / "wandb.py").write_text(WANDB)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    shutil.copy("my_heads.py", "my_sweep.py")
    key = re.findall(r"t[0-9a-f]{20}", call(["show", "my_heads-quick", "--json"], studies))[0]
    for words in commands(page):
        if not any(part in f"hsweep {shlex.join(words)}" for part in NOT_RUN):
            home = tmp_path / "home"
            if name not in IN_ORDER:
                shutil.rmtree(home, ignore_errors=True)
            if not home.exists():
                shutil.copytree(studies, home)
            words = [key if re.fullmatch("t[0-9a-f]{8}", word) else word for word in words]
            smaller = [f"--set={each}" for word in words for each in SMALLER.get(word, ())]
            call([*(FEWER.get(word, word) for word in words), *smaller], home)
    space: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python" and not block.title and "load(" not in block.text:
            exec(compile(block.text, name, "exec"), space)
    for module in [module for module in sys.modules if module == "hsweep.sweep_file"]:
        del sys.modules[module]


@pytest.mark.slow
@pytest.mark.parametrize("title", ["tune_digits.py", "optuna_digits.py"])
def test_the_other_tools_sweeps_run(title: str, tmp_path: Path) -> None:
    write_files(by_name("coming-from.md"), tmp_path)
    subprocess.run([sys.executable, title], cwd=tmp_path, check=True)


def keys_below(content: Any) -> set[str]:
    if isinstance(content, dict):
        return set(content).union(*map(keys_below, content.values()))
    return set().union(*map(keys_below, content)) if isinstance(content, list) else set()


def test_what_agents_are_told_runs_and_prints_such_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed: dict[str, set[str]] = {}
    for words in commands(AGENTS):
        output = call(words, tmp_path / "hsweep-home")
        if "--json" in words:
            printed.setdefault(words[0], set()).update(keys_below(json.loads(output)))
    told = re.findall(r"^\| `(\w+)` \| (.*) \|$", AGENTS.read_text("utf-8"), re.M)
    assert {"plan", "run", "show", "analyze"} <= {name for name, _ in told}
    for name, keys in told:
        assert set(re.findall(r"`(\w+)`", keys)) <= printed[name] | set(printed), name


def test_each_command_that_prints_results_prints_json_where_asked() -> None:
    def without(name: str, command: click.Command) -> set[str]:
        if isinstance(command, click.Group):
            return set().union(*(without(*each) for each in command.commands.items()))
        return set() if any("--json" in each.opts for each in command.params) else {name}

    assert without("hsweep", main) <= WITHOUT_RESULTS
