"""The script of a SLURM job that runs a study, and goes on with it after each time limit."""

import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from hsweep.command_line import command, running_command
from hsweep.errors import UserError
from hsweep.options import OptionType
from hsweep.paths import StudyPaths
from hsweep.secrets import redact, refuse_secrets

CLOSING_SECONDS: Final = 30.0
"""Time to queue again, and for SLURM to be late, beside the study's ``--grace``."""
_EARLY_SECONDS: Final = 60.0
"""How much earlier than asked for SLURM may send a signal (``--signal`` of sbatch)."""
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
told=; trap 'told=1; kill -TERM $! 2>/dev/null' TERM
{variables}
# Lines of yours for every job, such as `module load cuda` and `export NAME=...`:
[ ! -e {own} ] || . {own}

# A job that comes back goes on with the study as it is on record: the file may have been edited.
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -e {manifest} ]; then
    set -- resume {resume}
else
    set -- run {run}
fi

# In the background, so that this shell hears SIGTERM: it comes {lead:g} s before the time limit, or
# up to {early:g} s earlier. The study then saves its checkpoints and ends. Ray starts on the job's
# nodes by itself.
{program} "$@" &
driver=$!
[ -z "$told" ] || kill -TERM $driver
wait $driver
while kill -0 $driver 2>/dev/null; do     # SIGTERM has ended the wait, not the driver
    wait $driver
done
wait $driver
code=$?

# 75: unfinished, and the same again goes on; 143: so it is, and it ended before Python had begun.
# Nothing else is tried again, nor what was cancelled.
if [ $code -eq 75 ] || [ $code -eq 143 ]; then
    if ! squeue -hj "$SLURM_JOB_ID" -o %T | grep -Eq 'COMPLETING|CANCELLED'; then
        scontrol requeue "$SLURM_JOB_ID"
    fi
fi
exit $code
"""


def _read_limit(value: object) -> tuple[str, int]:
    """Return a time limit as sbatch takes it, and its seconds."""
    text = str(value)
    if not _TIME.fullmatch(text):
        raise click.BadParameter(
            f"{text!r} is no time limit; write 30 (minutes), 24:00:00 or 2-12 (days-hours)"
        )
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if not days and len(parts) < 3:  # minutes come first
        parts = [0, *parts]
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return text, 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds


LIMIT: Final = OptionType("time", _read_limit)


def script_of(
    study: StudyPaths,
    limit: tuple[str, int] | None,
    *,
    run: Sequence[str],
    resume: Sequence[str],
    grace: float,
    output: Path,
    more: Sequence[str],
) -> str:
    """Return the script of a job.

    Args:
        limit: its time limit, as ``LIMIT`` reads it.
        run: the words of ``hsweep run`` behind its name.
        resume: those of ``hsweep resume``.
        grace: seconds from SIGTERM to the driver's end.
        output: the file for what the job prints, as sbatch takes it, in the study's folder of jobs.
        more: options of sbatch.

    Raises:
        UserError: a time limit that leaves no time to train, or words that hold a secret.
    """
    remedy = "Export it before `hsweep submit`: sbatch hands the environment on."
    refuse_secrets([*run, *more], "a job's script", remedy)
    joining = command("join", study.name, home=study.home)
    for word in more:
        if (hidden := redact(word)) != word:
            raise UserError(f"a job's script must hold no secret; got {hidden!r}. {remedy}")
        if word.startswith(("--array", "-a")):
            raise UserError(
                f"{word} makes several jobs of one study, which has one: let further nodes join it "
                f"by `sbatch --array=1-20 --wrap {shlex.quote(joining)}`, or give --nodes"
            )
    lead = grace + CLOSING_SECONDS
    least = 2 * lead + _EARLY_SECONDS
    if limit is not None and limit[1] < least:
        raise UserError(
            f"--time {limit[0]} leaves no time to train: the study is told to end {lead:g} s "
            f"before (--grace and {CLOSING_SECONDS:g} s), and SLURM may do so "
            f"{_EARLY_SECONDS:g} s earlier; give at least {math.ceil(least / 60)} minutes, or a "
            "shorter --grace"
        )
    options = [
        *(f"--job-name={study.name}", "--ntasks-per-node=1", f"--chdir={Path.cwd()}"),
        *([] if limit is None else [f"--time={limit[0]}"]),
        *(f"--output={output}", "--open-mode=append", f"--signal=B:TERM@{lead:.0f}"),
        # One lost node costs its own trials, not the job.
        *("--requeue", "--no-kill"),
    ]
    settings = [*([option] for option in options), *_options(more)]
    present = {name: os.environ[name] for name in _TAKEN_ALONG if name in os.environ}
    program = Path(sys.executable).with_name("hsweep")
    words = [str(program)] if program.exists() else [sys.executable, "-m", "hsweep"]
    return _SCRIPT.format(
        written_by=shlex.join(running_command()),
        settings="\n".join(f"#SBATCH {shlex.join(setting)}" for setting in settings),
        variables="".join(f"export {name}={shlex.quote(v)}\n" for name, v in present.items()),
        own=shlex.quote(str(output.parent.parent / "job.sh")),
        manifest=shlex.quote(str(study.manifest)),
        run=shlex.join(run),
        resume=shlex.join(resume),
        lead=lead,
        early=_EARLY_SECONDS,
        program=shlex.join(words),
    )


def _options(words: Sequence[str]) -> list[list[str]]:
    """Return options of sbatch one by one, each with the words that follow it."""
    options: list[list[str]] = []
    for word in words:
        word = word.replace("--cpus-per-node", "--cpus-per-task")  # of which each node has one
        if word.startswith("-"):
            options.append([word])
        elif options:
            options[-1].append(word)
        else:
            raise UserError(f"unexpected argument {word!r}: behind SWEEP stand options alone")
    return options
