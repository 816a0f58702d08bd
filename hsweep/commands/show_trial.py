"""One trial of a study, as ``hsweep show STUDY TRIAL`` prints it, and the folders of trials."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.record.study import StudyFolder


def places_of(study: "StudyFolder", key: str) -> dict[str, str]:
    """Return the folder of a trial of the user's own training and the file with its output, those
    that are there."""
    from hsweep.paths import trial_folder
    from hsweep.reporting import OUTPUT_FILE

    folder = trial_folder(study.checkpoints(), key)
    places = {"folder": folder, "output": folder / OUTPUT_FILE}
    return {what: str(place) for what, place in places.items() if place.exists()}


def folders_line(study: "StudyFolder") -> str:
    """Return what the folders of trials take on this machine's disk; empty where there are none."""
    from hsweep.commands.output import quantity
    from hsweep.paths import trial_folder

    folder = trial_folder(study.checkpoints(), "any").parent
    if not folder.is_dir():
        return ""
    return f"{quantity(_bytes_below(folder), 'B')} of trials' own files in {folder}"


def show_trial(
    console: "Console", trial: Mapping[str, Any], failures: Sequence[Mapping[str, Any]]
) -> None:
    """Print what the record has of a trial, without what it has not, then its failed attempts."""
    from hsweep.commands.output import table_of
    from hsweep.record.endings import first_line

    table = table_of("", "")
    for name, value in {**trial, "reason": first_line(trial["reason"])}.items():
        if value not in (None, "") and name != "ordinal":
            table.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)
    for each in failures:
        console.print(f"\nattempt {each['attempt']}", style="bold")
        console.print(each["reason"])


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # a script may remove files meanwhile
                total += Path(place, name).lstat().st_size
    return total
