"""Whatever a sweep file holds: a plan, or one line that says what is wrong with it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fuzzing import many, refused_or_done, tries
from hypothesis import example, given
from hypothesis import strategies as st

from hsweep.cli import main

HEAD = """
import math, sys, os
from dataclasses import dataclass, field
from hsweep import *
from hsweep import Sweep, Recipe, epochs, steps, seconds, grid, choice, int_range, uniform
from hsweep import log_uniform, zipped, random_search, optuna_search, Transition, lean
from hsweep.design.budget import Budget
from hsweep import Lean
from hsweep.design.early_stopping import Asha, SizeBand
from hsweep.design.search import Search
from hsweep.design.sweep import preset
from hsweep.design.trial import Resources
from models.conditioning import Conditioning
from tasks.base import DataError
from tiny import TinyModel, TinyTask, tiny_model, tiny_sweep


class Odd:
    def __repr__(self): raise RuntimeError("no text")
    def __str__(self): raise RuntimeError("no text")


class OddError(Exception):
    def __str__(self): raise RuntimeError("no text")


def fails(error):
    def fail(*given, **named):
        raise error
    return fail


def endless(*given):
    return endless(*given)


loop = []
loop.append(loop)


@dataclass(frozen=True)
class Unhashable:
    width: int = 1
    more: object = field(default_factory=lambda: {1: object()})
    def build(self): return None
    def counts(self): return None


@dataclass(frozen=True)
class Looped(TinyModel):
    more: object = field(default_factory=lambda: loop)


class OddTask(TinyTask):
    @property
    def metrics(self): raise RuntimeError("no metrics")


class Numbered(TinyTask):
    @property
    def metrics(self): return (1, 2)
    def fingerprint(self): return 5


class Unprinted(TinyTask):
    def fingerprint(self): sys.exit(3)


class Strange(TinyModel):
    def counts(self): return "many"
    def build(self): return 3
