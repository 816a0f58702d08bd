"""Nothing trained twice: trials that another study of the home has finished are taken from there.

A trial is the same if its key is, and if the packages that compute had the same versions. Its
reports are copied into this study's record, which stays whole without the other study, and the
record names the study that trained them. What counts is the code that trained it, whatever a study
has accepted since.
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
from hsweep.record.journal import Journal, JournalReader, LogRow, TrialRow
from hsweep.record.study import Manifest, StudyFolder, list_studies
from hsweep.record.tables import is_probed
from hsweep.record.weights import WeightsFolder
from models.conditioning import Conditioning

_MEASURED_TIMES: Final = frozenset({"wall_seconds", "latency_seconds"})
_UNREADABLE: Final = (UserError, OSError, sqlite3.Error, ValueError, KeyError, TypeError)
"""What a study that is broken, or being deleted, may raise."""

_META: Final = "reuse"
"""Name of the record's note that this study trains everything itself."""

_Content = tuple[str, ...]
"""What a trial is but for its code: all that must be the same for its result to be taken."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A study to take trials from.

    Attributes:
        finished: its finished trials by their content. After an edit several may differ in their
            code alone.
        files: behind the digests of its code.
    """

    paths: StudyPaths
    manifest: Manifest
    finished: Mapping[_Content, Sequence[TrialRow]]
    files: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Result:
    """A trial that another study has finished.

    Attributes:
        source: the other study.
        row: of the trial there.
        trained_by: the study that trained it.
        origins: code and versions that trained it.
        changed: files that have changed since, by the part of the code.
    """

    source: _Source
    row: TrialRow
    trained_by: str
    reports: Sequence[LogRow]
    origins: Sequence[str]
    changed: Mapping[str, Sequence[str]]


