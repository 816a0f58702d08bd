"""Where a study's results come from: code, packages, machine and command line."""

import functools
import importlib.metadata
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hsweep.errors import is_installed
from hsweep.secrets import redact_command

PACKAGES: Final = (
    "hsweep", "torch", "timm", "transformers", "datasets", "ray", "optuna", "mlflow", "numpy",
    "scipy", "pandas", "pyarrow", "scikit-learn",
)  # fmt: skip

_SUBPROCESS_SECONDS: Final = 10


def output_of(command: Sequence[str]) -> str | None:
    """Return what a command prints, None if it is missing, fails or takes too long."""
    # Inside a git hook, git's own variables would point every call at the hook's repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.run(
            command,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SUBPROCESS_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


def git_state(file: Path) -> dict[str, Any] | None:
    """Return the commit of the checkout that ``file`` lies in.

    Returns:
        ``commit``; ``dirty``: a tracked file differs from that commit, or ``file`` is not tracked;
        ``tracked``: whether ``file`` is. None without git, a repository or a commit.
    """
    file = file.resolve()
    git = ("git", "-C", str(file.parent))
    commit = output_of((*git, "rev-parse", "--verify", "HEAD"))
    changes = output_of((*git, "status", "--porcelain", "--untracked-files=no"))
    if commit is None or changes is None:
        return None
    tracked = output_of((*git, "ls-files", "--error-unmatch", "--", file.name)) is not None
    return {"commit": commit.strip(), "dirty": bool(changes) or not tracked, "tracked": tracked}


@functools.cache
def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        info = ""
    name = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return name[1].strip() if name else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Count the cores this process may use, which a container can make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> dict[str, Any]:
    """Return this machine's processor, usable cores, memory in bytes and CUDA devices.

    The devices are asked of ``nvidia-smi``: asking torch would start CUDA in this process.
    """
    import psutil

    devices = output_of(("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"))
    driver = output_of(("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"))
    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "cuda_devices": [line.strip() for line in (devices or "").splitlines() if line.strip()],
        "cuda_driver": (driver or "").split("\n")[0].strip() or None,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def collect(*, command: Sequence[str], sweep_file: Path | None) -> dict[str, Any]:
    """Return all that is needed to know what produced a result, ready for JSON and without secrets;
    of the sweep file, the state of the checkout it lies in."""
    state = git_state(Path(__file__))
    # An installed copy may sit in a virtual environment inside somebody else's checkout, and with
    # it the sweeps that come with it.
    tool = state if state is not None and state["tracked"] else None
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "hostname": socket.gethostname(),
        "command": redact_command(command),
        "tool": tool,
        "sweep": None if sweep_file is None or is_installed(sweep_file) else git_state(sweep_file),
        "sweep_file": str(sweep_file.absolute()) if sweep_file is not None else None,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "hardware": hardware(),
    }
