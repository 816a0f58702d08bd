"""A trial that several processes train: they go on and end as one, whatever becomes of one."""

import math
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tiny_runs import assignment_of, coordinating, planned
from torch import distributed

from hsweep import Point, Sweep, command, epochs, grid
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Resources
from hsweep.design.user_training import TrainFunction
from hsweep.errors import UserError
from hsweep.planning.plan import make_plan
from hsweep.ray_tune.environment import prepare_ray
from hsweep.running.run import connect
from hsweep.training.run import Run

prepare_ray()

from ray.tune.execution.placement_groups import PlacementGroupFactory  # noqa: E402

from hsweep.ray_tune.actor import TrialActor  # noqa: E402
from hsweep.ray_tune.messages import START, WorkerStart  # noqa: E402
from hsweep.ray_tune.nodes import slots_of  # noqa: E402
from hsweep.ray_tune.runner import RayRunner  # noqa: E402

TWO = Resources(processes=2, cpus=1)


@dataclass(frozen=True)
class Training:
    """Gradient descent towards the mean of numbers that the ranks share out.

    What the axis ``fate`` names happens in the third unit, once. Each unit leaves a file that names
    fate, unit, rank and process.
    """

    folder: str

    def __call__(self, point: Point, run: Run) -> None:
        place, number = torch.zeros(()), 0
        if run.checkpoint is not None:
            number, place = torch.load(run.checkpoint / "place.pt")
        shared_out = torch.arange(1.0, 9)[run.rank :: run.world_size]
        for unit in range(number + 1, run.budget + 1):
            (Path(self.folder) / f"{point.fate} {unit} {run.rank} {os.getpid()}").touch()
            if unit == 3:
                self.meet(point.fate, run.rank)
            gradient = (place - shared_out).sum()
            distributed.all_reduce(gradient)
            place = place - gradient / 16
            kept = run.folder / "kept"
            if run.rank == 0:
                kept.mkdir(exist_ok=True)
                torch.save((unit, place), kept / "place.pt")
                run.report(unit, place=float(place), checkpoint=kept)
            else:
                run.report(unit)
        if point.fate == "destroys":
            distributed.destroy_process_group()

    def meet(self, fate: str, rank: int) -> None:
        what, _, whom = fate.partition(" ")
        if whom != f"{rank} once":
            return
        been = Path(self.folder) / f"been {fate}"
        if been.exists():
            return
        been.touch()
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ArithmeticError("it does not add up")


