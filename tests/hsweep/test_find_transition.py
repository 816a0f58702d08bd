"""A study that searches for its transition: what it trains and says, and where it is cut off."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import Result
from searched_studies import answer_of, assert_interruptions_change_nothing

from hsweep.paths import Home
from hsweep.record.study import StudyFolder

Invoke = Callable[..., Result]
SWEEP = '''
"""A made-up error that collapses at six heads."""

import math
import os
import random
import signal
from pathlib import Path

from hsweep import Sweep, Transition, adaptive_search, grid, steps


def train(point, run):
    counter = Path(COUNTER)
    counter.write_text(counter.read_text() + "." if counter.exists() else ".")
    if len(counter.read_text()) == DIES_AT:
        os.kill(os.getpid(), signal.SIGINT)
    rng = random.Random(f"{point.heads}/{point.seq_len}/{run.seeds.init}")
    x, h = math.log10(point.seq_len) - 1.5, min(point.heads, 6)
    y = -1 - 0.3 * h + (0.4 * x if point.heads < STAR else -1.3 - 0.2 * x)
    run.report(run.budget, nmse=10 ** (y + 0.1 * rng.gauss(0, 1)))


SWEEP = Sweep(
    name="toy",
    space=grid(heads=list(range(1, 13)), seq_len=[8, 16, 32, 64, 128]),
    train=train,
    metric="nmse",
    goal="min",
    budget=steps(1),
    question=Transition(x="heads", by="seq_len"),
    search=adaptive_search(),
)
'''


def write(folder: Path, *, star: int = 6, dies_at: int = 0) -> Path:
    file = folder / "toy.py"
    text = SWEEP.replace("COUNTER", repr(str(folder / "count"))).replace("STAR", str(star))
    file.write_text(text.replace("DIES_AT", str(dies_at)))
    return file


def trained(home: Home, name: str) -> list[tuple[Any, ...]]:
    with StudyFolder.open(home, name).journal() as journal:
        rows = journal.trials()
    assert {str(row.status) for row in rows} <= {"finished", "not_needed"}
    return [
        (row.point["heads"], row.point["seq_len"], row.replicate, row.metrics["nmse"])
        for row in rows
        if row.status == "finished"
    ]


def test_it_trains_a_fraction_and_finds_what_the_grid_finds(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    ended = hsweep("run", write(tmp_path), "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    answer = answer_of(home, "toy-quick")
    assert (answer["verdict"], answer["h_star"], answer["growth"]) == ("collapse", 6, "gone")
    assert answer["d_eff"] == {"lo": 6, "hi": 6, "layers": 1, "conjecture": False}
    runs = trained(home, "toy-quick")
    assert len(runs) == sum(asked["runs"] for asked in answer["film"]["rounds"]) <= 40
    assert "60 cells: about 34 runs of 1 step, rarely more than 56" in ended.stdout
    assert "never more than 180" in ended.stdout
    rounds = [line for line in ended.stdout.splitlines() if line.startswith("round ")]
    assert len(rounds) == len(answer["film"]["rounds"])
    assert rounds[0].startswith("round 1 (search), 6 runs: heads = 1, 4, 7, 9, 12 at seq_len = 64;")
    assert "The error collapses at heads = 6" in ended.stdout
    assert f"The search trained {len(runs)} of the 180 runs" in ended.stdout


def test_the_search_is_an_option(hsweep: Invoke, tmp_path: Path, home: Home) -> None:
    file = write(tmp_path)
    planned = hsweep("plan", file, "--search", "grid", "--set", "heads=5,6", "--json")
    assert json.loads(planned.stdout)["expected"]["runs"] == 2 * 5
    how = (file, "--search", "grid", "--set", "heads=5,6", "--runner", "inline", "--no-check")
    assert hsweep("run", *how).exit_code == 0
    assert len(trained(home, "toy-quick")) == 2 * 5
    ended = hsweep("run", file, "--search", "adaptive", "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    assert answer_of(home, "toy-quick")["h_star"] == 6
    assert hsweep("plan", file, "--set", "search=fast").exit_code == 2


def test_without_a_jump_it_ends_after_the_search(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    ended = hsweep("run", write(tmp_path, star=99), "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    assert answer_of(home, "toy-quick")["verdict"] == "none"
    assert {seq_len for _, seq_len, *_ in trained(home, "toy-quick")} == {64}


def test_each_cell_is_searched_at_its_best_setting(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    """Chosen by seeds that count in no test, also where the settings are no tuned rates."""
    file = write(tmp_path)
    text = file.read_text().replace("seq_len=[8, 16, 32, 64, 128]", "seq_len=[8, 64], bias=[0, 1]")
    text = text.replace('by="seq_len"', 'by="seq_len", nuisance=("bias",)')
    file.write_text(text.replace("y = -1 ", "y = -1 + 0.5 * point.bias "))
    ended = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    assert answer_of(home, "toy-quick")["h_star"] == 6
    with StudyFolder.open(home, "toy-quick").journal() as journal:
        counted = {row.point["bias"] for row in journal.trials()
                   if row.status == "finished" and row.replicate > 0}  # fmt: skip
    assert counted == {0}


def test_it_searches_among_the_lengths_that_can_be_trained(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    file = write(tmp_path)
    room = """
