"""A study's answer: the question of its sweep, put to its own tables."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from analysis import against, conditioning, lean, pareto, transition
from analysis.charts.learning_curves import drawn_keys
from analysis.confirmation import confirm_command
from analysis.findings.against_results import AgainstResult, AgainstSettings
from analysis.findings.chosen_settings import with_settings
from analysis.findings.conditioning_results import ConditioningResult
from analysis.findings.effect_results import EffectsResult, EffectsSettings
from analysis.findings.results import LeanResult, LeanSettings, ParetoResult, TransitionResult
from analysis.findings.surrogate_results import SurrogateResult, SurrogateSettings
from analysis.lean_groups import LeanGroups, fit_groups
from analysis.papers.published_setups import SETUPS, setup_of
from analysis.report import ReportInput
from analysis.runs.chance import study_chance
from analysis.runs.history import UNIT, study_history
from analysis.settling import settle_command
from analysis.shape_answers import (
    read_shapes_to_predict,
    shape_results,
    study_effects,
    study_surrogate,
)
from analysis.words.conditioning_wording import conditioning_sentence
from analysis.words.effect_wording import effects_sentence
from analysis.words.surrogate_wording import surrogate_sentence
from analysis.words.tables import varying_columns
from analysis.words.wording import answer_sentence, groups_sentence
from analysis.words.wording import sentence as as_sentence
from hsweep.errors import UserError, unknown_name
from hsweep.record.manifest import NEW_SEED
from hsweep.record.reading import StudyTables, reading
from hsweep.record.study import Study
from hsweep.record.tables import frame

_BEGUN: Final = "score at the first report"
"""Column of what the baseline's trials scored when they began."""
_NO_QUESTION: Final = "the sweep asks no question; the report shows its learning curves"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a study's trials say to its question.

    Attributes:
        sentence: the answer with its uncertainty, or why there is none.
        transition, pareto, lean: the results behind it; None for what was not asked.
        lean_groups: the lean comparisons, where the study holds several.
        conditioning: what a probe's condition numbers say, where the study has them.
        published: the study beside the published results that it repeats, if there are any.
        effects: what each axis does, where at least two of numbers vary.
        surrogate: what untried shapes are expected to do, where it can be learned.
        problem: why the question could not be answered; None if it was.
        confirm_command: what confirms a lean choice with fresh seeds; None without a choice.
        settle_command: what runs the trials that the answer lacks; None where it lacks none.
        unfinished: trials of the study that have not ended yet.
    """

    sentence: str
    transition: TransitionResult | None = None
    pareto: ParetoResult | None = None
    lean: LeanResult | None = None
    lean_groups: LeanGroups | None = None
    problem: str | None = None
    conditioning: ConditioningResult | None = None
    published: AgainstResult | None = None
    effects: EffectsResult | None = None
    surrogate: SurrogateResult | None = None
    confirm_command: str | None = None
    settle_command: str | None = None
    unfinished: int = 0

    @property
    def qualifications(self) -> tuple[str, ...]:
        """What limits the answer and has to stand beside it wherever it is printed."""
        found = self.transition.qualifications if self.transition is not None else ()
        if self.unfinished and (self.transition is None or self.problem):
            found = (*found, f"{self.unfinished} trials have not ended yet; the answer may change")
        return found

    @property
    def text(self) -> str:
        """The answer with its qualifications, in sentences."""
        return " ".join([self.sentence, *map(as_sentence, self.qualifications)])

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain JSON content.

        The fields of the result that answers the question stand at the top; the front of a lean
        question is under ``pareto``, what a probe measured under ``conditioning``, and what the
        shapes say besides under ``effects`` and ``surrogate``.
        """
        leading = (
            self.transition
            or self.lean
            or self.lean_groups
            or self.pareto
            or self.conditioning
            or self.effects
            or self.surrogate
        )
        kinds = {
            TransitionResult: "transition",
            LeanResult: "lean",
            LeanGroups: "lean_groups",
            ParetoResult: "pareto",
            ConditioningResult: "conditioning",
            EffectsResult: "effects",
            SurrogateResult: "surrogate",
        }
        content: dict[str, Any] = {
            "kind": kinds[type(leading)] if leading is not None else None,
            "answer": self.sentence,
            "problem": self.problem,
            **(leading.to_json() if leading is not None else {}),
            "qualifications": list(self.qualifications),
        }
        if self.pareto is not None and leading is not self.pareto:
            content["pareto"] = self.pareto.to_json()
        if self.conditioning is not None and leading is not self.conditioning:
            content["conditioning"] = self.conditioning.to_json()
        if self.published is not None:
            content["published"] = self.published.to_json()
        if self.effects is not None and leading is not self.effects:
            content["effects"] = self.effects.to_json()
        if self.surrogate is not None and leading is not self.surrogate:
            content["surrogate"] = self.surrogate.to_json()
        if self.confirm_command is not None:
            content["confirm_command"] = self.confirm_command
        if self.settle_command is not None:
            content["settle_command"] = self.settle_command
        return content


