"""Two or more studies side by side: a study is one more axis of their trials."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.answer import Answer
from analysis.ask import answer_runs
from analysis.compare.differences import differences, source_diff, task_text
from analysis.compare.result import (
    STUDY,
    CompareSettings,
    Comparison,
    Pair,
    Places,
    StudySide,
)
from analysis.questions.base import StudyRuns
from analysis.questions.lean.result import LeanGroups, LeanResult, comparisons
from analysis.questions.pareto.fit import FrontDraws, Volume, fit_front, front_shapes
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.questions.transition.result import TransitionResult
from analysis.runs.grouped import Grouped
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.statistics.values import Interval
from analysis.text.numbers import NONE
from analysis.text.tables import varying_columns
from hsweep.errors import UserError
from hsweep.record.study import StudyFolder

_DEFAULT_SETTINGS: Final = CompareSettings()


def compare_studies(
    studies: Sequence[StudyFolder],
    *,
    costs: Sequence[str] = (),
    settings: CompareSettings = _DEFAULT_SETTINGS,
) -> Comparison:
    """Lay studies side by side, at the longest budget that all of them have trained to.

    Trials that only chose a setting and longer budgets are left out; where the studies have no
    budget in common, each stands at its longest, and a warning says so.

    Args:
        studies: two or more.
        costs: what the front is drawn over; empty takes the costs that all lean questions among
            them share. With them every study is on it, whatever its question.
        settings: draws, levels, seed.

    Raises:
        UserError: fewer than two studies, one given twice, or a cost that a study does not have.
    """
    if len(studies) < 2:
        raise UserError("comparing takes two studies or more")
    folders = [study.paths.root.resolve() for study in studies]
    for folder in folders:
        if folders.count(folder) > 1:
            raise UserError(f"the study in {folder} was given twice")
    labels = unique_labels(studies)
    tasks = [_tasks(study) for study in studies]
    apart = _apart(labels, tasks)
    with contextlib.ExitStack() as reading:
        runs = [
            StudyRuns(study.manifest, reading.enter_context(study.reading())) for study in studies
        ]
        budgets, budget, notes = _budgets(labels, runs, is_apart=bool(apart))
        compared = [replace(each, longest=budget) for each in runs]
        answers = [answer_runs(study, each) for study, each in zip(studies, compared, strict=True)]
        tables = [each.answering for each in compared]
    front = _Front(labels, compared, answers, tables, tuple(costs), settings, apart)
    sides = tuple(
        StudySide(
            label=label,
            folder=str(study.paths.root),
            sweep=study.manifest.sweep,
            preset=study.manifest.preset,
            trials=len(table),
            finished=int(table["status"].isin(FULL).sum()),
            budget=budgets[at],
            answer=tuple(answer.sentences),
            problem=answer.problem,
            transition=answer.result(TransitionResult),
            lean=_lean(answer),
            hv=front.volumes[label].interval(settings.confidence)
            if label in front.volumes
            else None,
        )
        for at, (label, study, table, answer) in enumerate(
            zip(labels, studies, tables, answers, strict=True)
        )
    )
    pairs = [
        _pair((sides[a], sides[b]), (tables[a], tables[b]), (studies[a], studies[b]), front)
        for a, b in itertools.combinations(range(len(studies)), 2)
    ]
    return Comparison(
        studies=sides,
        front=front.result,
        front_note=front.note,
        pairs=tuple(pairs),
        differences=tuple(differences(studies, tasks)),
        source_diff=source_diff(studies, labels),
        settings=settings,
        warnings=(*notes, *_warnings(sides)),
        apart=apart,
    )


def unique_labels(studies: Sequence[StudyFolder]) -> list[str]:
    """Return the studies' names, those of one name told apart by their homes."""
    names = [study.name for study in studies]
    labels = [
        name if names.count(name) == 1 else f"{name} ({study.paths.root.parent.parent.name})"
        for name, study in zip(names, studies, strict=True)
    ]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: at + 1].count(label)}"
        for at, label in enumerate(labels)
    ]


def _tasks(study: StudyFolder) -> dict[str, Mapping[str, Any]]:
    """Return what a study learns, by the fingerprints of its data; empty where none is recorded."""
    recorded = [study.manifest.provenance, *(e["provenance"] for e in study.manifest.extensions)]
    return {
        str(entry["fingerprint"]): entry.get("task") or {}
        for provenance in recorded
        for entry in provenance.get("data", ())
        if "fingerprint" in entry
    }