def room(point):
    if point.seq_len >= 64:
        raise ValueError("too long")
    return Resources()


"""
    text = file.read_text().replace("from hsweep import", "from hsweep import Resources,")
    text = text.replace("SWEEP = Sweep(", f"{room}SWEEP = Sweep(\n    resources=room,")
    file.write_text(text)
    assert hsweep("run", file, "--runner", "inline", "--no-check").exit_code == 0
    assert answer_of(home, "toy-quick")["h_star"] == 6
    assert {seq_len for _, seq_len, seed, _ in trained(home, "toy-quick") if seed > 6} == {16}


def test_a_round_trains_its_cells_at_every_budget_of_a_ladder(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    """Also those of the last round: nothing waits when the search has ended."""
    file = write(tmp_path)
    file.write_text(file.read_text().replace("steps(1)", "steps(20, ladder=[10, 20])"))
    ended = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    answer = answer_of(home, "toy-quick")
    assert answer["h_star"] == 6
    num_asked = sum(asked["runs"] for asked in answer["film"]["rounds"])
    assert len(trained(home, "toy-quick")) == num_asked


def test_an_interruption_changes_neither_what_is_trained_nor_the_answer(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    assert_interruptions_change_nothing(hsweep, home, partial(write, tmp_path), trained, (3, 9, 20))


def test_it_searches_at_every_value_of_a_second_axis(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    """The deeper model needs fewer heads. The two answers share the error rate."""
    file = write(tmp_path)
    text = file.read_text().replace("seq_len=[8, 16, 32, 64, 128]", "seq_len=[8, 64], depth=[1, 2]")
    text = text.replace('by="seq_len"', 'by="seq_len", within="depth"')
    text = text.replace("point.heads < 6", "point.heads < STAR[point.depth]")
    text = text.replace("min(point.heads, 6)", "min(point.heads, STAR[point.depth])")
    file.write_text(text.replace("import math\n", "import math\n\nSTAR = {1: 8, 2: 4}\n", 1))
    answers = {}
    for name, search in (("few", "adaptive"), ("all", "grid")):
        how = ("--runner", "inline", "--no-check", "--search", search, "--study", name)
        ended = hsweep("run", file, *how, "--set", "replicates=3")
        assert ended.exit_code == 0, ended.output
        assert "at heads = 8 with depth = 1" in ended.stdout
        assert "at heads = 4 with depth = 2" in ended.stdout
        answers[name] = answer_of(home, name)["found"]
        assert {depth: found["h_star"] for depth, found in answers[name].items()} == {
            "1": 8,
            "2": 4,
        }
        assert "heads  seq_len  depth" in ended.stdout
    assert len(trained(home, "few")) < len(trained(home, "all")) / 2
    settings = answers["all"]["1"]["settings"]
    assert settings["alpha"] == 0.05 / 2
