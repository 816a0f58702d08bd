"""Models that are whatever module the sweep's function builds."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import hsweep
from hsweep.cli import main
from hsweep.errors import UserError
from hsweep.planning.options import SweepOptions
from hsweep.planning.plan import Plan
from hsweep.planning.prepare import Prepared, prepare
from hsweep.training.opening import data_of

SWEEP = '''"""Widths."""
import json
from pathlib import Path
import torch
from torch import nn
from hsweep import Recipe, Sweep, epochs, grid
from tasks import arrays

SETTINGS = json.loads(Path(r"{folder}/settings.json").read_text())
RATE = 0.5
CALLS = []
x = torch.arange(300.0).reshape(100, 3) / 100

class Net(nn.Module):
    def __init__(self, width, **settings):
        super().__init__()
        CALLS.append(width)
        self.layers = nn.Sequential(
            nn.Linear(3, width), nn.ReLU(), nn.Dropout(RATE), nn.Linear(width, SETTINGS["out"])
        )
        self.settings = settings

    def forward(self, x):
        return self.layers(x)

def unused(p):
    return Net(9)

SHARED = Net(2)

SWEEP = Sweep(
    name="widths",
    space=grid(width=[1, 2], tag=["a"]),
    model=lambda p: Net(p.width),
    task=arrays(x, x.sum(1)),
    recipe=Recipe(lr=1e-2, batch_size=20),
    budget=epochs(2),
)
'''

Project = Callable[..., Prepared]
NUMBERS = itertools.count()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Plan the sweep with words of it replaced."""

    def plan(*changes: tuple[str, str], out: int = 1) -> Prepared:
        (tmp_path / "settings.json").write_text(f'{{"out": {out}}}')
        text = SWEEP.replace("{folder}", str(tmp_path))
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        # Another size or time in the same file would be enough for a person, not for a test.
        file = tmp_path / f"sweep_{next(NUMBERS)}.py"
        file.write_text(text)
        return prepare(file, SweepOptions())

    return plan


def keys(plan: Plan) -> list[str]:
    return [trial.key for trial in plan.trials]


def test_a_module_is_counted_from_one_build_a_point(project: Project) -> None:
    prepared = project()
    first, second = prepared.plan.trials
    assert prepared.loaded.module.CALLS[1:] == [1, 2]
    assert first.counts is not None
    assert second.counts is not None
    assert (first.counts.num_params, second.counts.num_params) == (4 + 2, 2 * 4 + 3)
    assert (first.counts.forward_flops, second.counts.forward_flops) == (2 * 4, 2 * 8)
    assert (first.train_memory_bytes or 0) < (second.train_memory_bytes or 0)


def test_what_is_not_known_is_not_made_up(project: Project) -> None:
    needs_values = ("return self.layers(x)", "return self.layers(x) * x.sum().item()")
    trial = project(needs_values).plan.trials[0]
    assert trial.counts is not None
    assert (trial.counts.num_params, trial.counts.forward_flops) == (6, 0)
    assert trial.train_memory_bytes is None


def test_a_module_that_cannot_be_built_without_numbers_is_built_with_them(
    project: Project,
) -> None:
    built = project(("self.settings = settings", "self.sum = self.layers[0].weight.sum().item()"))
    counts = built.plan.trials[1].counts
    assert counts is not None
    assert (counts.num_params, counts.forward_flops) == (11, 16)


SAME = {
    "a comment": ("class Net", "# a net\nclass Net"),
    "an axis value more": ("width=[1, 2]", "width=[1, 2, 3]"),
    "an axis that the model does not read": ('tag=["a"]', 'tag=["b"]'),
    "a function that is not used": ("Net(9)", "Net(8)"),
    "a lambda elsewhere in the sweep": ("budget=", "describe=None,\n    budget="),
}
OTHER = {
    "its class": ("nn.ReLU()", "nn.GELU()"),
    "a constant": ("RATE = 0.5", "RATE = 0.25"),
    "the function": ("Net(p.width)", "Net(p.width, deep=True)"),
    "the function's width": ("Net(p.width)", "Net(p.width + 1)"),
}


@pytest.mark.parametrize("change", SAME)
def test_what_changes_no_model_changes_no_key(project: Project, change: str) -> None:
    assert set(keys(project().plan)) <= set(keys(project(SAME[change]).plan))


@pytest.mark.parametrize("change", OTHER)
def test_an_edited_model_makes_other_trials(project: Project, change: str) -> None:
    assert not set(keys(project().plan)) & set(keys(project(OTHER[change]).plan))


