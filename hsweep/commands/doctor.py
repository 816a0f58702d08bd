"""``hsweep doctor``: what on this machine would keep a study from running, and what to do about it.

Nothing is left behind: what is tried is tried in a temporary folder, and no home is made.
"""

import platform
import shutil
import sqlite3
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

import click

from hsweep.commands.options import home_option, json_option, tracking_option
from hsweep.commands.output import (
    EXIT_NOTHING_USABLE,
    console_for,
    exit_with,
    print_json,
    table_of,
)
from hsweep.commands.probes import Check
from hsweep.paths import Home, cache_folder

_GIB: Final = 2**30
_SCRATCH: Final = ".hsweep-doctor-"
_NETWORK_FILE_SYSTEMS: Final = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs"),
    *("glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"),
)
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option(
    "--thorough",
    is_flag=True,
    help="Also start Ray, open the MLflow store and build a model, as studies do (half a minute).",
)
@home_option
@tracking_option
@json_option
def doctor(thorough: bool, home: Home, tracking_uri: str | None, as_json: bool) -> None:
    """Check this machine in a few seconds, and say what to do about each problem."""
    checks = diagnose(home, thorough=thorough, tracking_uri=tracking_uri)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        from rich.text import Text

        table = table_of("check", "", "found", "what to do", overflow="fold")
        for check in checks:
            status = Text(check.status, _STYLES[check.status])
            table.add_row(check.name, status, check.detail, check.remedy)
        console_for(as_json=False).print(table)
    if any(check.status == "problem" for check in checks):
        exit_with(EXIT_NOTHING_USABLE)


def diagnose(home: Home, *, thorough: bool = False, tracking_uri: str | None = None) -> list[Check]:
    """Look at everything a study needs; never raises for what it finds, never hangs.

    ``thorough`` tries the large libraries out, most of which takes many seconds; otherwise torch
    alone is started, and of the others it is looked whether they are installed and whether what
    they are to join is there.
    """
    from hsweep.commands import probes

    found = [Check("python", "ok", f"Python {platform.python_version()} at {sys.executable}")]
    ray = partial(probes.ray, thorough=thorough)
    mlflow = partial(probes.mlflow, home, tracking_uri, thorough=thorough)
    with ThreadPoolExecutor() as pool:
        tried = (probes.packages, probes.torch, ray, mlflow)
        asked = [pool.submit(each) for each in (*tried, *([probes.families] if thorough else ()))]
    found += [each.result() for each in asked]
    place = writable(home.root, "home", "give another home with --home or HSWEEP_HOME")
    found.append(place)
    if place.status == "ok":
        found.append(write_ahead_log(home.root))
    return [
        *found,
        disk(home.root, "disk", want_gib=5),
        disk(Path(tempfile.gettempdir()), "disk for temporary files", want_gib=2),
        writable(cache_folder(), "cache", "set HSWEEP_CACHE to a folder that can be written"),
        compiler(),
    ]


def _nearest_existing(path: Path) -> Path:
    path = path.expanduser().absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def writable(folder: Path, name: str, remedy: str) -> Check:
    place = _nearest_existing(folder)
    missing = "" if place == folder.expanduser().absolute() else f" (to be made in {place})"
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=_SCRATCH):
            pass
    except OSError as error:
        return Check(name, "problem", f"{folder} cannot be written to: {error.strerror}", remedy)
    return Check(name, "ok", f"{folder}{missing}")


def disk(folder: Path, name: str, *, want_gib: float, need_gib: float = 0.5) -> Check:
    usage = shutil.disk_usage(_nearest_existing(folder))
    detail = f"{usage.free / _GIB:.1f} of {usage.total / _GIB:.1f} GiB free at {folder}"
    if usage.free < need_gib * _GIB:
        return Check(name, "problem", detail, f"free at least {need_gib:g} GiB there")
    if usage.free < want_gib * _GIB:
        return Check(name, "warning", detail, f"free {want_gib:g} GiB, or choose another disk")
    return Check(name, "ok", detail)


def write_ahead_log(home: Path) -> Check:
    """Try what the record needs of the home: SQLite in write-ahead mode, and working locks."""
    name, remedy = "journal", "put the home (--home, HSWEEP_HOME) on a local disk"
    kind = _file_system(home)
    place = f"{home} ({kind or 'unknown file system'})"
    try:
        with (
            tempfile.TemporaryDirectory(dir=_nearest_existing(home), prefix=_SCRATCH) as scratch,
            closing(sqlite3.connect(Path(scratch) / "journal.db")) as database,
        ):
            (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
            database.execute("CREATE TABLE probe (value INTEGER)")
    except (OSError, sqlite3.Error) as error:
        return Check(name, "problem", f"SQLite does not work at {place}: {error}", remedy)
    if mode != "wal":
        return Check(name, "problem", f"no write-ahead logging at {place}: mode {mode}", remedy)
    if kind in _NETWORK_FILE_SYSTEMS:
        detail = f"{place} is on a network file system, where SQLite's locks may fail"
        return Check(name, "warning", detail, f"{remedy}; checkpoints may stay on the network")
    return Check(name, "ok", f"write-ahead logging works at {place}")


def _file_system(folder: Path) -> str:
    import psutil

    place = _nearest_existing(folder).resolve()
    mounts = {
        len(mount.mountpoint): mount.fstype
        for mount in psutil.disk_partitions(all=True)
        if place.is_relative_to(mount.mountpoint)
    }
    return mounts[max(mounts)] if mounts else ""


def compiler() -> Check:
    from hsweep.training.compiler import what_is_missing

    missing = what_is_missing("cpu")
    if missing:
        detail = f"{missing} is missing, which recipes with compile='on' or 'graphs' need"
        return Check("compiler", "warning", detail, "install it, or leave compile at 'off'")
    return Check("compiler", "ok", "models can be compiled (compile='on' in a recipe)")
