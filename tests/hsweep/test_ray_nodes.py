"""What the Ray runner knows of nodes before it places trials on them."""

import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hsweep import Resources
from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402

from hsweep.planning.code import training_code  # noqa: E402
from hsweep.ray_tune import nodes as ray_nodes  # noqa: E402
from hsweep.ray_tune import roster as roster_module  # noqa: E402
from hsweep.ray_tune.roster import Roster  # noqa: E402

BARE = """
import pickle, sys
sys.modules["hsweep"] = None
hook, probe = pickle.load(sys.stdin.buffer)
hook()
print(probe("", b"", "", ""))
"""


def node(name: str, cpus: float = 16, *, alive: bool = True) -> dict[str, Any]:
    return {
        "NodeID": name,
        "NodeManagerHostname": f"n-{name}",
        "NodeManagerAddress": f"10.0.0.{ord(name)}",
        "Alive": alive,
        "Resources": {"CPU": cpus} if cpus else {},
    }


class Told:
    """A coordinator that is told of nodes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.recorded: list[list[str]] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def record_left_out(self, lines: Iterable[str]) -> None:
        self.recorded.append([*lines])


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def roster(told: Told) -> Roster:
    return Roster(told, nodes={name: node(name) for name in "abc"})  # type: ignore[arg-type]


ONE = Resources(cpus=1)


def test_a_node_on_which_a_trial_failed_is_avoided_only_where_another_has_room(
    roster: Roster,
) -> None:
    roster.failed("t", "a", "ValueError: x", ONE)
    assert roster.avoided("t", ONE) == {"a"}
    assert roster.avoided("another", ONE) == frozenset()
    roster.update([node("a"), node("b"), node("c", alive=False)])
    roster.failed("t", "b", "ValueError: x", ONE)
    assert roster.avoided("t", ONE) == frozenset()
    roster.update([node("a", cpus=8), node("b", cpus=1)])
    roster.failed("large", "a", "ValueError: x", ONE)
    assert roster.avoided("large", Resources(cpus=4)) == frozenset()


def test_a_trial_waits_for_no_busy_node_while_the_one_where_it_failed_is_free(
    roster: Roster,
) -> None:
    roster.update([node("a", cpus=2), node("b", cpus=2)])
    taken: list[tuple[str | None, Resources]] = [("a", ONE), ("b", ONE)]
    roster.occupied = lambda: taken
    assert roster.failed("t", "a", "ValueError: x", ONE)
    taken.append((None, ONE))  # it will have the last free place
    assert roster.avoided("t", ONE) == frozenset()
    taken[-1] = ("b", ONE)
    assert roster.avoided("t", ONE) == frozenset()
    taken.pop()
    assert roster.avoided("t", ONE) == {"a"}


def test_a_node_that_fails_three_trials_in_a_row_is_left_out_until_they_fail_elsewhere(
    roster: Roster, told: Told
) -> None:
    for key in "tuv":
        assert roster.left_out() == {}
        roster.failed(key, "a", f"OSError: {key}", ONE)
    line = "node n-a (10.0.0.97) gets no trials: it failed 3 trials in a row (the last: OSError: v)"
    assert told.lines == [line]
    assert told.recorded == [[line]]
    assert roster.avoided("another", ONE) == {"a"}
    assert roster.slots(ONE) == 32
    roster.failed("u", "b", "OSError: u", ONE)
    assert roster.left_out() == {}
    assert told.recorded == [[line], []]
    assert roster.slots(ONE) == 48


def test_a_trial_that_ends_well_speaks_for_its_node(roster: Roster) -> None:
    for key in "tu":
        roster.failed(key, "a", "OSError", ONE)
    roster.succeeded("a")
    for key in "vw":
        roster.failed(key, "a", "OSError", ONE)
    assert roster.left_out() == {}


def test_a_node_that_comes_and_lacks_something_gets_no_trial_though_it_is_the_last(
    roster: Roster, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(nodes: Iterable[Any]) -> dict[str, str]:
        return {node["NodeID"]: "does not see /shared" for node in nodes}

    roster.probe = probe
    with monkeypatch.context() as patch:
        patch.setattr(roster_module, "in_thread", lambda _name, action: action())
        roster.update([node("a"), node("d"), node("e", cpus=0)])
    joined, lack = "node n-d (10.0.0.100) has joined", "gets no trials: it does not see /shared"
    assert {*told.lines} == {
        *(f"node n-{name} (10.0.0.{ord(name)}) has gone" for name in "bc"),
        *(joined, f"node n-d (10.0.0.100) {lack}"),
    }
    assert roster.avoided("t", ONE) == {"d"}
    roster.update([node("d")])
    assert roster.avoided("t", ONE) == {"d"}
    assert roster.slots(ONE) == 0


def test_what_looks_at_a_node_needs_nothing_of_hsweep_there() -> None:
    sent = ray.cloudpickle.dumps((ray_nodes.setup_hook(), ray_nodes._probe()))
    done = subprocess.run([sys.executable, "-c", BARE], input=sent, capture_output=True, check=True)
    assert done.stdout.startswith(b"lacks this command's hsweep (")


def sweep_with_a_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return what a class of a module that is not here any more was pickled to."""
    (folder / "not_there.py").write_text("class Net: ...")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        import not_there  # type: ignore[import-not-found]

        sent = pickle.dumps(not_there.Net)
    del sys.modules["not_there"]
    return sent


def test_a_node_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe, good, root = ray_nodes._probe(), pickle.dumps(None), str(tmp_path)
    digest = training_code().digest
    (tmp_path / "marker").touch()
    assert probe(digest, good, root, "marker") == ""
    assert "has an hsweep of other code" in probe("other", good, root, "marker")
    lacking = sweep_with_a_module(tmp_path, monkeypatch)
    error = "ModuleNotFoundError: No module named 'not_there'"
    assert f"cannot load the sweep's trials ({error})" in probe(digest, lacking, root, "marker")
    assert f"does not see {root}; give --storage" in probe(digest, good, root, "another")
