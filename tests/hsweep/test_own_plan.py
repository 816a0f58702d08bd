"""Trials of a user's own training before any of them trains: keys, costs, refusals."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hsweep.errors import UserError
from hsweep.planning.answerable import analysable, notes
from hsweep.planning.code import SWEEP_FILE, changed_files, files_of
from hsweep.planning.options import SweepOptions
from hsweep.planning.plan import Plan
from hsweep.planning.prepare import prepare

Project = Callable[..., Plan]

FUNCTION = {
    "sweep.py": '''"""A note."""
from dataclasses import dataclass
from functools import partial

import torch

from hsweep import *
from own_helper import curve

RATE = 2

def scale(x):
    """Words."""
    return RATE * x

def other(x):
    return x

def smooth(x):
    return x

def train(point, run, rate=0.1, shape=scale):
    # here
    run.report(run.budget, top1=scale(curve(point["heads"])), loss=1.0)

@dataclass(frozen=True)
class Trainer:
    rate: float = 0.1

    def __call__(self, point, run):
        return train(point, run, self.rate)

def made(rate):
    def inner(point, run):
        return train(point, run, rate)

    return inner

def cost(point):
    return 1000 * point["heads"]

SWEEP = Sweep(name="own", space=grid(heads=(1, 2, 4)), train=train, metric="top1", goal="max",
              budget=epochs(2), depends_on=["data"])
''',
    "own_helper.py": "from own_deeper import half\ndef curve(x):\n    return half(x)\n",
    "own_deeper.py": "def half(x):\n    return x / 2\n",
    "own_unused.py": "VALUE = 1\n",
    "data/one.txt": "one",
    "data/two.txt": "two",
}
SCRIPT = {
    "sweep.py": """from hsweep import *

SWEEP = Sweep(name="own", space=grid(heads=(1, 2), config=("a.ini", "b.ini")),
              train=command("python src/train.py --heads {heads} --config src/{config} {folder}"),
              metric="top1", goal="max", budget=epochs(2))
