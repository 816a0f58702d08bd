"""The trials of a study as runs of Weights & Biases, grouped by the study.

W&B's own process sends them, from files in the study's folder; with ``WANDB_MODE=offline`` these
wait for ``wandb sync``. A run's id is made of its trial's, so it is never made twice.
"""

import hashlib
import os
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from hsweep.errors import UserError
from hsweep.record.rows import LogRow, TrialRow
from hsweep.tracking.contents import RUN_STATUS, STUDY_ID, study_tags, trial_metrics, trial_tags
from hsweep.tracking.sink import Sink

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read as it is imported

try:
    import wandb
except ModuleNotFoundError as error:
    raise UserError("--track wandb needs the package wandb: pip install 'hsweep[wandb]'") from error

_MAX_TAG: Final = 64
_QUIET: Final = {
    "silent": True,
    "init_timeout": 20,
    "console": "off",
    "disable_git": True,
    "save_code": False,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}
"""Of this process nothing is sent: it trains no trial."""


def refuse_without_login() -> None:
    """Refuse a W&B that would ask for a key. Whether its server takes the key is seen later: one
    that is down keeps no study waiting."""
    why = "no key"
    try:
        is_online = wandb.setup().settings.mode == "online"
        if not is_online or wandb.login(prompt=False, verify=False):
            return
    except wandb.errors.AuthenticationError as error:
        why = f"no valid key ({error})"
    raise UserError(
        f"--track wandb has {why}: set WANDB_API_KEY, give `wandb login`, or set "
        "WANDB_MODE=offline to send the runs later by `wandb sync`"
    )


class WandbRuns(Sink):
    """A run for each trial, in the project of the study's experiment unless WANDB_PROJECT names
    one."""

    def __init__(self, *of_study: Any) -> None:
        refuse_without_login()
        super().__init__(*of_study)
        self._runs: dict[str, wandb.Run] = {}
        """Of the trials that have not ended, by key."""

    def send(self, trial: TrialRow, label: str, rows: Sequence[LogRow]) -> None:
        run = self._runs.get(trial.key) or self._open(trial, label)
        for unit, points in groupby(trial_metrics(rows), key=lambda point: point[3]):
            values: dict[str, Any] = {}
            for name, value, moment, _ in points:
                values |= {name: value, "_timestamp": moment / 1000}
            run.log(values, step=unit)
        run.summary.update(trial_tags(trial, rows))
        if trial.status.is_final:
            self._runs.pop(trial.key)
            run.finish(exit_code=int(RUN_STATUS[trial.status] == "FAILED"))

    def _open(self, trial: TrialRow, label: str) -> "wandb.Run":
        study, folder = self._study, self._paths.wandb
        folder.mkdir(exist_ok=True)
        identity = f"{study_tags(study)[STUDY_ID]}{trial.key}"
        run_id = hashlib.sha256(identity.encode()).hexdigest()[:24]
        try:
            run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or study.experiment,
                group=study.name,
                id=run_id,
                name=label,
                config={**self._values(trial), "sweep": study.sweep, "preset": study.preset},
                tags=[f"{name}={text}"[:_MAX_TAG] for name, text in study.tags.items()],
                notes=study.description,
                dir=folder,
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(**_QUIET),
            )
        except wandb.Error:
            # Its process would hold the id, and refuse the next attempt.
            wandb.teardown()
            raise
        self._runs[trial.key], self._state.runs[trial.key] = run, run_id
        return run

    def close(self) -> None:
        while self._runs:
            run = self._runs.popitem()[1]
            run.mark_preempting()
            run.finish(exit_code=1)
