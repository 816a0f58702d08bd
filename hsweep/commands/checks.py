"""What this machine and the chosen folders are fit for: checks that import and start nothing.

Nothing is left behind: what is tried is tried in a temporary folder beside or in the place that is
meant, and a home that does not exist yet is not made.
"""

import os
import platform
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import psutil

from hsweep.training.compiler import what_is_missing

Status = Literal["ok", "warning", "problem"]

_GIB: Final = 2**30
_SCRATCH: Final = ".hsweep-doctor-"
_NETWORK_FILE_SYSTEMS: Final = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs"),
    *("glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"),
)
_SKEW_SECONDS: Final = 5.0
_WRITTEN: Final = 1_735_689_600.0  # 2025-01-01, before any version of this package


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what was looked at; no two checks share one.
        status: ``problem`` keeps studies from running, ``warning`` may spoil or slow them.
        detail: what was found.
        remedy: what to do about it; empty when nothing needs doing.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""


def nearest_existing(path: Path) -> Path:
    """Return ``path`` or the closest folder or file above it that exists."""
    path = path.expanduser().absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def python() -> Check:
    """Report the running Python."""
    return Check("python", "ok", f"Python {platform.python_version()} at {sys.executable}")


def writable(folder: Path, name: str, remedy: str) -> Check:
    """Try to make a file in ``folder``, or where it would have to be made."""
    place = nearest_existing(folder)
    missing = "" if place == folder.expanduser().absolute() else f" (to be made in {place})"
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=_SCRATCH):
            pass
    except OSError as error:
        return Check(name, "problem", f"{folder} cannot be written to: {error.strerror}", remedy)
    return Check(name, "ok", f"{folder}{missing}")


def disk(folder: Path, name: str, *, need_gib: float, want_gib: float) -> Check:
    """Compare the free space where ``folder`` is or will be with what studies need and want."""
    usage = shutil.disk_usage(nearest_existing(folder))
    detail = f"{usage.free / _GIB:.1f} of {usage.total / _GIB:.1f} GiB free at {folder}"
    if usage.free < need_gib * _GIB:
        return Check(name, "problem", detail, f"free at least {need_gib:g} GiB there")
    if usage.free < want_gib * _GIB:
        return Check(name, "warning", detail, f"free {want_gib:g} GiB, or choose another disk")
    return Check(name, "ok", detail)


def file_system(folder: Path) -> str:
    """Return the type of the file system that holds ``folder``, empty if it cannot be told."""
    place = nearest_existing(folder).resolve()
    mounts = [
        mount
        for mount in psutil.disk_partitions(all=True)
        if place.is_relative_to(mount.mountpoint)
    ]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""


def write_ahead_log(home: Path) -> Check:
    """Try what the journal needs of the home: SQLite in write-ahead mode, read from beside."""
    name = "journal"
    remedy = "put the home (--home, HSWEEP_HOME) on a local disk"
    try:
        with tempfile.TemporaryDirectory(dir=nearest_existing(home), prefix=_SCRATCH) as scratch:
            file = Path(scratch) / "journal.db"
            mode, value = _write_and_read_beside(file)
    except (OSError, sqlite3.Error) as error:
        return Check(name, "problem", f"SQLite does not work at {home}: {error}", remedy)
    kind = file_system(home)
    if (mode, value) != ("wal", 1):
        detail = f"no write-ahead logging at {home} ({kind or 'unknown file system'}): mode {mode}"
        return Check(name, "problem", detail, remedy)
    if kind in _NETWORK_FILE_SYSTEMS:
        detail = f"{home} is on a network file system ({kind}), where SQLite's locks may fail"
        return Check(name, "warning", detail, f"{remedy}; checkpoints may stay on the network")
    return Check(name, "ok", f"write-ahead logging works ({kind or 'unknown file system'})")


def _write_and_read_beside(file: Path) -> tuple[str, int]:
    writer = sqlite3.connect(file, isolation_level=None)
    try:
        (mode,) = writer.execute("PRAGMA journal_mode=WAL").fetchone()
        writer.execute("CREATE TABLE probe (value INTEGER)")
        writer.execute("INSERT INTO probe VALUES (1)")
        reader = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        try:
            (value,) = reader.execute("SELECT value FROM probe").fetchone()
        finally:
            reader.close()
    finally:
        writer.close()
    return str(mode), int(value)


def clock(home: Path, now: Callable[[], float] = time.time) -> Check:
    """Compare this machine's clock with the one that stamps files at the home."""
    with tempfile.NamedTemporaryFile(dir=nearest_existing(home), prefix=_SCRATCH) as scratch:
        skew = os.fstat(scratch.fileno()).st_mtime - now()
    detail = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now()))
    remedy = "synchronise the clock (NTP): times in records and logs would mislead"
    if now() < _WRITTEN:
        return Check("clock", "problem", f"{detail} is in the past", remedy)
    if abs(skew) > _SKEW_SECONDS:
        detail = f"{detail}; files at {home} are stamped {skew:+.0f} s off"
        return Check("clock", "warning", detail, remedy)
    return Check("clock", "ok", detail)


def port(number: int, use: str, remedy: str) -> Check:
    """Look whether a port of this machine is free."""
    name = f"port {number}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            return Check(name, "warning", f"not free for {use}: {error.strerror}", remedy)
    return Check(name, "ok", f"free for {use}")


def data_sets(root: Path | None) -> Check:
    """Look for local data sets: scikit-learn's digits, and the folders under ``root``."""
    name = "data sets"
    if find_spec("sklearn") is None:
        return Check(name, "problem", "scikit-learn is missing", "install hsweep anew")
    embedded = "digits (from scikit-learn)"
    if root is None:
        return Check(name, "ok", f"{embedded}; HSWEEP_DATA is not set, so no others")
    if not root.is_dir():
        detail = f"{embedded}; HSWEEP_DATA is {root}, which is no folder"
        return Check(name, "problem", detail, "set HSWEEP_DATA to the folder that holds data sets")
    try:
        found = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    except OSError as error:
        detail = f"{embedded}; {root} cannot be read: {error.strerror}"
        return Check(name, "problem", detail, "make the folder readable")
    if not found:
        detail = f"{embedded}; {root} holds no folders"
        return Check(name, "warning", detail, "put one folder a data set there, such as cifar10")
    return Check(name, "ok", f"{embedded}; under {root}: {', '.join(found)}")


def compiler() -> Check:
    """Look for what recipes with ``compile`` need; others do without."""
    missing = what_is_missing("cpu")
    if missing:
        detail = f"{missing} is missing, which recipes with compile='on' or 'graphs' need"
        return Check("compiler", "warning", detail, "install it, or leave compile at 'off'")
    return Check("compiler", "ok", "models can be compiled (compile='on' in a recipe)")


def hub(allowed: bool) -> Check:
    """Say whether data sets and tokenizers may be downloaded."""
    if allowed:
        return Check("hub", "ok", "downloads from the Hugging Face hub are allowed (HSWEEP_HUB=1)")
    return Check("hub", "ok", "no downloads from the Hugging Face hub; HSWEEP_HUB=1 allows them")
