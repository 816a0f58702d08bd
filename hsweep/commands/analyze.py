"""``hsweep analyze``: the answer of a study, or the answer of any table to one kind of question."""

import contextlib
import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.command_line import running_command
from hsweep.commands.options import (
    complete_study,
    from_option,
    home_of,
    home_option,
    json_option,
    refuse_options,
)
from hsweep.commands.output import console_for, print_json
from hsweep.design.labels import listed
from hsweep.errors import UserError
from hsweep.paths import Home

if TYPE_CHECKING:
    from analysis.answer import Answer
    from analysis.questions.base import Kind
    from analysis.questions.settings import Option
    from analysis.runs.table import Runs

_STUDY_KNOWS: Final = "belongs to --table; a study knows it"
_KIND: Final = "analysis kind"
"""Name under which the command's context keeps the kind of question from ``--kind``."""


class _AnalyzeCommand(click.Command):
    """Adds the options of the kind named by ``--kind``, and lists all kinds in the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the kind of question, and refuse options of other kinds."""
        kinds = _kinds()
        names = [value for flag, value in pairwise(args) if flag == "--kind"]
        names += [arg.partition("=")[2] for arg in args if arg.startswith("--kind=")]
        name = names[-1] if names else ""
        ctx.meta[_KIND] = kinds.get(name)
        flags = {key: {option.flag for option in kind.options} for key, kind in kinds.items()}
        for flag in (arg.partition("=")[0] for arg in args):
            owners = [key for key, kind_flags in flags.items() if flag in kind_flags]
            if owners and name not in owners:
                raise UserError(f"{flag} belongs to --kind {listed(owners, 'or')}")
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        first, *common = super().get_params(ctx)
        choice = click.Option(["--kind"], type=click.Choice(list(_kinds())), help="What to ask.")
        kind: Kind | None = ctx.meta.get(_KIND)
        names = [_parameter(option) for option in kind.options] if kind is not None else []
        return [first, choice, *names, *common]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        kind: Kind | None = ctx.meta.get(_KIND)
        if kind is None:
            with formatter.section("Kinds (hsweep analyze --kind KIND -h shows their options)"):
                formatter.write_dl([(name, one.about) for name, one in _kinds().items()])
            return
        with formatter.section(f"Settings of --kind {kind.name}"):
            formatter.write_dl(
                (
                    field.name,
                    f"[default: {'not given' if field.default is None else field.default}]",
                )
                for field in dataclasses.fields(kind.settings)
            )


def _kinds() -> "dict[str, Kind]":
    """Return the kinds of question that a table can answer, by name."""
    from analysis import ask

    return ask.table_kinds()


def _parameter(option: "Option") -> click.Option:
    return click.Option(
        [option.flag],
        help=option.help,
        type=click.IntRange(1) if option.reads is int else option.reads,
        multiple=option.multiple,
    )


@click.command(cls=_AnalyzeCommand)
@click.argument("study_name", metavar="[STUDY]", shell_complete=complete_study, required=False)
@click.option("--table", type=click.Path(path_type=Path), help="A parquet or csv file instead.")
@click.option("--metric", help="Column of the result.")
@click.option("--goal", type=click.Choice(["min", "max"]), help="Whether smaller is better.")
@click.option("--scale", type=click.Choice(["error", "accuracy", "loss"]), help="Of the metric.")
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE,...",
    help="Only these rows of the table; repeat.",
)
@click.option(
    "--ignore", multiple=True, metavar="COLUMN", help="Leave this column out of account; repeat."
)
@click.option("--replicate", help="Column of the seeds; '' for repeated runs.  [default: seed]")
@click.option("--status-column", help="How each run ended.")
@click.option("--complete", multiple=True, metavar="WORD", help="A word of it for full runs.")
@click.option("--pruned", multiple=True, metavar="WORD", help="A word for runs stopped early.")
@click.option("--failed", multiple=True, metavar="WORD", help="A word for runs without a result.")
@click.option("--budget-column", help="How far each run got.")
@click.option("--target-budget", type=float, help="The full budget.")
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A choice of the analysis; --kind KIND -h lists them.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Also write the result (.json or .parquet)."
)
@click.option(
    "--report", "with_report", is_flag=True, help="Also write the report, of a table beside it."
)
@from_option
@home_option
@json_option
def analyze(
    study_name: str | None,
    table: Path | None,
    out: Path | None,
    with_report: bool,
    storage: str | None,
    home: Home,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer the question of STUDY, or one put to any table.

    --kind puts another question to STUDY than that of its sweep; the axes, seeds, settings and
    budgets come from the study.
    """
    from analysis.ask import ask_runs, read_runs
    from analysis.result_files import write_answer
    from analysis.terminal import show_answer

    kind: Kind | None = click.get_current_context().meta[_KIND]
    if (study_name is None) == (table is None):
        raise UserError("give the name of a study, or a table with --table FILE --kind KIND")
    if with_report and table is None and kind is not None:
        raise UserError(
            "--report is of a STUDY and its own question, without --kind, or of a --table"
        )
    report = None
    if table is not None:
        runs = read_runs(table, kind, options)
        answer = ask_runs(runs, kind, options)
        if with_report:
            assert kind is not None
            report = _table_report(table, runs, answer, kind, options)
    else:
        assert study_name is not None
        home = home_of(study_name, home, storage)
        answer = _of_study(study_name, home, kind, options, with_report=with_report)
    if out is not None:
        write_answer(answer, out)
    if as_json:
        print_json(answer.to_json())
    else:
        show_answer(console_for(as_json=False), answer)
        if report is not None:
            click.echo(f"report {report}")


def _table_report(
    table: Path, runs: "Runs", answer: "Answer", kind: "Kind", options: dict[str, Any]
) -> Path:
    """Write the page of a table beside it."""
    from analysis.report.build import write_report
    from analysis.report.tables import report_place, table_input

    page_input = table_input(table, runs, answer, kind.about, options, running_command())
    try:
        return write_report(page_input, report_place(table))
    except OSError as error:
        raise UserError(
            f"the report of a table is written beside it, and {table.parent.absolute()} takes no "
            f"file ({error.strerror}); copy the table to a folder that does"
        ) from error


def _of_study(
    name: str, home: Home, kind: "Kind | None", options: dict[str, Any], *, with_report: bool
) -> "Answer":
    from analysis.ask import answer_study, ask_study
    from hsweep.commands.conclusion import write_study_report
    from hsweep.files import write_json
    from hsweep.planning.prepare import own_question
    from hsweep.record.study import StudyFolder
    from hsweep.tracking.target import target_of

    asking = [] if kind is None else [option.name for option in kind.options if not option.of_table]
    allowed = ["kind", *asking, *([] if kind is None else ["settings", "scale"])]
    refuse_options(options, but=allowed, why=_STUDY_KNOWS)
    study = StudyFolder.open(home, name)
    if kind is not None:
        return ask_study(study, kind, options)
    with study.reading() as tables:
        answer = answer_study(study, tables, own=own_question(study))
        # Only to be found beside the study: on read-only storage the answer is what counts.
        with contextlib.suppress(OSError):
            if not study.is_running():
                write_json(study.paths.analysis, answer.to_json())
        if with_report:
            write_study_report(study, answer, target_of(study, home), tables)
    return answer
