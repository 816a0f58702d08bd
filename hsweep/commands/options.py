"""Options that several verbs share, and the kinds of value they take."""

import os
import re
import sys
from collections.abc import Callable, Container, Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from hsweep.design.domain import is_text
from hsweep.errors import UserError, shown
from hsweep.paths import Home

if TYPE_CHECKING:
    from rich.console import Console

Verb = TypeVar("Verb", bound=Callable[..., Any])

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_LONGEST_HOURS: Final = 100_000
_MOST: Final = 10**18
_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}


class Duration(click.ParamType[float]):
    """A time such as 90s, 30m, 2h or 1h30m; a bare number is seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        text = str(value).strip().lower()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            text += "s"
        match = _DURATION.fullmatch(text)
        if not match or not any(match.groups()):
            self.fail(f"{value!r} is no time; write 90s, 30m, 2h or 1h30m", param, ctx)
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        total = 3600 * hours + 60 * minutes + seconds
        if total <= 0:
            self.fail(f"a time must be above zero, not {value!r}", param, ctx)
        if total > _LONGEST_HOURS * 3600:
            self.fail(f"a time is at most {_LONGEST_HOURS:,}h, not {str(value)[:40]!r}", param, ctx)
        return total


class Count(click.ParamType[int]):
    """A whole number, possibly with a decimal prefix: 60M, 1.5G, 200k."""

    name = "count"
    _unit = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        text = str(value).strip().lower().replace(",", "").replace("_", "").replace(" ", "")
        match = re.fullmatch(rf"(\d+(?:\.\d+)?)([kmgtp]?){self._unit}", text)
        if not match:
            self.fail(f"{value!r} is no amount; write 60M, 1.5G or 200k", param, ctx)
        number = round(Decimal(match[1]) * _PREFIXES[match[2]]) if len(match[1]) < 40 else _MOST
        if number >= _MOST:
            self.fail(f"an amount is below {_MOST:,}, not {value[:40]!r}", param, ctx)
        return number


class Bytes(Count):
    """A number of bytes, with decimal prefixes: 8G, 500MB."""

    name = "bytes"
    _unit = "b?"


class Setting(click.ParamType[tuple[str, list[Any]]]):
    """NAME=VALUE; several values with commas between."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, list[Any]]:
        """Return the name and its values."""
        from hsweep.design.domain import as_value
        from hsweep.design.space import parse_values

        name, equals, text = str(value).partition("=")
        if not equals or not name.strip() or not text.strip():
            self.fail(f"{shown(value)} is not of the form NAME=VALUE", param, ctx)
        return name.strip(), [as_value(each) for each in parse_values(text)]


class AxisValues(click.ParamType[dict[str, Any]]):
    """NAME=VALUE,NAME=VALUE: one value an axis."""

    name = "name=value,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """Return the values by axis."""
        from hsweep.design.domain import as_value
        from hsweep.design.space import parse_values

        if isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        # A comma parts axes only where a name follows: values may be tuples.
        for part in re.split(r",(?=\s*[A-Za-z_]\w*\s*=)", str(value)):
            name, equals, text = part.partition("=")
            values = parse_values(text) if text.strip() else []
            if not equals or not name.strip() or len(values) != 1:
                self.fail(f"{shown(part)} is not of the form NAME=VALUE", param, ctx)
            found[name.strip()] = as_value(values[0])
        return found


class HomeFolder(click.ParamType[Home]):
    """The folder that holds every study."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Home:
        """Return the home."""
        if isinstance(value, Home):
            return value
        folder = str(value)
        if not folder or "\0" in folder or not is_text(folder):
            self.fail(f"the home is a folder named in UTF-8 text; got {folder!r}", param, ctx)
        path = Path(folder).expanduser().absolute()
        file = next((each for each in (path, *path.parents) if each.exists()), path)
        if file.exists() and not file.is_dir():
            self.fail(
                f"the home is a folder, but {file} is none; give another with --home or "
                "HSWEEP_HOME",
                param,
                ctx,
            )
        return Home(path)


def _together(*options: Callable[[Verb], Verb]) -> Callable[[Verb], Verb]:
    def decorate(verb: Verb) -> Verb:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return decorate


home_option = click.option(
    "--home",
    type=HomeFolder(),
    default="hsweep-home",
    envvar="HSWEEP_HOME",
    show_default="./hsweep-home",
    help="Where studies, the MLflow store and measured speeds are kept.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON alone; messages go to standard error."
)

tracking_option = click.option(
    "--tracking-uri", metavar="URI", help="An MLflow store; by default SQLite under the home."
)


