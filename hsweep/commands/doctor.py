"""What on this machine would keep a study from running, and what to do about it."""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from hsweep.paths import Home
from hsweep.quiet import HUB_SWITCH
from hsweep.commands import checks, probes
from hsweep.commands.checks import Check, Status

__all__ = ["Check", "Status", "diagnose"]

_DATA: Final = "HSWEEP_DATA"
_CACHE: Final = "HSWEEP_CACHE"


def diagnose(
    home: Home,
    *,
    quick: bool = False,
    data_root: Path | None = None,
    tracking_uri: str | None = None,
) -> list[Check]:
    """Look at everything a study needs; never raises for what it finds, never hangs.

    Args:
        home: where studies are or will be kept; it is not made.
        quick: leave out whatever imports or starts a library (about 20 seconds, two minutes at
            worst).
        data_root: the folder of local data sets; None for the one that HSWEEP_DATA names.
        tracking_uri: the MLflow store; None for the home's own.

    Returns:
        One check a subject, in a fixed order.
    """
    if data_root is None and os.environ.get(_DATA):
        data_root = Path(os.environ[_DATA]).expanduser()
    # Before the probes: Ray's would itself take the dashboard's port.
    ports = [
        checks.port(8265, "Ray's dashboard", "none needed: Ray takes the next free port"),
        checks.port(5000, "MLflow's pages", "choose another port when you open MLflow's pages"),
    ]
    found = [checks.python()]
    if not quick:
        found += _at_once(
            probes.torch,
            probes.families,
            probes.ray,
            lambda: probes.mlflow(home, tracking_uri),
        )
    return [
        *found,
        *_places(home.root),
        checks.data_sets(data_root),
        checks.compiler(),
        checks.hub(os.environ.get(HUB_SWITCH) == "1"),
        *ports,
    ]


def _at_once(*questions: Callable[[], Check]) -> list[Check]:
    with ThreadPoolExecutor(len(questions)) as pool:
        return list(pool.map(lambda question: question(), questions))


def _places(root: Path) -> list[Check]:
    cache = Path(os.environ.get(_CACHE) or "~/.cache/hsweep").expanduser()
    home = checks.writable(root, "home", "give another home with --home or HSWEEP_HOME")
    at_home = [checks.write_ahead_log(root), checks.clock(root)] if home.status == "ok" else []
    return [
        home,
        *at_home,
        checks.disk(root, "disk", need_gib=0.5, want_gib=5),
        checks.disk(
            Path(tempfile.gettempdir()), "disk for temporary files", need_gib=0.5, want_gib=2
        ),
        checks.writable(cache, "cache", f"set {_CACHE} to a folder that can be written"),
    ]
