"""What a study of a sweep that comes with the tool prints can be done, whatever the study finds.

The designs of shipped sweeps are trained by training that is made up, so that every verdict is met;
what ``hsweep new`` writes trains as it stands, but shortly.
"""

import itertools
from pathlib import Path

import pytest
from printed_commands import Walk, call

from hsweep.commands.new import KINDS
from hsweep.paths import Home

SWEEPS = sorted(
    file.stem
    for file in (Path(__file__).parents[2] / "sweeps").glob("*.py")
    if file.stem != "__init__"
)
WORLDS = {
    "as asked": "0.05 * noise + first",
    "nothing": "0.05 * noise",
    "noise": "2 * noise",
    "opposite": "0.05 * noise - first",
}
"""How good a trial is: ``first`` is 1 from the middle of a transition's heads on, or where a lean
question's baseline is, and 0 elsewhere."""

MADE_UP = '''
"""The design of a shipped sweep over training that is made up."""

import random
from dataclasses import replace

from hsweep import Recipe, Transition
from sweeps.NAME import SWEEP as SHIPPED

QUESTION = SHIPPED.question
POINTS = list(SHIPPED.space.points())


def is_first(point):
    if isinstance(QUESTION, Transition):
        values = sorted({other[QUESTION.x] for other in POINTS})
        return point[QUESTION.x] >= values[len(values) // 2]
    return all(point[axis] == value for axis, value in dict(QUESTION.baseline).items())


def train(point, run):
    noise = random.Random(f"{dict(point)}/{run.seeds.init}").gauss(0, 1)
    first = float(is_first(point))
    good = WORLD
    for unit in range(run.budget // 10 or 1, run.budget, run.budget // 10 or 1):
        run.report(unit, **{SHIPPED.metric: value(good - 1 + unit / run.budget)})
    run.report(run.budget, **{SHIPPED.metric: value(good)})


def value(good):
    if SHIPPED.goal == "max":
        return min(1.0, max(0.0, 0.5 + 0.1 * good))
    if getattr(QUESTION, "scale", None) == "loss":
        return max(0.1, 3 - 0.5 * good)
    return 10 ** (-2 - good)


def describe(point):
    return SHIPPED.model(point).counts()


SWEEP = replace(
    SHIPPED, task=None, model=None, recipe=Recipe(), train=train, describe=describe, presets={}
)
'''


QUICK = {("retrieval_heads", "as asked"), ("vision_families", "nothing")}
"""Tried by every run of the tests."""


@pytest.mark.parametrize(
    ("name", "world"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in itertools.product(SWEEPS, WORLDS)
    ],
)
def test_each_command_of_a_shipped_design_does_what_it_says(
    name: str, world: str, home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "made_up.py"
    file.write_text(MADE_UP.replace("NAME", name).replace("WORLD", WORLDS[world]))
    ran = call("run", file, "--study", "mine", "--home", home.root)
    assert ran.exit_code == 0, ran.output
    Walk(home, "mine").follow(ran.output)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_command_of_what_new_writes_does_what_it_says(
    kind: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = call("new", "mine.py", "--kind", kind)
    assert written.exit_code == 0, written.output
    short = ("--set", "epochs=2", "--set", "replicates=2", "--study", "mine", "--home", home.root)
    ran = call("run", "mine.py", *short)
    assert ran.exit_code == 0, ran.output
    Walk(home, "mine").follow(ran.output)
