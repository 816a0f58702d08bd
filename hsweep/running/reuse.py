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
from collections.abc import Iterable, Mapping, Sequence
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
from hsweep.planning.content import describe
from hsweep.planning.identity import CONTENT_PARTS, differing
from hsweep.record.journal import Journal, JournalReader, LogRow
from hsweep.record.study import Manifest, StudyFolder, list_studies
from hsweep.record.tables import is_probed
from hsweep.record.weights import WeightsFolder
from models.conditioning import Conditioning

_MEASURED_TIMES: Final = frozenset({"wall_seconds", "latency_seconds"})
_NOT_TO_BE_READ: Final = (UserError, OSError, sqlite3.Error, ValueError, KeyError, TypeError)
"""What a study that is broken, or being deleted, may raise."""

_ASKED: Final = "reuse"
"""Name of the record's note that this study trains everything itself."""

_Content = tuple[str, ...]
"""What a trial is but for its code: all that must be the same for its result to be taken."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Another study, and its finished trials by their content, each with the study that trained it
    (empty: this one). After an edit several trials may differ in their code alone."""

    paths: StudyPaths
    manifest: Manifest
    finished: Mapping[_Content, Sequence[tuple[str, str]]]


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
        without_weights: trials that were taken and whose final weights are not kept where they were
            trained, although this study keeps such.
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
    without_weights: int = 0

    def __call__(self, trials: Sequence[Trial]) -> frozenset[str]:
        """Take trials that are finished elsewhere, and return their keys.

        The trials must be planned in this study's record.
        """
        wanted = {
            trial.key: trial
            for trial in trials
            if trial.budget.unit != "seconds" and (self.only is None or trial.key in self.only)
        }
        contents = {_content(trial.parts) for trial in wanted.values()}
        sources = [each for each in self._sources if not contents.isdisjoint(each.finished)]
        if not sources:
            return frozenset()
        for row in self.journal.trials():
            if row.status is not TrialStatus.PLANNED or row.attempt or row.unit:
                wanted.pop(row.key, None)
        if compared_times(self.manifest.question):
            self.num_compared += sum(
                any(_content(trial.parts) in each.finished for each in sources)
                for trial in wanted.values()
            )
            return frozenset()
        found: set[str] = set()
        reasons: dict[str, tuple[str, str]] = {}
        # What was trained by the same code comes first, wherever it is.
        for accepting in (False, True) if self.accepts_code else (False,):
            for source in sources:
                missing = [wanted[key] for key in wanted.keys() - found]
                found |= self._take(source, missing, reasons, accepting=accepting)
        self.not_taken.update(reason for key, reason in reasons.items() if key not in found)
        return frozenset(found)

    @functools.cached_property
    def _sources(self) -> list[_Source]:
        there = [
            _read(paths) for paths in list_studies(self.home) if paths.name != self.manifest.name
        ]
        return [each for each in there if each is not None and self._measured_alike(each.manifest)]

    def _measured_alike(self, other: Manifest) -> bool:
        # What a probe looks at is no part of a trial's key.
        same_probe = self.probe is None or other.probe == describe(self.probe)
        always = self.manifest.train_metrics == "always"
        if always and other.train_metrics != "always" and not other.training:
            return False
        has_metrics = set(self.manifest.metrics) <= set(other.metrics)
        return same_probe and (has_metrics or bool(other.training))

    def _take(
        self,
        source: _Source,
        trials: Sequence[Trial],
        reasons: dict[str, tuple[str, str]],
        *,
        accepting: bool,
    ) -> set[str]:
        """Take trials from one study; return their keys, and add the reasons for the others."""
        found: dict[str, dict[str, Any]] = {}
        trained: dict[str, tuple[str, int]] = {}
        changes: dict[str, list[Mapping[str, Sequence[str]]]] = {}
        files: dict[str, Mapping[str, str]] = {}
        name = source.paths.name
        there = (
            (trial, key, by or name)
            for trial in sorted(trials, key=lambda trial: trial.ordinal)
            for key, by in source.finished.get(_content(trial.parts), ())
        )
        # What was read whole before a study turns out to be broken is sound all the same.
        with (
            contextlib.suppress(*_NOT_TO_BE_READ),
            JournalReader(source.paths.journal) as journal,
        ):
            files = recorded_files(journal)
            for trial, key, by in there:
                if trial.key in found:
                    continue
                origins = journal.origins(key).get(key, [])
                changed, why_not = _compared(trial, origins, files)
                if changed and not (why_not or accepting):
                    has = "has" if len(changed) == 1 else "have"
                    why_not = (
                        f"the {code_in_words(changed)} {has} changed since; --accept-code "
                        "takes them all the same"
                    )
                if why_not:
                    reasons.setdefault(trial.key, (name, why_not))
                elif reports := self._usable(trial, list(journal.reports([key]))):
                    found[trial.key] = {"reports": reports, "reused_from": by, "origins": origins}
                    trained[trial.key] = key, journal.trials_of([key])[key].attempt
                    changes.setdefault(by, []).append(changed)
        if self.manifest.keep != "none":
            self._take_weights(source, trained)
        for key, taken in found.items():
            self.journal.adopt(key, status=TrialStatus.FINISHED, **taken)
            self.taken[key] = taken["reused_from"]
        if found:
            self.journal.set_metas(files_metas(self.journal, files))
        if accepting:
            self.accepted += [
                acceptance({}, len(each), merged_changes(each), what=study)
                for study, each in changes.items()
            ]
        return set(found)

    def _take_weights(self, source: _Source, trained: Mapping[str, tuple[str, int]]) -> None:
        """Copy the final weights that another study keeps of trials, by the keys they have here."""
        lacking = set(trained)
        with contextlib.suppress(*_NOT_TO_BE_READ):
            own = self.home.study(self.manifest.name).weights_root(self.manifest.storage)
            theirs = WeightsFolder(source.paths.weights_root(source.manifest.storage))
            there = theirs.sizes()
            for key, file in trained.items():
                if file in there:
                    WeightsFolder(own).take(theirs, file, (key, 0))
                    lacking.remove(key)
        self.without_weights += len(lacking)

    def _usable(self, trial: Trial, reports: list[LogRow]) -> list[LogRow]:
        """Return the reports as this study would have recorded them; none where one is missing."""
        if not self._are_complete(trial, reports):
            return []
        if self.probe is None:
            reports = [replace(each, payload=_without_probe(each.payload)) for each in reports]
        if not (trial.is_decided_in_training or self.manifest.train_metrics == "always"):
            reports[:-1] = [
                replace(each, payload=_without(trial.training_metrics, each.payload))
                for each in reports[:-1]
            ]
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
        """Return what to tell the user of a study of ``num_trials`` trials before it runs."""
        lines = []
        if self.taken:
            is_are, them = _number_words(len(self.taken))
            lines.append(
                f"{len(self.taken)} of {num_trials} trials {is_are} taken from "
                f"{studies_in_words(self.taken.values())} (trained there); --no-reuse trains "
                f"{them} again"
            )
        if self.without_weights and self.manifest.keep == "last":
            _, them = _number_words(self.without_weights)
            lines.append(
                f"the final weights of {self.without_weights} of these are not kept there; "
                f"--no-reuse trains {them} again"
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
                f"still trained here: the question compares "
                f"{listed(compared_times(self.manifest.question))}, which is measured side by side "
                "or not at all"
            )
        return lines


