"""Two or more studies side by side: what each found, how far apart, and what they do not share."""

import contextlib
import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from analysis.answer import Answer
from analysis.ask import answer_runs
from analysis.compare.result import (
    CompareSettings,
    Comparison,
    Difference,
    SharedTrials,
    StudySide,
    TransitionPair,
    VolumePair,
)
from analysis.compare.volumes import Volume, volume_difference, volume_interval, volumes
from analysis.questions.base import StudyRuns
from analysis.questions.lean.result import LeanGroups, LeanResult
from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.questions.transition.fit import common_dimension
from analysis.questions.transition.result import TransitionResult
from analysis.runs.grouped import Shape, grouped
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.statistics.values import Interval
from analysis.text.numbers import NONE
from analysis.text.tables import varying_columns
from hsweep.design.question import Goal
from hsweep.errors import UserError
from hsweep.record.study import Study

_CLAIMS: Final = ("transition", "jump_only", "threshold")
_MOST_DIFF_LINES: Final = 400
_COMMIT_LENGTH: Final = 12
_MOST_TASKS_NAMED: Final = 4
_DEFAULT_SETTINGS: Final = CompareSettings()


def compare_studies(
    studies: Sequence[Study],
    *,
    costs: Sequence[str] = (),
    settings: CompareSettings = _DEFAULT_SETTINGS,
) -> Comparison:
    """Lay studies side by side, at the longest budget that all of them have trained to.

    Trials that only chose a setting and longer budgets are left out; where the studies have no
    budget in common, each stands at its longest, and a warning says so.

    Args:
        studies: two or more.
        costs: what the fronts are drawn over; empty takes the costs that all lean questions among
            them share. Given, every study gets a front, whatever its question.
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
    with contextlib.ExitStack() as reading:
        runs = [
            StudyRuns(study.manifest, reading.enter_context(study.reading())) for study in studies
        ]
        tasks = [_tasks(study) for study in studies]
        apart = _apart(labels, tasks)
        budgets = _Budgets(runs, is_apart=bool(apart))
        compared = [replace(each, longest=budgets.common, shared={}) for each in runs]
        answers = [answer_runs(study, each) for study, each in zip(studies, compared, strict=True)]
        tables = [each.answering for each in compared]
    fronts = _Fronts(studies, answers, tables, tuple(costs), settings, apart)
    sides = [
        StudySide(
            label=label,
            folder=str(study.paths.root),
            sweep=study.manifest.sweep,
            preset=study.manifest.preset,
            trials=len(table),
            finished=int(table["status"].isin(FULL).sum()),
            budget=budgets.text(at),
            answer=f"At {budgets.text(at)}: {answer.text}" if budgets.is_cut(at) else answer.text,
            problem=answer.problem,
            transition=answer.result(TransitionResult),
            lean=answer.result(LeanResult),
            lean_groups=answer.result(LeanGroups),
            pareto=fronts.results[at],
            hv=fronts.hv(at),
        )
        for at, (label, study, table, answer) in enumerate(
            zip(labels, studies, tables, answers, strict=True)
        )
    ]
    pairs = list(itertools.combinations(range(len(studies)), 2))
    transitions = [transition_pair(sides[a], sides[b]) for a, b in pairs if not apart]
    return Comparison(
        studies=tuple(sides),
        metric=fronts.metric,
        goal=fronts.goal,
        costs=fronts.costs,
        hv_note=fronts.note,
        transitions=tuple(pair for pair in transitions if pair is not None),
        volumes=tuple(pair for a, b in pairs if (pair := fronts.pair(a, b, labels)) is not None),
        shared=tuple(_shared(labels, tables, studies, a, b) for a, b in pairs),
        differences=tuple(_differences(studies, tasks)),
        source_diff=_source_diff(studies, labels),
        settings=settings,
        warnings=tuple(_warnings(sides, budgets)),
        apart=apart,
    )


class _Budgets:
    """The budgets that studies have trained to, and the longest that all have.

    Attributes:
        longest: of each study; None where it has no trial at its full budget.
        common: the longest that all have in common; None for none.
    """

    def __init__(self, studies: Sequence[StudyRuns], *, is_apart: bool) -> None:
        self._is_apart = is_apart
        self._units = [str(runs.manifest.budget.get("unit", "")) for runs in studies]
        found = [_trained(runs) for runs in studies]
        self.longest: list[int | None] = [max(each, default=None) for each in found]
        is_shared = not is_apart and len(set(self._units)) == 1
        shared = set.intersection(*found) if is_shared else set()
        self.common: int | None = max(shared, default=None)

    def at(self, study: int) -> int | None:
        """Return the budget that a study is compared at."""
        return self.longest[study] if self.common is None else self.common

    def text(self, study: int) -> str:
        budget = self.at(study)
        return NONE if budget is None else f"{budget} {self._units[study]}"

    def is_cut(self, study: int) -> bool:
        """Whether a study has trained to more than what it is compared at."""
        return self.at(study) != self.longest[study]

    def notes(self, labels: Sequence[str]) -> list[str]:
        trained = [budget for budget in self.longest if budget is not None]
        if self.common is None and len(trained) == len(labels) and not self._is_apart:
            each = "; ".join(f"{label}: {self.text(at)}" for at, label in enumerate(labels))
            return [
                f"the studies have no budget in common and each stands at its longest ({each}): "
                "a difference may be that of the budgets"
            ]
        return [
            f"{label} was trained to {self.longest[at]} {self._units[at]} too; it is compared at "
            f"{self.text(at)}, the longest budget that all have"
            for at, label in enumerate(labels)
            if self.is_cut(at)
        ]


def _trained(runs: StudyRuns) -> set[int]:
    """Return the budgets that a study was trained to, without those of part of its cells alone."""
    full = runs.counted.loc[runs.counted["status"].isin(FULL), "budget"]
    return set(full[full <= runs.budget])


def _front(answer: Answer) -> ParetoResult | None:
    return answer.result(ParetoResult)


def _tasks(study: Study) -> dict[str, Mapping[str, Any]]:
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
        f"{label}: {_task_text(each, tasks)}" for label, each in zip(labels, tasks, strict=True)
    )
    return (
        "The studies do not learn the same task from the same data, so nothing of them is ranked "
        f"or tested against each other ({learned})."
    )


def _task_text(
    own: Mapping[str, Mapping[str, Any]], every: Sequence[Mapping[str, Mapping[str, Any]]]
) -> str:
    """Return a study's tasks in words, by the settings in which the studies' tasks differ."""
    contents = [dict(_flattened("", task)) for tasks in every for task in tasks.values()]
    names = list(dict.fromkeys(name for content in contents for name in content))
    differing = [
        name for name in names if len({content.get(name, NONE) for content in contents}) > 1
    ]
    found = [
        ", ".join(f"{name}={content[name]}" for name in differing if name in content)
        or f"data {fingerprint[:_COMMIT_LENGTH]}"
        for fingerprint, task in own.items()
        for content in [dict(_flattened("", task))]
    ]
    some = " or ".join(found[:_MOST_TASKS_NAMED])
    left = len(found) - _MOST_TASKS_NAMED
    return (f"{some} and {left} more" if left > 0 else some) or "not on record"


def unique_labels(studies: Sequence[Study]) -> list[str]:
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


def transition_pair(first: StudySide, second: StudySide) -> TransitionPair | None:
    """Return where two studies place the collapse, None unless both look along the same axis."""
    one, other = first.transition, second.transition
    if one is None or other is None or one.x != other.x or not one.p_h or not other.p_h:
        return None
    lower = equal = higher = 0.0
    for h, p in one.p_h.items():
        for g, q in other.p_h.items():
            lower += p * q * (h < g)
            equal += p * q * (h == g)
            higher += p * q * (h > g)
    total = lower + equal + higher or 1.0
    dimensions = [found.d_eff for found in (one, other) if found.d_eff is not None]
    common = common_dimension(dimensions) if len(dimensions) == 2 else None
    return TransitionPair(
        first=first.label,
        second=second.label,
        both_claim=one.verdict in _CLAIMS and other.verdict in _CLAIMS,
        common_set=tuple(sorted(set(one.h_set) & set(other.h_set))),
        p_lower=lower / total,
        p_equal=equal / total,
        p_higher=higher / total,
        common_dimension=common,
        dimensions_disagree=len(dimensions) == 2 and common is None,
    )


class _Fronts:
    """The studies' fronts over one metric and one set of costs, in one frame."""

    def __init__(
        self,
        studies: Sequence[Study],
        answers: Sequence[Answer],
        tables: Sequence[pd.DataFrame],
        costs: tuple[str, ...],
        settings: CompareSettings,
        apart: str,
    ) -> None:
        self.results: list[ParetoResult | None] = [None] * len(studies)
        self.metric = ""
        self.goal: Goal | None = None
        self.costs: tuple[str, ...] = ()
        self.note = ""
        self._volumes: dict[int, Volume] = {}
        self._confidence = settings.confidence
        if apart:
            self.note = "no fronts are compared: the studies learn from other data"
            return
        offered = [_front(answer) for answer in answers]
        asked = [at for at, front in enumerate(offered) if front is not None]
        chosen = list(range(len(studies))) if costs else asked
        if not costs:
            shared = [front.costs for front in offered if front is not None]
            costs = tuple(
                name for name in (shared[0] if shared else ()) if all(name in c for c in shared)
            )
        if len(chosen) < 2 or not costs:
            self.note = (
                "no fronts are compared: fewer than two of the studies ask about shapes and costs"
                if len(chosen) < 2
                else "no fronts are compared: the studies' questions share no cost"
            )
            return
        metrics = {(studies[at].manifest.metric, studies[at].manifest.goal) for at in chosen}
        if len(metrics) > 1:
            named = ", ".join(sorted(metric for metric, _ in metrics))
            self.note = (
                f"no fronts are compared: the studies are judged by different metrics ({named})"
            )
            return
        ((self.metric, goal),) = metrics
        self.goal = "max" if goal == "max" else "min"
        self.costs = costs
        shapes: dict[int, list[Shape]] = {}
        for at in chosen:
            runs, asked_for = _with_config(studies[at], tables[at])
            fitted = {**asked_for, "goal": self.goal, "costs": costs}
            chosen_settings = ParetoSettings(crash_sd=settings.crash_sd)
            try:
                self.results[at] = pareto.fit(runs, settings=chosen_settings, **fitted)
                shapes[at] = grouped(
                    runs,
                    fitted["config"],
                    fitted.get("nuisance", ()),
                    goal=self.goal,
                    costs=costs,
                    crash_sd=settings.crash_sd,
                ).found
            except UserError as error:
                self.note = f"{studies[at].name} has no front: {error}"
        if len(shapes) < 2:
            return
        found, note = volumes(
            list(shapes.values()), self.goal, costs, settings.draws, settings.rng_seed
        )
        self._volumes = dict(zip(shapes, found, strict=False))
        self.note = f"{note}. {self.note}".strip() if self.note else note

    def hv(self, at: int) -> Interval | None:
        """Return the hypervolume of one study's front."""
        if at not in self._volumes:
            return None
        return volume_interval(self._volumes[at], self._confidence)

    def pair(self, a: int, b: int, labels: Sequence[str]) -> VolumePair | None:
        """Return the difference of two studies' hypervolumes."""
        if a not in self._volumes or b not in self._volumes:
            return None
        difference, better = volume_difference(self._volumes[a], self._volumes[b], self._confidence)
        return VolumePair(labels[a], labels[b], difference, better)