def answer_study(study: Study, tables: StudyTables | None = None) -> Answer:
    """Answer a study's question from what it has recorded so far, say what a probe measured and
    what its shapes say besides, and lay it beside the published results that it repeats.

    ``tables`` are the study's, where they are needed for more than this.
    """
    if tables is None:
        with reading(study) as tables:
            return answer_study(study, tables)
    trials = tables.trials_frame()
    answer = _answer_question(trials, tables, study)
    unfinished = int(trials["status"].isin(["planned", "running"]).sum())
    compared = answer.lean_groups.found.values() if answer.lean_groups is not None else ()
    settle = settle_command(study, (answer.transition, answer.lean, *compared))
    answer = replace(answer, unfinished=unfinished, settle_command=settle)
    if command := confirm_command(study, answer.lean, answer.lean_groups):
        answer = replace(answer, confirm_command=command)
    if _finished(trials):
        found_effects, learned = shape_results(trials, study.manifest)
        answer = replace(answer, effects=found_effects, surrogate=learned)
        with contextlib.suppress(UserError):  # the answer stands without it
            answer = replace(answer, published=beside_published(trials, study, answer.transition))
    if not conditioning.has_probe(trials):
        return answer
    try:
        found = _conditioning(trials, study)
    except UserError:  # no probed trial has run to its end yet
        return answer
    if study.manifest.question is None:
        answer = replace(answer, sentence=conditioning_sentence(found))
    return replace(answer, conditioning=found)


def ask_conditioning(study: Study) -> Answer:
    """Answer what a study's condition numbers say, whatever the study's own question.

    Raises:
        UserError: it has none yet.
    """
    found = _conditioning(_trials(study), study)
    return Answer(conditioning_sentence(found), conditioning=found)


def ask_effects(study: Study, settings: Sequence[str] = ()) -> Answer:
    """Answer what each axis of a study does, whatever the study's own question.

    ``settings`` are texts such as ``tolerance=0.1``.

    Raises:
        UserError: nothing can be said of single axes.
    """
    chosen = with_settings(EffectsSettings(), settings)
    found = study_effects(_trials(study), study.manifest, chosen)
    return Answer(effects_sentence(found), effects=found)


def ask_surrogate(
    study: Study,
    predict: Sequence[str] = (),
    margin: float | None = None,
    settings: Sequence[str] = (),
) -> Answer:
    """Answer what a study's shapes let expect of others.

    Args:
        study: the study.
        predict: shapes as texts, ``heads=8,depth=3``.
        margin: how much worse than the reference counts as no worse; None takes the question's.
        settings: texts such as ``draws=512``.

    Raises:
        UserError: too few shapes, or one to predict that lacks an axis.
    """
    shapes = read_shapes_to_predict(predict)
    if margin is None:
        margin = float((study.manifest.question or {}).get("margin", 0.0))
    chosen = with_settings(SurrogateSettings(margin=margin), settings)
    found = study_surrogate(_trials(study), study.manifest, shapes, chosen)
    return Answer(surrogate_sentence(found), surrogate=found)


def _trials(study: Study) -> pd.DataFrame:
    with reading(study) as tables:
        return tables.trials_frame()


