"""Every name of Ray that is not part of its public interface.

Ray may change them with any release, so it is bounded to the minor version they were tested with,
and ``tests/hsweep/test_ray_private.py`` fails where one of them is another.
"""

import contextlib
import functools
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray
from ray._private import ray_constants, services
from ray._private.node import Node
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]
from ray.core.generated.gcs_pb2 import GcsNodeInfo
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.experimental import internal_kv

from hsweep.terminal import warn

if TYPE_CHECKING:
    # Tune takes as long to import as Ray takes to start, which does not need it.
    from ray.tune.experiment import Trial as TuneTrial

HEAD_SECONDS: Final = 20.0
"""How long the head of a cluster may take to answer before it is joined."""

_CLAIMS: Final = "hsweep"
_IDLE_HELPERS: Final = ("start_log_monitor", "start_monitor", "start_api_server")
_LINE_LENGTH: Final = 300
_TOLD: Final = ("The node with node id", "Raylet is termin", "A worker died", "Traceback")
"""How messages of Ray begin that say at length what we say ourselves."""
_errors: dict[str, BaseException] = {}


def actor_of(trial: "TuneTrial") -> Any:
    """Return the handle of a Tune trial's process, None while it has none.

    Tune's callbacks and schedulers are given trials and never their processes.
    """
    return trial.temporary_state.ray_actor


def name_next_task(actor: Any, name: str) -> None:
    """Name the next task that Tune gives a process: in Ray's dashboard, and as ``ray::NAME`` in
    lists of processes.

    Tune asks a handle for its method ``train`` and calls that, so the handle is given one that has
    a name.
    """
    vars(actor).pop("train", None)
    actor.train = actor.train.options(name=name)


def working_folder(trial: "TuneTrial") -> str | None:
    """Return the folder of a Tune trial's process on its node, which is the process's ``logdir``.

    The driver has no public way to it.
    """
    return trial.storage.trial_working_directory if trial.storage else None


def dead_processes() -> list[str]:
    """Return the names of dead processes of the Ray that this process started.

    Where its head has died every public call blocks for as long as the client tries to reconnect.
    """
    node = ray._private.worker._global_node
    return [name for name, _ in node.dead_processes()] if node is not None else []


def draining_nodes() -> set[str]:
    """Return the ids of the nodes that are to go away, with a notice: ``ray start --block`` drains
    its node at SIGTERM, and so do autoscalers. Tune takes no notice of it."""
    return {*ray._private.state.state.get_draining_nodes()}


def exchange(key: str, claim: str) -> dict[str, str]:
    """Leave with the cluster's head what this driver wants, or take it away if that is nothing;
    return what all drivers want, by their keys."""
    if claim:
        internal_kv._internal_kv_put(key, claim, namespace=_CLAIMS)
    else:
        internal_kv._internal_kv_del(key, namespace=_CLAIMS)
    keys = internal_kv._internal_kv_list("", namespace=_CLAIMS)
    claims = {key: internal_kv._internal_kv_get(key, namespace=_CLAIMS) for key in keys}
    return {key.decode(): claim.decode() for key, claim in claims.items() if claim}


def keep_idle_process(controller: Any, spare: int) -> None:
    """Let Tune keep a process for its next trial only while there are ``spare`` slots: others may
    wait for what it occupies."""
    cache = controller._actor_cache
    cache._may_keep_one = cache.num_cached_objects <= spare


def problem_of_head(address: str) -> str:
    """Return why the head of a cluster does not answer within ``HEAD_SECONDS``; empty if it does.

    ``ray.init`` would wait for as long as a run waits for a head that is silent for a while: many
    minutes. The command is not part of Ray's documentation.
    """
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        asked = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HEAD_SECONDS,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {HEAD_SECONDS:g} s"
    lines = [line.strip() for line in asked.stderr.splitlines() if line.strip()]
    return (lines or ["it is not healthy"])[-1][:_LINE_LENGTH] if asked.returncode else ""


def nodes_elsewhere(address: str) -> list[str]:
    """Return the addresses of a cluster's nodes if none of them is this machine, else nothing.

    Ray looks a minute for a node's process, and aborts this one where it cannot see its sockets.
    """
    client = ray._raylet.GcsClient(address=services.canonicalize_bootstrap_address_or_die(address))
    nodes = client.get_all_node_info(
        timeout=HEAD_SECONDS, state_filter=GcsNodeInfo.GcsNodeState.ALIVE
    ).values()
    processes = services.find_node_ids()
    is_here = any(
        node.node_id.hex() in processes and Path(node.raylet_socket_name).exists() for node in nodes
    )
    return [] if is_here else sorted({node.node_manager_address for node in nodes})


def shorten_messages() -> None:
    """Let what Ray says to all drivers of a cluster take a line on standard error, not pages of its
    logs on standard output."""
    ray._private.worker.print_to_stdstream = _print_first_lines


def _print_first_lines(data: Mapping[str, Any], **_settings: Any) -> None:
    for text in data["lines"]:
        line = str(text).strip().partition("\n")[0]
        if not line.startswith(_TOLD):
            warn(f"Ray says: {line[:_LINE_LENGTH]}")


