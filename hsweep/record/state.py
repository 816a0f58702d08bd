"""What a log comes to: one row a trial, and the values of the study as a whole."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hsweep.record.log import Entry, LogLine
from hsweep.record.rows import TrialRow, lost_row

DAMAGED_META: Final = "damaged:"
"""Begins the names under which it is on record that a line of the log was found damaged."""

_MOST_NAMED: Final = 5
_ENTRY_KINDS: Final = ("report", "status", "trial", "meta")


@dataclass(slots=True)
class StudyState:
    """The state that the entries of a log lead to, one after the other."""

    rows: dict[str, TrialRow] = field(default_factory=dict)
    metas: dict[str, str] = field(default_factory=dict)

    def apply(self, entry: Entry) -> bool:
        """Change the state by an entry; return whether it is of any consequence."""
        if "meta" in entry:
            if entry["value"] is None:
                self.metas.pop(entry["meta"], None)
            else:
                self.metas[entry["meta"]] = entry["value"]
            return True
        key = key_of_entry(entry)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = lost_row(key)
        return row.apply(entry)


def key_of_entry(entry: Entry) -> str:
    """Return the key of the trial that an entry is about; empty for a value of the study."""
    return str(entry.get("report") or entry.get("status") or entry.get("trial") or "")


def unnoted_losses(
    path: Path, damaged: Iterable[LogLine], keys: Iterable[str], metas: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what damaged lines of a log have cost, each with the name under which that is put on
    record, if it is not."""
    known = [*keys]
    for line in damaged:
        name = f"{DAMAGED_META}{line.start}"
        if name not in metas:
            yield name, _loss(path, line, known)


def _loss(path: Path, line: LogLine, keys: list[str]) -> str:
    named = [key for key in keys if key.encode() in line.content]
    of = f" of trial {', '.join(named[:_MOST_NAMED])}" if named else ""
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    kinds = [kind for kind in _ENTRY_KINDS if kind.encode() in line.content]
    what = f" (what can be read of it: {', '.join(kinds)})" if kinds else ""
    return (
        f"{path}: the line at byte {line.start} is damaged and what it held{of}{more} is "
        f"lost{what}; the study goes on from what is left"
    )
