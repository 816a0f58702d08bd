"""What the Ray runner knows of nodes before it places trials on them."""

from typing import Any

import pytest

from hsweep import Resources
from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402

from hsweep.ray_tune import nodes as ray_nodes  # noqa: E402


def node(name: str, cpus: float = 16, gpus: float = 1) -> dict[str, Any]:
    return {"NodeID": name, "Alive": True, "Resources": {"CPU": cpus, "GPU": gpus}}


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