@contextlib.contextmanager
def without_idle_helpers() -> Iterator[None]:
    """Let a Ray started in this context leave out processes that only take time from trials.

    One forwards what workers print to drivers that ask for it, as none of ours does; one adds
    nodes, of which a Ray of this machine alone gets none. The dashboard's server runs even where
    no dashboard is asked for, and can be started later (``start_dashboard``).

    Its agent, which reads logs for it, gets a free port: it does without where another Ray of this
    machine has the usual one.
    """
    # It warns that its handler of SIGTERM is for the main thread alone; ours take its place.
    logging.getLogger("ray._private.worker").setLevel(logging.ERROR)
    begin, starts = Node.__init__, {name: getattr(Node, name) for name in _IDLE_HELPERS}

    def begin_with_free_port(node: Node, ray_params: Any, *others: Any, **named: Any) -> None:
        ray_params.dashboard_agent_listen_port = 0
        begin(node, ray_params, *others, **named)

    for name in starts:
        setattr(Node, name, lambda _node, **_settings: None)
    Node.__init__ = begin_with_free_port
    try:
        yield
    finally:
        Node.__init__ = begin
        for name, start in starts.items():
            setattr(Node, name, start)


def start_dashboard() -> str:
    """Return the address of the dashboard of this process's Ray, empty where who started that Ray
    wanted none; it is started, which takes seconds, where there is none yet. It ends with the
    thread that calls this, if not before.

    Raises:
        RuntimeError: it cannot be started.
    """
    node = ray._private.worker._global_node
    # It says at length what the error says.
    logging.getLogger(services.__name__).setLevel(logging.CRITICAL)
    if node.head and ray_constants.PROCESS_TYPE_DASHBOARD not in node.all_processes:
        try:
            node.start_api_server(include_dashboard=True, raise_on_failure=True)
        except Exception as error:  # Ray raises it itself, without a class of its own
            log = Path(node.get_logs_dir_path(), "dashboard.log")
            raise RuntimeError(f"Ray's dashboard does not start; its log: {log}") from error
        port = ray_constants.DEFAULT_DASHBOARD_PORT
        if not node.webui_url.endswith(f":{port}"):
            warn(f"port {port} is taken, so Ray's dashboard has another")
    return f"http://{node.webui_url}" if node.webui_url else ""


def dashboard_token() -> str:
    """Return what the dashboard asks for before it shows anything; empty where it asks for
    nothing."""
    loader = AuthenticationTokenLoader.instance()
    return str(loader.get_raw_token()) if loader.has_token() else ""


def add_no_variables() -> None:
    """Let Tune start its processes with the variables of Ray's other processes.

    It gives them some of its own and some of the driver's, and Ray then uses none that is there
    already. On one machine they have the driver's anyway.
    """
    from ray.tune.execution import class_cache

    class_cache.DEFAULT_ENV_VARS.clear()
    class_cache.ENV_VARS_TO_PROPAGATE = frozenset()


def error_of(trial: "TuneTrial") -> BaseException | None:
    """Return the error that Ray raised for a trial, and forget it."""
    return _errors.pop(trial.trial_id, None)


def repair_tune() -> None:
    """Let a trial's error stay its own, and be known without a file.

    Tune's actor manager aborts the whole experiment on every error of Ray but that of an actor or a
    task: a kill by the memory monitor, a removed placement group, a full object store. Wrapped in
    the error of a dead actor, which is what they come to, they take the ordinary way.

    A trial's error is known afterwards only from a file of Tune's, and where that cannot be written
    the experiment ends too (https://github.com/ray-project/ray/issues/32481).

    Where nothing is to be trained now, Tune waits ten minutes for a trial, and does not end the
    processes of the last ones meanwhile.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial

    _repair(RayActorManager, "_actor_task_failed", _fail_task)
    _repair(Trial, "handle_error", _keep_error)
    TuneController._update_trial_queue.__defaults__ = (False, 0.1)  # blocking, timeout


def _repair(owner: Any, name: str, repaired: Callable[..., None]) -> None:
    original = getattr(owner, name)
    if not hasattr(original, "__wrapped__"):
        call = functools.partial(repaired, original)
        setattr(owner, name, functools.wraps(original)(lambda *its, **named: call(*its, **named)))


def _fail_task(original: Any, manager: Any, tracked_actor_task: Any, exception: Any) -> None:
    original(manager, tracked_actor_task=tracked_actor_task, exception=as_actor_error(exception))


def as_actor_error(error: BaseException) -> BaseException:
    """Return an error of Ray that is neither an actor's nor a task's as that of a dead actor."""
    if not isinstance(error, RayError) or isinstance(error, (RayActorError, RayTaskError)):
        return error
    wrapped: BaseException = RayActorError(error_msg=str(error))
    wrapped.__cause__ = error
    return wrapped


def _keep_error(original: Any, trial: "TuneTrial", exc: BaseException | None = None) -> None:
    if exc is not None:
        _errors[trial.trial_id] = exc
    with contextlib.suppress(Exception):
        original(trial, exc)
