"""Plans of the sweeps that come with the tool."""

from functools import cache
from pathlib import Path

from hsweep.design.domain import AxisValue
from hsweep.planning.options import SweepOptions
from hsweep.planning.plan import Plan
from hsweep.planning.prepare import prepare

SWEEPS = Path(__file__).parents[1] / "sweeps"

Settings = tuple[tuple[str, tuple[AxisValue, ...]], ...]


@cache
def planned(name: str, preset: str | None = None, settings: Settings = ()) -> Plan:
    chosen = [(axis, list(values)) for axis, values in settings]
    return prepare(SWEEPS / f"{name}.py", SweepOptions(preset=preset, settings=chosen)).plan
