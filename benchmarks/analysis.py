"""A study of 100,000 trials: how long it takes to be analysed and reported, shown and listed.

The study is made up, with 20 reports a trial; each command is a process of its own.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

import click

from benchmarks.pairs import Ended, Quantity, environment, in_process, measured, show

KINDS: Final = ("transition", "lean")
MEGABYTES: Final = 2000.0
COMMANDS: Final = {
    "analyze --report": (60.0, ("--report",)),
    "analyze --kind pareto": (5.0, ("--kind", "pareto")),
    "analyze --kind effects": (5.0, ("--kind", "effects")),
    "show": (1.0, ()),
    "list": (1.0, ()),
}
"""Most seconds of each command, and its options."""
WHOLE: Final = 100_000


@click.command("analysis")
@measured(pairs=3)
@click.option("--trials", type=click.IntRange(20, WHOLE), help="[default: 100,000]")
@click.option("--reports", type=click.IntRange(5), default=20, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS))
@click.option("--home", "folder", type=click.Path(path_type=Path),
              help="Where the made-up studies are kept for another time.")  # fmt: skip
def command(
    pairs: int,
    quick: bool,
    strict: bool,
    trials: int | None,
    reports: int,
    kinds: tuple[str, ...],
    folder: Path | None,
) -> None:
    """Measure how long a very large study takes to be analysed, reported, shown and listed."""
    began = environment()
    trials = trials or (120 if quick else WHOLE)
    rows: list[Quantity] = []
    made = contextlib.nullcontext(folder) if folder else tempfile.TemporaryDirectory()
    with made as place:
        for kind in kinds or KINDS:
            study = _study(Path(str(place)), kind, trials, reports)
            has_bars = not quick and trials == WHOLE
            rows += _measure(study, kind, 1 if quick else pairs, has_bars=has_bars)
    show("analysis", [], began, quantities=rows, strict=strict)


def _study(home: Path, kind: str, trials: int, reports: int) -> Path:
    """Write the study and its exported tables, unless they are there; return its folder."""
    name = f"{kind}-{trials}"
    folder = home / "studies" / name
    if not (folder / "reports.parquet").exists():
        shutil.rmtree(folder, ignore_errors=True)
        in_process(
            ["-m", "benchmarks.large_studies", str(home), kind, str(trials), str(reports), name]
        )
    return folder


def _measure(study: Path, kind: str, times: int, *, has_bars: bool) -> list[Quantity]:
    home = ("--home", str(study.parents[1]))
    rows = []
    for name, (most, options) in COMMANDS.items():
        verb = name.split()[0]
        words = [verb, *options] if verb == "list" else [verb, study.name, *options]
        runs: list[Ended] = [in_process(["-m", "hsweep", *words, *home]) for _ in range(times)]
        fastest = min(runs, key=lambda ended: ended.seconds)
        rows += [
            Quantity(
                f"{kind}: hsweep {name}, fastest of {times}",
                fastest.seconds,
                "s",
                most if has_bars else None,
                facts={"runs": [ended.facts() for ended in runs]},
            ),
            Quantity(
                f"{kind}: memory of it",
                max(ended.peak_mb for ended in runs),
                "MB",
                MEGABYTES if has_bars else None,
            ),
        ]
    page = (study / "report.html").stat().st_size / 1e6
    return [*rows, Quantity(f"{kind}: size of the report", page, "MB")]
