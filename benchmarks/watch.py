"""What it costs a study to be watched.

The same study is trained twice in turn, from its first trial's start to its last one's end: with a
page of ``hsweep watch`` open, which hears every event and fetches the page again whenever there are
new results, as a browser does; and with nobody watching. Workers train on all cores, so that what
watching computes is taken from them.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import Pairing, conclude, environment, in_process, in_turn, measured, show
from hsweep.listening import listening
from hsweep.record.journal import Journal

STUDY_SWEEP: Final = Path(__file__).with_name("idle_sweep.py")


@click.command("watch")
@measured(pairs=5)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure how much longer a study takes while its page is open."""
    about = environment()
    sizes = ("heads=1,2", "replicates=2", "epochs=3") if quick else ("replicates=3", "epochs=40")
    options = [word for size in (*sizes, "seq_len=32") for word in ("--set", size)]
    facts: dict[str, Any] = {"events": [], "pages": [], "load": []}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        number = 0

        def timed(is_watched: bool) -> float:
            nonlocal number
            number += 1
            home = folder / f"home-{number}"
            facts["load"].append(round(os.getloadavg()[0], 2))
            with _watching(home, facts) if is_watched else contextlib.nullcontext():
                in_process(
                    [
                        *("-m", "hsweep", "run", str(STUDY_SWEEP), "--study", "watched"),
                        *("--home", str(home), "--no-dashboard", *options),
                    ]
                )
            return _training_seconds(home)

        found = in_turn(lambda: timed(True), lambda: timed(False), 1 if quick else pairs)
    row = Pairing(
        name="a study while its page is open",
        ours="watched",
        theirs="by itself",
        unit="s",
        is_better="less",
        pairs=found,
        bar=None if quick else 0.9,
        facts=facts,
    )
    conclude(show("watch", [row], about), strict=strict)


def _training_seconds(home: Path) -> float:
    """Return the time from the first trial's start to the last one's end."""
    with Journal(home / "studies" / "watched" / "journal.db", read_only=True) as journal:
        times = [entry.time for entry in journal.log()]
    return times[-1] - times[0]


@contextlib.contextmanager
def _watching(home: Path, facts: dict[str, Any]) -> Iterator[None]:
    """Serve a home's pages meanwhile, and read that of its study as a browser does."""
    with listening("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    served = subprocess.Popen(
        [sys.executable, "-m", "hsweep", "watch", "--port", str(port), "--home", str(home)],
        stdout=subprocess.DEVNULL,
    )
    over = threading.Event()
    seen = {"events": 0, "pages": 0}
    reader = threading.Thread(
        target=_read, args=(f"http://127.0.0.1:{port}/studies/watched", over, seen), daemon=True
    )
    reader.start()
    try:
        yield
    finally:
        over.set()
        served.terminate()
        served.wait()
        reader.join()
        for what, count in seen.items():
            facts[what].append(count)


def _read(page: str, over: threading.Event, seen: dict[str, int]) -> None:
    """Follow a study's page from when it is there until it is over."""
    version = 0
    while not over.wait(1.0):
        # The server, or the study, is not there yet, or not any more.
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(page) as answer:
                seen["pages"] += bool(answer.read())
            with urllib.request.urlopen(f"{page}/events") as stream:
                for line in stream:
                    if over.is_set():
                        return
                    if not line.startswith(b"data: "):
                        continue
                    seen["events"] += 1
                    told = json.loads(line.removeprefix(b"data: "))["version"]
                    if told != version:
                        version = told
                        break