def beside_published(
    trials: pd.DataFrame,
    study: Study,
    transition: TransitionResult | None,
    *,
    setup_name: str | None = None,
    same_data: bool = False,
) -> AgainstResult | None:
    """Lay a study beside the published results that it repeats; None if it repeats none.

    Args:
        trials: its table.
        study: the study.
        transition: its own answer, where it asks for one.
        setup_name: which results; None finds them by the sweep's name or the task.
        same_data: the user vouches that the data are those of the paper.

    Raises:
        UserError: an unknown name, or a table that cannot be read.
    """
    manifest = study.manifest
    tasks = [each["task"] for each in manifest.provenance.get("data", ()) if "task" in each]
    if setup_name is None:
        setup = setup_of(manifest.sweep, tasks)
    else:
        named = {each.name: each for each in SETUPS}
        if setup_name not in named:
            raise unknown_name("group of published results", setup_name, named)
        setup = named[setup_name]
    if setup is None:
        return None
    return against.fit(
        trials,
        setup,
        axes=manifest.axes,
        tasks=tasks,
        transition=transition,
        budget=_budget_text(manifest.budget),
        settings=AgainstSettings(same_data=same_data),
    )


def _budget_text(budget: Mapping[str, Any]) -> str:
    unit = str(budget["unit"])
    return f"{budget['amount']} {unit.removesuffix('s') if budget['amount'] == 1 else unit}"


def _finished(trials: pd.DataFrame) -> bool:
    return bool((trials["status"] == "finished").any())


def _conditioning(trials: pd.DataFrame, study: Study) -> ConditioningResult:
    question = study.manifest.question or {}
    x = str(question.get("x") or "heads")
    axes = varying_columns(trials, study.manifest.axes) or list(study.manifest.axes)
    return conditioning.fit(
        trials,
        metric=study.manifest.metric,
        config=axes,
        x=x,
        goal=_goal(study),
        scale=question.get("scale", "accuracy" if study.manifest.goal == "max" else "loss"),
        replicate="seed",
    )


def _answer_question(trials: pd.DataFrame, tables: StudyTables, study: Study) -> Answer:
    question = study.manifest.question
    if question is None:
        return Answer(_NO_QUESTION)
    if not _finished(trials):
        return _unanswered("no trial has run to its full budget yet")
    try:
        if question["type"] == "Transition":
            return _transition(trials, tables, question, study)
        return _lean(trials, tables, question, study)
    except UserError as error:
        return _unanswered(str(error))


def _unanswered(why: str) -> Answer:
    return Answer(f"No answer: {why}.", problem=why)


def _transition(
    trials: pd.DataFrame, tables: StudyTables, question: Mapping[str, Any], study: Study
) -> Answer:
    x, by = question["x"], question["by"]
    if by is not None and trials[by].nunique() < 1:
        by = None
    asked = {x, by}
    depths = set(trials["depth"]) if "depth" in trials and x != "depth" else set()
    metric = study.manifest.metric
    nuisance = [axis for axis in varying_columns(trials, study.manifest.axes) if axis not in asked]
    history = None
    if not nuisance and trials["status"].eq("stopped_early").any():
        history = study_history(trials, tables.history(metric), metric)
    result = transition.fit(
        trials,
        metric=metric,
        x=x,
        by=by,
        goal=_goal(study),
        scale=question["scale"],
        eval_size=question["eval_size"],
        nuisance=nuisance,
        budget_column=None if history is None else UNIT,
        history=history,
        layers=int(depths.pop()) if len(depths) == 1 else 1,
    )
    return Answer(answer_sentence(result), transition=result)


