"""Studies that pause because something does not work, and go on when it does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tiny_runs import status_log, statuses

from hsweep.paths import Home

Invoke = Callable[..., Result]

SWEEP = """
from functools import partial
from tiny import TinyTask, tiny_sweep
from hsweep import grid
SWEEP = tiny_sweep(
    space=grid(width=[1, 2, 3, 4]),
    task=TinyTask(raises_at=3, raises={raises}, folder={folder!r}),
    max_failures={max_failures},
)
"""


def sweep_file(folder: Path, *, raises: int, max_failures: int) -> Path:
    path = folder / "sweep.py"
    path.write_text(SWEEP.format(raises=raises, folder=str(folder), max_failures=max_failures))
    return path


def test_a_fault_that_all_trials_share_pauses_the_study_and_resume_goes_on(
    hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    path = sweep_file(tmp_path, raises=3, max_failures=2)
    paused = hsweep("run", path, "--study", "mine", "--runner", "inline")
    assert paused.exit_code == 1, paused.output
    shown = " ".join(paused.stdout.split())
    assert "paused: 3 trials failed in the same way (RuntimeError: raised on" in shown
    assert f"hsweep run {path} --study mine --preset quick --home {home.root}" in shown
    study = home.study("mine").root
    assert set(statuses(study).values()) == {"planned"}
    resumed = hsweep("resume", "mine", "--runner", "inline")
    assert resumed.exit_code == 0, resumed.output
    assert set(statuses(study).values()) == {"finished"}


@pytest.mark.parametrize("again", [True, False])
def test_a_trial_that_failed_for_good_is_tried_again_when_asked(
    hsweep: Invoke, home: Home, tmp_path: Path, again: bool
) -> None:
    path = sweep_file(tmp_path, raises=1, max_failures=0)
    assert hsweep("run", path, "--study", "mine", "--runner", "inline").exit_code == 0
    study = home.study("mine").root
    (failed,) = [key for key, status in statuses(study).items() if status == "failed"]
    arguments = ["--retry-failed"] if again else []
    result = hsweep("resume", "mine", "--runner", "inline", "--json", *arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failed"] == (0 if again else 1)
    expected = ["running", "failed", *(["planned", "running", "finished"] if again else [])]
    assert status_log(study, failed) == expected
