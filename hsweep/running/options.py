"""How a study is run: the options of `run` and `resume`, and those with which one begins."""

import contextlib
import getpass
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import click

from hsweep.errors import UserError, shown
from hsweep.options import DURATION, STORAGE, TAG, option
from hsweep.secrets import refuse_secrets
from hsweep.tracking.target import FURTHER

_EXPERIMENT_VARIABLE: Final = "MLFLOW_EXPERIMENT_NAME"
_TAGS_VARIABLE: Final = "MLFLOW_RUN_CONTEXT"
_LOGIN_VARIABLE: Final = "MLFLOW_TRACKING_USERNAME"
_OF_RAY: Final = (
    *("address", "max_concurrent", "priority", "report_timeout", "wait_for_nodes", "wait"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What is chosen when a study begins, and stays; and whether one may lose its answer.

    Raises:
        UserError: a value that cannot be recorded.
    """

    storage: str | None = option(
        None,
        type=STORAGE,
        metavar="URI",
        help="Folder or URI that all nodes see, for checkpoints and a copy of the record.",
    )
    experiment: str | None = option(
        None,
        metavar="NAME",
        help="The MLflow experiment.  [default: MLFLOW_EXPERIMENT_NAME; without it the sweep's "
        "name]",
    )
    tags: Sequence[tuple[str, str]] = option(
        (),
        "--tag",
        multiple=True,
        type=TAG,
        metavar="NAME=VALUE",
        help="A tag of all runs in MLflow, beside those in MLFLOW_RUN_CONTEXT; mlflow.user=NAME "
        "says whose they are.",
    )
    yes: bool = option(
        False,
        is_flag=True,
        heading="Study",
        help="Do not ask before other settings take trials from a complete study.",
    )

    def __post_init__(self) -> None:
        if self.experiment is not None and not 0 < len(self.experiment.strip()) <= 500:
            raise UserError(
                f"--experiment is a name of 1 to 500 characters, not {shown(self.experiment)}"
            )
        values = [self.experiment, *(text for _, text in self.tags)]
        refuse_secrets(values, "--experiment and --tag", "Leave it out.")

    def experiment_for(self, sweep: str) -> str:
        return self.experiment or os.environ.get(_EXPERIMENT_VARIABLE) or sweep

    def all_tags(self) -> dict[str, str]:
        """Return the tags of a new study's runs, with the name of the user; UserError for tags in
        the environment that cannot be read."""
        tags: dict[str, str] = {}
        with contextlib.suppress(OSError, KeyError):  # a container's user may have no name
            tags["mlflow.user"] = os.environ.get(_LOGIN_VARIABLE) or getpass.getuser()
        try:
            context = json.loads(os.environ.get(_TAGS_VARIABLE) or "{}")
            tags |= [TAG.convert(f"{name}={text}") for name, text in context.items()]
        except (ValueError, AttributeError, click.BadParameter) as error:
            why = error.message if isinstance(error, click.BadParameter) else "it is no JSON object"
            raise UserError(
                f"{_TAGS_VARIABLE} holds tags of MLflow's runs as a JSON object, such as "
                f'{{"team": "vision"}}; {why}'
            ) from error
        refuse_secrets(tags.values(), _TAGS_VARIABLE, "Leave it out.")
        return tags | dict(self.tags)


if TYPE_CHECKING:
    from hsweep.clusters.slurm import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a study is run; none of it changes a result.

    Raises:
        UserError: options that do not go together.
    """

    runner: Literal["ray", "inline"] = option(
        "ray",
        type=click.Choice(["ray", "inline"]),
        show_default=True,
        heading="Where trials run",
        help="Ray, or one trial after another in this process.",
    )
    max_concurrent: int | None = option(
        None, type=click.IntRange(1), metavar="N", help="Trials at once."
    )
    address: str | None = option(
        None,
        metavar="ADDR",
        help="An existing Ray cluster, host:port or auto.  [default: RAY_ADDRESS; without it Ray "
        "starts here]",
    )
    priority: int = option(
        0,
        type=int,
        metavar="N",
        show_default=True,
        help="Of the studies on one cluster, those with a higher number get what they want first; "
        "equal ones share it evenly.",
    )
    wait_for_nodes: int | None = option(
        None,
        type=click.IntRange(1),
        metavar="N",
        help="Begin once the cluster has so many nodes that can hold trials.",
    )
    wait: float | None = option(
        None,
        type=DURATION,
        help="Wait so long (10m) for nodes that can hold the trials, and ask a cluster that adds "
        "nodes by itself for as many as there is work for.",
    )
    dashboard: bool = option(
        True,
        "--dashboard/--no-dashboard",
        show_default=True,
        help="Start Ray's dashboard, or save its start (seconds) where you do not look at it.",
    )
    time_budget: float | None = option(
        None, type=DURATION, help="End cleanly after 30m, 2h, ...", heading="Time limits"
    )
    grace: float = option(
        30.0,
        type=DURATION,
        help="After SIGTERM, have trials save and end within 120s, ... with exit code 75.  "
        "[default: 30s]",
    )
    report_timeout: float | None = option(
        None,
        type=DURATION,
        help="Restart a trial that has not reported for so long (10m); else as the sweep says.",
    )
    reuse: bool = option(
        True,
        "--reuse/--no-reuse",
        show_default=True,
        heading="What is trained",
        help="Take trials that another study of the home has finished, or train them again.",
    )
    accept_code: bool = option(
        False,
        is_flag=True,
        help="The code has changed, but no result: keep and take trials that earlier code has "
        "trained, and record that.",
    )
    check: bool = option(
        True,
        "--check/--no-check",
        show_default=True,
        help="Try out an update and an evaluation of the smallest and the largest new trial before "
        "the start (about a second), or leave that out.",
    )
    retry_failed: bool = option(
        False, is_flag=True, help="Also try trials again that failed or were too large."
    )
    tracking_uri: str | None = option(
        None,
        metavar="URI",
        heading="Where results go",
        help="An MLflow store.  [default: MLFLOW_TRACKING_URI; without it SQLite under the home]",
    )
    track: Sequence[str] = option(
        (),
        multiple=True,
        type=click.Choice(list(FURTHER)),
        help="Show the runs there, too; a new study stays with it. wandb needs hsweep[wandb].",
    )
    log_weights: bool = option(
        False,
        is_flag=True,
        help="Also copy the final weights that are kept (--set keep=best) into the MLflow store, "
        "at the end.",
    )

    def __post_init__(self) -> None:
        for name in _OF_RAY if self.runner == "inline" else ():
            value = getattr(self, name)
            if value and (name, value) != ("max_concurrent", 1):
                raise UserError(
                    f"--{name.replace('_', '-')} {value} is for the ray runner: the inline runner "
                    "trains one trial at a time in this process; leave out --runner inline, or "
                    "this option"
                )

    @property
    def job(self) -> "Job | None":
        """The SLURM job on whose nodes Ray starts; None where it starts elsewhere."""
        if self.runner == "inline" or self._address is not None:
            return None
        from hsweep.clusters.slurm import this_job

        return this_job()

    @property
    def _address(self) -> str | None:
        return os.environ.get("RAY_ADDRESS") or None if self.address is None else self.address

    @property
    def cluster(self) -> str | None:
        """Address of the Ray cluster to join: the one given, else that RAY_ADDRESS names; None
        where Ray starts here or is not used."""
        is_here = self.runner == "inline" or self._address == "local"  # as Ray calls it
        return None if is_here else self._address
