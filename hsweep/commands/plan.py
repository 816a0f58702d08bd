"""``hsweep plan``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands.options import (
    StudyName,
    home_option,
    json_option,
    sweep_argument,
    sweep_options,
)
from hsweep.commands.output import console_for, print_json, quantity, table_of
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.options import SweepOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from hsweep.planning.early_ends import EarlyEnds
    from hsweep.planning.plan import Plan

_MAX_ROWS: Final = 200


@click.command()
@sweep_argument
@sweep_options
@click.option("--power", is_flag=True, help="Show how likely the sweep is to find what it asks.")
@click.option(
    "--study",
    "study_name",
    type=StudyName(),
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
@click.option(
    "--check", is_flag=True, help="Try out an update and an evaluation, as `run` does at its start."
)
@home_option
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
    from hsweep.planning.answerable import concerns_json, notes
    from hsweep.planning.calibration import Calibration
    from hsweep.planning.checking import check_trials
    from hsweep.planning.early_ends import early_ends
    from hsweep.planning.prepare import prepare, refuse_unread_data
    from hsweep.record.provenance import hardware
    from hsweep.running.progress import duration

    if not power and (study_name is not None or jumps):
        raise UserError("--study and --jump belong to --power")
    prepared = prepare(sweep_file, chosen)
    if power:
        show_power(prepared.plan, home, study_name, jumps, simulated, as_json)
        return
    ends = early_ends(prepared.plan)
    shares = {} if ends is None else ends.shares
    seconds = Calibration(home.calibration, hardware()).estimate(prepared.plan.trials, shares)
    checked = None
    if check:
        refuse_unread_data(prepared.plan)
        checked = check_trials(prepared.plan.trials)
    if as_json:
        from hsweep.planning.devices import on_devices

        found: dict[str, Any] = {
            "estimated_seconds": seconds,
            "early_stopping": None if ends is None else ends.to_json(),
            "concerns": concerns_json(prepared.plan),
            "notes": notes(prepared.plan),
            "devices": on_devices(prepared.plan.trials),
        }
        if checked is not None:
            found["checked"] = checked.to_json()
        print_json({**prepared.plan.to_json(), **found})
        return
    console = console_for(as_json=False)
    show_plan(console, prepared.plan, ends, seconds)
    if checked is not None:
        shapes = "; ".join(checked.shapes)
        console.print(f"tried out in {duration(checked.seconds)}: {shapes}")
        for line in checked.lines():
            console.print(line, style="yellow")


def show_plan(
    console: "Console", plan: "Plan", ends: "EarlyEnds | None", seconds: float | None
) -> None:
    """Print every point of a plan, what they cost, and what to know before they are run."""
    from hsweep.design.labels import point_label, processes_line, varying_axes
    from hsweep.design.trial import cost_columns
    from hsweep.planning.answerable import analysable, notes
    from hsweep.planning.devices import on_devices
    from hsweep.planning.weights import planned_weights
    from hsweep.running.progress import duration

    totals = plan.totals()
    axes = varying_axes(plan.trials)
    table = table_of("point", ">seeds", ">params", ">FLOPs/example", ">training memory")
    points: dict[str, list[Any]] = {}
    for trial in plan.trials:
        points.setdefault(point_label(trial.point, axes), []).append(trial)
    for label, group in list(points.items())[:_MAX_ROWS]:
        table.add_row(
            label,
            str(len({trial.replicate for trial in group})),
            _known(cost_columns(group[0]), "num_params"),
            _known(cost_columns(group[0]), "flops_per_example"),
            _known(cost_columns(group[0]), "train_memory_bytes", "B"),
        )
    console.print(table)
    if len(points) > _MAX_ROWS:
        console.print(f"... and {len(points) - _MAX_ROWS} more points (--json lists all)")
    for skipped in plan.skipped[:_MAX_ROWS]:
        console.print(f"skipped {point_label(skipped.point)}: {skipped.reason}", style="yellow")
    if plan.is_adaptive:
        console.print("points are proposed during the run; these are random draws for orientation")
    console.print(
        f"{totals['trials']} trials ({totals['points']} points) of {plan.sweep.budget}; "
        f"{totals['skipped']} points skipped, {totals['merged']} doubles merged"
    )
    if ladder := plan.ladder():
        console.print(_ladder_line(ladder))
    for line in ends.lines(plan) if ends is not None else ():
        console.print(line)
    if line := processes_line(trial.resources.processes for trial in plan.trials):
        console.print(line)
    if large := on_devices(plan.trials):
        one, several, sharded = large["each"]
        flops = [quantity(each["flops_per_step"], "FLOPs") for each in (one, several)]
        console.print(
            f"the largest trial ({point_label(large['point'], axes)}) needs about "
            f"{quantity(one['memory_bytes'], 'B')} on one device ({flops[0]} a step), "
            f"{quantity(several['memory_bytes'], 'B')} on each of {several['devices']} "
            f"({flops[1]}; --set gpus={several['devices']}), and "
            f'{quantity(sharded["memory_bytes"], "B")} on each with Recipe(sharding="full")'
        )
    weights = planned_weights(plan.sweep, plan.trials)
    if weights is not None:
        size = "not known" if weights["bytes"] is None else quantity(weights["bytes"], "B")
        trials = f"{weights['trials']} trial{'' if weights['trials'] == 1 else 's'}"
        console.print(
            f"weights kept: those of {trials} at most, {size} on disk (keep={weights['keep']})"
        )
    if seconds is not None:
        console.print(f"about {duration(seconds)} of training in all, by what was measured here")
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


def _ladder_line(ladder: "Mapping[str, Any]") -> str:
    cost, apart = f"{ladder['cost']:.3g}", f"{ladder['cost_apart']:.3g}"
    line = (
        f"ladder: the {len(ladder['budgets'])} budgets together cost {cost} times the longest alone"
    )
    if why := ladder["not_shared"]:
        return f"{line}; not all of them go on from the shorter one: {why}"
    return f"{line} ({apart} if each were trained from its start)"


def _known(costs: dict[str, int], name: str, unit: str = "") -> str:
    return quantity(costs[name], unit) if name in costs else "-"
