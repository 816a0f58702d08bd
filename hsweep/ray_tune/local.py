"""A Ray on this machine, which may be started before it is known what it will be asked for."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ray

from hsweep.errors import UserError
from hsweep.garbage import unsearched
from hsweep.ray_tune.private import without_idle_helpers
from hsweep.record.provenance import usable_cores

QUIET: Final[Mapping[str, Any]] = {"log_to_driver": False, "logging_level": logging.WARNING}
MOST_EARLY: Final = 8
"""Cores of a machine on which processes are started before there is work for them, one each."""
_IDLE_SECONDS: Final = 60
"""How long a process waits for work before Ray may end it. After a second, as by default, it would
be ended in the moment in which cores are set aside for the trial that it was started for."""


@dataclass(frozen=True, slots=True)
class LocalRay:
    """A Ray that this process has started, and what its processes took over then.

    Attributes:
        environment: the variables they were given.
        surroundings: this process's own, of which they have a copy.
    """

    environment: Mapping[str, str]
    surroundings: Mapping[str, str]

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> "LocalRay":
        """Start a Ray whose processes take over this environment. It ends with the thread that
        calls this, if not before.

        They get it from here rather than from Ray (``runtime_env``), for which every process would
        wait a second, and could not be started before there is work for it.

        Raises:
            UserError: it does not start.
        """
        cores = usable_cores()
        # As many as cores wait for work, each with all that training imports: too much memory where
        # there are many cores.
        is_early = cores <= MOST_EARLY
        variables = {
            **environment,
            "RAY_CHDIR_TO_TRIAL_DIR": "0",
            "RAY_preload_python_modules": "hsweep.ray_tune.preload",
            "RAY_prestart_worker_first_driver": str(int(is_early)),
            "RAY_idle_worker_killing_time_threshold_ms": str(_IDLE_SECONDS * 1000),
        }
        try:
            with _in_environment(variables), without_idle_helpers():
                ray.init(
                    address="local",
                    include_dashboard=False,
                    dashboard_host="127.0.0.1",
                    num_cpus=cores,
                    **QUIET,
                )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"a local Ray does not start: {error}") from error
        return cls(dict(environment), _surroundings())

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether one that is started now would have the same environment: a sweep file can set
        variables, which its workers are to have, too."""
        return self.environment == environment and self.surroundings == _surroundings()


def shut_down() -> None:
    """End the Ray of this process, if there is one."""
    if not ray.is_initialized():
        return
    # Ray ends the whole process, without a word, where an object of its own is forgotten in another
    # thread at this moment, as those in cycles are by whoever looks for garbage.
    with unsearched():
        ray.shutdown()


def _surroundings() -> dict[str, str]:
    # Ray sets some of its own in the process that starts it.
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


@contextlib.contextmanager
def _in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let processes that are started meanwhile have these variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