def _with_config(study: Study, table: pd.DataFrame) -> tuple[Runs, dict[str, Any]]:
    """Return a study's trials, the axes that name its shapes, and those of competing settings."""
    manifest = study.manifest
    question = manifest.question or {}
    named = dict(question.get("baseline") or ())
    varying = varying_columns(table, manifest.axes)
    nuisance = [axis for axis in question.get("nuisance") or () if axis in varying]
    shape = [axis for axis in manifest.axes if axis not in nuisance]
    config = [axis for axis in shape if axis in varying or axis in named]
    config = config or [axis for axis in shape if axis in table][:1]
    return Runs(table, manifest.metric), {"config": config, "nuisance": nuisance}


def _shared(
    labels: Sequence[str],
    tables: Sequence[pd.DataFrame],
    studies: Sequence[Study],
    a: int,
    b: int,
) -> SharedTrials:
    axes = [axis for axis in studies[a].manifest.axes if axis in studies[b].manifest.axes]
    same = len(set(tables[a]["key"]) & set(tables[b]["key"]))
    changed = 0
    if axes and set(studies[a].manifest.axes) == set(studies[b].manifest.axes):
        one, other = (_keys_by_point(tables[at], axes) for at in (a, b))
        changed = sum(one[point] != other[point] for point in one.keys() & other.keys())
    return SharedTrials(labels[a], labels[b], same, changed)


