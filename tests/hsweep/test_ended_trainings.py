"""Training that ends by itself, before its budget: what counts for it, and for the others."""

from pathlib import Path
from typing import Any

import pytest
from own_functions import own_sweep
from tiny import tiny_sweep
from tiny_runs import coordinating
from tiny_studies import trained

from analysis.ask import answer_study
from hsweep import Asha, Point, Run, StopTrial, UserError, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner
from hsweep.record.journal import JournalReader, TrialRow
from hsweep.record.study import StudyFolder

LOSSES = {1: [0.9, 0.5, 0.7, 0.7], 2: [0.8, 0.6, 0.4, 0.3, 0.25, 0.2], 4: [0.8, 0.9]}
"""By heads: after how many of 6 epochs a training ends, and with what."""


def patient(point: Point, run: Run) -> None:
    for unit, loss in enumerate(LOSSES[point.heads], 1):
        run.report(unit, loss=loss)
    if point.heads == 4:
        run.finish()
        run.finish()


def rows_of(folder: Path, **changes: Any) -> dict[int, TrialRow]:
    sweep = own_sweep(**{"space": grid(heads=[1, 2, 4]), "train": patient, **changes})
    with coordinating(sweep, folder) as coordinator:
        InlineRunner().run(coordinator)
        assert coordinator.is_exhausted
    with JournalReader(folder / "journal") as journal:
        return {row.point["heads"]: row for row in journal.trials()}


def ends(rows: dict[int, TrialRow]) -> dict[int, tuple[str, str, float | None]]:
    return {
        heads: (str(row.status), row.reason, row.metrics["loss"]) for heads, row in rows.items()
    }


def test_training_that_ends_by_itself_counts_with_its_last_report_at_the_first_try(
    tmp_path: Path,
) -> None:
    rows = rows_of(tmp_path / "study")
    assert ends(rows) == {
        1: ("finished", "ended by itself at 4 of 6 epochs", 0.7),
        2: ("finished", "", 0.2),
        4: ("finished", "ended by itself at 2 of 6 epochs", 0.9),
    }
    assert {row.attempt for row in rows.values()} == {1}
    assert ends(rows_of(tmp_path / "study")) == ends(rows), "a second run changes nothing"


def test_the_best_report_counts_where_the_sweep_says_so(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "study", final="best")
    assert ends(rows) == {
        1: ("finished", "ended by itself at 4 of 6 epochs; its best report counts, that of 2", 0.5),
        2: ("finished", "", 0.2),
        4: ("finished", "ended by itself at 2 of 6 epochs; its best report counts, that of 1", 0.8),
    }
    assert [rows[heads].unit for heads in (1, 2, 4)] == [4, 6, 2]
    assert ends(rows_of(tmp_path / "study", final="best")) == ends(rows)


@pytest.mark.parametrize("final", ["last", "best"])
def test_what_has_ended_takes_part_at_later_rungs_and_nobody_waits_for_it(
    tmp_path: Path, final: str
) -> None:
    def train(point: Point, run: Run) -> None:
        last = {1: 2, 2: 6, 4: 6}[point.heads]
        for unit in range(1, last + 1):
            run.report(unit, loss={1: 0.5, 2: 0.1, 4: 0.9}[point.heads])

    stopping = Asha(grace=4, reduction_factor=2, min_survivors=2)
    rows = rows_of(tmp_path, train=train, early_stopping=stopping, final=final)
    assert (str(rows[1].status), rows[1].unit) == ("finished", 2)
    assert (str(rows[2].status), rows[2].unit) == ("finished", 6)
    assert str(rows[4].status) == "stopped_early"
    assert rows[4].reason.startswith("rank 3 of 3 at rung 4")


def test_a_rung_compares_the_best_so_far_where_the_best_counts(tmp_path: Path) -> None:
    curves = {1: [0.1, 0.9, 0.9, 0.9, 0.9, 0.9], 2: [0.5] * 6, 4: [0.4] * 6}

    def train(point: Point, run: Run) -> None:
        for unit in range(1, 7):
            run.report(unit, loss=curves[point.heads][unit - 1])

    stopping = Asha(grace=2, reduction_factor=3, min_survivors=1)
    for final, survivor in (("last", 4), ("best", 1)):
        rows = rows_of(tmp_path / final, train=train, early_stopping=stopping, final=final)
        finished = [heads for heads, row in rows.items() if row.status == "finished"]
        assert finished == [survivor]


