"""What the Ray runner knows of nodes and their devices before it shares them out.

There is no device here: nodes only say that they have some.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_sweep
from tiny_runs import coordinating, take_one

from hsweep import Resources, UserError
from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402

from hsweep.ray_tune import nodes as ray_nodes  # noqa: E402
from hsweep.ray_tune.runner import RayRunner  # noqa: E402

GIB = 2**30
AUTO = Resources(cpus=1, gpus="auto")


def node(name: str, cpus: float = 16, gpus: float = 1) -> dict[str, Any]:
    return {"NodeID": name, "Alive": True, "Resources": {"CPU": cpus, "GPU": gpus}}


def answers(monkeypatch: pytest.MonkeyPatch, said: Mapping[str, int | Exception | None]) -> None:
    """Let nodes answer with their devices' memory, fail, or not answer."""

    def wait(references: list[str], **how: Any) -> tuple[list[str], list[str]]:
        return [r for r in references if said[r] is not None], [
            r for r in references if said[r] is None
        ]

    def get(references: list[str]) -> list[Any]:
        found = [said[reference] for reference in references]
        for each in found:
            if isinstance(each, Exception):
                raise each
        return found

    monkeypatch.setattr(ray_nodes, "on_node", lambda name, *_, **__: name)
    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "cancel", lambda reference: None)


def test_the_smallest_device_counts_and_a_busy_node_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, {"a": 80 * GIB, "b": 24 * GIB, "c": None})
    nodes = [node("a"), node("b"), node("c"), node("cpus", gpus=0)]
    assert ray_nodes.smallest_device_bytes(nodes) == 24 * GIB


@pytest.mark.parametrize(
    ("nodes", "said", "why"),
    [
        ([node("cpus", gpus=0)], {}, "no node has a free one"),
        ([node("busy")], {"busy": None}, "no node has a free one"),
        (
            [node("old")],
            {"old": ray.exceptions.RaySystemError("RuntimeError: no NVIDIA driver")},
            "no NVIDIA driver",
        ),
    ],
)
def test_where_no_device_can_be_asked_that_is_said_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, nodes: list[Any], said: dict[str, Any], why: str
) -> None:
    answers(monkeypatch, said)
    with pytest.raises(UserError, match=rf"{why}\. Give every trial a fixed share instead"):
        ray_nodes.smallest_device_bytes(nodes)


def test_a_share_that_is_open_needs_a_node_with_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [node("a", gpus=0)])
    runner = RayRunner(scratch="/nowhere")
    with pytest.raises(UserError, match="trial t1 needs 1 cpus and 1 gpus, but the largest node"):
        runner.check({"t1": AUTO})


def test_devices_are_asked_once_and_only_where_a_share_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [node("a")])
    answers(monkeypatch, {"a": 80 * GIB})
    runner = RayRunner(scratch="/nowhere")
    runner.check({"t1": Resources(cpus=1, gpus=0.5)})
    assert runner.device_bytes is None
    runner.check({"t1": AUTO})
    assert runner.device_bytes == 80 * GIB
    answers(monkeypatch, {"a": 1})
    runner.check({"t1": AUTO})
    assert runner.device_bytes == 80 * GIB


@pytest.mark.parametrize(("cpus", "gpus", "slots"), [(16, 2, 16), (64, 2, 16), (3, 1, 3)])
def test_as_many_trials_may_run_as_the_smallest_shares_allow(
    monkeypatch: pytest.MonkeyPatch, cpus: float, gpus: float, slots: int
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [node("a", cpus, gpus)])
    assert RayRunner(scratch="/nowhere").slots(AUTO) == slots


def test_ray_is_asked_for_the_share_that_the_coordinator_gives(tmp_path: Path) -> None:
    with coordinating(tiny_sweep(resources=AUTO), tmp_path) as coordinator:
        coordinator.share_devices(80 * GIB)
        assignment = take_one(coordinator)
        assert assignment is not None
        assert ray_nodes.slots_of({"CPU": 64, "GPU": 1}, assignment.resources) == 8


def test_a_node_that_killed_is_avoided_only_where_another_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = {**node("c"), "Alive": False}
    nodes = [node("a"), node("b"), dead]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert ray_nodes.avoidable({"a"}, Resources(cpus=1)) == {"a"}
    assert ray_nodes.avoidable({"a", "c"}, Resources(cpus=1)) == {"a"}
    assert ray_nodes.avoidable({"a", "b"}, Resources(cpus=1)) == frozenset()
    nodes[:] = [node("a", cpus=8), node("b", cpus=1)]
    assert ray_nodes.avoidable({"a"}, Resources(cpus=4)) == frozenset()
