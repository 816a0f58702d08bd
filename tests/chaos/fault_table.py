"""What the suite has tried: one row a fault, and the table they make."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.audit import Audit

BEGIN: Final = "<!-- begin: written by make chaos -->"
END: Final = "<!-- end: written by make chaos -->"
_HEADINGS: Final = (
    *("fault", "tries", "trials planned", "finished once", "lost", "doubled"),
    *("most work lost (s)", "repeat with"),
)


@dataclass
class Fault:
    """One fault, and what became of the trials of the studies it was put to.

    Attributes:
        name: what was done.
        test: that does it.
        seed: that its moments were drawn from.
        tries: how often it was done.
        planned, once, lost, doubled: trials, over all studies that were ended after it.
        most_lost: training seconds of a single trial that a single fault cost, None if not
            measured.
    """

    name: str
    test: str
    seed: int
    tries: int = 0
    planned: int = 0
    once: int = 0
    lost: int = 0
    doubled: int = 0
    most_lost: float | None = None

    def settle(self, audit: Audit) -> None:
        """Add what an audit found, and fail if anything is wrong."""
        self.planned += audit.planned
        self.once += audit.once
        self.lost += len(audit.lost)
        self.doubled += len(audit.doubled)
        assert audit.problems == []

    def cost(self, seconds: Iterable[float]) -> None:
        """Note the work that single trials lost."""
        self.most_lost = max([self.most_lost or 0.0, *seconds])

    def cells(self) -> tuple[str, ...]:
        work = "" if self.most_lost is None else f"{self.most_lost:.2f}"
        command = f"`pytest {self.test} --chaos-seed {self.seed}`"
        numbers = (self.tries, self.planned, self.once, self.lost, self.doubled)
        return (self.name, *map(str, numbers), work, command)


def table(faults: list[Fault]) -> str:
    """Return the rows as Markdown."""
    lines = [_HEADINGS, ("---",) * len(_HEADINGS), *(fault.cells() for fault in faults)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_table(faults: list[Fault], document: Path) -> None:
    """Put the table between the two marks of a document, or into a file of its own."""
    text = document.read_text() if document.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    if begin:
        _, _, after = rest.partition(END)
        document.write_text(f"{before}{BEGIN}\n{table(faults)}\n{END}{after}")
    else:
        document.write_text(f"{table(faults)}\n")