def test_a_function_that_was_told_to_end_has_not_ended_by_itself(tmp_path: Path) -> None:
    there: list[Coordinator] = []

    def train(_point: Point, run: Run) -> None:
        run.report(1, loss=1.0)
        there[0].request_stop("SIGTERM")

    with coordinating(own_sweep(train=train, space=grid(heads=[1])), tmp_path) as coordinator:
        there.append(coordinator)
        InlineRunner().run(coordinator)
        coordinator.settle()
    with JournalReader(tmp_path / "journal") as journal:
        (row,) = journal.trials()
    assert (str(row.status), row.reason, row.unit) == ("planned", "interrupted", 1)


def test_finishing_before_a_report_is_refused_at_once(tmp_path: Path) -> None:
    def train(_point: Point, run: Run) -> None:
        run.finish()

    row = rows_of(tmp_path, train=train, space=grid(heads=[1]), max_failures=2)[1]
    assert (str(row.status), row.attempt) == ("failed", 1)
    assert row.reason.startswith("the training ended without a report")


def test_a_report_after_the_end_is_none(tmp_path: Path) -> None:
    def train(_point: Point, run: Run) -> None:
        run.report(2, loss=0.5)
        run.finish()
        with pytest.raises((UserError, StopTrial)):
            run.report(3, loss=0.1)

    row = rows_of(tmp_path, train=train, space=grid(heads=[1]))[1]
    assert (str(row.status), row.unit, row.metrics["loss"]) == ("finished", 2, 0.5)


def test_the_best_report_goes_with_training_of_ones_own_and_no_kept_weights() -> None:
    with pytest.raises(UserError, match="final belongs to training of your own"):
        tiny_sweep(final="best")
    with pytest.raises(UserError, match='final="best" counts another report'):
        own_sweep(final="best", keep="last")
    with pytest.raises(UserError, match="final must be 'last' or 'best', not 'first'"):
        own_sweep(final="first")


SWEEP = """
from hsweep import Sweep, command, epochs, grid, lean, stdout
SWEEP = Sweep(
    name="patience", space=grid(heads=[1, 2]), metric="val_loss", budget=epochs(6), final=FINAL,
    train=command(
        "python train.py --heads {heads}",
        metrics=stdout(r"epoch (?P<epoch>\\d+) val_loss (?P<val_loss>[\\d.]+)"),
    ),
)
"""
SCRIPT = """
import sys
for epoch in range(1, 7):
    loss = 0.1 + abs(epoch - int(sys.argv[2]))
    print(f"epoch {epoch} val_loss {loss}")
    if epoch > int(sys.argv[2]) + 1:
        break
"""


def test_an_answer_says_which_reports_count_and_another_study_takes_them_over(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    told, values = {}, {}
    for final in ("last", "best"):
        source = SWEEP.replace("FINAL", repr(final))
        home = trained(tmp_path / "home", tmp_path, source, study=final)
        study = StudyFolder.open(home, final)
        told[final] = answer_study(study).sentences[1]
        with study.journal() as journal:
            values[final] = [(row.metrics["val_loss"], row.reason) for row in journal.trials()]
            attempts = {row.attempt for row in journal.trials()}
    at = "2 of 2 runs ended by themselves, at 3 to 4 of 6 epochs; the "
    assert told == {
        "last": f"{at}last report of each run counts.",
        "best": f"{at}best report of each run counts.",
    }
    early = [f"ended by itself at {unit} of 6 epochs" for unit in (3, 4)]
    assert values == {
        "last": [(2.1, early[0]), (2.1, early[1])],
        "best": [
            (0.1, f"{early[0]}; its best report counts, that of 1"),
            (0.1, f"{early[1]}; its best report counts, that of 2"),
        ],
    }
    assert attempts == {0}, "the second study trains nothing"
