"""Training functions in Ray's workers, and a driver that is killed and interrupted."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_process import TESTS, Workplace
from own_functions import Troubled, one_after_another, own_sweep, running, until
from tiny_runs import coordinating, histories, status_log, statuses

from hsweep import Asha, Point, Run, StopTrial, grid
from hsweep.coordination.runner import InlineRunner
from hsweep.ray_tune.environment import prepare_ray
from hsweep.record.journal import JournalReader
from hsweep.workspace import load_sweep

prepare_ray()

from hsweep.ray_tune import workers  # noqa: E402
from hsweep.ray_tune.runner import RayRunner  # noqa: E402

SWEEP = '''
"""Trials of a function, of which the worse half is stopped."""

from hsweep import Asha, Sweep, epochs, grid
from own_functions_beside import Walk

SWEEP = Sweep(
    name="outside",
    space=grid(lr=[0.1, 0.2]),
    train=Walk(traces={traces!r}),
    metric="loss",
    goal="min",
    budget=epochs(6),
    early_stopping=Asha(grace=4, reduction_factor=2, min_survivors=1),
    checkpoint_seconds=0.0,
)
'''


def test_a_worker_that_dies_or_hangs_is_told_and_leaves_nothing_and_the_rest_is_as_undisturbed(
    local_ray: None, tmp_path: Path
) -> None:
    traces = {deed: tmp_path / deed for deed in ("walks", "hangs")}
    sweep = own_sweep(
        space=grid(deed=list(traces), lr=[0.1]), train=Troubled(str(tmp_path)), report_timeout=5.0
    )
    for folder in traces.values():
        folder.mkdir()
    with coordinating(sweep, tmp_path / "calm") as coordinator:
        trials = [trial for trial in coordinator.planned_trials() if trial.point["deed"] == "walks"]
    with coordinating(sweep, tmp_path / "inline", trials=trials) as calm:
        InlineRunner().run(calm)
    # It is killed with a checkpoint and processes of its own.
    (traces["walks"] / "kill-4").touch()
    (traces["walks"] / "family-4").touch()
    with coordinating(sweep, tmp_path / "study") as coordinator:
        RayRunner(scratch=str(tmp_path / "ray")).run(coordinator)
        assert coordinator.stop_reason is None

    undisturbed = histories(tmp_path / "inline")
    found = histories(tmp_path / "study")
    assert {key: found[key] for key in undisturbed} == undisturbed
    with JournalReader(tmp_path / "study" / "journal") as journal:
        rows = {row.point["deed"]: row for row in journal.trials()}
        reasons = {
            entry.payload["reason"]
            for entry in journal.log_after(0, 10_000)
            if entry.kind == "status" and entry.key in undisturbed and "failures" in entry.payload
        }
    assert {deed: (row.status, row.failures) for deed, row in rows.items()} == {
        "walks": ("finished", 1), "hangs": ("failed", 2),
    }  # fmt: skip
    # Once undisturbed and once more, but for the unit that was lost.
    times = [len((traces["walks"] / f"trained-{n}").read_text()) for n in range(1, 7)]
    assert times == [2, 2, 2, 3, 2, 2]
    (reason,) = reasons
    assert reason.startswith("the process died (process ")
    assert "or ended by os._exit" in reason
    assert rows["hangs"].reason.startswith("no report for 5 s (report_timeout): the process was")
    assert "in wait\n" in rows["hangs"].reason.split("it was at ")[1]
    assert 'own_functions.py", line' in rows["hangs"].reason
    assert "in waits_for_ever" in rows["hangs"].reason
    assert len(list(traces["walks"].glob("pid-*"))) == 4
    assert running(traces["walks"]) == set()


@dataclass(frozen=True)
class GoesOn:
    """Trains to the end, or goes on for ever once it was stopped; leaves files ``pid-NUMBER``."""

    folder: str

    def __call__(self, point: Point, run: Run) -> None:
        for unit in range(1, run.budget + 1):
            try:
                run.report(unit, loss=point.lr)
            except StopTrial:
                (Path(self.folder) / f"pid-{os.getpid()}").touch()
                while True:
                    time.sleep(0.01)


@pytest.mark.parametrize(
    ("rates", "at_once"),
    [pytest.param([0.1, 0.2], 1, marks=pytest.mark.slow), ([0.1, 0.2, 0.3, 0.4], 2)],
)
def test_functions_that_go_on_after_they_were_stopped_cost_their_process_and_no_other_trial(
    local_ray: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rates: list[float],
    at_once: int,
) -> None:
    monkeypatch.setattr(workers, "ENDING_SECONDS", 0.5)
    asha = Asha(grace=2, reduction_factor=2, min_survivors=1, decide="on_arrival")
    sweep = own_sweep(
        train=GoesOn(str(tmp_path)), space=grid(lr=rates), early_stopping=asha, max_failures=0
    )
    with coordinating(sweep, tmp_path / "study") as coordinator:
        # One after another: what arrives after the better one is stopped.
        RayRunner(scratch=str(tmp_path / "ray"), max_concurrent=at_once).run(coordinator)
        assert coordinator.stop_reason is None
        rows = coordinator.journal.trials()
    assert {row.status for row in rows} == {"finished", "stopped_early"}
    assert sum(row.failures for row in rows) == 0
    stuck = sum(row.status == "stopped_early" for row in rows)
    assert len(list(tmp_path.glob("pid-*"))) == stuck > 0
    until(lambda: not running(tmp_path))


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    (tmp_path / "outside").mkdir()
    workplace = Workplace(tmp_path / "outside")
    shutil.copy(TESTS / "own_functions.py", workplace.root / "own_functions_beside.py")
    workplace.sweep.write_text(SWEEP.format(traces=str(workplace.traces)))
    yield workplace
    workplace.close()


def wait_at(workplace: Workplace, unit: int) -> None:
    """Let trials wait in this unit, and in no other."""
    workplace.hold()
    (workplace.traces / f"wait-{unit}").touch()


def test_a_study_whose_driver_was_killed_and_then_interrupted_ends_as_undisturbed(
    workplace: Workplace,
) -> None:
    undisturbed = workplace.root / "undisturbed"
    with coordinating(load_sweep(workplace.sweep).sweep, undisturbed) as coordinator:
        InlineRunner().run(coordinator)
    calm = histories(undisturbed)
    assert sorted(map(len, calm.values())) == [4, 6]

    wait_at(workplace, 3)
    options = ("--study", "disturbed", "--runner", "inline")
    driver = workplace.start("run", "outside.py", *options)
    driver.until(lambda: len(workplace.waiting()) == 1)
    assert len(running(workplace.traces)) == 4
    driver.kill()
    until(lambda: not running(workplace.traces))
    recorded = workplace.histories("disturbed")
    assert all(history == calm[key][: len(history)] for key, history in recorded.items())

    wait_at(workplace, 5)
    driver = workplace.start("resume", "disturbed", "--runner", "inline")
    driver.until(lambda: len(workplace.waiting()) == 1)
    driver.interrupt()
    workplace.let_go()
    assert driver.wait() == 130
    assert running(workplace.traces) == set()
    workplace.run("resume", "disturbed", "--runner", "inline")
    assert workplace.histories("disturbed") == calm
    assert statuses(workplace.study("disturbed")) == statuses(undisturbed)
    assert one_after_another(workplace.histories("disturbed"))
    for key in calm:
        ends = status_log(workplace.study("disturbed"), key)
        assert ends.count("finished") + ends.count("stopped_early") == 1