def sweep_of(train: TrainFunction, fates: Sequence[str] = ("calm",), **others: Any) -> Sweep:
    fields: dict[str, Any] = {
        "name": "several",
        "description": "what becomes of a trial of two processes",
        "space": grid(fate=list(fates)),
        "train": train,
        "metric": "place",
        "goal": "max",
        "budget": epochs(4),
        "resources": TWO,
    }
    return Sweep(**(fields | others))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_two_processes_train_a_trial_and_a_death_of_either_costs_no_number(
    local_ray: None, tmp_path: Path
) -> None:
    """Whoever is killed, the other waits for it in a collective; then both go on from the
    checkpoint. A trial may destroy its groups: the next has its own."""
    traces = tmp_path / "traces"
    traces.mkdir()
    fates = ["destroys", "calm", "kill 1 once", "kill 0 once", "raise 1 once"]
    sweep = sweep_of(Training(str(traces)), fates, max_failures=1, checkpoint_seconds=0.0)
    runner = RayRunner(scratch=str(tmp_path / "ray"))
    with coordinating(sweep, tmp_path / "study") as coordinator:
        runner.check({trial.key: trial.resources for trial in coordinator.planned_trials()})
        runner.run(coordinator)
        rows = {row.key: row.point["fate"] for row in coordinator.journal.trials()}
        ends = {
            row.point["fate"]: (str(row.status), row.attempt, row.failures)
            for row in coordinator.journal.trials()
        }
        places: dict[str, list[Any]] = {}
        notes: dict[str, list[str]] = {}
        for entry in coordinator.journal.reports():
            places.setdefault(rows[entry.key], []).append((entry.unit, entry.payload["metrics"]))
            notes.setdefault(rows[entry.key], []).append(entry.payload.get("note", ""))
        reasons = {
            rows[entry.key]: entry.payload["reason"]
            for entry in coordinator.journal.log_after(0, 10_000)
            if entry.kind == "status" and "failures" in entry.payload
        }
    assert ends == {
        fate: ("finished", 2, 1) if "once" in fate else ("finished", 1, 0) for fate in fates
    }
    assert all(each == places["calm"] for each in places.values())
    assert [unit for unit, _ in places["calm"]] == [1, 2, 3, 4]
    assert places["calm"][-1][1]["place"] == pytest.approx(4.5 * (1 - 0.5**4))
    assert set(notes["calm"]) == {""}
    assert reasons["kill 1 once"].startswith("the process of rank 1 died (process ")
    assert reasons["kill 0 once"].startswith("the process died (process ")
    first, *rest = reasons["raise 1 once"].splitlines()
    assert first.startswith("ArithmeticError: it does not add up at ")
    assert first.endswith(" (in rank 1 of 2)")
    assert "in meet" in "".join(rest)
    # Rank, unit and process of each: who was left by a death never trained on.
    by_fate: dict[str, list[tuple[int, int, int]]] = {}
    for trace in traces.glob("* *[0-9]"):
        name, unit, rank, pid = trace.name.rsplit(" ", 3)
        by_fate.setdefault(name, []).append((int(unit), int(rank), int(pid)))
    for fate in ("kill 1 once", "kill 0 once"):
        before = {pid for unit, _, pid in by_fate[fate] if unit == 1}
        after = {pid for unit, _, pid in by_fate[fate] if unit == 4}
        assert len(before) == len(after) == 2
        assert not before & after
        assert not any(is_running(pid) for pid in before)


@dataclass(frozen=True)
class Reporting:
    """Reports up to the last unit; what the axis ``fate`` names happens in one of its ranks.

    Each unit leaves a file that names fate, unit and rank, and a refused report one with its text.
    """

    folder: str = ""

    def __call__(self, point: Point, run: Run) -> None:
        is_ahead = point.fate == "ahead" and run.rank == 1
        is_short = point.fate == "short" and run.rank == 1
        for unit in range(1 + is_ahead, run.budget + 1 - is_short):
            (Path(self.folder) / f"{point.fate} {unit} {run.rank}").touch()
            is_diverging = point.fate == "diverges" and unit == 2
            try:
                if run.rank == 0:
                    run.report(unit, place=math.nan if is_diverging else 1.0)
                else:
                    run.report(unit)
            except UserError as error:
                (Path(self.folder) / f"refused {point.fate} {run.rank}").write_text(str(error))
                if point.fate == "ahead":
                    distributed.barrier()  # the first to end ends the other
                raise


