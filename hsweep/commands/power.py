"""``hsweep plan --power``: how likely a planned sweep is to answer its question."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hsweep.commands.output import console_for, print_json
from hsweep.errors import UserError
from hsweep.paths import Home

if TYPE_CHECKING:
    from analysis.questions.power.result import LeanPowerResult, PowerResult, SettingChoice
    from hsweep.planning.plan import Plan
    from hsweep.record.study import StudyFolder


def show_power(
    plan: "Plan",
    home: Home,
    study_name: str | None,
    jumps: Sequence[float],
    sweeps: int,
    as_json: bool,
) -> None:
    """Print how likely a planned sweep is to answer its question, and which size would be enough;
    UserError for a sweep without a question, or a study that asks another one."""
    from analysis.questions.lean.question import Lean
    from analysis.questions.power.text import (
        lean_power_sentence,
        lean_power_table,
        power_sentence,
        power_table,
    )
    from analysis.questions.transition.question import Transition
    from analysis.terminal import print_table
    from hsweep.record.study import StudyFolder

    study = None if study_name is None else StudyFolder.open(home, study_name)
    question = plan.sweep.question
    if study is not None and study.manifest.question is not None:
        kind = study.manifest.question["type"]
        if question is not None and kind != type(question).__name__:
            raise UserError(
                f"the study {study.name!r} asks a {kind} question, this sweep another one; the "
                "noise of one says nothing about the other"
            )
    result: PowerResult | LeanPowerResult
    if isinstance(question, Transition):
        result = _transition_power(plan, question, study, jumps, sweeps)
        sentence, table = power_sentence(result), power_table(result)
    elif isinstance(question, Lean):
        result = _lean_power(plan, question, study)
        sentence, table = lean_power_sentence(result), lean_power_table(result)
    else:
        asks = "no question" if question is None else f"a {type(question).__name__} question"
        raise UserError(
            f"the sweep {plan.sweep.name!r} asks {asks}; --power is for a transition and for a "
            "lean question"
        )
    if as_json:
        print_json({**plan.to_json(), "power": result.to_json()})
        return
    console = console_for(as_json=False)
    print_table(console, "power", table)
    for warning in getattr(result, "warnings", ()):
        console.print(f"note: {warning}", style="yellow")
    console.print(sentence, style="bold")


def _transition_power(
    plan: "Plan", question: Any, study: "StudyFolder | None", jumps: Sequence[float], sweeps: int
) -> "PowerResult":
    from rich.progress import Progress

    from analysis.ask import answer_study
    from analysis.questions.power.fit import noise_of, plan_transition
    from analysis.questions.power.result import PowerSettings
    from analysis.questions.transition.result import TransitionResult

    points = [trial.point for trial in plan.trials]
    noise = h_star = None
    if study is not None:
        result = answer_study(study).result(TransitionResult)
        if result is None or not result.runs:
            raise UserError(f"the study {study.name!r} has no full-budget run to learn noise from")
        noise = noise_of(result)
        h_star = result.h_star if result.is_claimed else None
    by, choice = question.by, _choice(plan, question)
    with Progress(console=console_for(as_json=True), transient=True) as progress:
        task = progress.add_task("simulating sweeps", total=None)
        return plan_transition(
            [point[question.x] for point in points],
            [None] if by is None else [point[by] for point in points],
            plan.sweep.replicates - choice.scouts,
            x=question.x,
            by=by,
            scale=question.scale or "error",
            noise=noise,
            h_star=h_star,
            jumps=list(jumps) or None,
            settings=PowerSettings(sweeps=sweeps),
            choice=choice,
            on_progress=lambda done, of: progress.update(task, completed=done, total=of),
        )


def _choice(plan: "Plan", question: Any) -> "SettingChoice":
    """Return the number of settings of the nuisance axes that compete for a cell, and the number of
    scouts that choose among them."""
    from analysis.questions.power.result import SettingChoice
    from hsweep.record.summary import Size

    scouts = plan.sweep.num_scouts
    size = Size.of(plan.trials, question.place, question.nuisance, scouts)
    return SettingChoice(max(1, size.settings), scouts)


def _lean_power(plan: "Plan", question: Any, study: "StudyFolder | None") -> "LeanPowerResult":
    from analysis.ask import answer_study
    from analysis.questions.groups import results_of
    from analysis.questions.lean.result import LeanResult
    from analysis.questions.power.fit import plan_lean

    seen = None
    if study is not None:
        answer = answer_study(study)
        # Of several comparisons the noisiest decides how many seeds are enough for all.
        results = results_of(answer.findings, LeanResult)
        seen = max(results, key=lambda result: result.sd or 0.0, default=None)
        if seen is None:
            raise UserError(
                f"the study {study.name!r} has no baseline to learn noise from: {answer.text}"
            )
    compared = question.comparisons(plan.trials).values()
    choice = _choice(plan, question)
    return plan_lean(
        margin=question.margin,
        candidates=max((question.num_cheaper(shapes) for shapes in compared), default=0),
        seeds=plan.sweep.replicates - choice.scouts,
        choice=choice,
        alpha=0.05 / max(1, len(compared)),
        study_result=seen,
    )
