"""A study that searches for its front: what it trains and says, and where it is cut off."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from searched_studies import answer_of, assert_interruptions_change_nothing

from hsweep.paths import Home
from hsweep.record.study import StudyFolder

Invoke = Callable[..., Result]
SWEEP = '''
"""A made-up accuracy that rises up to three layers, and not with the heads."""

import os
import random
import signal
from pathlib import Path

from hsweep import Pareto, Sweep, adaptive_search, grid, steps


def train(point, run):
    counter = Path(COUNTER)
    counter.write_text(counter.read_text() + "." if counter.exists() else ".")
    if len(counter.read_text()) == DIES_AT:
        os.kill(os.getpid(), signal.SIGINT)
    rng = random.Random(f"{point.heads}/{point.depth}/{run.seeds.init}")
    top1 = 0.5 + 0.1 * min(3, point.depth) - 0.1 * (point.heads > 1)
    run.report(run.budget, top1=top1 + 0.005 * rng.gauss(0, 1))


SWEEP = Sweep(
    name="toy",
    space=grid(heads=[1, 2], depth=[1, 2, 3, 4]),
    train=train,
    describe=lambda point: 1000 * point.depth + point.heads,
    metric="top1",
    goal="max",
    budget=steps(1),
    question=Pareto(),
    search=adaptive_search(),
)
'''


def write(folder: Path, *, dies_at: int = 0) -> Path:
    file = folder / "toy.py"
    text = SWEEP.replace("COUNTER", repr(str(folder / "count")))
    file.write_text(text.replace("DIES_AT", str(dies_at)))
    return file


def trained(home: Home, name: str) -> list[tuple[Any, ...]]:
    with StudyFolder.open(home, name).journal() as journal:
        rows = [row for row in journal.trials() if row.status == "finished"]
    return [(tuple(row.point.values()), row.replicate, row.metrics["top1"]) for row in rows]


def test_it_trains_a_fraction_and_tells_the_front(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    ended = hsweep("run", write(tmp_path), "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    answer = answer_of(home, "toy-quick")
    classes = {row["label"]: row["class"] for row in answer["table"]}
    on = [f"heads=1, depth={depth}" for depth in (1, 2, 3)]
    assert [classes[label] for label in on] == ["on"] * 3
    assert {classes[f"heads=2, depth={depth}"] for depth in (1, 2, 3, 4)} == {"off"}
    runs = trained(home, "toy-quick")
    assert len(runs) == sum(asked["runs"] for asked in answer["film"]["rounds"]) <= 32
    assert f"The search trained {len(runs)} of the 64 runs" in ended.stdout
    # It says nothing of the leanest shape, for which it has not searched.
    assert "as well as" not in ended.stdout


def test_the_search_can_be_named_on_the_command_line(hsweep: Invoke, tmp_path: Path) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text().replace("    search=adaptive_search(),\n", ""))
    ended = hsweep("plan", file, "--search", "adaptive")
    assert ended.exit_code == 0, ended.output
    assert "never more than 64" in ended.stdout


def test_an_interruption_changes_neither_what_is_trained_nor_the_answer(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    assert_interruptions_change_nothing(hsweep, home, partial(write, tmp_path), trained, (2, 17))


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("Pareto()", 'Pareto(costs=("num_params", "wall_seconds"))', "is not known before"),
        (
            "Pareto()",
            'Pareto(nuisance=("lr",))',
            "unknown nuisance axis in the sweep's question 'lr'",
        ),
        ("Pareto()", "None", "this sweep asks no question"),
    ],
)
def test_what_it_cannot_search_is_refused(
    hsweep: Invoke, tmp_path: Path, old: str, new: str, rule: str
) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text().replace(old, new))
    refused = hsweep("run", file, "--runner", "inline", "--no-check")
    assert (refused.exit_code, rule in refused.output) == (2, True), refused.output