def _apart(labels: Sequence[str], tasks: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """Return that the studies learn from other data, and how; empty where all learn the same, or
    where that is not on record."""
    if len({frozenset(each) for each in tasks if each}) < 2:
        return ""
    learned = "; ".join(
        f"{label}: {task_text(each, tasks)}" for label, each in zip(labels, tasks, strict=True)
    )
    return (
        "The studies do not learn the same task from the same data, so nothing of them is ranked "
        f"or tested against each other ({learned})."
    )


def _budgets(
    labels: Sequence[str], studies: Sequence[StudyRuns], *, is_apart: bool
) -> tuple[list[str], int | None, list[str]]:
    """Return the budget that each study is compared at in words, the longest that all have (None
    for none), and what to know of it."""
    units = [str(runs.manifest.budget.get("unit", "")) for runs in studies]
    trained = []
    for runs in studies:
        # Not those of part of its cells alone.
        full = runs.counted.loc[runs.counted["status"].isin(FULL), "budget"]
        trained.append(set(full[full <= runs.budget]))
    shared = set.intersection(*trained) if len(set(units)) == 1 and not is_apart else set()
    common, longest = max(shared, default=None), [max(each, default=None) for each in trained]
    at = longest if common is None else [common] * len(studies)
    words = [NONE if b is None else f"{b} {unit}" for b, unit in zip(at, units, strict=True)]
    if common is None and None not in longest and not is_apart:
        each = "; ".join(f"{label}: {text}" for label, text in zip(labels, words, strict=True))
        return (
            words,
            common,
            [
                f"the studies have no budget in common and each stands at its longest ({each}): a "
                "difference may be that of the budgets"
            ],
        )
    return (
        words,
        common,
        [
            f"{label} was trained to {most} {unit} too; it is compared at {text}, the longest "
            "budget that all have"
            for label, most, unit, own, text in zip(labels, longest, units, at, words, strict=True)
            if own != most
        ],
    )


def _lean(answer: Answer) -> dict[str, LeanResult]:
    result = answer.result(LeanResult) or answer.result(LeanGroups)
    compared = [] if result is None else comparisons(result)
    return {each.heading: each for each in compared}


class _Front:
    """The front of the shapes of all studies, with a hypervolume a study.

    Attributes:
        result: None where none is drawn.
        volumes: by the study's label.
        note: how volumes were computed, or why there is no front.
    """

    def __init__(
        self,
        labels: Sequence[str],
        studies: Sequence[StudyRuns],
        answers: Sequence[Answer],
        tables: Sequence[pd.DataFrame],
        costs: tuple[str, ...],
        settings: CompareSettings,
        apart: str,
    ) -> None:
        self.is_apart = bool(apart)
        self.result: ParetoResult | None = None
        self.volumes: dict[str, Volume] = {}
        offered = [answer.result(ParetoResult) for answer in answers]
        asked = [at for at, front in enumerate(offered) if costs or front is not None]
        if not costs:
            shared = [front.costs for front in offered if front is not None]
            costs = tuple(n for n in (shared or [()])[0] if all(n in each for each in shared))
        manifests = [studies[at].manifest for at in asked]
        self.note = _no_front(manifests, costs, apart)
        if self.note:
            return
        # A study whose shapes cannot be told apart has none here; the others have.
        usable = []
        for at in asked:
            try:
                _grouped([labels[at]], [studies[at]], [tables[at]], costs, settings)
                usable.append(at)
            except UserError as error:
                self.note = f"{labels[at]} has no front: {error}"
        if len(usable) < 2:
            return
        shapes = _grouped(
            [labels[at] for at in usable],
            [studies[at] for at in usable],
            [tables[at] for at in usable],
            costs,
            settings,
        )
        front_settings = _settings(settings)
        self.result = fit_front(shapes, front_settings)
        own = [str(shape.config[STUDY]) for shape in shapes.found]
        drawn = FrontDraws.of(shapes, front_settings, _same_runs(shapes))
        masks = [np.array([name == labels[at] for name in own]) for at in usable]
        found, note = drawn.volumes(masks)
        self.volumes = dict(zip([labels[at] for at in usable], found, strict=False))
        self.note = f"{note}. {self.note}".strip() if self.note else note


def _no_front(manifests: Sequence[Any], costs: tuple[str, ...], apart: str) -> str:
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
        named = ", ".join(metric for metric, _ in metrics)
        why = f"the studies are judged by different metrics ({named})"
    return f"no fronts are compared: {why}" if why else ""


def _settings(settings: CompareSettings) -> ParetoSettings:
    return ParetoSettings(
        draws=settings.draws,
        rng_seed=settings.rng_seed,
        confidence=settings.confidence,
        crash_sd=settings.crash_sd,
    )


def _grouped(
    labels: Sequence[str],
    studies: Sequence[StudyRuns],
    tables: Sequence[pd.DataFrame],
    costs: tuple[str, ...],
    settings: CompareSettings,
) -> Grouped:
    """Return the shapes of studies, named by what varies in any of them."""
    table = pd.concat(
        [rows.assign(**{STUDY: label}) for label, rows in zip(labels, tables, strict=True)],
        ignore_index=True,
    )
    nuisance: dict[str, None] = {}
    config: dict[str, None] = {STUDY: None}
    for study, rows in zip(studies, tables, strict=True):
        axes, question = study.manifest.axes, study.question
        varying = varying_columns(rows, axes)
        own = [axis for axis in question.get("nuisance") or () if axis in varying]
        named = {*varying, *dict(question.get("baseline") or ())}
        nuisance |= dict.fromkeys(own)
        config |= dict.fromkeys(axis for axis in axes if axis in named and axis not in own)
    if len(config) == 1:
        config |= dict.fromkeys([a for a in studies[0].manifest.axes if a in table][:1])
    runs, goal = Runs(table, studies[0].manifest.metric), studies[0].goal
    by = [axis for axis in config if axis not in nuisance]
    return front_shapes(runs, by, list(nuisance), goal, costs, _settings(settings))


def _same_runs(shapes: Grouped) -> list[int]:
    """Return of each shape the first one that has the very same runs, in whichever study."""
    first: dict[str, int] = {}
    found = []
    for at, shape in enumerate(shapes.found):
        place = sorted((name, value) for name, value in shape.config.items() if name != STUDY)
        key = repr((place, sorted(shape.values.tolist())))
        found.append(first.setdefault(key, at))
    return found


def _pair(
    sides: tuple[StudySide, StudySide],
    tables: tuple[pd.DataFrame, pd.DataFrame],
    studies: tuple[StudyFolder, StudyFolder],
    front: _Front,
) -> Pair:
    (one, other), (first, second) = sides, tables
    axes = [set(study.manifest.axes) for study in studies]
    changed = 0
    if axes[0] and axes[0] == axes[1]:
        keys, others = (_keys_by_point(table, sorted(axes[0])) for table in tables)
        changed = sum(keys[point] != others[point] for point in keys.keys() & others.keys())
    volume, better = None, None
    if one.label in front.volumes and other.label in front.volumes:
        own, rival = front.volumes[one.label], front.volumes[other.label]
        volume, better = volume_difference(own, rival, front.result)
    return Pair(
        one.label,
        other.label,
        len(set(first["key"]) & set(second["key"])),
        changed,
        None if front.is_apart else _places(one.transition, other.transition),
        volume,
        better,
    )


def _keys_by_point(table: pd.DataFrame, axes: Sequence[str]) -> dict[tuple[str, ...], str]:
    columns = [table[name].astype(str) for name in (*axes, "seed")]
    return dict(zip(zip(*columns, strict=True), table["key"], strict=True))


def _places(one: TransitionResult | None, other: TransitionResult | None) -> Places | None:
    """Return where two studies place the collapse; None unless both look along the same axis."""
    if one is None or other is None or one.x != other.x or not one.p_h or not other.p_h:
        return None
    shares = dict.fromkeys(("lower", "equal", "higher"), 0.0)
    for (h, p), (g, q) in itertools.product(one.p_h.items(), other.p_h.items()):
        shares["lower" if h < g else "equal" if h == g else "higher"] += p * q
    total = sum(shares.values()) or 1.0
    return Places(
        both_claim=one.is_claimed and other.is_claimed,
        common_set=tuple(sorted(set(one.h_set) & set(other.h_set))),
        **{name: share / total for name, share in shares.items()},
    )


def volume_difference(
    first: Volume, second: Volume, front: ParetoResult | None
) -> tuple[Interval, float | None]:
    """Return first minus second with its interval, and the share of draws above 0."""
    estimate = first.estimate - second.estimate
    if first.draws is None or second.draws is None:
        return Interval(estimate, np.nan, np.nan), None
    drawn = first.draws - second.draws
    shifted = drawn - drawn.mean() + estimate
    # Where nothing differs neither front is the better one.
    better = float(np.mean(shifted > 1e-12) + 0.5 * np.mean(np.abs(shifted) <= 1e-12))
    confidence = 0.95 if front is None else front.settings.confidence
    return Interval(estimate, *Volume(estimate, drawn).ends(confidence)), better


def _warnings(sides: Sequence[StudySide]) -> list[str]:
    found = [f"{side.label}: {side.problem}" for side in sides if side.problem]
    found += [
        f"{side.label}: {side.finished} of {side.trials} trials ran to their end"
        for side in sides
        if side.finished < side.trials
    ]
    asked = [side.transition for side in sides if side.transition is not None]
    if len({(result.metric, result.scale) for result in asked}) > 1:
        found.append(
            "the transitions are fitted to different metrics; their heights do not compare"
        )
    if len({result.x for result in asked}) > 1:
        found.append("the transitions are along different axes")
    return found
