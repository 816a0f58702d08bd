"""The script of a SLURM job that runs a study, and goes on with it after each time limit."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from hsweep.command_line import running_command
from hsweep.errors import UserError
from hsweep.options import OptionType, option
from hsweep.paths import StudyPaths
from hsweep.secrets import refuse_secrets

CLOSING_SECONDS: Final = 30.0
"""Time to queue again, and for SLURM to be late, beside the study's ``--grace``."""
_TAKEN_ALONG: Final = (
    *("HSWEEP_DATA", "HSWEEP_CACHE", "HSWEEP_NODE_DIR", "HF_HOME", "TORCH_HOME"),
    *("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"),
)
"""Variables that the job gets as they are when it is submitted."""
_TIME: Final = re.compile(r"(\d+-)?\d+(:\d+){0,2}")

_SCRIPT: Final = """\
#!/bin/bash
# Written by: {written_by}
{settings}
{variables}
# A job that comes back goes on with the study as it is on record: the file may have been edited.
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -e {manifest} ]; then
    set -- resume {resume}
else
    set -- run {run}
fi

# In the background, so that this shell hears SIGTERM: it comes {lead:g} s before the time limit.
# The study then saves its checkpoints and ends. Ray starts on the job's nodes by itself.
trap 'kill -TERM $!' TERM
{program} "$@" &
driver=$!
wait $driver
while kill -0 $driver 2>/dev/null; do     # SIGTERM has ended the wait, not the driver
    wait $driver
done
wait $driver
code=$?

# 75: unfinished, and the same again goes on. Nothing else is tried again.
if [ $code -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
"""


def _read_time(value: object) -> str:
    """Return a time limit as it is, if it has one of the forms that sbatch takes."""
    if not _TIME.fullmatch(str(value)):
        raise click.BadParameter(
            f"{value!r} is no time limit; write 30 (minutes), 24:00:00 or 2-12 (days-hours)"
        )
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSize:
    """The nodes of a job, what it gets of each, and its time limit, as sbatch takes it."""

    nodes: int = option(1, type=click.IntRange(1), show_default=True, help="Nodes of the job.")
    gpus_per_node: str | None = option(
        None, metavar="[TYPE:]N", help="GPUs of each node.  [default: none]"
    )
    cpus_per_node: int | None = option(
        None, type=click.IntRange(1), help="Processors of each node.  [default: the site's]"
    )
    time: str | None = option(
        None,
        type=OptionType("time", _read_time),
        help="Time limit, as 24:00:00; the job comes back until the study is done.",
    )

    def seconds(self) -> float:
        """Return the time limit, infinite where the site chooses it."""
        if self.time is None:
            return float("inf")
        days, _, rest = self.time.rpartition("-")
        parts = [int(part) for part in rest.split(":")]
        if not days and len(parts) < 3:  # minutes come first
            parts = [0, *parts]
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds


def script_of(
    study: StudyPaths,
    size: JobSize,
    *,
    run: Sequence[str],
    resume: Sequence[str],
    grace: float,
    output: Path,
    more: Sequence[str] = (),
) -> str:
    """Return the script of a job.

    Args:
        run: the words of ``hsweep run`` behind its name.
        resume: those of ``hsweep resume``.
        grace: seconds from SIGTERM to the driver's end.
        output: the file for what the job prints, as sbatch takes it.
        more: further options of sbatch.

    Raises:
        UserError: a time limit that leaves no time to train, or words that hold a secret.
    """
    refuse_secrets([*run, *more], "a job's script", "Give it in a variable of the environment.")
    lead = grace + CLOSING_SECONDS
    if size.seconds() < 2 * lead:
        raise UserError(
            f"--time {size.time} leaves no time to train: the study is told to end {lead:g} s "
            f"before (--grace and {CLOSING_SECONDS:g} s); give at least twice that, or a shorter "
            "--grace"
        )
    options = {
        **{"job-name": study.name, "nodes": size.nodes, "ntasks-per-node": 1},
        **{"cpus-per-task": size.cpus_per_node, "gpus-per-node": size.gpus_per_node},
        **{"time": size.time, "signal": f"B:TERM@{lead:.0f}", "open-mode": "append"},
        **{"chdir": Path.cwd(), "output": output},
    }
    settings = [[f"--{name}={value}"] for name, value in options.items() if value is not None]
    # One lost node costs its own trials, not the job.
    settings += [["--requeue"], ["--no-kill"], *_options(more)]
    present = {name: os.environ[name] for name in _TAKEN_ALONG if name in os.environ}
    program = Path(sys.executable).with_name("hsweep")
    words = [str(program)] if program.exists() else [sys.executable, "-m", "hsweep"]
    return _SCRIPT.format(
        written_by=shlex.join(running_command()),
        settings="\n".join(f"#SBATCH {shlex.join(setting)}" for setting in settings),
        variables="".join(f"export {name}={shlex.quote(v)}\n" for name, v in present.items()),
        manifest=shlex.quote(str(study.manifest)),
        run=shlex.join(run),
        resume=shlex.join(resume),
        lead=lead,
        program=shlex.join(words),
    )


def _options(words: Sequence[str]) -> list[list[str]]:
    """Return options of sbatch one by one, each with the words that follow it."""
    options: list[list[str]] = []
    for word in words:
        if word.startswith("-"):
            options.append([word])
        elif options:
            options[-1].append(word)
        else:
            raise UserError(f"unexpected argument {word!r}: behind SWEEP stand options alone")
    return options
