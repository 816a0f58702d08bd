"""Two or more studies side by side: a study is one more axis of their trials."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.answer import Answer
from analysis.ask import answer_runs
from analysis.compare.differences import Tasks, differences, task_text
from analysis.compare.result import STUDY, Comparison, Pair, StudySide
from analysis.questions.base import StudyRuns
from analysis.questions.groups import results_of
from analysis.questions.lean.result import LeanResult
from analysis.questions.pareto.fit import FrontDraws, fit, volume_interval
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.questions.transition.result import TransitionResult
from analysis.runs.grouped import Grouped, grouped
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.statistics.values import FloatArray
from analysis.text.numbers import NONE
from analysis.text.tables import varying_columns
from analysis.values import Number
from hsweep.errors import UserError
from hsweep.record.manifest import Manifest
from hsweep.record.study import StudyFolder


def compare_studies(
    studies: Sequence[StudyFolder],
    *,
    costs: Sequence[str] = (),
    settings: ParetoSettings = ParetoSettings(),
) -> Comparison:
    """Lay studies side by side, at the longest budget that all of them have trained to.

    Trials that only chose a setting and longer budgets are left out; where the studies have no
    budget in common, each stands at its longest, and a warning says so.

    Args:
        costs: what the front is drawn over; empty takes the costs that all lean questions among
            them share. With them every study is on it, whatever its question.

    Raises:
        UserError: fewer than two studies, one named twice, or a cost that a study does not have.
    """
    if len(studies) < 2:
        raise UserError("comparing takes two studies or more")
    folders = [study.paths.root.resolve() for study in studies]
    for folder in folders:
        if folders.count(folder) > 1:
            raise UserError(f"the study in {folder} was given twice")
    names = [study.name for study in studies]
    by_label = {
        study.name if names.count(study.name) == 1 else f"{study.name} ({study.paths.root})": study
        for study in studies
    }
    tasks = {label: _tasks(study) for label, study in by_label.items()}
    apart = _apart(tasks)
    with contextlib.ExitStack() as reading:
        runs = {
            label: StudyRuns(study.manifest, reading.enter_context(study.reading()))
            for label, study in by_label.items()
        }
        budgets, common, notes = _budgets(runs, is_apart=bool(apart))
        runs = {label: replace(study_runs, longest=common) for label, study_runs in runs.items()}
        answers = {label: answer_runs(study, runs[label]) for label, study in by_label.items()}
        tables = {label: study_runs.answering for label, study_runs in runs.items()}
    front, volumes, front_note = _front(runs, answers, tuple(costs), settings, apart)
    sides = tuple(
        StudySide(
            label=label,
            folder=str(study.paths.root),
            sweep=study.manifest.sweep,
            preset=study.manifest.preset,
            trials=len(tables[label]),
            finished=int(tables[label]["status"].isin(FULL).sum()),
            budget=budgets[label],
            answer=tuple(answers[label].sentences),
            problem=answers[label].problem,
            transition=answers[label].result(TransitionResult),
            lean={lean.heading: lean for lean in results_of(answers[label].findings, LeanResult)},
            hv=volume_interval(volumes[label], settings.confidence) if label in volumes else None,
        )
        for label, study in by_label.items()
    )
    pairs = [
        Pair(
            first.label,
            second.label,
            len(set(tables[first.label]["key"]) & set(tables[second.label]["key"])),
            None if apart else _common_set(first.transition, second.transition),
            volume_interval(
                volumes[first.label] - volumes[second.label], settings.confidence, low=-np.inf
            )
            if {first.label, second.label} <= volumes.keys()
            else None,
        )
        for first, second in itertools.combinations(sides, 2)
    ]
    return Comparison(
        studies=sides,
        front=front,
        front_note=front_note,
        pairs=tuple(pairs),
        differences=differences(studies, [*tasks.values()]),
        settings=settings,
        warnings=(*notes, *_warnings(sides)),
        apart=apart,
    )


def _tasks(study: StudyFolder) -> Tasks:
    """Return what a study learns; empty where none is recorded."""
    provenances = [study.manifest.provenance, *(e["provenance"] for e in study.manifest.extensions)]
    return {
        str(entry["fingerprint"]): entry.get("task") or {}
        for provenance in provenances
        for entry in provenance.get("data", ())
        if "fingerprint" in entry
    }


def _apart(tasks: Mapping[str, Tasks]) -> str:
    """Return that the studies learn from other data, and how; empty where all learn the same, or
    where that is not on record."""
    if len({frozenset(task) for task in tasks.values() if task}) < 2:
        return ""
    tasks_text = "; ".join(
        f"{label}: {task_text(task, [*tasks.values()])}" for label, task in tasks.items()
    )
    return (
        "The studies do not learn the same task from the same data, so nothing of them is ranked "
        f"or tested against each other ({tasks_text})."
    )


def _budgets(
    studies: Mapping[str, StudyRuns], *, is_apart: bool
) -> tuple[dict[str, str], int | None, list[str]]:
    """Return the budget that each study is compared at in words, the longest that all have (None
    for none), and what to know of it."""
    units = {label: str(runs.manifest.budget.get("unit", "")) for label, runs in studies.items()}
    amounts = {}
    for label, runs in studies.items():
        # Not those of part of its cells alone.
        full = runs.counted.loc[runs.counted["status"].isin(FULL), "budget"]
        amounts[label] = set(full[full <= runs.budget])
    longest = {label: max(full, default=None) for label, full in amounts.items()}
    is_shared = len(set(units.values())) == 1 and not is_apart
    common = max(set.intersection(*amounts.values()), default=None) if is_shared else None
    at = longest if common is None else dict.fromkeys(longest, common)
    words = {label: NONE if b is None else f"{b} {units[label]}" for label, b in at.items()}
    notes = [
        f"{label} was trained to {most} {units[label]} too; it is compared at {words[label]}, the "
        "longest budget that all have"
        for label, most in longest.items()
        if at[label] != most
    ]
    if common is None and None not in longest.values() and not is_apart:
        listing = "; ".join(f"{label}: {text}" for label, text in words.items())
        notes = [
            f"the studies have no budget in common and each stands at its longest ({listing}): a "
            "difference may be that of the budgets"
        ]
    return words, common, notes


def _front(
    studies: dict[str, StudyRuns],
    answers: Mapping[str, Answer],
    costs: tuple[str, ...],
    settings: ParetoSettings,
    apart: str,
) -> tuple[ParetoResult | None, dict[str, FloatArray], str]:
    """Return the front of the shapes of all studies, the hypervolume of each study's own, and how
    these were computed or why there is no front."""
    fronts = {label: answer.result(ParetoResult) for label, answer in answers.items()}
    candidates = {label: studies[label] for label in studies if costs or fronts[label] is not None}
    if not costs:
        lists = [front.costs for front in fronts.values() if front is not None]
        costs = tuple(n for n in (lists or [()])[0] if all(n in names for names in lists))
    if note := _no_front([study.manifest for study in candidates.values()], costs, apart):
        return None, {}, note
    # A study whose shapes cannot be told apart has none here; the others have.
    usable, reasons = {}, []
    for label, study in candidates.items():
        try:
            _shapes({label: study}, costs)
            usable[label] = study
        except UserError as error:
            reasons.append(f"{label} has no front: {error}")
    note = "; ".join(reasons)
    if len(usable) < 2:
        return None, {}, note
    shapes = _shapes(usable, costs)
    study_of_shape = np.array([str(shape.config[STUDY]) for shape in shapes.comparable])
    draws = FrontDraws.of(shapes, settings, _same_runs(shapes))
    volumes, method = draws.volumes([study_of_shape == label for label in usable])
    note = f"{method}. {note}" if note else method
    return fit(shapes, settings), dict(zip(usable, volumes, strict=False)), note


def _no_front(manifests: Sequence[Manifest], costs: tuple[str, ...], apart: str) -> str:
    """Return why no front of the studies is drawn; empty where one is."""
    metrics = sorted({(manifest.metric, manifest.goal) for manifest in manifests})
    why = ""
    if apart:
        why = "the studies learn from other data"
    elif len(manifests) < 2:
        why = "fewer than two of the studies ask about shapes and costs"
    elif not costs:
        why = "the studies' questions share no cost"
    elif len(metrics) > 1:
        listing = ", ".join(metric for metric, _ in metrics)
        why = f"the studies are judged by different metrics ({listing})"
    return f"no fronts are compared: {why}" if why else ""


def _shapes(studies: dict[str, StudyRuns], costs: tuple[str, ...]) -> Grouped:
    """Return the shapes of studies, named by what varies in any of them."""
    first, *_ = studies.values()
    tables = [study.answering.assign(**{STUDY: label}) for label, study in studies.items()]
    nuisance: dict[str, None] = {}
    config: dict[str, None] = {STUDY: None}
    for study in studies.values():
        axes, question = study.manifest.axes, study.question
        varying = varying_columns(study.answering, axes)
        best_of = [axis for axis in question.get("nuisance") or () if axis in varying]
        names = {*varying, *dict(question.get("baseline") or ())}
        nuisance |= dict.fromkeys(best_of)
        config |= dict.fromkeys(axis for axis in axes if axis in names and axis not in best_of)
    if len(config) == 1:
        config |= dict.fromkeys(first.manifest.axes[:1])
    runs = Runs(pd.concat(tables, ignore_index=True), first.manifest.metric, parts=(STUDY,))
    by = [axis for axis in config if axis not in nuisance]
    choices: Any = {"goal": first.goal, "costs": costs}
    return grouped(runs, by, list(nuisance), **choices)


def _same_runs(shapes: Grouped) -> list[int]:
    """Return of each shape the first one that has the very same runs, in whichever study."""
    first: dict[str, int] = {}
    first_places = []
    for at, shape in enumerate(shapes.comparable):
        place = sorted((name, value) for name, value in shape.config.items() if name != STUDY)
        key = repr((place, sorted(shape.values.tolist())))
        first_places.append(first.setdefault(key, at))
    return first_places


def _common_set(
    first: TransitionResult | None, second: TransitionResult | None
) -> tuple[Number, ...] | None:
    """Return the places in both studies' sets; None unless both look along the same axis."""
    if first is None or second is None or first.x != second.x or not first.p_h or not second.p_h:
        return None
    return tuple(sorted(set(first.h_set) & set(second.h_set)))


def _warnings(sides: Sequence[StudySide]) -> list[str]:
    warnings = [f"{side.label}: {side.problem}" for side in sides if side.problem]
    warnings += [
        f"{side.label}: {side.finished} of {side.trials} trials ran to their end"
        for side in sides
        if side.finished < side.trials
    ]
    results = [side.transition for side in sides if side.transition is not None]
    if len({(result.metric, result.scale) for result in results}) > 1:
        warnings.append(
            "the transitions are fitted to different metrics; their heights do not compare"
        )
    if len({result.x for result in results}) > 1:
        warnings.append("the transitions are along different axes")
    return warnings
