"""How a study is run: the options of `run` and `resume`."""

import os
from dataclasses import dataclass
from typing import Literal

import click

from hsweep.errors import UserError
from hsweep.options import DURATION, option


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
        help="Ray, or one trial after another in this process.",
    )
    max_concurrent: int | None = option(None, type=click.IntRange(1), help="Trials at once.")
    address: str | None = option(
        None,
        metavar="ADDR",
        help="An existing Ray cluster, host:port or auto.  [default: RAY_ADDRESS; without it Ray "
        "starts here]",
    )
    dashboard: bool = option(
        True,
        "--dashboard/--no-dashboard",
        show_default=True,
        help="Start Ray's dashboard, or save its start (seconds) where you do not look at it.",
    )
    time_budget: float | None = option(None, type=DURATION, help="End cleanly after 30m, 2h, ...")
    report_timeout: float | None = option(
        None,
        type=DURATION,
        help="Restart a trial that has not reported for so long (10m); else as the sweep says.",
    )
    reuse: bool = option(
        True,
        "--reuse/--no-reuse",
        show_default=True,
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
        help="An MLflow store.  [default: MLFLOW_TRACKING_URI; without it SQLite under the home]",
    )
    log_weights: bool = option(
        False,
        is_flag=True,
        help="Also copy the final weights that are kept (--set keep=best) into the MLflow store, "
        "at the end.",
    )

    def __post_init__(self) -> None:
        at_once = None if self.max_concurrent == 1 else self.max_concurrent
        for name, value in (
            ("--address", self.address),
            ("--max-concurrent", at_once),
            ("--report-timeout", self.report_timeout),
        ):
            if self.runner == "inline" and value is not None:
                raise UserError(
                    f"{name} {value} is for the ray runner: the inline runner trains one trial at "
                    "a time in this process; leave out --runner inline, or this option"
                )

    @property
    def cluster(self) -> str | None:
        """Address of the Ray cluster to join: the one given, else that RAY_ADDRESS names; None
        where Ray starts here or is not used."""
        if self.runner == "inline":
            return None
        address = os.environ.get("RAY_ADDRESS") or None if self.address is None else self.address
        return None if address == "local" else address  # as Ray calls one that is started here
