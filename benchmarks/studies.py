"""A study run for what its log says of times and reports."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.pairs import in_process

if TYPE_CHECKING:
    from hsweep.record.rows import LogRow

_STUDY = "measured"


def log_of(
    sweep: Path,
    settings: Sequence[str],
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> "list[LogRow]":
    """Run a sweep's study in a process of its own and return its log.

    Args:
        sweep: the sweep file.
        settings: for ``--set``.
        options: further ones of ``hsweep run``.
        variables: of the environment.
    """
    from hsweep.record.journal import Journal

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        in_process(
            [
                *("-m", "hsweep", "run", str(sweep), "--home", str(home), "--study", _STUDY),
                *("--no-reuse", *options),
                *(text for setting in settings for text in ("--set", setting)),
            ],
            variables=variables,
        )
        with Journal(home / "studies" / _STUDY / "journal.db", read_only=True) as journal:
            return list(journal.log())


def reports_in(log: "Sequence[LogRow]") -> "list[LogRow]":
    """Return the reports, in their order."""
    return [entry for entry in log if entry.kind == "report"]


def ends_in(log: "Sequence[LogRow]") -> list[float]:
    """Return when trials finished, s."""
    return [
        entry.time
        for entry in log
        if entry.kind == "status" and entry.payload["status"] == "finished"
    ]
