"""Which variant of a sweep is planned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from hsweep.errors import UserError
from hsweep.options import AXIS_VALUES, BYTES, COUNT, SETTING, option

Limits = Mapping[str, int | None]
"""Bounds on what a planned trial may cost, by the names in ``LIMITED``; None does not bound."""

LIMITED: Final = {
    "max_params": "num_params",
    "min_params": "num_params",
    "max_memory": "train_memory_bytes",
    "max_flops": "flops_per_example",
}
"""The column of a trial's costs that each limit bounds."""


def violation(limits: Limits, costs: Mapping[str, int]) -> str:
    """Return the limit that a trial exceeds, in words, empty if it exceeds none; UserError for a
    limit on a quantity that is unknown for the trial."""
    for name, bound in limits.items():
        if bound is None:
            continue
        cost, option_name = LIMITED[name], f"--{name.replace('_', '-')}"
        value = costs.get(cost)
        if value is None:
            raise UserError(
                f"{option_name} bounds {cost}, which is not known here; leave the bound out (of a "
                "user's training, describe= may return it)"
            )
        is_upper = name.startswith("max")
        if (value > bound) if is_upper else (value < bound):
            word = "above" if is_upper else "below"
            return f"{cost} {value:,} is {word} {option_name} {bound:,}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The preset, settings and limits chosen for a sweep file; a study records them."""

    preset: str | None = option(
        None,
        metavar="NAME",
        help="A variant of the sweep.  [default: quick]",
        heading="Sweep",
    )
    settings: Sequence[tuple[str, list[Any]]] = option(
        (),
        "--set",
        type=SETTING,
        multiple=True,
        help="Replace an axis (heads=1,2,4), the budget (epochs=50), a field of the recipe "
        "(recipe.lr=3e-3) or of the question (margin=0.01), report_every, replicates, "
        "cpus (of each process), gpus (devices, or a share of one), processes (that train each "
        "trial), spread (over nodes: true, false), "
        "train_metrics (last, always), search (adaptive, grid), final (last, best: which "
        "report counts) or keep (none, best, last: whose weights).",
    )
    search: str | None = option(
        None,
        type=click.Choice(("adaptive", "grid")),
        help="Train, round by round, what the question needs, or every point: --set search=...",
    )
    points: Sequence[Mapping[str, Any]] = option(
        (),
        "--point",
        type=AXIS_VALUES,
        multiple=True,
        help="Keep only the points with these values (heads=8,depth=1); repeat it for several.",
    )
    seed: int = option(
        0, type=click.IntRange(0, 2**63 - 1), metavar="N", help="Study seed.  [default: 0]"
    )
    max_params: int | None = option(None, type=COUNT, help="Skip larger models, for example 60M.")
    min_params: int | None = option(None, type=COUNT, help="Skip smaller models.")
    max_memory: int | None = option(
        None, type=BYTES, help="Skip what needs more training memory: 8G."
    )
    max_flops: int | None = option(
        None, type=COUNT, help="Skip more expensive forward passes, for example 5G."
    )

    def __post_init__(self) -> None:
        if self.search is not None:
            object.__setattr__(self, "settings", [*self.settings, ("search", [self.search])])
            object.__setattr__(self, "search", None)

    @property
    def limits(self) -> Limits:
        return {name: getattr(self, name) for name in LIMITED}