@dataclass
class Reuse:
    """Takes what other studies of a home have finished into the record of one.

    Not taken are budgets in seconds, where the hardware decides the result; trials this study has
    started; reports that lack a metric it needs; what was trained by other code, unless that is
    accepted, or with other versions; and nothing at all where the question compares measured
    times, which only trials run side by side make comparable. A study that cannot be read is
    passed over.

    Attributes:
        probe: what this study measures of its models' attention.
        only: keys of the trials to look for; None for all.
        accepts_code: other code counts as the same.
        rungs: units at which early stopping decides.
        taken: the study that trained each trial that was taken, by key.
        num_compared: trials that are finished elsewhere and not taken, since times are compared.
        accepted: what was taken in spite of other code, as it is to be recorded.
        not_taken: how many trials of which study are trained here although it has finished them,
            by the study and the reason.
    """

    journal: Journal
    home: Home
    manifest: Manifest
    probe: Conditioning | None = None
    only: frozenset[str] | None = None
    accepts_code: bool = False
    rungs: frozenset[int] = frozenset()
    taken: dict[str, str] = field(default_factory=dict)
    num_compared: int = 0
    accepted: list[dict[str, Any]] = field(default_factory=list)
    not_taken: Counter[tuple[str, str]] = field(default_factory=Counter)

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
        contents = {_content(trial.parts) for trial in requested_trials}
        sources = [each for each in self._sources if not contents.isdisjoint(each.finished)]
        if self._compared_times:
            there = {content for each in sources for content in each.finished}
            self.num_compared += sum(_content(trial.parts) in there for trial in requested_trials)
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
        self.not_taken.update(reason for key, reason in reasons.items() if key not in results)
        self._take(results)
        return frozenset(results)

    def _has_begun(self, key: str) -> bool:
        row = self.journal.rows[key]
        return row.has_begun or row.status is not TrialStatus.PLANNED

    @functools.cached_property
    def _compared_times(self) -> list[str]:
        """The names of measured times that the answer compares."""
        return sorted(_MEASURED_TIMES & set((self.manifest.question or {}).get("costs") or ()))

    @functools.cached_property
    def _sources(self) -> list[_Source]:
        there = map(_read, (p for p in list_studies(self.home) if p.name != self.manifest.name))
        return [
            source
            for source in there
            if source is not None and self._measured_alike(source.manifest)
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
        """Yield the results that another study has of trials, by their keys; add to ``reasons`` why
        it is not taken where one cannot be."""
        name = source.paths.name
        with JournalReader(source.paths.journal) as journal:
            there = (
                (trial, row)
                for trial in trials
                for row in source.finished.get(_content(trial.parts), ())
            )
            for trial, row in there:
                origins = journal.origins(row.key).get(row.key, [])
                changed, why_not = _compared(trial, origins, source.files)
                if changed and not (why_not or self.accepts_code):
                    has = "has" if len(changed) == 1 else "have"
                    why_not = (
                        f"the {code_in_words(changed)} {has} changed since; --accept-code "
                        "takes them all the same"
                    )
                if why_not:
                    reasons.setdefault(trial.key, (name, why_not))
                elif reports := self._usable(trial, list(journal.reports([row.key]))):
                    by = row.reused_from or name
                    yield trial.key, _Result(source, row, by, reports, origins, changed)

    def _take(self, results: Mapping[str, _Result]) -> None:
        """Put results of other studies on record, with their final weights if this study keeps
        such and the other one has."""
        changes: dict[str, list[Mapping[str, Sequence[str]]]] = {}
        for key, result in results.items():
            with contextlib.suppress(*_UNREADABLE):
                if self.manifest.keep != "none":
                    self._copy_weights(key, result)
            self.journal.adopt(
                key,
                result.reports,
                status=TrialStatus.FINISHED,
                reused_from=result.trained_by,
                origins=result.origins,
            )
            self.taken[key] = result.trained_by
            if result.changed:
                changes.setdefault(result.trained_by, []).append(result.changed)
        files = {name: text for one in results.values() for name, text in one.source.files.items()}
        self.journal.set_metas(files_metas(self.journal, files))
        self.accepted += [
            acceptance({}, len(change), merged_changes(change), what=study)
            for study, change in changes.items()
        ]

    def _copy_weights(self, key: str, result: _Result) -> None:
        source, mine = result.source, self.home.study(self.manifest.name)
        theirs = WeightsFolder(source.paths.weights_root(source.manifest.storage))
        file = result.row.key, result.row.attempt
        if file in theirs.sizes():
            folder = WeightsFolder(mine.weights_root(self.manifest.storage))
            folder.take(theirs, file, (key, 0))

    def _usable(self, trial: Trial, reports: list[LogRow]) -> list[LogRow]:
        """Return the reports as this study would have recorded them; empty if one is missing."""
        if not self._are_complete(trial, reports):
            return []
        if self.probe is None:
            reports = [
                _without(filter(is_probed, report.payload["metrics"]), report) for report in reports
            ]
        if not (trial.is_decided_in_training or self.manifest.train_metrics == "always"):
            reports[:-1] = [_without(trial.training_metrics, report) for report in reports[:-1]]
        return reports if reports[-1].payload["metrics"][self.manifest.metric] is not None else []

    def _are_complete(self, trial: Trial, reports: Sequence[LogRow]) -> bool:
        """Whether the reports have all units and metrics that this study needs; a user's own
        training may leave out units at which nothing is decided."""
        units = [report.unit for report in reports]
        is_decided = all(self.manifest.metric in report.payload["metrics"] for report in reports)
        if trial.model is not None:
            is_measured = is_decided or not trial.is_decided_in_training
            return units == trial.budget.report_units() and is_measured
        return units[-1:] == [trial.budget.amount] and self.rungs <= set(units) and is_decided

    def lines(self, num_trials: int) -> list[str]:
        """Return messages for the user of a study of ``num_trials`` trials before it runs."""
        lines = []
        if self.taken:
            is_are, them = _number_words(len(self.taken))
            studies = Counter(self.taken.values())
            source = f"study {next(iter(studies))}"
            if len(studies) > 1:
                numbers = (f"{number} from {name}" for name, number in sorted(studies.items()))
                source = f"other studies: {', '.join(numbers)}"
            lines.append(
                f"{len(self.taken)} of {num_trials} trials {is_are} taken from {source} (trained "
                f"there); --no-reuse trains {them} again"
            )
        for (study, why), number in self.not_taken.items():
            is_are, them = _number_words(number)
            lines.append(
                f"{number} of {num_trials} trials {is_are} trained although study {study} has "
                f"finished {them}: {why}"
            )
        if self.num_compared:
            lines.append(
                f"{self.num_compared} of {num_trials} trials are finished in other studies and "
                f"still trained here: the question compares {listed(self._compared_times)}, which "
                "is measured side by side or not at all"
            )
        return lines


def _number_words(number: int) -> tuple[str, str]:
    return ("is", "it") if number == 1 else ("are", "them")


def trains_all_itself(journal: Journal, *, reuse: bool) -> bool:
    """Whether a study shall take nothing from others: if it does not want to ``reuse``, which is
    recorded, and whenever it is resumed after that."""
    if not reuse:
        journal.set_meta(_META, "no")
    return journal.meta(_META) == "no"


def _without(names: Iterable[str], report: LogRow) -> LogRow:
    """Return a report without some metrics."""
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
    mine = json.loads(trial.origin)
    changed: dict[str, Sequence[str]] = {}
    why_not = "" if origins else "it is not on record what trained it"
    for origin in map(json.loads, origins):
        changed |= changed_code(origin["code"], mine["code"], files.get)
        if names := differing(mine["versions"], origin["versions"]):
            there = ", ".join(f"{name} {origin['versions'][name]}" for name in names)
            here = ", ".join(f"{name} {mine['versions'][name]}" for name in names)
            why_not = f"trained with {there} there, {here} here"
    return changed, why_not


def _content(parts: Mapping[str, str]) -> _Content:
    return tuple(parts.get(part, "") for part in CONTENT_PARTS)


def _read(paths: StudyPaths) -> _Source | None:
    """Return another study with its finished trials; None if it cannot be read."""
    try:
        manifest = StudyFolder.at(paths).manifest
        with JournalReader(paths.journal) as journal:
            finished: dict[_Content, list[TrialRow]] = {}
            for row in journal.trials(orphaned=True):
                if row.status is TrialStatus.FINISHED:
                    finished.setdefault(_content(row.parts), []).append(row)
            return _Source(paths, manifest, finished, recorded_files(journal))
    except _UNREADABLE:
        return None
