"""Nothing trained twice: trials that another study of the home has finished are taken from there.

A trial is the same if its key is, and if the packages that compute had the same versions. Its
reports are copied into this study's record, which stays whole without the other study, and the
record names the study that trained them. The code that trained the trial is compared, whatever
code a study has accepted since.
"""

import contextlib
import functools
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hsweep.design.labels import listed
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home, StudyPaths
from hsweep.planning.code_changes import (
    acceptance,
    changed_code,
    code_in_words,
    files_metas,
    merged_changes,
    recorded_files,
)
from hsweep.planning.identity import CONTENT_PARTS, describe, differing
from hsweep.record.final_report import FinalReport
from hsweep.record.journal import Journal, LogRow, TrialRow
from hsweep.record.study import Manifest, StudyFolder, list_studies
from models.conditioning import Conditioning, is_probed

_MEASURED_TIMES: Final = frozenset({"wall_seconds", "latency_seconds"})
_UNREADABLE: Final = (UserError, OSError, sqlite3.Error, ValueError, KeyError, TypeError)
"""What a study that is broken, or being deleted, may raise."""

_META: Final = "reuse"
"""Name of the record's note that this study trains everything itself."""

_Content = tuple[str, ...]
"""The parts of a trial's key without its code: all that must be equal to take its result."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A study to take trials from.

    Attributes:
        finished: its finished trials by their content; after an edit, trials that differ in their
            code alone share one content.
        files: the files of its code, by digest.
    """

    study: StudyFolder
    finished: Mapping[_Content, Sequence[TrialRow]]
    files: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Result:
    """A trial that another study has finished.

    Attributes:
        source: the other study.
        origins: the code and versions that trained the trial.
        changed: files that have changed since then, by the part of the code.
    """

    source: _Source
    trial: Trial
    row: TrialRow
    reports: Sequence[LogRow]
    origins: Sequence[str]
    changed: Mapping[str, Sequence[str]]


