"""Ray's settings in environment variables; this module does not import Ray, which reads them
then."""

import os
from collections.abc import MutableMapping
from typing import Final

_SETTINGS: Final = {
    # Our own terminal output and our own record replace Tune's.
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # Interrupts are ours: the first ends the study cleanly.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # SIGTERM is, too: Ray's C++ code would take it, and end this process on the spot.
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
    # Token authentication is the default of current Ray, but only where it starts the cluster;
    # set explicitly, an address given by the user works the same way.
    "RAY_AUTH_MODE": "token",
    # A worker that ends because a trial failed in it has said so; what Ray would print of it as it
    # forgets the worker's last answer is no news.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

PATIENCE: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Ray's client ends this process, without a message, when the cluster's head is silent for so
long (a minute by default); before that we end the run ourselves."""
DRIVERS_PATIENCE: Final = "600"

LOOPBACK_ONLY: Final = {
    # Ray listens on every interface with all but its dashboard, unless it takes this machine for
    # one that can be part of no cluster.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def prepare_ray(
    environment: MutableMapping[str, str] = os.environ, *, joins_cluster: bool = False
) -> None:
    """Set the variables that Ray reads on import, except those that the user has set.

    A Ray that is started here listens on the loopback interface alone; one that
    ``joins_cluster`` has to be reached by the other nodes.
    """
    if joins_cluster:
        settings = {**_SETTINGS, PATIENCE: DRIVERS_PATIENCE}
    else:
        # The agents of a Ray whose driver was killed look for its head for as long, too.
        settings = {**_SETTINGS, PATIENCE: "90", **LOOPBACK_ONLY}
    for name, value in settings.items():
        environment.setdefault(name, value)