def test_ranks_report_the_same_units_and_end_where_rank_0_ends(
    local_ray: None, tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    fates = ["diverges", "ahead", "short"]
    sweep = sweep_of(Reporting(str(traces)), fates, max_failures=0)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        RayRunner(scratch=str(tmp_path / "ray")).run(coordinator)
        ends = {row.point["fate"]: row for row in coordinator.journal.trials()}
    assert {trace.name for trace in traces.glob("diverges *")} == {
        f"diverges {unit} {rank}" for unit in (1, 2) for rank in (0, 1)
    }
    assert ends["diverges"].status == "diverged"
    differ = {
        "ahead": "unit 0 they differ: rank 0 reports unit 1, rank 1 reports unit 2",
        "short": "unit 3 they differ: rank 0 reports unit 4, rank 1 has returned",
    }
    for fate, text in differ.items():
        assert ends[fate].status == "failed"
        assert text in ends[fate].reason
    # A rank that has returned is refused outside its function, and may end before the other.
    for rank in (0, 1):
        assert (traces / f"refused ahead {rank}").read_text().endswith(differ["ahead"])


@pytest.mark.parametrize(
    ("resources", "processes", "threads", "all_cpus"),
    [
        (Resources(), 1, 1, 1),
        (Resources(gpus=4), 4, 1, 4),
        (Resources(gpus=4, cpus=2), 4, 2, 8),
        (Resources(gpus=0.25, cpus=2), 1, 2, 2),
        (Resources(processes=2, cpus=3), 2, 3, 6),
        (Resources(processes=2, gpus=2), 2, 1, 2),
    ],
)
def test_cpus_are_each_processs_and_devices_are_the_trials(
    resources: Resources, processes: int, threads: int, all_cpus: int
) -> None:
    assert (resources.processes, resources.num_threads) == (processes, threads)
    assert resources.all_cpus == all_cpus


@pytest.mark.parametrize(
    ("amounts", "why"),
    [
        ({"gpus": 1.5}, "a share of one device .* or several whole ones, not 1.5"),
        ({"gpus": 2, "processes": 4}, "gpus=2 does not go with processes=4; leave processes out"),
        (
            {"gpus": 0.5, "processes": 2},
            "gpus=0.5 does not go with processes=2; .* gpus or none",
        ),
        ({"gpus": "auto"}, "numbers that are neither .* gpus='auto'"),
        ({"processes": -1}, "processes must be a whole number of at least 0, not -1"),
        ({"processes": 2.5}, "processes must be a whole number of at least 0, not 2.5"),
    ],
)
def test_processes_and_devices_that_do_not_go_together_are_refused(
    amounts: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        Resources(**amounts)


def test_settings_of_devices_and_processes(tmp_path: Path) -> None:
    sweep = sweep_of(Reporting(), resources=Resources(gpus=4, cpus=2))

    def resources(**settings: Any) -> Any:
        chosen = sweep
        for name, value in settings.items():
            chosen = chosen.with_settings([(name, [value])])
        return chosen.resources

    assert resources(gpus=8) == Resources(gpus=8, cpus=2)
    assert resources(gpus=0.5) == Resources(gpus=0.5, cpus=2)
    assert resources(gpus=0, processes=2) == Resources(cpus=2, processes=2)
    assert resources(spread="true") == Resources(gpus=4, cpus=2, spread=True)


NODES = [{"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 2}, {"CPU": 4}]


@pytest.mark.parametrize(
    ("request_", "slots"),
    [
        (Resources(gpus=2), 3),
        (Resources(gpus=4), 1),
        (Resources(gpus=6), 0),
        (Resources(gpus=6, spread=True), 1),
        (Resources(gpus=4, cpus=3), 0),
        (Resources(gpus=4, cpus=3, spread=True), 1),
        (Resources(processes=2, cpus=3), 2),
        (Resources(processes=5, cpus=4, spread=True), 1),
        (Resources(processes=6, cpus=4, spread=True), 0),
    ],
)
def test_trials_at_once_on_several_nodes(request_: Resources, slots: int) -> None:
    assert slots_of(NODES, request_) == slots


def test_each_process_is_placed_and_a_commands_processes_with_it(tmp_path: Path) -> None:
    def placed(train: Any, resources: Resources) -> PlacementGroupFactory:
        [trial] = planned(sweep_of(train, resources=resources))
        start = WorkerStart([assignment_of(trial, tmp_path)])
        return TrialActor.default_resource_request({START: start})

    each = placed(Reporting(), Resources(gpus=2, cpus=3))
    assert (each.bundles, each.strategy) == ([{"CPU": 3, "GPU": 1}] * 2, "STRICT_PACK")
    spread = placed(Reporting(), Resources(processes=3, cpus=2, spread=True))
    assert (spread.bundles, spread.strategy) == ([{"CPU": 2}] * 3, "PACK")
    script = command("python -m torch.distributed.run --nproc-per-node {processes} -m train")
    assert placed(script, Resources(gpus=2, cpus=3)).bundles == [{"CPU": 6, "GPU": 2}]


def test_what_several_processes_cannot_train_is_refused_before_the_start() -> None:
    plan = make_plan(sweep_of(Reporting()), preset="quick", study_seed=0)
    with pytest.raises(UserError, match="has but this process, and trials need 2 each"):
        connect(InlineRunner(), plan)
    script = command("python -m torch.distributed.run --nproc-per-node {processes} -m train")
    with pytest.raises(UserError, match="a command starts on one node"):
        planned(sweep_of(script, resources=replace(TWO, spread=True)))
