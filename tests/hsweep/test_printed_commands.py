"""What studies print to be done next can be done, and does what it says."""

from pathlib import Path

import pytest
from printed_commands import Walk, call, commands_in

from hsweep.paths import Home

TOY = '''
"""A made-up study: no training, but what it would have shown."""

import math
import random

from hsweep import *
from hsweep import Transition


def train(point, run):
    rng = random.Random(f"{dict(point)}/{run.seeds.init}")
    budget, noise = run.budget, rng.gauss(0, 1)
    heads, depth, rate = point.heads, point.get("depth", 1), point.get("lr", 1)
    length = point.get("seq_len", 16)
    run.report(run.budget, METRIC=VALUE)


SWEEP = Sweep(
    name="toy",
    space=grid(heads=[1, 2, 3, 4, 6, 8])SPACE,
    train=train,
    describe=lambda point: 100 * point.heads * point.get("depth", 1),
    metric="METRIC",
    goal="GOAL",
    budget=steps(4),
    MORE
)
'''
FALLS = "10 ** (-1 - 0.1 * heads - 1.5 * (heads >= 4) + 0.05 * noise)"
SMOOTH = "10 ** (-1 - 0.1 * heads + 0.05 * noise)"
EQUAL = "0.9 - 0.2 * (heads < 2) + 0.003 * noise"
NOISY = "0.9 + 0.05 * noise"
WORSE = "0.1 * min(heads, 8) + 0.001 * noise"
TRANSITION = 'question=Transition(x="heads"), '
LEAN = 'question=lean(baseline={"heads": 8}, margin=0.02), '
STUDIES = {
    "collapse": (FALLS, "", TRANSITION + "replicates=3"),
    "no collapse": (SMOOTH, "", TRANSITION + "replicates=3"),
    "suggested": (FALLS, "", TRANSITION),
    "too few heads": (FALLS, ".where(lambda point: point.heads > 4)", TRANSITION + "replicates=3"),
}


def study(folder: Path, case: str) -> Path:
    value, space, more = STUDIES[case]
    metric, goal = ("nmse", "min") if "Transition" in more else ("top1", "max")
    text = TOY.replace("VALUE", value).replace("SPACE", space).replace("MORE", more)
    file = folder / "toy.py"
    file.write_text(text.replace("METRIC", metric).replace("GOAL", goal))
    return file


@pytest.mark.parametrize("case", STUDIES)
def test_each_command_that_a_study_prints_does_what_it_says(
    case: str, home: Home, tmp_path: Path
) -> None:
    ran = call("run", study(tmp_path, case), "--study", "mine", "--home", home.root)
    assert ran.exit_code == 0, ran.output
    Walk(home, "mine").follow(ran.output)


def test_a_mended_file_is_taken_by_the_command_that_a_failure_prints(
    home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder's"
    folder.mkdir()
    file = folder / "my sweep.py"
    text = study(folder, "suggested").read_text()
    file.write_text(text.replace("budget, noise =", "raise KeyError\n    budget, noise ="))
    how = "--study", "mine", "--seed", 3, "--set", "replicates=2", "--home", home.root
    failed = call("run", file, *how, "--no-check")
    assert failed.exit_code == 1, failed.output
    (words,) = [words for words in commands_in(failed.output) if "--seed" in words]
    assert words[:5] == ["hsweep", "run", str(file), "--study", "mine"]

    file.write_text(text)
    resumed = call("resume", "mine", "--home", home.root)
    assert f"{file} has changed since" in resumed.output
    assert words in commands_in(resumed.output)
    mended = call(*words[1:])
    assert mended.exit_code == 0, mended.output
    assert set(Walk(home, "mine").statuses().values()) == {"finished"}