@dataclass
class Reuse:
    """Takes what other studies of a home have finished into the record of one.

    A result is not taken if its budget is in seconds (the hardware decides it), if this study has
    started the trial, if a report lacks a metric that this study needs, or if other code (unless
    the user accepts it) or other versions trained it. Where the question compares measured times,
    which are comparable only side by side, no result is taken. An unreadable study is skipped.

    Attributes:
        probe: measurements of the attention of this study's models.
        only: keys of the trials to look for; None for all.
        accepts_code: whether other code counts as the same.
        rungs: units at which early stopping decides.
        trained_by: name of the study that trained a taken trial, by the trial's key.
        num_compared: number of trials that are finished elsewhere and trained here all the same,
            since times are compared.
        rejections: number of finished trials of another study that are trained here all the same,
            by the study's name and the reason.
    """

    journal: Journal
    study: StudyFolder
    probe: Conditioning | None = None
    only: frozenset[str] | None = None
    accepts_code: bool = False
    rungs: frozenset[int] = frozenset()
    trained_by: dict[str, str] = field(default_factory=dict)
    num_compared: int = 0
    rejections: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __call__(self, trials: Sequence[Trial]) -> frozenset[str]:
        """Take trials that are finished elsewhere, and return their keys.

        The trials must be planned in this study's record.
        """
        requested_trials = [
            trial
            for trial in trials
            if trial.budget.unit != "seconds"
            and (self.only is None or trial.key in self.only)
            and not self._has_begun(trial.key)
        ]
        if not requested_trials:
            return frozenset()
        contents = {_content(trial.parts) for trial in requested_trials}
        sources = [source for source in self._sources if not contents.isdisjoint(source.finished)]
        if self._compared_times:
            finished = {content for source in sources for content in source.finished}
            self.num_compared += sum(
                _content(trial.parts) in finished for trial in requested_trials
            )
            return frozenset()
        results: dict[str, _Result] = {}
        reasons: dict[str, tuple[str, str]] = {}
        for source in sources:
            # What was read whole before a study turns out to be broken is sound all the same.
            with contextlib.suppress(*_UNREADABLE):
                for key, result in self._results(source, requested_trials, reasons):
                    # What was trained by the same code comes first, wherever it is.
                    if key not in results or (results[key].changed and not result.changed):
                        results[key] = result
        self.rejections.update(reason for key, reason in reasons.items() if key not in results)
        self._take(results)
        return frozenset(results)

    def _has_begun(self, key: str) -> bool:
        row = self.journal.rows[key]
        return row.has_begun or row.status is not TrialStatus.PLANNED

    @property
    def manifest(self) -> Manifest:
        return self.study.manifest

    @functools.cached_property
    def _compared_times(self) -> list[str]:
        """The names of measured times that the answer compares."""
        return sorted(_MEASURED_TIMES & set((self.manifest.question or {}).get("costs") or ()))

    @functools.cached_property
    def _sources(self) -> list[_Source]:
        studies = list_studies(Home(self.study.paths.home))
        return [
            source
            for source in map(_read, (paths for paths in studies if paths.name != self.study.name))
            if source is not None and self._measured_alike(source.study.manifest)
        ]

    def _measured_alike(self, other: Manifest) -> bool:
        # What a probe looks at is no part of a trial's key.
        same_probe = self.probe is None or other.probe == describe(self.probe)
        always = self.manifest.train_metrics == "always"
        if always and other.train_metrics != "always" and not other.training:
            return False
        has_metrics = set(self.manifest.metrics) <= set(other.metrics)
        return same_probe and (has_metrics or bool(other.training))

    def _results(
        self, source: _Source, trials: Sequence[Trial], reasons: dict[str, tuple[str, str]]
    ) -> Iterator[tuple[str, _Result]]:
        """Yield the results of another study that can be taken, by key; add the reason to
        ``reasons`` where a result cannot be taken."""
        with source.study.journal() as journal:
            pairs = (
                (trial, row)
                for trial in trials
                for row in source.finished.get(_content(trial.parts), ())
            )
            for trial, row in pairs:
                origins = journal.origins(row.key).get(row.key, [])
                changed, why_not = _compared(trial, origins, source.files)
                if changed and source.study.manifest.sweep != self.manifest.sweep:
                    continue  # another training altogether, over the same axes
                if changed and not (why_not or self.accepts_code):
                    has = "has" if len(changed) == 1 else "have"
                    why_not = (
                        f"the {code_in_words(changed)} {has} changed since; --accept-code "
                        "takes them all the same"
                    )
                if why_not:
                    reasons.setdefault(trial.key, (source.study.name, why_not))
                elif reports := self._usable(trial, row, list(journal.reports([row.key]))):
                    yield trial.key, _Result(source, trial, row, reports, origins, changed)

    def _take(self, results: Mapping[str, _Result]) -> None:
        """Record results of other studies, those of other code as accepted, and copy their final
        weights if this study keeps weights."""
        changes: dict[str, list[Mapping[str, Sequence[str]]]] = {}
        for key, result in results.items():
            with contextlib.suppress(*_UNREADABLE):
                weights, file = result.source.study.weights(), (result.row.key, result.row.attempt)
                if self.manifest.keep != "none" and file in weights.sizes():
                    self.study.weights().take(weights, file, (key, 0))
            trained_by = result.row.reused_from or result.source.study.name
            entries = self.journal.adoption_entries(
                key,
                result.reports,
                status=TrialStatus.FINISHED,
                reused_from=trained_by,
                origins=result.origins,
                **self._end_of(result),
            )
            self.journal.append(entries)
            self.trained_by[key] = trained_by
            if result.changed:
                changes.setdefault(trained_by, []).append(result.changed)
        files = {
            name: text for result in results.values() for name, text in result.source.files.items()
        }
        self.journal.set_metas(files_metas(files))
        for study, change in changes.items():
            entry = acceptance({}, len(change), merged_changes(change), what=study)
            self.study.accept(self.journal, entry)

    def _end_of(self, result: _Result) -> dict[str, Any]:
        """Return how this study records the end of a trial that it takes."""
        final = FinalReport(self.manifest.metric, self.manifest.goal, self.manifest.final)
        for report in result.reports:
            final.add(report.unit or 0, report.payload["metrics"])
        last = result.reports[-1]
        reason, counts = final.at_end(last.unit or 0, result.trial.budget)
        changed = {} if counts is None else {"last": {**last.payload, "metrics": counts}}
        return {"reason": reason, **changed}

    def _usable(self, trial: Trial, row: TrialRow, reports: list[LogRow]) -> list[LogRow]:
        """Return the reports as this study would have recorded them; empty if any is missing."""
        if not self._are_complete(trial, row, reports):
            return []
        if self.probe is None:
            reports = [
                _without(filter(is_probed, report.payload["metrics"]), report) for report in reports
            ]
        if not (trial.is_decided_in_training or self.manifest.train_metrics == "always"):
            reports[:-1] = [_without(trial.training_metrics, report) for report in reports[:-1]]
        return reports if reports[-1].payload["metrics"][self.manifest.metric] is not None else []

    def _are_complete(self, trial: Trial, row: TrialRow, reports: Sequence[LogRow]) -> bool:
        """Whether the reports have all units and metrics that this study needs; a user's own
        training may end by itself, and leave out units at which nothing is decided."""
        units = [report.unit for report in reports]
        is_decided = all(self.manifest.metric in report.payload["metrics"] for report in reports)
        if trial.model is not None:
            is_measured = is_decided or not trial.is_decided_in_training
            return units == trial.budget.report_units() and is_measured
        rungs = {rung for rung in self.rungs if rung <= row.unit}
        return units[-1:] == [row.unit] and rungs <= set(units) and is_decided

    def lines(self, num_trials: int) -> list[str]:
        """Return messages for the user of a study of ``num_trials`` trials before it runs."""
        lines = []
        if self.trained_by:
            studies = Counter(self.trained_by.values())
            source = f"study {next(iter(studies))}"
            if len(studies) > 1:
                numbers = (f"{number} from {name}" for name, number in sorted(studies.items()))
                source = f"other studies: {', '.join(numbers)}"
            lines.append(
                f"{len(self.trained_by)} of {num_trials} trials taken from {source} (trained "
                "there); --no-reuse trains again"
            )
        for (study, why), number in self.rejections.items():
            lines.append(
                f"{number} of {num_trials} trials trained although finished by study {study}: {why}"
            )
        if self.num_compared:
            lines.append(
                f"{self.num_compared} of {num_trials} trials are finished in other studies and "
                f"still trained here: the question compares {listed(self._compared_times)}, which "
                "is measured side by side or not at all"
            )
        return lines


