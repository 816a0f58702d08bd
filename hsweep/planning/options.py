"""Which variant of a sweep is planned."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from hsweep.errors import UserError
from hsweep.options import AXIS_VALUES, BYTES, COUNT, SETTING, option

if TYPE_CHECKING:
    from models.base import Counts


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a planned trial may cost; None does not bound.

    Attributes:
        max_params, min_params: parameters.
        max_memory: estimated peak training memory, bytes.
        max_flops: forward operations for one example.
    """

    max_params: int | None = None
    min_params: int | None = None
    max_memory: int | None = None
    max_flops: int | None = None

    def violation(self, counts: "Counts | None", memory: int | None) -> str | None:
        """Return why a trial is out of bounds, None if it is not.

        Raises:
            UserError: a bound on what is not known of the trial.
        """
        params = None if counts is None else counts.num_params
        flops = None if counts is None else counts.forward_flops or None
        checks = (
            ("num_params", params, self.min_params, self.max_params, "params"),
            ("train_memory_bytes", memory, None, self.max_memory, "memory"),
            ("flops_per_example", flops, None, self.max_flops, "flops"),
        )
        for name, value, low, high, flag in checks:
            if low is None and high is None:
                continue
            if value is None:
                raise UserError(
                    f"--max-{flag} bounds {name}, which is not known here; leave the bound out (of "
                    "one's own training, describe= may return it)"
                )
            if high is not None and value > high:
                return f"{name} {value:,} is above --max-{flag} {high:,}"
            if low is not None and value < low:
                return f"{name} {value:,} is below --min-{flag} {low:,}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What is chosen of a sweep file; a study keeps it."""

    preset: str | None = option(
        None, metavar="NAME", help="A variant of the sweep.  [default: quick]"
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
        "train_metrics (last, always) or keep (none, best, last: "
        "whose weights).",
    )
    points: Sequence[Mapping[str, Any]] = option(
        (),
        "--point",
        type=AXIS_VALUES,
        multiple=True,
        help="Keep only the points with these values (heads=8,depth=1); repeat it for several.",
    )
    seed: int = option(0, type=click.IntRange(0, 2**63 - 1), help="Study seed.  [default: 0]")
    max_params: int | None = option(None, type=COUNT, help="Skip larger models, for example 60M.")
    min_params: int | None = option(None, type=COUNT, help="Skip smaller models.")
    max_memory: int | None = option(
        None, type=BYTES, help="Skip what needs more training memory: 8G."
    )
    max_flops: int | None = option(
        None, type=COUNT, help="Skip dearer forward passes, for example 5G."
    )

    @property
    def limits(self) -> Limits:
        return Limits(self.max_params, self.min_params, self.max_memory, self.max_flops)

    def words(self) -> list[str]:
        """Return what is chosen as the command line takes it."""
        words = [] if self.preset is None else ["--preset", self.preset]
        for name, values in self.settings:
            words += ["--set", setting_text(name, values)]
        for point in self.points:
            words += ["--point", ",".join(f"{axis}={value}" for axis, value in point.items())]
        for name, bound in {"seed": self.seed, **asdict(self.limits)}.items():
            words += [f"--{name.replace('_', '-')}", str(bound)] if bound else []
        return words


def setting_text(name: str, values: Sequence[Any]) -> str:
    """Return a setting as ``--set`` takes it."""
    return f"{name}={','.join(map(str, values))}"
