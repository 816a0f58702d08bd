"""The command line: verbs only. Everything heavy is imported inside the verb that needs it."""

import atexit
import contextlib
import errno
import gc
import sqlite3
from pathlib import Path
from typing import Any, Final

import click

from hsweep.design.domain import is_text
from hsweep.errors import UserError, shown
from hsweep.interrupts import (
    EXIT_INTERRUPTED,
    leave_quietly,
    never_lost,
    on_record,
    said_of,
)
from hsweep.paths import Home
from hsweep.verbs.analyze import analyze
from hsweep.verbs.data import data_verbs
from hsweep.verbs.evidence import compare
from hsweep.verbs.options import (
    RUN_OPTIONS,
    console_for,
    edit_options,
    exit_with,
    home_option,
    json_option,
    run_options,
    sweep_options,
    tracking_option,
)
from hsweep.verbs.recover import recover
from hsweep.verbs.sync import sync

EXIT_NOTHING_USABLE: Final = 1
EXIT_USAGE: Final = 2

# An interpreter that ends searches all that it holds for cycles, again and again: two seconds after
# Ray, torch and MLflow were imported. The process ends anyway, and its memory with it.
atexit.register(gc.freeze)

_NOTHING_NEW: Final = (
    "before the first trial, so nothing new is on record; give the same command again to begin"
)
_SWEEP = click.argument("sweep_file", metavar="SWEEP", type=click.Path(path_type=Path))
_STUDY = click.argument("study_name", metavar="STUDY")