def trains_all_itself(journal: Journal, *, reuse: bool) -> bool:
    """Return whether a study trains all its trials itself: without ``reuse``, which is recorded,
    and in every later run of the study."""
    if not reuse:
        journal.set_meta(_META, "no")
    return journal.meta(_META) == "no"


def _without(names: Iterable[str], report: LogRow) -> LogRow:
    metrics = {**report.payload["metrics"]}
    for name in list(names):
        metrics.pop(name, None)
    return replace(report, payload={**report.payload, "metrics": metrics})


def _compared(
    trial: Trial, origins: Sequence[str], files: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, Sequence[str]], str]:
    """Compare the code and versions that trained a trial elsewhere with those of this process;
    return the changed files by the part of the code, and why the trial cannot be taken even if the
    user accepts changed code (empty if it can)."""
    present = json.loads(trial.origin)
    changed: dict[str, Sequence[str]] = {}
    why_not = "" if origins else "it is not on record what trained it"
    for origin in map(json.loads, origins):
        changed |= changed_code(origin["code"], present["code"], files.get)
        if names := differing(present["versions"], origin["versions"]):
            recorded = ", ".join(f"{name} {origin['versions'][name]}" for name in names)
            installed = ", ".join(f"{name} {present['versions'][name]}" for name in names)
            why_not = f"trained with {recorded} there, {installed} here"
    return changed, why_not


def _content(parts: Mapping[str, str]) -> _Content:
    return tuple(parts.get(part, "") for part in CONTENT_PARTS)


def _read(paths: StudyPaths) -> _Source | None:
    """Return another study with its finished trials; None if it cannot be read."""
    try:
        study = StudyFolder.at(paths)
        with study.journal() as journal:
            finished: dict[_Content, list[TrialRow]] = {}
            for row in journal.trials(orphaned=True):
                if row.status is TrialStatus.FINISHED:
                    finished.setdefault(_content(row.parts), []).append(row)
            return _Source(study, finished, recorded_files(journal))
    except _UNREADABLE:
        return None
