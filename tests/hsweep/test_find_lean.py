"""A study that races its shapes: what it trains and says, and where it is cut off."""

import json
import re
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
"""A made-up accuracy that needs four heads, and hardly more than one layer."""

import os
import random
import signal
from pathlib import Path

from hsweep import Sweep, adaptive_search, grid, lean, steps, tuned


def train(point, run):
    counter = Path(COUNTER)
    counter.write_text(counter.read_text() + "." if counter.exists() else ".")
    if len(counter.read_text()) == DIES_AT:
        os.kill(os.getpid(), signal.SIGINT)
    rng = random.Random(f"{point.heads}/{point.depth}/{point.get('lr')}/{run.seeds.init}")
    top1 = 0.9 - LOSS * max(0, 4 - point.heads) - (0.02 if point.heads * point.depth < 4 else 0)
    if point.get("lr", 1) != 1:
        top1 -= 0.3
    run.report(run.budget, top1=top1 + 0.005 * rng.gauss(0, 1))


SWEEP = Sweep(
    name="toy",
    space=grid(heads=[1, 2, 3, 4], depth=[1, 2, 3]EXTRA),
    train=train,
    describe=lambda point: 1000 * point.heads * point.depth + point.depth,
    metric="top1",
    goal="max",
    budget=steps(1),
    question=lean(baseline={"heads": 4, "depth": 3}, margin=0.02),
    search=adaptive_search(),
)
'''


def write(folder: Path, *, loss: float = 0.05, dies_at: int = 0, extra: str = "") -> Path:
    file = folder / "toy.py"
    text = SWEEP.replace("COUNTER", repr(str(folder / "count"))).replace("LOSS", str(loss))
    file.write_text(text.replace("DIES_AT", str(dies_at)).replace("EXTRA", extra))
    return file


def trained(home: Home, name: str) -> list[tuple[Any, ...]]:
    with StudyFolder.open(home, name).journal() as journal:
        rows = journal.trials()
    assert {str(row.status) for row in rows} <= {"finished", "not_needed", "stopped_early"}
    return [
        (tuple(row.point.values()), row.replicate, row.metrics["top1"])
        for row in rows
        if row.status == "finished"
    ]


def test_it_trains_a_fraction_and_finds_the_leanest(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    ended = hsweep("run", write(tmp_path), "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    answer = answer_of(home, "toy-quick")
    assert (answer["verdict"], answer["choice"]) == ("found", "heads=4, depth=1")
    outcomes = {row["label"]: row["outcome"] for row in answer["table"]}
    assert outcomes["heads=1, depth=1"] == "left early"
    # A single run tells whom to try first, and nothing else.
    assert {row["n"] for row in answer["table"]} > {1}
    assert all((row["ci"][1] is None) == (row["n"] == 1) for row in answer["table"])
    assert "heads=4, depth=2" not in outcomes
    runs = trained(home, "toy-quick")
    assert len(runs) == sum(asked["runs"] for asked in answer["film"]["rounds"]) <= 40
    assert "heads=4, depth=1 does as well as heads=4, depth=3" in ended.stdout
    assert f"The search trained {len(runs)} of the 100 runs" in ended.stdout
    assert "It did not try shapes that cost more: heads=2 depth=2, " in ended.stdout
    assert "counting 11 cheaper shapes and every look of the race (Holm)" in ended.stdout
    assert "stopped early" not in ended.stdout
    shown = hsweep("show", "toy-quick").stdout
    assert f"12 shapes: {len(runs)} runs of 1 step" in shown
    assert f"{100 - len(runs)} further runs were planned and not needed: the search did" in shown


_LOOKS = """
    import json
    from hsweep.paths import Home
    from hsweep.record.study import StudyFolder
    from hsweep.watching.now import study_now

    study = StudyFolder.open(Home(Path(HOME)), "toy-quick")
    with study.journal() as journal, journal.snapshot():
        now = study_now(study, journal)
    with Path(LOOKS).open("a") as file:
        print(json.dumps([now["counts"], now["round"]]), file=file)
"""


def test_who_watches_sees_the_runs_that_were_promised_and_the_round(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    """On a ladder, where the longer trainings wait for the shorter ones."""
    file, looks = write(tmp_path), tmp_path / "looks"
    look = _LOOKS.replace("HOME", repr(str(home.root))).replace("LOOKS", repr(str(looks)))
    text = file.read_text().replace("steps(1)", "steps(20, ladder=[10, 20])")
    file.write_text(text.replace("    counter = Path", f"{look}    counter = Path"))
    ended = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    said = re.search(r"about (\d+) runs .*rarely more than (\d+)", ended.output)
    assert said is not None, ended.output
    seen = [json.loads(line) for line in looks.read_text().splitlines()]
    first = f"0 of about {said[1]} runs ended (rarely more than {said[2]}): "
    assert seen[0][0].startswith(first), seen[0]
    rounds = list(dict.fromkeys(place for _, place in seen))
    assert rounds == re.findall(r"^round \d.*$", ended.output, re.MULTILINE)
    counts = [re.match(r"(\d+) of (?:about )?(\d+)", counts) for counts, _ in seen]
    assert all(int(at[1]) < int(at[2]) <= max(map(int, said.groups())) for at in counts if at)


def test_where_all_are_worse_it_says_so(hsweep: Invoke, tmp_path: Path, home: Home) -> None:
    file = write(tmp_path, loss=0.1)
    how = ("--runner", "inline", "--no-check", "--set", "heads=1,2,4", "--set", "margin=0.01")
    file.write_text(file.read_text().replace("* point.depth < 4", "* point.depth < 12"))
    ended = hsweep("run", file, *how)
    assert ended.exit_code == 0, ended.output
    answer = answer_of(home, "toy-quick")
    assert (answer["verdict"], answer["choice"]) == ("excluded", None)
    assert {row["outcome"] for row in answer["table"]} == {"excluded"}
    assert min(row["n"] for row in answer["table"]) > 1


def test_part_of_the_seeds_establishes_nothing(hsweep: Invoke, tmp_path: Path, home: Home) -> None:
    file = write(tmp_path, dies_at=8)
    how = ("--set", "heads=4", "--set", "depth=1,3", "--search", "grid", "--set", "replicates=5")
    cut = hsweep("run", file, "--runner", "inline", "--no-check", *how)
    assert cut.exit_code == 130, cut.output
    shown = hsweep("analyze", "toy-quick", "--json").stdout
    answer = json.loads(shown)
    assert (answer["verdict"], answer["choice"]) == ("ahead so far", "heads=4, depth=1")
    assert "is so far ahead, " in answer["answer"]
    assert " of 5 seeds" in answer["answer"]
    assert {row["outcome"] for row in answer["table"]} == {"ahead so far"}
    assert "confirm_command" not in answer
    assert hsweep("resume", "toy-quick", "--runner", "inline").exit_code == 0
    assert answer_of(home, "toy-quick")["verdict"] == "found"


def test_each_shape_races_at_its_own_best_rate(hsweep: Invoke, tmp_path: Path, home: Home) -> None:
    file = write(tmp_path, extra=", lr=tuned(0.1, 10.0, per_decade=1)")
    ended = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ended.exit_code == 0, ended.output
    answer = answer_of(home, "toy-quick")
    assert answer["choice"] == "heads=4, depth=1"
    assert {row["setting"]["values"]["lr"] for row in answer["table"]} == {1}
    counted = [point for point, seed, _ in trained(home, "toy-quick") if seed >= 2]
    assert {lr for *_, lr in counted} == {1.0}
    assert len(counted) == sum(asked["runs"] for asked in answer["film"]["rounds"]) <= 40


def test_an_interruption_changes_neither_what_is_trained_nor_the_answer(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    assert_interruptions_change_nothing(
        hsweep, home, partial(write, tmp_path), trained, (2, 10, 12)
    )


def test_an_edited_space_is_raced_anew_with_what_has_been_trained(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    file, how = write(tmp_path), ("--runner", "inline", "--no-check", "--study", "edited")
    assert hsweep("run", file, *how).exit_code == 0
    before = trained(home, "edited")
    # The shape that was chosen is gone, so dearer ones are asked for that were not needed.
    ended = hsweep("run", file, *how, "--set", "depth=2,3", "--yes")
    assert ended.exit_code == 0, ended.output
    answer = answer_of(home, "edited")
    assert (answer["verdict"], answer["choice"]) == ("found", "heads=4, depth=2")
    assert len(trained(home, "edited")) > len(before)
    assert f"The search trained {sum(asked['runs'] for asked in answer['film']['rounds'])} " in (
        ended.stdout
    )


def test_the_grid_trains_what_the_race_has_not_asked_for(
    hsweep: Invoke, tmp_path: Path, home: Home
) -> None:
    file, how = write(tmp_path), ("--runner", "inline", "--no-check", "--study", "widened")
    assert hsweep("run", file, *how).exit_code == 0
    before = trained(home, "widened")
    ended = hsweep("run", file, *how, "--search", "grid", "--set", "replicates=5")
    assert ended.exit_code == 0, ended.output
    points = {point for point, seed, _ in trained(home, "widened") if seed < 5}
    assert len(points) == 12
    seeds = [seed for point, seed, _ in trained(home, "widened") if point == (1, 1)]
    assert sorted(seeds) == [0, 1, 2, 3, 4]
    assert {run for run in before if run[1] < 5} <= {*trained(home, "widened")}


def test_what_the_race_cannot_order_is_refused(hsweep: Invoke, tmp_path: Path) -> None:
    file = write(tmp_path)
    text = file.read_text()
    for old, new, rule in (
        ("margin=0.02", 'margin=0.02, costs=("wall_seconds",)', "is not known before"),
        ("search=a", "early_stopping=Asha(grace=1), search=a", "says itself which"),
        (
            'lean(baseline={"heads": 4, "depth": 3}, margin=0.02)',
            "None",
            "this sweep asks no question",
        ),
    ):
        file.write_text(text.replace(old, new).replace("import Sweep", "import Asha, Sweep"))
        refused = hsweep("run", file, "--runner", "inline", "--no-check")
        assert (refused.exit_code, rule in refused.output) == (2, True), refused.output