class _Verbs(click.Group):
    """Turns what a user got wrong into one message and exit code 2."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse what is no text: it could be written into no record and no page."""
        for argument in args:
            if "\0" in argument or not is_text(argument):
                raise click.UsageError(
                    f"arguments are UTF-8 text without NUL; got {shown(argument)}", ctx
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        from hsweep.quiet import no_calls_home

        no_calls_home()
        try:
            with never_lost():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            from hsweep.terminal import visible

            leave_quietly()
            click.echo(f"\nhsweep: {visible(said_of(interrupt))}", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except UserError as error:
            from hsweep.redaction import redact
            from hsweep.terminal import visible

            # It may quote what a sweep file raised.
            click.echo(f"hsweep: {visible(redact(str(error)))}", err=True)
            ctx.exit(EXIT_USAGE)
        except sqlite3.Error as error:
            click.echo(
                f"hsweep: a record cannot be read or written ({error}); free some space on its "
                "disk, or check its rights. What was recorded stays; do the same again then",
                err=True,
            )
            ctx.exit(EXIT_USAGE)
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read our output has left: click's to handle
                raise
            from hsweep.terminal import visible

            where = "" if error.filename is None else f"{error.filename}: "
            click.echo(
                f"hsweep: {visible(where)}{error.strerror or visible(str(error))}; check the path, "
                "its rights and the space on its disk",
                err=True,
            )
            ctx.exit(EXIT_USAGE)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hsweep")
def main() -> None:
    """How many heads, how deep, how wide does my transformer need?

    Plans, runs and analyses sweeps over the shape of transformers. A SWEEP is a Python file; a
    STUDY is one run of a sweep, kept under the home. Sweep files are code and run with your
    rights.
    """


@main.command()
@_SWEEP
@sweep_options
@click.option("--power", is_flag=True, help="Show how likely the sweep is to find what it asks.")
@click.option("--study", "study_name", metavar="NAME", help="With --power: whose noise to take.")
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
    power: bool,
    study_name: str | None,
    jumps: tuple[float, ...],
    simulated: int,
    check: bool,
    home: Home,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Show every trial of SWEEP before any trains: shape, parameters, FLOPs, memory."""
    from hsweep.planning.answerable import concerns_json
    from hsweep.planning.checking import check_trials
    from hsweep.planning.prepare import prepare, refuse_unread_data
    from hsweep.running import request
    from hsweep.verbs.evidence import show_power
    from hsweep.verbs.render import print_json, show_checked, show_plan

    if not power and (study_name is not None or jumps):
        raise UserError("--study and --jump belong to --power")
    prepared = prepare(sweep_file, **chosen)
    if power:
        show_power(prepared.plan, home, study_name, jumps, simulated, as_json)
        return
    seconds = request.estimate(prepared.plan, home)
    checked = None
    if check:
        refuse_unread_data(prepared.plan)
        checked = check_trials(prepared.plan.trials)
    if as_json:
        found: dict[str, Any] = {"concerns": concerns_json(prepared.plan)}
        if checked is not None:
            found["checked"] = checked.to_json()
        print_json({**prepared.plan.to_json(), "estimated_seconds": seconds, **found})
        return
    console = console_for(as_json=False)
    show_plan(console, prepared.plan, seconds)
    if checked is not None:
        show_checked(console, checked)


@main.command()
@_SWEEP
@click.option("--study", "study_name", metavar="NAME", help="The study's name.")
@click.option(
    "--only-missing",
    is_flag=True,
    help="In a study that has run: train what its analysis lists as missing, and nothing else.",
)
@sweep_options
@run_options
@click.option("--storage", metavar="URI", help="Folder or URI for checkpoints; shared by nodes.")
@home_option
@json_option
@on_record(_NOTHING_NEW)
def run(
    sweep_file: Path,
    study_name: str | None,
    only_missing: bool,
    storage: str | None,
    home: Home,
    as_json: bool,
    **given: Any,
) -> None:
    """Plan SWEEP, train it and answer its question. SWEEP is code and runs with your rights."""
    from hsweep.terminal import doing

    # Before the imports, which take seconds.
    doing(f"planning {sweep_file}")
    from hsweep.planning.answerable import concerns_json
    from hsweep.planning.prepare import prepare
    from hsweep.running import request
    from hsweep.verbs.conclusion import Conclusion, fill_missing, finish

    console = console_for(as_json=as_json)
    how = {name: given.pop(name) for name in RUN_OPTIONS}
    if only_missing:
        fill_missing(sweep_file, study_name, storage, home, how, given, console, as_json)
        return
    prepared = prepare(sweep_file, **given)
    options = request.run_options(home, prepared.plan.sweep.name, **how)
    conclusion = Conclusion(options.target)
    study, outcome = request.start(
        prepared, options, home, study_name, storage, console, conclusion
    )
    concerns = {"concerns": concerns_json(prepared.plan)} if as_json else None
    finish(study, outcome, conclusion, home, as_json, console, concerns)


@main.command()
@_STUDY
@edit_options
@click.option(
    "--retry-failed", is_flag=True, help="Also try trials again that failed or were too large."
)
@run_options
@home_option
@json_option
@on_record(_NOTHING_NEW)
def resume(
    study_name: str,
    sweep_file: Path | None,
    settings: list[tuple[str, list[Any]]],
    dropped: list[str],
    dry_run: bool,
    home: Home,
    as_json: bool,
    **how: Any,
) -> None:
    """Go on with STUDY: finished trials stay, the others continue from their checkpoints.

    With --sweep or --set it goes on as an edited sweep: new points are added, trials whose model,
    task, recipe, budget and code are unchanged stay, the others are set aside. What that comes to
    is shown first; with --dry-run nothing else happens.
    """
    from hsweep.terminal import doing

    # Before the imports, which take seconds.
    doing(f"planning the trials of {study_name}")
    from hsweep.record.recovery import open_whole
    from hsweep.record.study import Study
    from hsweep.running import request
    from hsweep.running.edit import Asked, go_on_edited
    from hsweep.verbs.conclusion import Conclusion, finish
    from hsweep.verbs.render import print_json

    console = console_for(as_json=as_json)
    study = Study.open(home, study_name) if dry_run else open_whole(home, study_name, console.print)
    how["tracking_uri"] = how["tracking_uri"] or request.recorded_tracking_uri(study)
    options = request.run_options(home, study.manifest.sweep, **how)
    conclusion = Conclusion(options.target)
    if sweep_file is None and not (settings or dropped or dry_run):
        outcome = request.go_on(study, options, home, console, conclusion)
        finish(study, outcome, conclusion, home, as_json, console)
        return
    asked = Asked(sweep_file, list(settings), tuple(dropped), options.accept_code)
    edit, ended = go_on_edited(study, asked, options, home, console, conclusion, dry_run=dry_run)
    revision = {"revision": edit.revision.to_json()}
    if ended is not None:
        finish(study, ended, conclusion, home, as_json, console, revision)
    elif as_json:
        print_json({"study": study.name, "dry_run": True, **revision})


@main.command("list")
@home_option
@json_option
def list_(home: Home, as_json: bool) -> None:
    """List the studies of the home."""
    from hsweep.record.study import Study, list_studies
    from hsweep.verbs.render import print_json, show_studies

    rows: list[dict[str, Any]] = []
    for paths in list_studies(home):
        try:
            rows.append(Study.open(home, paths.name).status())
        except Exception as error:
            # Whatever has become of one study's files, the others are listed.
            what = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            said = f"{what}{error}"
            rows.append({"study": paths.name, "state": "unreadable", "error": said})
    if as_json:
        print_json(rows)
    elif rows:
        show_studies(console_for(as_json=False), rows)
    else:
        click.echo(f"{home.root} holds no study yet; begin one with: hsweep run SWEEP")


@main.command()
@_STUDY
@click.option("--all", "every", is_flag=True, help="Every trial, however many there are.")
@click.option("--errors", is_flag=True, help="What each failed attempt raised, in full.")
@home_option
@json_option
def show(study_name: str, every: bool, errors: bool, home: Home, as_json: bool) -> None:
    """Show how STUDY and its trials stand, also while it runs.

    Of more than 200 trials the first 200 are listed, of more than 5,000 the best 20.
    """
    from hsweep.record.reading import reading
    from hsweep.record.study import Study
    from hsweep.verbs.failed_attempts import failed_attempts, show_failed_attempts
    from hsweep.verbs.render import print_json, show_study

    study = Study.open(home, study_name)
    if errors:
        found = failed_attempts(study)
        if as_json:
            print_json([each.to_json() for each in found])
        else:
            show_failed_attempts(console_for(as_json=False), study, found)
        return
    status = study.status()
    if as_json:
        with reading(study) as tables:
            accepted = list(study.manifest.accepted)
            trials = tables.trials.to_pylist()
        print_json({**status, "accepted": accepted, "trials_list": trials})
    else:
        show_study(console_for(as_json=False), study, status, every=every)


@main.command()
@_STUDY
@click.option("--figures", type=click.Path(path_type=Path), help="Also write PNG, SVG and PDF.")
@home_option
@tracking_option
def report(study_name: str, figures: Path | None, home: Home, tracking_uri: str | None) -> None:
    """Write the report of STUDY: one HTML file that needs no network."""
    from analysis.answer import answer_study
    from hsweep.record.reading import reading
    from hsweep.record.study import Study
    from hsweep.running import request
    from hsweep.tracking.tracker import tracking_target
    from hsweep.verbs.conclusion import write_study_report

    study = Study.open(home, study_name)
    uri = tracking_uri or request.recorded_tracking_uri(study)
    target = tracking_target(uri, home, study.manifest.sweep)
    with reading(study) as tables:
        answer = answer_study(study, tables)
        click.echo(str(write_study_report(study, answer, target, tables)))
        if figures is not None:
            from analysis.charts.matplotlib_print import save_figures
            from analysis.report import report_charts, report_input

            charts = report_charts(report_input(study, answer, {}, tables))
            for path in save_figures(charts, figures):
                click.echo(str(path))


@main.command()
@_STUDY
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--what",
    type=click.Choice(["trials", "reports"]),
    default="trials",
    show_default=True,
    help="One row a trial, or one a report.",
)
@click.option(
    "--orphaned", is_flag=True, help="Also trials that an edit of the sweep took out of the study."
)
@home_option
def export(study_name: str, file: Path, what: str, orphaned: bool, home: Home) -> None:
    """Write the trials of STUDY to FILE (.parquet, .csv or .json)."""
    from hsweep.record.study import Study
    from hsweep.record.tables import write_table

    study = Study.open(home, study_name)
    trials, reports = study.tables(orphaned=orphaned)
    table = trials if what == "trials" else reports
    write_table(table, file)
    with contextlib.suppress(UserError):
        study.write_tables()
    click.echo(f"{table.num_rows} {what} in {file}")


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@home_option
@tracking_option
def ui(host: str, port: int, home: Home, tracking_uri: str | None) -> None:
    """Serve the MLflow UI on the home's store."""
    from hsweep.tracking.tracker import serve_ui, tracking_target

    if host not in ("127.0.0.1", "localhost", "::1"):
        click.echo(
            f"hsweep: anyone who reaches {host}:{port} can read and delete these runs", err=True
        )
    home.create()
    target = tracking_target(tracking_uri, home, "hsweep")
    serve_ui(target, host=host, port=port)


@main.command()
@click.option("--quick", is_flag=True, help="Leave out what starts torch, Ray or MLflow.")
@home_option
@tracking_option
@json_option
def doctor(quick: bool, home: Home, tracking_uri: str | None, as_json: bool) -> None:
    """Check this machine, and say what to do about each problem."""
    from dataclasses import asdict

    from hsweep.verbs.doctor import diagnose
    from hsweep.verbs.render import print_json, show_checks

    checks = diagnose(home, quick=quick, tracking_uri=tracking_uri)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        show_checks(console_for(as_json=False), checks)
    if any(check.status == "problem" for check in checks):
        exit_with(EXIT_NOTHING_USABLE)


@main.command()
@click.argument("study_name", metavar="[STUDY]", required=False)
@click.option("--table", metavar="TABLE", help="One table alone: T1 to T5, or Fig3.")
@click.option("--as", "setup", metavar="NAME", help="What STUDY repeats, if it does not show.")
@click.option("--same-data", is_flag=True, help="STUDY's data are the paper's: you vouch for it.")
@home_option
@json_option
def paper(
    study_name: str | None,
    table: str | None,
    setup: str | None,
    same_data: bool,
    home: Home,
    as_json: bool,
) -> None:
    """Show STUDY beside the published results that it repeats.

    Without STUDY: the lean paper's parameter counts beside those of the models built here.
    """
    from hsweep.record.study import Study
    from hsweep.verbs.paper import (
        built_counts,
        published_presets,
        rows_of,
        show_beside,
        show_paper,
        study_beside_paper,
    )
    from hsweep.verbs.render import print_json

    if study_name is not None:
        if table is not None:
            raise UserError("--table is of parameter counts, without a STUDY")
        beside = study_beside_paper(Study.open(home, study_name), setup, same_data=same_data)
        if as_json:
            print_json(beside.to_json())
        else:
            show_beside(console_for(as_json=False), beside)
        return
    if setup is not None or same_data:
        raise UserError("--as and --same-data are of a STUDY; give its name")
    compared = built_counts(rows_of(table), published_presets())
    if as_json:
        print_json([row.to_json() for row in compared])
    else:
        show_paper(console_for(as_json=False), compared)


main.add_command(analyze)
main.add_command(data_verbs)
main.add_command(compare)
main.add_command(recover)
main.add_command(sync)

if __name__ == "__main__":
    main()
