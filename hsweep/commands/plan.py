"""``hsweep plan``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands.options import (
    complete_study,
    home_option,
    json_option,
    sweep_argument,
    sweep_options,
)
from hsweep.commands.output import console_for, print_json, quantity
from hsweep.errors import UserError
from hsweep.options import HeadedCommand, HeadedOption
from hsweep.paths import Home
from hsweep.planning.options import SweepOptions

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.planning.plan import Plan
    from hsweep.running.forecast import Forecast

_MAX_ROWS: Final = 40
_COSTS: Final = {
    "num_params": ("params", ""),
    "flops_per_example": ("FLOPs/example", ""),
    "train_memory_bytes": ("training memory", "B"),
}
"""Headings and units of a trial's costs."""


@click.command(cls=HeadedCommand)
@sweep_argument
@sweep_options
@click.option(
    "--check", is_flag=True, help="Try out an update and an evaluation, as `run` does at its start."
)
@home_option
@click.option(
    "--power",
    cls=HeadedOption,
    heading="Power",
    is_flag=True,
    help="Show how likely the sweep is to find what it asks.",
)
@click.option(
    "--study",
    "study_name",
    shell_complete=complete_study,
    metavar="NAME",
    help="With --power: whose noise to take.",
)
@click.option("--jump", "jumps", type=float, multiple=True, help="With --power: a size to find.")
@click.option(
    "--simulated",
    type=click.IntRange(1),
    default=40,
    show_default=True,
    help="With --power: sweeps simulated for each design and size.",
)
@json_option
def plan(
    sweep_file: Path,
    chosen: SweepOptions,
    power: bool,
    study_name: str | None,
    jumps: tuple[float, ...],
    simulated: int,
    check: bool,
    home: Home,
    as_json: bool,
) -> None:
    """Show every trial of SWEEP before any trains: shape, parameters, FLOPs, memory."""
    from hsweep.commands.power import show_power
    from hsweep.planning.answerable import analysable, notes
    from hsweep.planning.prepare import prepare, refuse_unread_data
    from hsweep.running.forecast import forecast
    from hsweep.running.progress import duration

    if not power and (study_name is not None or jumps):
        raise UserError("--study and --jump belong to --power")
    prepared = prepare(sweep_file, chosen)
    if power:
        show_power(prepared.plan, home, study_name, jumps, simulated, as_json)
        return
    expected = forecast(prepared.plan, home)
    checked = None
    if check:
        from hsweep.training.rehearsal import check_trials

        refuse_unread_data(prepared.plan)
        checked = check_trials(prepared.plan.trials)
    if as_json:
        content: dict[str, Any] = {
            **prepared.plan.to_json(),
            "expected": expected.to_json(),
            "estimated_seconds": expected.seconds,
            "estimated_wall_seconds": expected.wall_seconds,
            "concerns": [asdict(concern) for concern in analysable(prepared.plan)],
            "notes": notes(prepared.plan),
        }
        if checked is not None:
            content["checked"] = asdict(checked)
        print_json(content)
        return
    console = console_for(as_json=False)
    show_plan(console, prepared.plan, expected)
    if checked is not None:
        shapes = "; ".join(checked.shapes)
        console.print(f"tried out in {duration(checked.seconds)}: {shapes}")
        for line in checked.lines():
            console.print(line, style="yellow")


def show_plan(console: "Console", plan: "Plan", expected: "Forecast") -> None:
    """Print every shape of a plan with its costs, then notes and concerns for the user."""
    from hsweep.design.labels import counted, listed, point_label, varying_axes
    from hsweep.design.trial import cost_columns
    from hsweep.planning.answerable import analysable, notes
    from hsweep.terminal import table_of

    axes = varying_axes(trial.point for trial in plan.trials)
    size = expected.size
    place_axes = tuple(axis for axis in axes if axis not in size.nuisance) or axes
    places: dict[str, dict[str, int]] = {}
    for trial in plan.trials:
        places.setdefault(point_label(trial.point, place_axes), cost_columns(trial))
    names = {name for costs in places.values() for name in costs}
    columns = {name: column for name, column in _COSTS.items() if name in names}
    table = table_of(size.place, *(f">{heading}" for heading, _ in columns.values()))
    for label, costs in list(places.items())[:_MAX_ROWS]:
        cells = (
            quantity(costs[name], unit) if name in costs else "-"
            for name, (_, unit) in columns.items()
        )
        table.add_row(label, *cells)
    console.print(table)
    if (num_more := len(places) - _MAX_ROWS) > 0:
        console.print(f"... and {counted(num_more, f'more {size.place}')} (--json lists all)")
    for point, reason in list(plan.skipped.items())[:_MAX_ROWS]:
        console.print(f"skipped {point_label(point)}: {reason}", style="yellow")
    if (num_more := len(plan.skipped) - _MAX_ROWS) > 0:
        console.print(f"... and {num_more:,} more skipped (--json lists all)")
    if plan.is_adaptive:
        console.print("points are proposed during the run; these are random draws for orientation")
    console.print(expected.line, style="bold")
    if scouts := plan.sweep.num_scouts:
        console.print(
            f"the settings of each {size.place} compete by {counted(scouts, 'scout')} each: seeds "
            "that count in no answer"
        )
    if plan.merged:
        console.print(f"{counted(plan.merged, 'run')} would be the same as others: left out")
    if why := plan.why_not_shared:
        console.print(f"not all budgets go on from the shorter one: {why}")
    if (processes := sorted({trial.resources.processes for trial in plan.trials})) != [1]:
        console.print(f"each trial is trained by {listed(processes, 'or')} processes")
    for concern in analysable(plan):
        style = "red" if concern.kind == "impossible" else "yellow"
        console.print(concern.line, style=style)
    for note in notes(plan):
        console.print(f"note: {note}")
    for problem in plan.data_problems:
        console.print(f"data: {problem}", style="yellow")
    preset = plan.sweep.presets.get(plan.preset)
    if preset is not None and preset.note:
        console.print(f"preset {plan.preset}: {preset.note}")