""",
    "src/train.py": "import os\nimport own_part\nimport models\nprint(1)  # here\n",
    "src/own_part.py": "from own_package import gain\n",
    "src/own_package/__init__.py": "gain = 1\n",
    "src/own_package/__main__.py": "import own_package.inner\n",
    "src/own_package/inner.py": "x = 1\n",
    "src/models.py": "width = 1\n",
    "src/other.py": "width = 1\n",
    "src/a.ini": "a",
    "src/b.ini": "b",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Write a project, some of its text replaced, and plan it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    others = set(sys.modules)

    def forget() -> None:
        for name in sys.modules.keys() - others:
            if name.startswith(("own_", "hsweep.sweep_file")):
                del sys.modules[name]
        importlib.invalidate_caches()

    def planned(
        files: Mapping[str, str],
        file: str = "sweep.py",
        old: str = "",
        new: str = "",
        **options: Any,
    ) -> Plan:
        forget()
        assert old in files[file]
        for path, text in {**files, file: files[file].replace(old, new, 1)}.items():
            (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / path).write_text(text)
        return prepare(tmp_path / "sweep.py", SweepOptions(**options)).plan

    yield planned
    forget()


WRITTEN: dict[str, Plan] = {}


def as_written(project: Project, files: Mapping[str, str]) -> Plan:
    """The plan of a project with nothing replaced, wherever it lies."""
    source = files["sweep.py"]
    if source not in WRITTEN:
        WRITTEN[source] = project(files)
    return WRITTEN[source]


def differing(one: Plan, other: Plan) -> set[str]:
    """Return the parts in which the first trials of two plans differ."""
    first, second = one.trials[0].parts, other.trials[0].parts
    assert (one.trials[0].key == other.trials[0].key) == (first == second)
    return {part for part in first.keys() | second.keys() if first.get(part) != second.get(part)}


CODE = "training_function_code"


class TestKeysOfAFunction:
    @pytest.mark.parametrize(
        ("file", "old", "new", "part"),
        [
            ("sweep.py", "RATE = 2", "RATE = 3", CODE),
            ("sweep.py", "RATE * x", "RATE + x", CODE),
            ("sweep.py", "loss=1.0", "loss=2.0", CODE),
            ("own_helper.py", "half(x)", "half(2 * x)", CODE),
            ("own_deeper.py", "x / 2", "x / 3", CODE),
            ("data/two.txt", "two", "three", "data"),
            ("sweep.py", "epochs(2)", "epochs(3)", "budget"),
        ],
    )
    def test_what_a_trial_runs_and_reads_counts(
        self, project: Project, file: str, old: str, new: str, part: str
    ) -> None:
        before, after = as_written(project, FUNCTION), project(FUNCTION, file, old, new)
        assert differing(before, after) == {part}
        if part == CODE:
            was, now = (files_of(plan.trials[0].parts[CODE]) or {} for plan in (before, after))
            assert changed_files(was, now) == [SWEEP_FILE if file == "sweep.py" else file]

    @pytest.mark.parametrize("top", ["own_bare/__init__.py", "own_bare/a.py"])
    def test_a_package_may_lack_init_files_and_be_imported_where_it_is_used(
        self, project: Project, top: str
    ) -> None:
        files = {**FUNCTION, top: "", "own_bare/inner/deep/net.py": "half = 1\n"}
        text = "    from own_bare.inner.deep.net import half  # here"
        files["sweep.py"] = files["sweep.py"].replace("    # here", text)
        before, after = project(files), project(files, "own_bare/inner/deep/net.py", "1", "2")
        assert differing(before, after) == {CODE}

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [
            ("sweep.py", '"""A note."""', '"""Another."""'),
            ("sweep.py", '"""Words."""', '"""Other words."""'),
            ("sweep.py", "# here", "# there"),
            ("sweep.py", "def other(x):\n    return x", "def other(x):\n    return 2 * x"),
            ("sweep.py", 'goal="max"', 'goal="max", describe=cost, max_failures=1'),
            ("sweep.py", "epochs(2)", "epochs(2), metrics=[Metric('loss', 'min', 'loss', '')]"),
            ("sweep.py", "(1, 2, 4)", "(1, 2)"),
            ("own_unused.py", "1", "2"),
        ],
    )
    def test_nothing_else_does(self, project: Project, file: str, old: str, new: str) -> None:
        before = as_written(project, FUNCTION)
        assert differing(before, project(FUNCTION, file, old, new)) == set()

    @pytest.mark.parametrize(
        ("train", "changed"),
        [
            ("partial(train, rate=0.1)", "partial(train, rate=0.2)"),
            ("partial(train, shape=scale)", "partial(train, shape=smooth)"),
            ("Trainer()", "Trainer(0.2)"),
            ("made(0.1)", "made(0.2)"),
            ("partial(train, shape=torch.nn.Tanh)", "partial(train, shape=torch.nn.ReLU)"),
        ],
    )
    def test_what_a_function_is_given_counts(
        self, project: Project, train: str, changed: str
    ) -> None:
        plans = [
            project(FUNCTION, old="train=train", new=f"train={each}") for each in (train, changed)
        ]
        assert "training_function" in differing(*plans)
        assert len({trial.key for plan in plans for trial in plan.trials}) == 6

    @pytest.mark.parametrize(
        ("decorated", "old", "new"),
        [
            ("@torch.enable_grad()\ndef train", "loss=1.0", "loss=2.0"),
            ("@torch.enable_grad()\ndef train", "RATE = 2", "RATE = 3"),
            ("@torch.enable_grad()\ndef train", "@torch.enable_grad", "@torch.no_grad"),
            ("@torch.autocast('cpu', dtype=KIND)\ndef train", "torch.bfloat16", "torch.float16"),
            ("@record\n@torch.no_grad()\ndef train", "@record", "@torch.enable_grad()"),
            ("train = torch.autocast('cpu', dtype=KIND)(raw)", "torch.bfloat16", "torch.float16"),
            ("train = record(raw)", "record(raw)", "torch.no_grad()(raw)"),
        ],
    )
    def test_a_function_that_a_library_decorates_is_seen_with_its_decorator(
        self, project: Project, decorated: str, old: str, new: str
    ) -> None:
        text = FUNCTION["sweep.py"].replace(
            "RATE = 2",
            "from torch.distributed.elastic.multiprocessing.errors import record\n"
            "KIND = torch.bfloat16\nRATE = 2",
        )
        if decorated.endswith("def train"):
            text = text.replace("def train", decorated)
        else:
            text = text.replace("def train", "def raw").replace("\n@data", f"\n{decorated}\n@data")
        written = {**FUNCTION, "sweep.py": text}
        assert differing(project(written), project(written, old=old, new=new)) == {CODE}

    def test_a_decorator_that_makes_no_function_is_named(self, project: Project) -> None:
        with pytest.raises(
            UserError, match=r"decorator _lru_cache_wrapper makes an object of .*tra"
        ):
            project(FUNCTION, old="def train", new="import functools\n@functools.cache\ndef train")

    def test_code_that_an_argument_brings_counts(self, project: Project) -> None:
        given = dict(FUNCTION)
        given["sweep.py"] = FUNCTION["sweep.py"].replace(
            "train=train", "train=partial(train, shape=smooth)"
        )
        changed = project(
            given, old="def smooth(x):\n    return x", new="def smooth(x):\n    return 1"
        )
        assert differing(project(given), changed) == {CODE}


class TestFilesThatNoImportLeadsTo:
    @pytest.mark.parametrize(
        ("line", "more", "named"),
        [
            ("exec(open('own_conf.py').read())", "", ["own_conf.py"]),
            ("yaml.safe_load(Path(HERE, 'more/own.yaml').open())", "", ["more/own.yaml"]),
            ("exec(open('own_conf.py').read())", "depends_on=['own_conf.py'], ", []),
            ("yaml.safe_load(Path(HERE, 'more/own.yaml').open())", "depends_on=['more'], ", []),
            ("json.dump({}, open('own_results.json', 'w'))", "", []),
            ("print('own_helper.py is imported', 'own_helper.py')", "", []),
        ],
    )
    def test_a_plan_names_those_that_are_there(
        self, project: Project, line: str, more: str, named: list[str]
    ) -> None:
        files = {**FUNCTION, "own_conf.py": "heads = 1", "more/own.yaml": "heads: 1"}
        files["sweep.py"] = files["sweep.py"].replace("    # here", f"    {line}")
        files["sweep.py"] = files["sweep.py"].replace('depends_on=["data"]', more)
        remarks = notes(project(files))
        assert len(remarks) == bool(named)
        for name in named:
            assert name in remarks[0]
            assert f"depends_on={named}" in remarks[0]


class TestKeysOfACommand:
    @pytest.mark.parametrize(
        ("file", "old", "new", "part"),
        [
            ("sweep.py", "--heads", "--num-heads", "command"),
            ("src/train.py", "print(1)", "print(2)", "script"),
            ("src/own_part.py", "gain", "gain as other", "script"),
            ("src/own_package/__init__.py", "1", "2", "script"),
            ("src/models.py", "1", "2", "script"),
            ("src/a.ini", "a", "other", "script"),
        ],
    )
    def test_its_line_and_what_it_names_and_imports_count(
        self, project: Project, file: str, old: str, new: str, part: str
    ) -> None:
        before = as_written(project, SCRIPT)
        assert differing(before, project(SCRIPT, file, old, new)) == {part}

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [
            ("src/train.py", "# here", "# there"),
            ("src/other.py", "1", "2"),
            ("src/b.ini", "b", "x"),
        ],
    )
    def test_nothing_else_does(self, project: Project, file: str, old: str, new: str) -> None:
        before, after = as_written(project, SCRIPT), project(SCRIPT, file, old, new)
        assert differing(before, after) == set()
        changed = [
            one.point
            for one, two in zip(before.trials, after.trials, strict=True)
            if one.key != two.key
        ]
        assert all(point["config"] == "b.ini" for point in changed)
        assert bool(changed) == (file == "src/b.ini")

    def test_a_module_is_code_too(self, project: Project) -> None:
        """``python -m own_package`` from the folder ``src``."""
        module = dict(SCRIPT)
        module["sweep.py"] = SCRIPT["sweep.py"].replace(
            'src/train.py --heads {heads} --config src/{config} {folder}")',
            '-m own_package --heads {heads} --config {config}", folder="src")',
        )
        plan = project(module)
        assert differing(plan, project(module, "src/own_package/inner.py", "1", "2")) == {"script"}
        assert differing(plan, project(module, "src/train.py", "1", "2")) == set()

    def test_the_files_of_a_list_count(self, project: Project) -> None:
        text = SCRIPT["sweep.py"].replace('("a.ini", "b.ini")', '[("src/a.ini", "src/b.ini")]')
        script = {**SCRIPT, "sweep.py": text.replace("src/{config}", "{config} {config:,}")}
        assert differing(project(script), project(script, "src/b.ini", "b", "c")) == {"script"}


class TestCosts:
    @pytest.mark.parametrize(
        ("source", "more", "kinds"),
        [
            ('stdout(r"epoch (?P<epoch>\\d+) (?P<top1>.+)")', "", ["impossible"]),
            ('stdout(r"(?P<num_params>.+)M|epoch (?P<epoch>\\d+) (?P<top1>.+)")', "", ["weak"]),
            ('stdout(r"(?P<n>.+)M|(?P<epoch>.+) (?P<top1>.+)", metrics={"n": "num_params"})', "",
             ["weak"]),
            ('csv_file("log.csv")', "", ["weak"]),
            ('csv_file("log.csv")', 'costs=("latency_seconds",)', ["impossible"]),
            ('stdout(r"epoch (?P<epoch>\\d+) (?P<top1>.+)")', 'costs=("heads",)', []),
            ('stdout(r"epoch (?P<epoch>\\d+) (?P<top1>.+)")', 'costs=("wall_seconds",)', []),
        ],
    )  # fmt: skip
    def test_a_cost_that_no_report_can_tell_is_refused_before_training(
        self, project: Project, source: str, more: str, kinds: list[str]
    ) -> None:
        files = {**SCRIPT}
        lean = f"question=lean({{'heads': 2, 'config': 'a.ini'}}, 0.01, {more})"
        files["sweep.py"] = files["sweep.py"].replace(
            '{folder}")', f'{{folder}}", metrics={source})'
        )
        files["sweep.py"] = files["sweep.py"].replace('goal="max"', f'goal="max", {lean}')
        found = [
            one
            for one in analysable(project(files))
            if "no report" in one.text or "known" in one.text
        ]
        assert [concern.kind for concern in found] == kinds
        assert all("costs=('heads',)" in concern.remedy for concern in found)

    def test_the_remedy_for_a_cost_names_no_axis_of_words_and_no_other_cost(
        self, project: Project
    ) -> None:
        lean = "question=lean({'config': 'a.ini'}, 0.01, costs=('num_params', 'gpu_hours'))"
        text = SCRIPT["sweep.py"].replace("heads=(1, 2), ", "").replace("--heads {heads} ", "")
        text = text.replace(
            '{folder}")', r"""{folder}", metrics=stdout("(?P<epoch>.) (?P<top1>.)"))"""
        )
        text = text.replace('goal="max"', f'goal="max", {lean}')
        concerns = analysable(project({**SCRIPT, "sweep.py": text}))
        first, second = [one.remedy for one in concerns if "no report" in one.text]
        assert "costs=" not in first + second
        assert ("(?P<num_params>" in first, "(?P<num_params>" in second) == (True, False)
        assert "(?P<gpu_hours>" in second

    @pytest.mark.parametrize(
        ("returned", "num_params", "flops", "memory"),
        [
            ("7 * point['heads']", 7, None, None),
            ("torch.nn.Linear(3, point['heads'], device='meta')", 4, None, None),
            ("Cost(7, flops_per_example=5, train_memory_bytes=2**30)", 7, 5, 2**30),
            ("Cost(torch.tensor(7), train_memory_bytes=9)", 7, None, 9),
            ("__import__('models.base').base.Counts({'mlp': 7}, 5, 1)", 7, 5, None),
            (
                "__import__('models.vit').vit.ViT(embed_dim=8, depth=1, heads=2)",
                None, None, None,
            ),
        ],
    )  # fmt: skip
    def test_describe_says_them_in_several_ways(
        self, project: Project, returned: str, num_params: int | None, flops: Any, memory: Any
    ) -> None:
        described = described_by(project, f"return {returned}")
        first = described.to_json()["trials"][0]
        if num_params is not None:
            costs = (first["num_params"], first.get("flops_per_example"))
            assert (*costs, first.get("train_memory_bytes")) == (num_params, flops, memory)
        else:
            assert first["num_params"] > 0
            assert first["flops_per_example"] > 0

    def test_an_impossible_point_is_skipped_and_bounds_go_by_costs(self, project: Project) -> None:
        body = "if point['heads'] == 2: raise ValueError('odd heads only')\n    return "
        plan = described_by(project, f"{body}Cost(point['heads'], 9, 1000)", max_params=3)
        assert [trial.point["heads"] for trial in plan.trials] == [1]
        assert list(plan.skipped.values()) == [
            "odd heads only", "num_params 4 is above --max-params 3"
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("body", "options", "message"),
        [
            ("return 'many'", {}, "describe must return a number of parameters, a Cost"),
            ("return -1", {}, "at least 0, not -1"),
            ("raise KeyError('x')", {}, "describe function failed at {'heads': 1}: KeyError"),
            ("return 5", {"max_flops": 3}, "--max-flops bounds flops_per_example, which is not"),
        ],
    )
    def test_what_is_not_known_or_wrong_is_refused(
        self, project: Project, body: str, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(UserError, match=message.replace("(", r"\(").replace("{", r"\{")):
            described_by(project, body, **options)

    def test_without_describe_totals_are_unknown(self, project: Project) -> None:
        totals = project(FUNCTION).totals()
        assert [totals[f"{end}_params"] for end in ("min", "max")] == [None, None]
        assert totals["max_train_memory_bytes"] is None


def described_by(project: Project, body: str, **options: Any) -> Plan:
    files = dict(FUNCTION)
    files["sweep.py"] = FUNCTION["sweep.py"].replace('return 1000 * point["heads"]', body)
    return project(files, old="train=train", new="train=train, describe=cost", **options)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("point, run, rate=0.1, shape=scale", "point", "two arguments, train.* too many"),
        ("train=train", "train=partial(train, bad=1)", "two arguments"),
        ("train=train", "train=Trainer", "must be a function"),
        ("train=train", "train=Trainer().__call__", "must be a function"),
        ("train=train", "train=partial(train, rate=float('nan'))", "finite"),
        ("train=train", "train=partial(train, rate=object())", "argument of a training function"),
        ('["data"]', '["data", "absent"]', "absent, which is not there"),
        ('["data"]', '"data"', "tuple or list of paths"),
    ],
)
def test_what_cannot_train_is_refused_before_anything_starts(
    project: Project, old: str, new: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        project(FUNCTION, old=old, new=new)
