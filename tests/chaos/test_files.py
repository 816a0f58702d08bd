"""Files that are lost or damaged between two runs."""

import math
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Endings, Reported, reports_in_the_log
from chaos.fault_table import Fault
from chaos.kill_loop import KillLoop
from chaos.workplace import Workplace

from hsweep.paths import index_file
from hsweep.record.log import segment_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def spoil(file: Path, rng: random.Random, first: int = 0) -> None:
    """Cut a file short, garble a stretch of it, or flip one bit, from byte ``first`` on."""
    content = bytearray(file.read_bytes())
    if len(content) <= first:
        return
    at = rng.randrange(first, len(content))
    kind = rng.choice(("cut", "garbled", "flipped"))
    if kind == "cut":
        del content[at:]
    elif kind == "garbled":
        content[at : at + 200] = rng.randbytes(min(200, len(content) - at))
    else:
        content[at] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def test_the_files_of_ray(
    workplace: Workplace, calm: Endings, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    tried = fault("Ray's files removed or garbled after a kill")
    kills = KillLoop(workplace, "rayless", ("--max-concurrent", "2"), rng, tried, start=12.0)
    for driver in kills.drivers(2):
        kills.kill(driver)
        ray = workplace.study("rayless") / "ray"
        if rng.random() < 0.5:
            shutil.rmtree(ray, ignore_errors=True)
        else:
            for file in files_below(ray):
                spoil(file, rng)
    tried.settle(kills.end(calm))


def test_the_record(
    workplace: Workplace, calm: Endings, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    """One of its files at a time: the log, its index or the index's write-ahead log.

    A line of the log that is damaged costs what it held, and nothing else. That the log holds
    anything at all is for backups to see to.
    """
    tried = fault("a file of the record damaged after a kill")
    kills = KillLoop(workplace, "damaged", ("--runner", "inline"), rng, tried, start=4.0)
    study, damaged = workplace.study("damaged"), set[Reported]()
    for driver in kills.drivers(8):
        # The checkpoints of a trial whose end is lost are gone.
        kills.kill(driver, most=math.inf)
        segments, index = segment_files(study / "journal"), index_file(study / "journal")
        indices = (index, index.with_name(f"{index.name}-wal"))
        files = [*segments, *(file for file in indices if file.exists())]
        if files:
            before = reports_in_the_log(study)
            file = rng.choice(files)
            # Who has a segment, and what study this is, is for backups to see to.
            lines = file.read_bytes().splitlines(keepends=True) if file in segments else []
            spoil(file, rng, sum(map(len, lines[:2])))
            damaged |= (before - reports_in_the_log(study)).keys()
    tried.settle(kills.end(calm, damaged))


def test_checkpoints(
    workplace: Workplace, calm: Endings, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    """A trial whose checkpoints are damaged is trained again from the last whole one."""
    tried = fault("checkpoints cut, garbled or removed after a kill")
    kills = KillLoop(workplace, "spoilt", ("--runner", "inline"), rng, tried, start=4.0)
    for driver in kills.drivers(5):
        # What is damaged is lost, however much it is.
        kills.kill(driver, most=math.inf)
        for file in files_below(workplace.study("spoilt") / "checkpoints"):
            if rng.random() < 0.3:
                file.unlink()
            else:
                spoil(file, rng)
    tried.settle(kills.end(calm))