def _lean(
    trials: pd.DataFrame, tables: StudyTables, question: Mapping[str, Any], study: Study
) -> Answer:
    manifest = study.manifest
    baseline = dict(question["baseline"])
    axes = varying_columns(trials, manifest.axes)
    nuisance = [axis for axis in question.get("nuisance", ()) if axis in axes]
    config = [
        axis
        for axis in manifest.axes
        if (axis in axes or axis in baseline) and axis not in nuisance
    ]
    metric, goal = manifest.metric, _goal(study)
    # An axis that only part of a space has is none for the other part.
    trials = trials.assign(
        **{
            axis: trials[axis].astype(object).where(trials[axis].notna(), "none")
            for axis in (*config, *nuisance)
        }
    )
    within = question.get("within")
    if within is not None and trials[within].nunique() < 2:
        within = None
    data = manifest.provenance.get("data", ())
    several_tasks = within is not None and len(data) > 1
    asked: dict[str, Any] = {
        "metric": metric,
        "goal": goal,
        "costs": question["costs"],
        "nuisance": nuisance,
    }
    front = pareto.fit(trials, config=config, **asked) if not several_tasks else None
    common = study_chance(data, metric, baseline)
    asked |= {
        "baseline": baseline,
        "margin": question["margin"],
        "settings": LeanSettings(chance=common, looks=_looks(manifest.extensions)),
        "begun": _BEGUN,
    }
    trials = trials.assign(**{_BEGUN: _first_reports(trials, tables, metric, baseline)})
    if within is not None:
        chances = {
            str(value): study_chance(data, metric, {**baseline, within: value})
            for value in trials[within].unique()
        }
        groups = fit_groups(
            trials,
            within=within,
            axes=config,
            chances={name: chance for name, chance in chances.items() if chance is not None},
            with_fronts=several_tasks,
            **asked,
        )
        return Answer(groups_sentence(groups), pareto=front, lean_groups=groups)
    assert front is not None
    try:
        equivalents = lean.fit(trials, config=config, **asked)
    except UserError as error:
        # Typically the baseline has not finished; the front stands without it.
        return Answer(
            f"{answer_sentence(front)} No lean equivalent can be named: {error}.",
            pareto=front,
            problem=str(error),
        )
    return Answer(answer_sentence(equivalents), pareto=front, lean=equivalents)


def _looks(extensions: Sequence[Mapping[str, Any]]) -> int:
    """Return how many times a study with these extensions has been looked at for its answer."""
    return 1 + sum(
        any(trial["how"] == NEW_SEED for trial in extension["trials"]) for extension in extensions
    )


def _first_reports(
    trials: pd.DataFrame, tables: StudyTables, metric: str, baseline: Mapping[str, Any]
) -> "pd.Series[float]":
    """Return what the baseline's finished trials scored at their first of several reports."""
    own = trials["status"].eq("finished")
    for axis, value in baseline.items():
        own &= trials[axis].eq(value)
    reports = frame(tables.reports_of(list(trials.loc[own, "key"])))
    told = reports.dropna(subset=[metric]).groupby("key")[metric].agg(["first", "size"])
    return trials["key"].map(told.loc[told["size"] > 1, "first"]).astype(float)


def _goal(study: Study) -> Any:
    return study.manifest.goal


def report_input(
    study: Study,
    answer: Answer,
    run_urls: Mapping[str, str],
    tables: StudyTables | None = None,
) -> ReportInput:
    """Return everything a study's report shows.

    ``tables`` are those that the answer comes from, if they are at hand.
    """
    if tables is None:
        with reading(study) as tables:
            return report_input(study, answer, run_urls, tables)
    trials = tables.trials_frame()
    if run_urls:
        trials["mlflow_url"] = trials["key"].map(dict(run_urls))
    manifest = study.manifest
    question = manifest.question
    axes = tuple(manifest.axes)
    searched = answer.transition.x if answer.transition is not None else None
    drawn = drawn_keys(trials, tables.reported, axes, searched)
    return ReportInput(
        study=study.name,
        sweep=manifest.sweep,
        preset=manifest.preset,
        question=manifest.description,
        answer=answer.sentence,
        metric=manifest.metric,
        goal=_goal(study),
        scale=question["scale"] if question else "loss",
        axes=axes,
        transition=answer.transition,
        pareto=answer.pareto,
        lean=answer.lean,
        lean_groups=answer.lean_groups,
        conditioning=answer.conditioning,
        published=answer.published,
        effects=answer.effects,
        surrogate=answer.surrogate,
        trials=trials,
        reports=frame(tables.reports_of(drawn)),
        reported=tables.reported,
        notes=tables.notes(),
        provenance={**manifest.provenance, **_accepted(study)},
        repeat_command="\n".join([manifest.command, *manifest.later_commands]),
        confirm_command=answer.confirm_command,
        settle_command=answer.settle_command,
        qualifications=answer.qualifications,
        warnings=(
            *(each for each in (answer.problem, tables.search_end) if each),
            *tables.mixed_versions(),
        ),
        budget_unit=str(manifest.budget["unit"]),
        orphaned=tables.orphaned_counts(),
        revisions=manifest.revisions,
    )


def _accepted(study: Study) -> dict[str, Any]:
    accepted = list(study.manifest.accepted)
    return {"accepted changes of code": accepted} if accepted else {}
