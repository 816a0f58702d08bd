"""The command line: its commands, and user errors as one message."""

import errno
import sqlite3
import sys
from typing import Any, Final

import click

from hsweep.commands.analyze import analyze
from hsweep.commands.compare import compare
from hsweep.commands.data import data
from hsweep.commands.delete import delete
from hsweep.commands.doctor import doctor
from hsweep.commands.export import export
from hsweep.commands.join import join
from hsweep.commands.list import list_
from hsweep.commands.model import model
from hsweep.commands.new import new
from hsweep.commands.plan import plan
from hsweep.commands.report import report
from hsweep.commands.resume import resume
from hsweep.commands.run import run
from hsweep.commands.show import show
from hsweep.commands.submit import submit
from hsweep.commands.sync import sync
from hsweep.commands.ui import ui
from hsweep.commands.watch import watch
from hsweep.design.domain import is_text
from hsweep.errors import FencedError, UserError, shown
from hsweep.garbage import collect_rarely
from hsweep.options import HeadedGroup
from hsweep.signals import (
    EXIT_INTERRUPTED,
    EXIT_UNFINISHED,
    Termination,
    ends_as_interrupts,
    ignore_interrupts,
    redeliver_interrupts,
)
from hsweep.streams import discard_output, prepare_streams
from hsweep.workspace import is_command

EXIT_FENCED: Final = 1
EXIT_USAGE: Final = 2
_COMMANDS: Final[dict[str, tuple[click.Command, ...]]] = {
    "Begin": (new, plan, doctor, data),
    "Run": (run, resume, watch),
    "Read": (list_, show, analyze, report, compare, ui),
    "Keep": (export, model, sync, delete),
    "Elsewhere": (submit, join),
}

if is_command():
    collect_rarely()


class _Commands(HeadedGroup):
    """Turns user errors into one message and exit code 2."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and end the process."""
        prepare_streams()
        try:
            return super().main(*args, **extra)
        except SystemExit as ending:
            if ending.code and Termination.was_raised:
                # Whatever came of the interrupt: the same command goes on.
                ending.code = EXIT_UNFINISHED
            # Imported where a command has started Ray, and costly.
            if local := sys.modules.get("hsweep.ray_tune.local"):
                local.exit_without_ray(ending.code)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse arguments that are not valid text: no record or page could hold them."""
        for argument in args:
            if "\0" in argument or not is_text(argument):
                raise click.UsageError(
                    f"arguments are UTF-8 text without NUL; got {shown(argument)}", ctx
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        from hsweep.telemetry import disable_telemetry

        disable_telemetry()
        try:
            with ends_as_interrupts(), redeliver_interrupts():
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.UsageError as error:
            from hsweep.terminal import visible

            # It may quote an argument, which a terminal would obey.
            raise click.UsageError(visible(error.format_message()), error.ctx) from None
        except KeyboardInterrupt as interrupt:
            from hsweep.terminal import visible

            ignore_interrupts()
            message = " ".join(["interrupted", *map(str, interrupt.args)])
            click.echo(f"\nhsweep: {visible(message)}", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except FencedError as error:
            from hsweep.terminal import warn

            warn(str(error))
            ctx.exit(EXIT_FENCED)
        except UserError as error:
            from hsweep.secrets import redact

            problem = redact(str(error))  # it may quote what a sweep file raised
        except sqlite3.Error as error:
            problem = (
                f"a record cannot be read or written ({error}); free some space on its "
                "disk, or check its rights. What was recorded stays; do the same again then"
            )
        except OSError as error:
            if error.filename is None:
                discard_output()
            if error.errno == errno.EPIPE:  # the reader of our output has gone: click's to handle
                raise
            where = "" if error.filename is None else f"{error.filename}: "
            problem = (
                f"{where}{error.strerror or error}; check the path, its rights and the space on "
                "its disk"
            )
        from hsweep.terminal import warn

        warn(problem)
        ctx.exit(EXIT_USAGE)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="hsweep")
def main() -> None:
    """How many heads, how deep, how wide does my transformer need?

    Plans, runs and analyses sweeps over the shape of transformers. A SWEEP is a Python file, or
    the name of one that comes with hsweep; a STUDY is one run of a sweep, kept under the home.
    Sweep files are code and run with your rights.
    """


for _heading, _commands in _COMMANDS.items():
    for _command in _commands:
        main.add_command(_command)
        main.headings[str(_command.name)] = _heading

if __name__ == "__main__":
    main()