def _keys_by_point(table: pd.DataFrame, axes: Sequence[str]) -> dict[tuple[str, ...], str]:
    columns = [table[name].astype(str) for name in (*axes, "seed")]
    return dict(zip(zip(*columns, strict=True), table["key"], strict=True))


_COMPARED: Final = (
    *("sweep", "preset", "settings", "points", "limits", "seed", "metric", "goal", "budget"),
    *("question", "axes", "metrics"),
)
_OF_PROVENANCE: Final = (*("tool", "sweep", "training", "python", "packages", "hardware", "data"),)


def _differences(
    studies: Sequence[Study], tasks: Sequence[Mapping[str, Mapping[str, Any]]]
) -> list[Difference]:
    """Return what is recorded of the studies and not the same in all of them, the task first."""
    sides = []
    for study, own in zip(studies, tasks, strict=True):
        manifest = study.manifest
        content: dict[str, Any] = {"task": _task_text(own, tasks)} if own else {}
        for name in _COMPARED:
            if name == "settings":
                given = manifest.settings or ()
                content |= {f"--set {key}": ", ".join(map(str, values)) for key, values in given}
            else:
                content[name] = getattr(manifest, name)
        provenance = {
            f"{name} (where it ran)" if name == "hardware" else name: manifest.provenance.get(name)
            for name in _OF_PROVENANCE
        }
        provenance["code of the tool"] = provenance.pop("tool")
        provenance["code of the sweep"] = provenance.pop("sweep")
        read = provenance["data"] or ()
        provenance["data"] = ", ".join(
            sorted(str(each.get("fingerprint", NONE))[:_COMMIT_LENGTH] for each in read)
        )
        later = "; ".join(manifest.later_commands)
        content = {**content, "added or edited later": later, **provenance}
        sides.append(dict(_flattened("", content)))
    names = list(dict.fromkeys(name for side in sides for name in side))
    rows = [Difference(name, tuple(side.get(name, NONE) for side in sides)) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _flattened(prefix: str, content: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in content.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += _flattened(f"{full}.", value)
        else:
            shown = _written(value) or NONE
            rows.append((full, shown[:_COMMIT_LENGTH] if full.endswith(".commit") else shown))
    return rows


def _written(value: Any) -> str:
    """Return a value as a user writes it; a mapping, also one that is recorded as pairs, by its
    names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_written(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        if value and all(isinstance(each, list) and len(each) == 2 for each in value):
            return _written(dict(value))
        return ", ".join(map(_written, value))
    return "" if value is None else str(value)


def _source_diff(studies: Sequence[Study], labels: Sequence[str]) -> str:
    texts = []
    for study in studies:
        try:
            texts.append(study.paths.sweep_source.read_text().splitlines())
        except (OSError, UnicodeDecodeError):
            texts.append([])
    lines: list[str] = []
    for label, text in zip(labels[1:], texts[1:], strict=True):
        lines += difflib.unified_diff(
            texts[0], text, f"{labels[0]}/sweep.py", f"{label}/sweep.py", lineterm="", n=1
        )
    left = len(lines) - _MOST_DIFF_LINES
    return "\n".join(lines[:_MOST_DIFF_LINES] + ([f"... {left} more lines"] if left > 0 else []))


def _warnings(sides: Sequence[StudySide], budgets: _Budgets) -> list[str]:
    found = budgets.notes([side.label for side in sides])
    found += [f"{side.label}: {side.problem}" for side in sides if side.problem]
    for side in sides:
        if side.finished < side.trials:
            found.append(f"{side.label}: {side.finished} of {side.trials} trials ran to their end")
    asked: list[TransitionResult] = [s.transition for s in sides if s.transition is not None]
    if len({(result.metric, result.scale) for result in asked}) > 1:
        found.append(
            "the transitions are fitted to different metrics; their heights do not compare"
        )
    if len({result.x for result in asked}) > 1:
        found.append("the transitions are along different axes")
    return found