"""
WRONG = st.sampled_from(
    [
        *("None", "5", "-1", "0", "1.5", "'text'", "''", "[]", "()", "{}", "object()", "Odd()"),
        *("float('nan')", "float('inf')", "10**400", "True", "b'x'", "Sweep", "lambda p: 1"),
        *("lambda: 1", "lambda p: sys.exit(0)", "lambda p: None", "fails(OddError())", "loop"),
        *("fails(KeyboardInterrupt and RuntimeError('[red] \\x1b[2J'))", "fails(ValueError('no'))"),
        *("fails(DataError('no data'))", "fails(StopIteration())", "fails(GeneratorExit())"),
        *("endless", "print", "type", "TinyModel", "grid(width=[1])", "epochs(1)", "Recipe()"),
        *("Resources()", "TinyTask()", "TinyModel(1)", "Unhashable()", "Looped(1)", "OddTask()"),
        *("Numbered()", "Unprinted()", "Strange(1)", "range(3)", "iter([])", "'\\ud800'"),
    ]
)
FIELDS = st.sampled_from(
    [
        *("name", "space", "task", "model", "metric", "goal", "budget", "question", "recipe"),
        *("replicates", "early_stopping", "resources", "search", "max_failures", "probe"),
        *("checkpoint_seconds", "report_timeout", "presets", "description", "nonsense"),
    ]
)
SPACES = st.sampled_from(
    [
        *("grid()", "grid(width=[])", "grid(width=None)", "grid(width=float('nan'))"),
        *("grid(width=[float('inf')])", "grid(width=range(10**12))", "grid(width=range(10**3))"),
        *("grid(width=[1], **{'a b': [1]})", "grid(width=[[1], [2]])", "grid(width={1, 2})"),
        *("grid(width=iter([1]))", "grid(width=[1, 1])", "grid(width=[1, True])", "grid(key=[1])"),
        *("int_range(width=(1, 10**12))", "int_range(width=(0, 10**30))", "int_range(width=5)"),
        *("int_range(width=(3, 1))", "int_range(width=(1, 2, 0))", "uniform(width=(0, 1))"),
        *("uniform(width=('a', 'b'))", "log_uniform(width=(0, 1))", "uniform(width=(1, 1))"),
        *("grid(width=[1]) * grid(width=[2])", "grid(width=[1]) + 5", "grid(width=[1]) * None"),
        *("zipped()", "zipped(width=[1], a=[1, 2])", "zipped(width=5)", "zipped(width=[1, 1])"),
        "grid(width=[1, 2]).where(None)",
        "grid(width=[1, 2]).where(lambda p: False)",
        "grid(width=[1, 2]).where(lambda p: p.nothing)",
        "grid(width=[1, 2]).where(lambda p: sys.exit())",
        "grid(width=[1, 2]).where(fails(StopIteration()))",
        "grid(width=[1, 2]).where(endless)",
        "grid(width=[1, 2]).derive(more=lambda p: object())",
        "grid(width=[1, 2]).derive(more=lambda p: float('nan'))",
        "grid(width=[1, 2]).derive(width=lambda p: 1)",
        "grid(width=[1, 2]).derive(more=fails(OddError()))",
        "grid(width=[1, 2]).derive(more=lambda p: sys.exit('bye'))",
        "grid(width=[1]) * int_range(a=(1, 10**6), b=(1, 10**6))",
        "grid(width=[1]) * int_range(a=(1, 1000)) * int_range(b=(1, 1000)) * int_range(c=(1, 9))",
        "(grid(width=[1]) + grid(width=[2])) * (grid(a=[1]) + grid(a=[1]))",
        "grid(width=['\\ud800'])",
        "grid(width=['\\x1b[2J'])",
        "grid(width=[10**400])",
        "grid(items=[1], width=[1])",
    ]
)
MORE = st.sampled_from(
    [
        *("budget=epochs(10**12)", "budget=epochs(0)", "budget=epochs('3')", "budget=epochs(3.0)"),
        *("budget=steps(10**400)", "budget=seconds(-1)", "budget=Budget(3, 'weeks')"),
        *("budget=epochs(3, report_every=0)", "budget=epochs(10**9)", "budget=epochs(True)"),
        *("recipe=Recipe(lr=float('nan'))", "recipe=Recipe(lr='x')", "recipe=Recipe(batch_size=0)"),
        *("recipe=lambda p: Recipe(lr=-p.width)", "recipe=Recipe(betas=None)", "recipe=Recipe"),
        *("recipe=Recipe(schedule=3)", "recipe=Recipe(batch_size=10**30)", "recipe=Recipe(1, 2)"),
        *(
            "early_stopping=Asha(0)",
            "early_stopping=Asha(1, strata='width')",
            "early_stopping=Asha",
        ),
        *("early_stopping=Asha(1, strata=('no',))", "early_stopping=Asha(10**12)"),
        *("early_stopping=Asha(1, strata=5)", "early_stopping=Asha(1, strata=SizeBand(1))"),
        *("early_stopping=Asha(1, strata=SizeBand('x'))", "early_stopping=Asha(1, strata=(5,))"),
        *("resources=Resources(0, 0)", "resources=Resources('x')", "resources=Resources(10**400)"),
        *("resources=lambda p: Resources(gpus=p.width / 0)", "resources=Resources(gpus=1.5)"),
        *("question=Transition('nothing')", "question=Transition(5)", "question=Transition()"),
        *("question=Transition('width', None, scale='x')", "question=Transition('width', 'width')"),
        *("question=Transition('width', None, eval_size=-1)", "question=Transition"),
        *("question=lean({}, 0.1)", "question=lean({'width': 1}, float('nan'))"),
        *(
            "question=lean({'width': 99}, 0.1)",
            "question=lean({'no': 1}, 1)",
            "question=lean([], 1)",
        ),
        *("question=lean({'width': 1}, 0.1, costs=())", "question=lean({'width': 1}, 'x')"),
        *("question=lean({'width': 1}, 0.1, costs=('nothing',))", "question=lean({5: 1}, 1)"),
        *("question=lean({'width': 1}, 0.1, within='no')", "question=lean({'width': [1]}, 0.1)"),
        *("search=random_search(0)", "search=random_search(10**12)", "search=random_search('x')"),
        *("search=optuna_search(10**12)", "search=Search('x')", "search=random_search(2.5)"),
        *("search=optuna_search(3, also=5)", "search=optuna_search(3, also=(('no', 'min'),))"),
        *("presets={'quick': preset(replicates='x')}", "presets={'quick': preset(budget=5)}"),
        *("presets={'quick': preset(no=1)}", "presets={5: preset()}", "presets={'quick': 5}"),
        *("presets={'quick': preset(search=None)}", "presets={'quick': preset(metric=5)}"),
        *("replicates=10**12", "replicates=True", "max_failures='x'", "metric='nothing'"),
        *("probe=Conditioning(every=0)", "probe=Conditioning('x')", "goal='best'"),
        *("name='../x'", "name='x' * 200", "name=5", "description=5", "report_timeout='x'"),
        *("model=lambda p: tiny_model(p, dim=10**9)", "model=lambda p: TinyModel(10**15)"),
        *("model=lambda p: TinyModel(p.width / 2)", "model=lambda p: TinyModel('x')"),
        *("task=lambda p: TinyTask(unreadable=True)", "task=TinyTask(dim='x')"),
        *("task=TinyTask(dim=loop)", "task=TinyTask(dim=float('nan'))", "task=TinyTask"),
    ]
)
WHOLE = st.sampled_from(
    [
        *(
            "",
            "SWEEP = None",
            "SWEEP = 5",
            "SWEEP = Odd()",
            "SWEEP = Sweep",
            "SWEEP = [tiny_sweep()]",
        ),
        *("SWEEP = tiny_sweep", "sweep = tiny_sweep()", "SWEEP = tiny_sweep(", "SWEEP == 1"),
        *(
            "sys.exit()",
            "sys.exit(0)",
            "sys.exit('bye')",
            "raise SystemExit(None)",
            "raise OddError",
        ),
        *("raise RuntimeError('[/red] \\x1b[2J')", "raise GeneratorExit", "1/0", "endless()"),
        *("import nothing_of_that_name", "from hsweep import nothing", "open('/nowhere')"),
        *("__doc__ = 5\nSWEEP = tiny_sweep()", "__name__ = None\nSWEEP = tiny_sweep()"),
        *("__file__ = None\nSWEEP = tiny_sweep()", "print('out')\nSWEEP = tiny_sweep()"),
        *("def __getattr__(name): raise RuntimeError(name)", "del sys\nSWEEP = tiny_sweep()"),
        *("def __getattr__(name): return tiny_sweep()", "SWEEP = tiny_sweep(); del SWEEP"),
        *("sys.stdout.write('{}')\nSWEEP = tiny_sweep()", "assert False", "\tindented", "'" * 3),
        *("(" * 500, "x = " + "-" * 20_000 + "1", "SWEEP = tiny_sweep()\x00", "\ufeffSWEEP = 1"),
        *("class A:\n  def __init_subclass__(c): raise OddError\nclass B(A): pass",),
        *("async def f(): await 1\nSWEEP = f", "yield 1", "return", "while False: pass", "raise"),
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sweeps")
    before, home = Path.cwd(), os.environ.get("HSWEEP_HOME")
    os.environ["HSWEEP_HOME"] = str(folder / "home")
    os.chdir(folder)
    # Compiled files are told apart by the second they were written in.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    yield folder
    sys.dont_write_bytecode = writes
    os.chdir(before)
    if home is None:
        del os.environ["HSWEEP_HOME"]
    else:
        os.environ["HSWEEP_HOME"] = home


def planned_or_refused(file: Path, *options: str) -> bool:
    result = CliRunner().invoke(main, ["plan", str(file), "--json", *options])
    if refused_or_done(result):
        assert json.loads(result.stdout, parse_constant=pytest.fail)["trials"]
        shown = CliRunner().invoke(main, ["plan", str(file), *options])
        assert shown.exit_code == 0, shown.exception
        assert "\x1b" not in shown.output
        return True
    return False


def program(folder: Path, body: str, *options: str) -> bool:
    # One name for all: a file is loaded anew each time, as it is by a new process.
    file = folder / "odd_sweep.py"
    file.write_text(f"{HEAD}\n\n{body}\n", "utf-8", errors="surrogatepass")
    return planned_or_refused(file, *options)


def fields(assignments: dict[str, str], more: list[str]) -> str:
    given = {part.partition("=")[0]: part.partition("=")[2] for part in more} | assignments
    return f"SWEEP = tiny_sweep({', '.join(f'{name}={value}' for name, value in given.items())})"


def test_the_sweep_that_is_spoiled_is_planned_before(folder: Path) -> None:
    assert program(folder, fields({}, []))


@given(WHOLE)
@tries(45)
def test_any_file_is_planned_or_refused(folder: Path, body: str) -> None:
    program(folder, body)


@given(FIELDS, WRONG)
@example("task", "lambda p: sys.exit(0)")
@example("model", "lambda p: sys.exit(0)")
@example("model", "Looped(1)")
@example("task", "Unprinted()")
@example("task", "Numbered()")
@tries(70)
def test_any_value_of_any_field_is_taken_or_refused(folder: Path, name: str, value: str) -> None:
    program(folder, fields({name: value}, []))


@given(SPACES, st.lists(MORE, max_size=1))
@tries(45)
def test_any_space_is_listed_drawn_from_or_refused(
    folder: Path, space: str, more: list[str]
) -> None:
    program(folder, fields({"space": space}, more))


@given(MORE)
@tries(90)
def test_values_of_the_right_kind_out_of_range_are_refused(folder: Path, more: str) -> None:
    program(folder, fields({}, [more]))


@given(st.binary(max_size=60))
@example(b"\xff\xfe\x00")
@example(b"# coding: nothing\n")
@example(b"# coding: utf-16\nSWEEP = 1\n")
@example(b"\x00" * 20)
@tries(40)
def test_any_bytes_are_a_sweep_or_refused(folder: Path, content: bytes) -> None:
    file = folder / "bytes_sweep.py"
    file.write_bytes(content)
    planned_or_refused(file)


def test_what_is_no_file_is_refused(folder: Path) -> None:
    (folder / "folder.py").mkdir()
    (folder / "circle.py").symlink_to(folder / "circle.py")
    (folder / "nowhere.py").symlink_to(folder / "gone.py")
    (folder / "sweep.txt").write_text("SWEEP = 1")
    os.mkfifo(folder / "pipe.py")
    for name in ("folder.py", "circle.py", "nowhere.py", "sweep.txt", "pipe.py", "", ".", "/"):
        assert not refused_or_done(CliRunner().invoke(main, ["plan", name]))
    for name in ("x" * 300 + ".py", "x/" * 3000, "/dev/zero", "/proc/self/mem"):
        assert not refused_or_done(CliRunner().invoke(main, ["plan", name]))


def test_a_file_that_prints_leaves_json_alone(folder: Path) -> None:
    assert program(folder, "print('{'); sys.stdout.write('more')\nSWEEP = tiny_sweep()")


@given(st.lists(MORE, max_size=3), st.dictionaries(FIELDS, WRONG, max_size=2), st.booleans())
@many(1000)
def test_any_fields_at_length(
    folder: Path, more: list[str], wrong: dict[str, str], power: bool
) -> None:
    program(folder, fields(wrong, more), *["--power", "--simulated", "1"] * power)


@given(SPACES, st.lists(MORE, max_size=2))
@many(400)
def test_any_space_at_length(folder: Path, space: str, more: list[str]) -> None:
    program(folder, fields({"space": space}, more))
