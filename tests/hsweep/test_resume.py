"""Drivers that are killed or interrupted, and studies that go on as if they had not been."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_process import Driver, Workplace
from tiny import tiny_sweep
from tiny_runs import History, coordinating, histories, status_log, statuses

from hsweep import Recipe, epochs, grid
from hsweep.coordination.runner import InlineRunner
from hsweep.record.journal import JournalReader


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path_factory.mktemp("outside the project"))
    yield workplace
    workplace.close()


@pytest.fixture(scope="module")
def calm(workplace: Workplace) -> dict[str, History]:
    """The histories of an uninterrupted run."""
    workplace.let_go()
    workplace.run("run", "outside.py", "--no-reuse", "--runner", "inline", "--study", "calm")
    return workplace.histories("calm")


@pytest.fixture
def held(workplace: Workplace, calm: dict[str, History]) -> Iterator[Workplace]:
    """The workplace, its trials waiting until they are let go."""
    workplace.hold()
    yield workplace
    workplace.let_go()


def assert_complete(workplace: Workplace, study: str, calm: dict[str, History]) -> None:
    assert workplace.histories(study) == calm
    assert set(statuses(workplace.study(study)).values()) == {"finished"}
    for key in calm:
        assert status_log(workplace.study(study), key).count("finished") == 1
    left = [path for path in (workplace.study(study) / "checkpoints").rglob("*") if path.is_file()]
    assert left == []


def assert_interrupted(workplace: Workplace, study: str, units_done: int) -> None:
    shown = workplace.json("show", study)
    assert (shown["state"], shown["units_done"], shown["finished"]) == (
        "interrupted", units_done, 0,
    )  # fmt: skip
    listed = {row["study"]: row["state"] for row in workplace.json("list")}
    assert listed[study] == "interrupted"
    assert "interrupted" in workplace.run("show", study).stdout()


def wait_for_waiting(driver: Driver, workplace: Workplace, study: str, num_trials: int) -> None:
    """Wait until so many trials wait in their third epoch, two reports on record."""

    def reached() -> bool:
        done = [len(history) for history in workplace.histories(study).values()]
        return len(workplace.waiting()) == num_trials and done.count(2) == num_trials

    driver.until(reached)


def test_an_uninterrupted_run_outside_the_project_uses_the_projects_own_code(
    workplace: Workplace, calm: dict[str, History]
) -> None:
    """Beside the sweep lie another `models`, `tasks` and `analysis`; none is ever imported."""
    assert len(calm) == 3
    assert {tuple(unit for unit, _, _ in history) for history in calm.values()} == {(1, 2, 3, 4)}
    assert not workplace.marker.exists()


INLINE = ("--runner", "inline")
ON_RAY = ("--max-concurrent", "1", "--no-dashboard")


@pytest.mark.slow
def test_a_study_whose_driver_was_killed_goes_on_without_a_gap_on_ray(
    held: Workplace, calm: dict[str, History]
) -> None:
    driver = held.start("run", "outside.py", "--no-reuse", "--study", "deserted", *ON_RAY)
    wait_for_waiting(driver, held, "deserted", 1)
    driver.kill()
    assert_interrupted(held, "deserted", units_done=2)
    held.let_go()
    held.run("resume", "deserted", *ON_RAY)
    assert_complete(held, "deserted", calm)


def test_one_interrupt_ends_a_study_cleanly_and_says_how_to_go_on(
    held: Workplace, calm: dict[str, History]
) -> None:
    driver = held.start(
        "run", "outside.py", "--no-reuse", "--runner", "inline", "--study", "stopped"
    )
    wait_for_waiting(driver, held, "stopped", 1)
    driver.interrupt()
    held.let_go()
    assert driver.wait() == 130
    assert f"hsweep resume stopped --home '{held.home}'" in driver.stdout()
    # The update in work was ended and is on disk, between two reports.
    assert_interrupted(held, "stopped", units_done=2)
    (checkpoint,) = [
        max(folder.glob("*.pt")) for folder in (held.study("stopped") / "checkpoints").iterdir()
    ]
    assert checkpoint.name.startswith("000000002.000000002-00001-")
    held.run("resume", "stopped", "--runner", "inline")
    assert_complete(held, "stopped", calm)


def test_a_second_interrupt_ends_a_study_at_once(held: Workplace, calm: dict[str, History]) -> None:
    driver = held.start("run", "outside.py", "--no-reuse", "--runner", "inline", "--study", "twice")
    wait_for_waiting(driver, held, "twice", 1)
    driver.interrupt()
    driver.interrupt()
    assert driver.wait() == 130
    assert "hsweep resume twice" in driver.stderr()


def test_on_ray_a_study_survives_an_interrupt_and_the_loss_of_rays_files(
    held: Workplace, calm: dict[str, History]
) -> None:
    driver = held.start("run", "outside.py", "--no-reuse", "--study", "rayed", *ON_RAY)
    wait_for_waiting(driver, held, "rayed", 1)
    driver.interrupt()
    held.let_go()
    assert driver.wait() == 130
    assert "hsweep resume rayed" in driver.stdout()
    # What trained ended between two reports; the process had the next trial ahead of it at most.
    shown = held.json("show", "rayed")
    assert shown["state"] == "interrupted"
    assert 2 <= shown["units_done"] <= 4

    ray_files = held.study("rayed") / "ray"
    assert any(ray_files.iterdir())
    shutil.rmtree(ray_files)
    ray_files.mkdir()
    (ray_files / "experiment_state-2000-01-01_00-00-00.json").write_text("{ damaged")
    driver = held.run("resume", "rayed", "--no-dashboard")
    assert_complete(held, "rayed", calm)
    assert not held.marker.exists()
    assert driver.stderr() == "planning the trials of rayed ...\nstarting Ray ...\n"
    for noise in ("Tune", "tune", "WARNING", "Trial name", "ray.init", "(raylet)", "(pid="):
        assert noise not in driver.stdout()


LADDER = '''
"""Three budgets of one shape; a trial waits in the decay of the second one."""

from pathlib import Path

from hsweep import Recipe, Sweep, epochs, grid
from tiny_beside import TinyModel, TinyTask

SWEEP = Sweep(
    name="ladder",
    space=grid(width=[2], dropout=[0.3]),
    task=TinyTask(waits_at=37, folder=str(Path({traces!r}))),
    model=lambda point: TinyModel(point.width, dropout=point.dropout),
    recipe=Recipe(lr=0.05, batch_size=8, schedule="wsd"),
    metric="nmse",
    goal="min",
    budget=epochs(20, ladder=[5, 10]),
    checkpoint_seconds=1e9,
)
'''
"""Of the 40 updates of 10 epochs, those from the 33rd on are the decay; no checkpoint is in it."""


@pytest.mark.parametrize(
    ("study", "runner"),
    [("cut", INLINE), pytest.param("cut-on-ray", ON_RAY, marks=pytest.mark.slow)],
)
def test_a_driver_killed_in_a_decay_costs_a_ladder_the_way_back_to_its_trunk(
    held: Workplace, tmp_path: Path, study: str, runner: tuple[str, ...]
) -> None:
    (held.root / "ladder.py").write_text(LADDER.format(traces=str(held.traces)))
    driver = held.start("run", "ladder.py", "--no-reuse", "--study", study, *runner)
    driver.until(
        lambda: (
            len(held.waiting()) == 1
            and sorted(map(len, held.histories(study).values())) == [0, 5, 9]
        )
    )
    driver.kill()
    assert held.json("show", study)["state"] == "interrupted"
    held.let_go()
    held.run("resume", study, *runner)
    undisturbed = tiny_sweep(
        space=grid(width=[2], dropout=[0.3]),
        recipe=Recipe(lr=0.05, batch_size=8, schedule="wsd"),
    )
    for amount in (5, 10, 20):
        with coordinating(replace(undisturbed, budget=epochs(amount)), tmp_path) as coordinator:
            InlineRunner().run(coordinator)
    # Every report once, and of each budget the same as of a plain run of that length.
    assert sorted(held.histories(study).values(), key=len) == sorted(
        histories(tmp_path).values(), key=len
    )
    with JournalReader(held.study(study) / "journal") as journal:
        rows = journal.trials()
        attempts = [(each.unit, each.attempt) for each in journal.reports() if each.attempt > 1]
    assert [(row.status, row.budget, row.attempt) for row in rows] == [
        ("finished", 5, 1), ("finished", 10, 2), ("finished", 20, 1),
    ]  # fmt: skip
    assert attempts == [(10, 2)]
