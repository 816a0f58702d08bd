"""`python -m benchmarks`: measure the tool."""

import importlib
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from benchmarks.calibration import Calibration

# The benchmarks of speed: each is a module with a click command named `command`, which imports
# nothing heavy at its top. `suite` runs them in this order.
SPEED = (
    "study",
    "overhead",
    "idle",
    "tracking",
    "watch",
    "steps",
    "analysis",
    "plan",
    "process",
    "own",
    "processes",
)
OTHERS = ("rungs", "compiled")
"""Such modules that measure something else; they are not in the suite."""


class _Lazy(click.Group):
    """A group whose commands of modules are imported only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*SPEED, *OTHERS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in (*SPEED, *OTHERS):
            command = importlib.import_module(f"benchmarks.{cmd_name}").command
            assert isinstance(command, click.Command)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure the tool."""


@main.command()
@click.option("--quick", is_flag=True, help="See that it works: tiny, no claims.")
@click.option("--strict", is_flag=True, help="Exit with 1 if a bar is missed.")
@click.option("--only", help="Names with commas between; all by default.")
def suite(quick: bool, strict: bool, only: str | None) -> None:
    """Measure everything that has to be fast, one after another, and end with one table."""
    from benchmarks.suite import run

    names = SPEED if only is None else tuple(only.split(","))
    for name in names:
        if name not in SPEED:
            raise click.BadParameter(
                f"unknown benchmark {name!r}; there are {', '.join(SPEED)}", param_hint="--only"
            )
    holds = run(names, quick=quick)
    if strict and not holds:
        sys.exit(1)


@main.command()
@click.option("--sweeps", type=click.IntRange(1), default=100, show_default=True,
              help="Simulated sweeps of each family.")  # fmt: skip
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True,
              help="Number of the first sweep.")  # fmt: skip
@click.option("--families", help="With commas between; all by default.")
@click.option("--varied", is_flag=True, help="Draw the design of every sweep, too.")
@click.option("--draws", type=click.IntRange(1), default=1000, show_default=True,
              help="Draws of the set of h* and of the abruptness test.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--strict", is_flag=True, help="Exit with 1 if a bar is missed.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def calibration(
    sweeps: int,
    first_seed: int,
    families: str | None,
    varied: bool,
    draws: int,
    processes: int,
    strict: bool,
    as_json: bool,
) -> None:
    """Measure how often the analysis is right, on simulated sweeps whose answer is known."""
    from analysis.questions.transition.result import TransitionSettings
    from benchmarks.calibration import EVERY_FAMILY, calibrate

    names = tuple(EVERY_FAMILY) if families is None else tuple(families.split(","))
    for name in names:
        if name not in EVERY_FAMILY:
            raise click.BadParameter(
                f"unknown family {name!r}; there are {', '.join(EVERY_FAMILY)}",
                param_hint="--families",
            )
    measured = calibrate(
        names,
        sweeps=sweeps,
        first_seed=first_seed,
        varied=varied,
        settings=TransitionSettings(B=draws, n_mc=max(draws - 1, 1)),
        processes=processes,
    )
    if as_json:
        json.dump(measured.to_json(), sys.stdout, indent=1)
        click.echo()
    else:
        show(measured)
    if strict and not all(row.holds for row in measured.rows):
        sys.exit(1)


def show(measured: "Calibration") -> None:
    """Print the verdicts by family, and every rate beside its bar."""
    if measured.found or measured.equivalents or measured.ladders:
        click.echo("| family | sweeps | verdicts |\n| --- | --- | --- |")
        for family, counts in measured.verdicts().items():
            words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
            click.echo(f"| {family} | {counts.total()} | {words} |")
        click.echo()
    click.echo("| quantity | measured | bar | cases | |\n| --- | --- | --- | --- | --- |")
    for row in measured.rows:
        where = f" ({row.where})" if row.where else ""
        mark = "" if row.holds else "missed"
        click.echo(
            f"| {row.quantity} | {row.write(row.value)}{where} | {row.bar.text(row.write)} |"
            f" {row.cases} | {mark} |"
        )


@main.command("report-page")
@click.option("--trials", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--openings", type=click.IntRange(1), default=5, show_default=True,
              help="How often each page is opened.")  # fmt: skip
def report_page(trials: int, openings: int) -> None:
    """Measure how long a report takes to be built and to open in headless Chromium."""
    from benchmarks.report_page import KINDS, measure

    click.echo(
        "| study | trials | reports | built in | size | sorts a click after | all drawn after |"
        " page's CPU time | elements |\n|" + " --- |" * 9
    )
    for kind in KINDS:
        found = measure(kind, trials, openings)
        click.echo(
            f"| {kind} | {found.trials:,} | {found.reports:,} | {found.build_seconds:.1f} s"
            f" | {found.megabytes:.1f} MB | {_range(found.interactive_seconds)}"
            f" | {_range(found.drawn_seconds)} | {_range(found.cpu_seconds)} | {found.nodes:,} |"
        )


@main.command("shapes")
@click.option("--sweeps", type=click.IntRange(1), default=200, show_default=True,
              help="Simulated grids for the rates of effects.")  # fmt: skip
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True)
def shape_analyses(sweeps: int, first_seed: int) -> None:
    """Measure how often effects of axes are right."""
    from benchmarks.shape_rates import NOISES, effect_rates

    click.echo(
        "| noise | seeds | false axis | false interaction | false equal cost | coverage | found |"
        "\n|" + " --- |" * 7
    )
    for noise in NOISES:
        for seeds in (3, 5):
            rates = effect_rates(noise, seeds, sweeps, first_seed)
            click.echo(
                f"| {noise} | {seeds} | {rates.false_axis:.3f} | {rates.false_interaction:.3f}"
                f" | {rates.false_equal_cost:.3f} | {rates.coverage:.3f} | {rates.found:.2f} |"
            )


def _range(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.2f} to {max(seconds):.2f} s"


if __name__ == "__main__":
    main()
