"""``hsweep analyze``."""

import contextlib
from pathlib import Path
from typing import Any, Final

import click

from hsweep.commands.options import home_option, json_option, refuse_given
from hsweep.commands.output import console_for, print_json
from hsweep.errors import UserError
from hsweep.paths import Home

_STUDY_KNOWS: Final = "belongs to --table; a study knows it"
_ASKED_OF_A_STUDY: Final = {
    "effects": ("kind", "settings"),
    "surrogate": ("kind", "settings", "predict", "margin"),
}


@click.command()
@click.argument("study_name", metavar="[STUDY]", required=False)
@click.option("--table", type=click.Path(path_type=Path), help="A parquet or csv file instead.")
@click.option(
    "--kind",
    type=click.Choice(["transition", "pareto", "lean", "conditioning", "effects", "surrogate"]),
    help="What to ask.",
)
@click.option("--x", help="Transition, conditioning: the axis of heads.  [default: heads]")
@click.option("--by", help="Transition: the modulating axis; '' for none.  [default: seq_len]")
@click.option("--metric", help="Column of the result.")
@click.option("--goal", type=click.Choice(["min", "max"]), help="Whether smaller is better.")
@click.option("--scale", type=click.Choice(["error", "accuracy", "loss"]), help="Of the metric.")
@click.option("--eval-size", type=click.IntRange(1), help="Examples behind an accuracy.")
@click.option("--replicate", default="seed", show_default=True, help="Column of the seeds.")
@click.option("--config", "config", multiple=True, help="Pareto, lean: a column of the shape.")
@click.option("--cost", "costs", multiple=True, help="Pareto, lean: a column to keep small.")
@click.option("--baseline", help="Lean: the baseline, as heads=12,depth=12, or its name.")
@click.option("--margin", type=float, help="Lean: how much worse still counts as equal.")
@click.option("--condition", help="Conditioning: column of the condition number.")
@click.option("--prediction", help="Conditioning: column of the theory's value.")
@click.option(
    "--predict",
    multiple=True,
    metavar="AXIS=VALUE,...",
    help="Surrogate: a shape to predict, as heads=8,depth=3.",
)
@click.option("--status-column", help="How each run ended.")
@click.option("--complete", default="finished", show_default=True, help="Its word for full runs.")
@click.option("--pruned", multiple=True, metavar="WORD", help="A word for runs stopped early.")
@click.option("--failed", multiple=True, metavar="WORD", help="A word for runs without a result.")
@click.option("--budget-column", help="How far each run got.")
@click.option("--target-budget", type=float, help="The full budget.")
@click.option(
    "--nuisance",
    multiple=True,
    help="Transition, pareto, lean: an axis of which each cell or shape keeps the best value.",
)
@click.option(
    "--history", type=click.Path(path_type=Path), help="Transition: every report of the runs."
)
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A choice of the analysis: alpha, rho, delta_T, min_drop, B, rng_seed, ...",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Also write the result (.json or .parquet)."
)
@click.option("--report", "with_report", is_flag=True, help="Also write the report of STUDY.")
@home_option
@json_option
def analyze(
    study_name: str | None,
    table: Path | None,
    out: Path | None,
    with_report: bool,
    home: Home,
    as_json: bool,
    **asked: Any,
) -> None:
    """Answer the question of STUDY, or one put to any table.

    With --kind conditioning a study is asked what its probe measured, with effects what each axis
    does, with surrogate what is to be expected of untried shapes.
    """
    from analysis.answer import answer_study, ask_conditioning, ask_effects, ask_surrogate
    from analysis.ask import ask_table
    from analysis.findings.result_files import write_answer
    from analysis.words.summary import show_answer
    from hsweep.commands.conclusion import write_study_report
    from hsweep.files import write_json
    from hsweep.record.reading import reading
    from hsweep.record.study import Study
    from hsweep.running.resume import target_of

    if (study_name is None) == (table is None):
        raise UserError("give the name of a study, or a table with --table FILE --kind KIND")
    if with_report and (table is not None or asked["kind"] is not None):
        raise UserError("--report is of a STUDY and its own question, without --table and --kind")
    if table is not None:
        answer = ask_table(table, **asked)
    else:
        assert study_name is not None
        kind = asked["kind"]
        refuse_given(asked, but=_ASKED_OF_A_STUDY.get(kind, ("kind",)), why=_STUDY_KNOWS)
        study = Study.open(home, study_name)
        if kind == "conditioning":
            answer = ask_conditioning(study)
        elif kind == "effects":
            answer = ask_effects(study, asked["settings"])
        elif kind == "surrogate":
            answer = ask_surrogate(study, asked["predict"], asked["margin"], asked["settings"])
        else:
            with reading(study) as tables:
                answer = answer_study(study, tables)
                # Only to be found beside the study: on read-only storage the answer is what counts.
                with contextlib.suppress(OSError):
                    if not study.is_running():
                        write_json(study.paths.analysis, answer.to_json())
                if with_report:
                    write_study_report(study, answer, target_of(study, home), tables)
    if out is not None:
        write_answer(answer, out)
    if as_json:
        print_json(answer.to_json())
    else:
        show_answer(console_for(as_json=False), answer)