def _number_words(number: int) -> tuple[str, str]:
    return ("is", "it") if number == 1 else ("are", "them")


def reuse_for(
    study: StudyFolder,
    journal: Journal,
    home: Home,
    *,
    probe: Conditioning | None,
    only: frozenset[str] | None,
    is_wanted: bool,
    accepts_code: bool = False,
    rungs: frozenset[int] = frozenset(),
) -> Reuse | None:
    """Return the reuse of other studies' trials; None if this study shall train all itself, which
    is recorded (``is_wanted`` is False) and holds whenever the study is resumed."""
    if not is_wanted:
        journal.set_meta(_ASKED, "no")
    if journal.meta(_ASKED) == "no":
        return None
    return Reuse(journal, home, study.manifest, probe, only, accepts_code, rungs)


def compared_times(question: Mapping[str, Any] | None) -> list[str]:
    """Return the measured times that an answer rests on; none if it rests on none."""
    return sorted(_MEASURED_TIMES & set((question or {}).get("costs") or ()))


def studies_in_words(trained_by: Iterable[str]) -> str:
    """Return the names of studies in words; several with the number of trials that each trained."""
    counted = Counter(trained_by)
    if len(counted) == 1:
        return f"study {next(iter(counted))}"
    return "other studies: " + ", ".join(
        f"{number} from {name}" for name, number in sorted(counted.items())
    )


def _without_probe(payload: Mapping[str, Any]) -> dict[str, Any]:
    return _without(filter(is_probed, payload["metrics"]), payload)


def _without(names: Iterable[str], payload: Mapping[str, Any]) -> dict[str, Any]:
    left_out = set(names)
    metrics = {name: value for name, value in payload["metrics"].items() if name not in left_out}
    return {**payload, "metrics": metrics}


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
    try:
        manifest = StudyFolder.at(paths).manifest
        with JournalReader(paths.journal) as journal:
            finished: dict[_Content, list[tuple[str, str]]] = {}
            for key, trained_by, parts in journal.finished_trials():
                finished.setdefault(_content(parts), []).append((key, trained_by))
            return _Source(paths, manifest, finished)
    except _NOT_TO_BE_READ:
        return None
