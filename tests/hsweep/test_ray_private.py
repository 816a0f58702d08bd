"""Where an upgrade of Ray changed one of the names that are not public, these tests fail."""

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hsweep.errors import ROOT
from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402
from packaging.requirements import Requirement  # noqa: E402
from ray._private import services  # noqa: E402
from ray._private.node import Node  # noqa: E402
from ray.air.execution._internal.actor_manager import RayActorManager  # noqa: E402
from ray.exceptions import (  # noqa: E402
    ObjectStoreFullError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
)
from ray.train._internal.storage import StorageContext  # noqa: E402
from ray.tune.execution.tune_controller import TuneController  # noqa: E402
from ray.tune.experiment import Trial as TuneTrial  # noqa: E402
from ray.tune.utils.object_cache import _ObjectCache  # noqa: E402

from hsweep.ray_tune import private  # noqa: E402

LOW_MEMORY = OutOfMemoryError("killed due to the node running low on memory")


def test_ray_is_bounded_to_the_one_minor_version_that_this_was_tested_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = (Requirement(each) for each in project["dependencies"] if each.startswith("ray["))
    major, minor, _ = ray.__version__.split(".")
    assert bound.specifier.contains(ray.__version__)
    assert not bound.specifier.contains(f"{major}.{int(minor) + 1}.0")


def test_tune_still_ends_the_run_for_what_is_wrapped() -> None:
    """Where this fails, wrapping is no longer needed."""
    unwrapped = inspect.unwrap(RayActorManager._actor_task_failed)
    assert list(inspect.signature(unwrapped).parameters) == [
        "self", "tracked_actor_task", "exception",
    ]  # fmt: skip
    task: Any = type("Task", (), {"_tracked_actor": None})()
    with pytest.raises(RuntimeError, match="Caught unexpected exception"):
        unwrapped(object.__new__(RayActorManager), task, LOW_MEMORY)


@pytest.mark.parametrize(
    ("raised", "arrives_as"),
    [
        (LOW_MEMORY, RayActorError),
        (ObjectStoreFullError("no room for a result"), RayActorError),
        (RayActorError(error_msg="died"), RayActorError),
        (RayTaskError("f", "traceback", ValueError("x")), RayTaskError),
        (ValueError("something else"), ValueError),
    ],
)
def test_what_tune_would_end_the_run_for_arrives_as_a_dead_actor(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, arrives_as: type[Exception]
) -> None:
    arrived: list[Exception] = []

    def original(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        arrived.append(exception)

    monkeypatch.setattr(RayActorManager, "_actor_task_failed", original)
    for _ in range(2):
        private.repair_tune()
    manager = object.__new__(RayActorManager)
    RayActorManager._actor_task_failed(manager, tracked_actor_task=None, exception=raised)
    assert [type(error) for error in arrived] == [arrives_as]
    assert str(raised).splitlines()[-1] in str(arrived[0])


def test_an_error_is_known_although_tune_cannot_write_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unwrapped = inspect.unwrap(TuneTrial.handle_error)
    assert list(inspect.signature(unwrapped).parameters) == ["self", "exc"]

    def failing(self: Any, exc: BaseException | None = None) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(TuneTrial, "handle_error", failing)
    private.repair_tune()
    trial = TuneTrial("stub", stub=True)
    error = RayActorError(error_msg="died")
    trial.handle_error(error)
    assert private.error_of(trial) is error
    assert private.error_of(trial) is None, "it is forgotten"


def test_a_tune_trial_knows_its_process_and_its_folder() -> None:
    trial = TuneTrial("stub", stub=True)
    assert private.actor_of(trial) is None
    trial.temporary_state.ray_actor = process = object()
    assert private.actor_of(trial) is process
    assert private.working_folder(trial) is None, "before it has one"
    assert isinstance(StorageContext.trial_working_directory, property)


def test_tune_waits_for_trials_by_these_names() -> None:
    waiting = TuneController._update_trial_queue
    assert [*inspect.signature(waiting).parameters] == ["self", "blocking", "timeout"]


def test_tune_keeps_one_idle_process_by_these_names() -> None:
    assert "self._actor_cache = _ObjectCache(may_keep_one=True)" in inspect.getsource(
        TuneController
    )
    cache: Any = _ObjectCache(may_keep_one=True)
    controller = type("Controller", (), {"_actor_cache": cache})()
    private.keep_idle_process(controller, spare=-1)
    assert not cache.cache_object("size", "process")
    private.keep_idle_process(controller, spare=0)
    assert cache.cache_object("size", "process")
    private.keep_idle_process(controller, spare=0)
    assert list(cache.flush_cached_objects()) == ["process"]


def test_a_local_ray_tells_which_of_its_processes_have_died() -> None:
    assert hasattr(ray._private.worker, "_global_node")
    assert list(inspect.signature(Node.dead_processes).parameters) == ["self"]
    if not ray.is_initialized():
        assert private.dead_processes() == []


def test_what_is_not_started_meanwhile_is_started_again_afterwards() -> None:
    before = Node.start_log_monitor, Node.start_monitor, Node.start_api_server
    with private.without_idle_helpers():
        now = Node.start_log_monitor, Node.start_monitor, Node.start_api_server
        assert set(now).isdisjoint(before)
    assert (Node.start_log_monitor, Node.start_monitor, Node.start_api_server) == before


def test_a_dashboard_is_started_by_these_names() -> None:
    parameters = inspect.signature(Node.start_api_server).parameters
    assert [*parameters] == ["self", "include_dashboard", "raise_on_failure"]
    assert isinstance(Node.webui_url, property)


def test_what_ray_says_to_all_drivers_takes_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = ray._private.worker
    assert "print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)
    monkeypatch.setattr(worker, "print_to_stdstream", worker.print_to_stdstream)
    private.shorten_messages()
    for text in (
        "Raylet is terminated. Last 20 lines of the Raylet logs:\n  [state-dump]",
        "The node with node id: c16c has been marked dead because\n\t(2) raylet has lagging",
        "/tmp/ray is over 95% full\nObject creation will fail",
    ):
        said = {"lines": [text], "pid": "raylet", "is_err": False}
        worker.print_to_stdstream(said, ignore_prefix=False)
    assert capsys.readouterr() == ("", "hsweep: Ray says: /tmp/ray is over 95% full\n")


@pytest.mark.usefixtures("local_ray")
def test_a_machine_is_a_node_where_ray_finds_a_process_and_sockets_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = ray.get_runtime_context().gcs_address
    assert private.nodes_elsewhere(address) == []
    (node,) = ray.nodes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda _path: False)
        assert private.nodes_elsewhere(address) == [node["NodeManagerAddress"]]
    # As from another machine, or outside of the node's container.
    monkeypatch.setattr(services, "find_node_ids", set)
    assert private.nodes_elsewhere(address) == [node["NodeManagerAddress"]]


def test_no_other_file_uses_a_private_name_of_ray() -> None:
    private_names = re.compile(
        r"\bray(\.\w+)*\._[a-z]|temporary_state|trial\.storage|controller\._"
    )
    files = (ROOT / "hsweep").rglob("*.py")
    users = {path.name for path in files if private_names.search(path.read_text("utf-8"))}
    assert users == {"private.py"}
