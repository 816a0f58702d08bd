"""Why an attempt ended, read from Ray's errors and from the files of the worker."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ray
from ray.exceptions import (
    ActorPlacementGroupRemoved,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    OwnerDiedError,
    RayActorError,
    RayError,
    TaskPlacementGroupRemoved,
)

from hsweep.design.trial import Assignment
from hsweep.ray_tune.messages import Place
from hsweep.ray_tune.nodes import alive_nodes, on_node
from hsweep.training.worker_queue import START_SECONDS, EndedProcess, hang_file

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_PLACE_LOST: Final = (
    ActorPlacementGroupRemoved,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    OwnerDiedError,
    TaskPlacementGroupRemoved,
)
_NODE_DIED: Final = "its node has died"
_LOW_MEMORY: Final = "running low on memory"
_FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$')
_TRAINS: Final = re.compile(r'training/worker_queue\.py", line \d+ in _work$')
"""Matches the frame of a stack that tells the thread that trains."""
_TEXT_LENGTH: Final = 6_000
_READ_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt ended.

    Attributes:
        text: what happened, a line for people first.
        is_own_fault: False if the place it ran in was lost.
        leaves_node: its process died there, so the next attempt is placed elsewhere.
        hung: the process has ended itself, and said that it was at this trial.
    """

    text: str
    is_own_fault: bool = True
    leaves_node: bool = False
    hung: bool = False


def is_on_live_node(place: Place | None) -> bool:
    """Whether a process's node still belongs to the cluster. Asks Ray, which may take its time."""
    try:
        nodes = {node["NodeID"] for node in alive_nodes()}
    except Exception:
        return False  # Ray itself does not answer
    return place is None or place.node in nodes


def failure_of(
    assignment: Assignment,
    process: EndedProcess,
    *,
    has_started: bool,
    is_node_alive: bool = True,
) -> Failure:
    """Return how an attempt ended.

    Args:
        process: where it was trained, or was to be.
        has_started: whether the process may have come to it.
        is_node_alive: of the node it ran on.
    """
    error, place = process.error, process.place
    name = f"process of rank {process.rank}" if process.rank else "process"
    where = f" (process {place.pid} on {place.host})" if place else ""
    if error is None:
        return Failure("the worker failed, and Ray did not say how")
    text = _COLOURS.sub("", str(error))
    if not isinstance(error, RayActorError) or error.actor_init_failed:
        # A traceback, whose last line says what was raised.
        return Failure(f"{text.strip().rpartition(chr(10))[2].strip()}\n{text}")
    trace = ""
    if process.folder and is_node_alive and assignment.report_timeout is not None:
        trace = hang_trace(process.folder, assignment, place)
    if trace or process.was_silenced:
        timeout = assignment.report_timeout or 0.0
        late = f"no report for {timeout:g} s"
        if not has_started:
            late = f"not ready for the trial within {max(timeout, START_SECONDS):g} s"
        late = f"{late} (report_timeout): the {name} was ended{where}"
        return Failure(f"{late}; {_position(trace)}", leaves_node=True, hung=bool(trace))
    is_low = isinstance(error.__cause__, OutOfMemoryError) or _LOW_MEMORY in text
    is_lost = not is_node_alive or error.preempted or _NODE_DIED in text
    text = text if len(text) <= _TEXT_LENGTH else f"{text[:_TEXT_LENGTH]} ..."
    if is_low:
        return Failure(
            f"out of host memory: Ray's memory monitor ended the {name}{where}, because its "
            "node was running low on memory; let fewer trials run at once (--max-concurrent, or "
            f"more cpus for each: --set cpus=...) or take a smaller batch\n{text}",
            leaves_node=True,
        )
    if is_lost:
        return Failure(f"the node was lost{where}\n{text}", is_own_fault=False)
    if isinstance(error, _PLACE_LOST) or isinstance(error.__cause__, _PLACE_LOST):
        return Failure(f"the {name} could not be reached{where}\n{text}", is_own_fault=False)
    if not has_started:
        return Failure(f"the {name} died before the trial began{where}\n{text}", is_own_fault=False)
    return Failure(
        f"the {name} died{where}: killed by a signal, by the system for want of memory, "
        f"crashed, or ended by os._exit\n{text}",
        leaves_node=True,
    )


def hang_trace(folder: str, assignment: Assignment, place: Place | None) -> str:
    """Return the traceback that a hanging process wrote before it ended itself; empty without one.

    ``folder`` is the Tune trial's. Where the place is not known, only this machine is searched.
    """
    path = str(hang_file(folder, assignment))
    text = _text(path)
    if text or place is None or place.node == ray.get_runtime_context().get_node_id():
        return text
    with contextlib.suppress(RayError):
        return str(ray.get(on_node(place.node, _text, path), timeout=_READ_SECONDS))
    return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""


def _position(trace: str) -> str:
    """Return where a process was when it hung, by the trace that it left."""
    if not trace:
        return "it did not say where it was: it was stopped, or could not even watch itself"
    stack = _main_stack(trace)
    frames = [match for line in stack if (match := _FRAME.match(line))]
    at = "{file}, line {line}, in {name}".format(**frames[0].groupdict()) if frames else "unknown"
    return "\n".join([f"it was at {at}", *stack[:40]])


def _main_stack(trace: str) -> list[str]:
    """Return the frames of the thread that trained, the innermost first."""
    blocks = [block.splitlines() for block in re.split(r"\n(?=Thread |Current thread )", trace)]
    training = [block for block in blocks if any(_TRAINS.search(line) for line in block)]
    lines = training[0] if training else blocks[-1]
    return [line for line in lines if _FRAME.match(line)]