def test_a_file_that_decides_the_shape_makes_other_trials(project: Project) -> None:
    twice = ("x.sum(1)", "x[:, :1].expand(100, 2)")
    assert not set(keys(project(twice).plan)) & set(keys(project(twice, out=2).plan))


def test_points_that_differ_in_no_axis_that_is_read_are_one_trial(project: Project) -> None:
    tags = ('tag=["a"]', 'tag=["a", "b"]')
    assert (len(project(tags).plan.trials), project(tags).plan.merged) == (2, 2)
    for model in (
        "Net(p.width, tag=p.tag)",
        "Net(p.width, **{a: v for a, v in p.items() if a != 'width'})",
        "Net(p.width, point=p)",  # which may be read later
    ):
        assert len(project(tags, ("Net(p.width)", model)).plan.trials) == 4


def test_functions_of_every_form_are_models(project: Project) -> None:
    for model in ("unused", "partial(Both, of=Net)", "Of", "made(Net)"):
        more = (
            "SHARED = Net(2)",
            "from functools import partial\n"
            "def Both(p, of):\n    return of(p.width)\n"
            "class Of(Net):\n    def __init__(self, p):\n        super().__init__(p.width)\n"
            "def made(of):\n    def model(p):\n        return of(p.width)\n    return model\n",
        )
        first, again = (project(more, ("lambda p: Net(p.width)", model)).plan for _ in range(2))
        assert len(first.trials) == (1 if model == "unused" else 2)
        assert keys(first) == keys(again)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("lambda p: None", "model must be an nn.Module, or a model configuration.* got None"),
        ("lambda p: Net", "got <class .*Net'>"),
        ("SHARED", r"a Net that is built already.* as in model=lambda p: Net\(\.\.\.\)"),
        ("lambda p: SHARED", "returned the same Net twice"),
        ("functools.cache(unused)", "a def, a lambda, a class or functools.partial"),
        ("lambda p: Net(p.widht)", "unknown axis 'widht'"),
        ("lambda p: Net(p.width, 3)", "model function failed at {'width': 1, .*positional"),
    ],
)
def test_what_is_no_model_is_refused_in_words(project: Project, model: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        project(("import json", "import functools, json"), ("lambda p: Net(p.width)", model))


def test_a_shape_that_cannot_be_is_skipped(project: Project) -> None:
    check = "if width == 2:\n            raise ValueError('no pairs')\n        CALLS.append(width)"
    plan = project(("SHARED = Net(2)", ""), ("CALLS.append(width)", check)).plan
    assert len(plan.trials) == 1
    assert list(plan.skipped.values()) == ["no pairs"]


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("assert width != 2, 'odd widths alone'", "AssertionError: odd widths alone"),
        ("torch.zeros(width).view(2, -1) if width == 2 else 1 / (width - 1)", "ZeroDivisionError"),
        ("nn.MultiheadAttention(3, width)", "AssertionError: embed_dim must be divisible"),
    ],
)
def test_a_shape_that_fails_to_be_built_is_left_out_where_others_are_built(
    project: Project, check: str, reason: str
) -> None:
    plan = project(
        ("SHARED = Net(2)", ""), ("CALLS.append(width)", f"CALLS.append(width); {check}")
    ).plan
    assert len(plan.trials) == 1
    (left_out,) = plan.skipped.values()
    assert left_out.startswith(reason)
    assert "/sweep_" in left_out
    assert left_out.endswith("; .where(lambda point: ...) leaves such points out")


def test_a_model_that_is_built_at_no_point_is_an_error(project: Project) -> None:
    with pytest.raises(UserError, match=r"failed at .*'width': 1.* AssertionError: never"):
        project(("SHARED = Net(2)", ""), ("CALLS.append(width)", "assert not width, 'never'"))


def test_weights_begin_from_the_trials_seed_and_those_that_are_kept_are_loaded(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = project(("budget=epochs(2)", "budget=epochs(2), replicates=2, keep='last'"))
    monkeypatch.setenv("HSWEEP_HOME", str(tmp_path / "home"))
    ended = []
    for study in ("one", "two"):
        words = ["run", str(prepared.loaded.path), "--study", study, "--no-reuse"]
        ran = CliRunner().invoke(main, [*words, "--runner", "inline"])
        assert ran.exit_code == 0, ran.output
        ended.append(hsweep.load(study).trials.sort_values(["width", "seed"])["mse"].tolist())
    assert ended[0] == ended[1]
    assert len(set(ended[0])) == 4
    data = data_of(prepared.plan.trials[0], torch.device("cpu"))
    trial = hsweep.load("one").trial("width=2 #1")
    with torch.no_grad():
        assert data.evaluate(trial.load_model())["mse"] == pytest.approx(trial.value)