def _use_data_root(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    """Let tasks look there; they resolve names when they are made, so workers need not know."""
    if value is not None:
        os.environ["HSWEEP_DATA"] = str(value.expanduser().absolute())


data_root_option = click.option(
    "--data-root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    expose_value=False,
    callback=_use_data_root,
    help="Folder in which data are looked for by name; else HSWEEP_DATA.",
)

sweep_options = _together(
    data_root_option,
    click.option("--preset", metavar="NAME", help="A variant of the sweep.  [default: quick]"),
    click.option(
        "--set",
        "settings",
        type=Setting(),
        multiple=True,
        help="Replace an axis (heads=1,2,4), the budget (epochs=50), report_every, replicates, "
        "cpus, gpus (a number, or auto: a share of a device by the memory a trial needs) or "
        "together (auto, never, always).",
    ),
    click.option(
        "--point",
        "points",
        type=AxisValues(),
        multiple=True,
        help="Keep only the points with these values (heads=8,depth=1); repeat it for several.",
    ),
    click.option(
        "--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Study seed.  [default: 0]"
    ),
    click.option("--max-params", type=Count(), help="Skip larger models, for example 60M."),
    click.option("--min-params", type=Count(), help="Skip smaller models."),
    click.option("--max-memory", type=Bytes(), help="Skip what needs more training memory: 8G."),
    click.option("--max-flops", type=Count(), help="Skip dearer forward passes, for example 5G."),
)

edit_options = _together(
    data_root_option,
    click.option(
        "--sweep",
        "sweep_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Go on with this sweep, edited since the study began.",
    ),
    click.option(
        "--set",
        "settings",
        type=Setting(),
        multiple=True,
        help="Replace or add a setting of the study: another budget (epochs=100), an axis, "
        "replicates.",
    ),
    click.option(
        "--unset", "dropped", metavar="NAME", multiple=True, help="Drop a setting of the study."
    ),
    click.option(
        "--dry-run", is_flag=True, help="Show what would be kept, new and set aside, and stop."
    ),
)

run_options = _together(
    click.option(
        "--runner",
        type=click.Choice(["ray", "inline"]),
        default="ray",
        show_default=True,
        help="Ray, or one trial after another in this process.",
    ),
    click.option("--max-concurrent", type=click.IntRange(1), help="Trials at once."),
    click.option(
        "--address",
        metavar="ADDR",
        help="An existing Ray cluster, host:port or auto.  [default: RAY_ADDRESS; without it Ray "
        "starts here]",
    ),
    click.option(
        "--dashboard/--no-dashboard",
        default=True,
        show_default=True,
        help="Start Ray's dashboard, or save its start (seconds) where nobody looks.",
    ),
    click.option("--time-budget", type=Duration(), help="End cleanly after 30m, 2h, ..."),
    click.option(
        "--report-timeout",
        type=Duration(),
        help="Restart a trial that has not reported for so long (10m); else as the sweep says.",
    ),
    click.option(
        "--reuse/--no-reuse",
        default=True,
        show_default=True,
        help="Take trials that another study of the home has finished, or train them anew.",
    ),
    click.option(
        "--accept-code",
        is_flag=True,
        help="The code has changed, but no result: keep and take trials that earlier code has "
        "trained, and record that.",
    ),
    click.option(
        "--check/--no-check",
        default=True,
        show_default=True,
        help="Try out an update and an evaluation of the smallest and the largest new trial before "
        "the start (about a second), or leave that out.",
    ),
    tracking_option,
)
RUN_OPTIONS: Final = (
    *("runner", "max_concurrent", "address", "dashboard", "time_budget", "report_timeout"),
    *("reuse", "accept_code", "check", "tracking_uri"),
)
"""What ``run_options`` asks for."""


def console_for(*, as_json: bool) -> "Console":
    """Return where messages go: standard output, or standard error beside JSON."""
    from hsweep.terminal import PlainConsole

    console = PlainConsole(stderr=as_json)
    if not console.is_terminal and not console.is_jupyter:
        # In a file or a pipe a line is as long as what it says.
        console.width = max(console.width, 160)
    return console


def exit_with(code: int) -> None:
    """Leave with an exit code once everything printed is out."""
    sys.stdout.flush()
    sys.exit(code)


def refuse_given(options: Iterable[str], *, but: Container[str], why: str) -> None:
    """Refuse options of the verb being run that were given, except those in ``but``.

    Raises:
        UserError: with the option and ``why`` it cannot be used.
    """
    context = click.get_current_context()
    for name in options:
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and name not in but:
            shown = next(each.opts[0] for each in context.command.params if each.name == name)
            raise UserError(f"{shown} {why}")
