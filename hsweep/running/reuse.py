"""Nothing trained twice: trials that another study of the home has finished are taken from there.

A trial's key covers all that determines its result, so what ran to its end under the same key is
the same training. Its reports are copied into this study's record, which stays whole without the
other study, and the record names the study that trained them.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home, StudyPaths
from hsweep.planning.identity import describe
from hsweep.record.journal import Journal, LogRow
from hsweep.record.study import Manifest, Study, list_studies
from hsweep.record.tables import is_probed
from models.conditioning import Conditioning

_MEASURED_TIMES: Final = frozenset({"wall_seconds", "latency_seconds"})
_NOT_TO_BE_READ: Final = (UserError, OSError, sqlite3.Error, ValueError, KeyError, TypeError)
"""What a study that is broken, or being deleted, may raise."""

_ASKED: Final = "reuse"
"""Name of the record's note that this study trains everything itself."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Another study: which trials it has finished, and who trained each (empty: itself)."""

    paths: StudyPaths
    manifest: Manifest
    finished: Mapping[str, str]


@dataclass(slots=True)
class Reuse:
    """Takes what other studies of a home have finished into the record of one.

    Not taken are budgets in seconds, where the hardware decides the result; trials this study has
    begun; reports that lack a metric this study needs; and nothing at all where the question
    compares measured times, which only trials run side by side make comparable. A study that
    cannot be read is passed over.

    Args:
        journal: this study's record.
        home: where the other studies lie.
        manifest: of this study.
        probe: what this study measures of its models' attention.
        only: keys of the trials to look for; None for all.

    Attributes:
        taken: the study that trained each trial that was taken, by key.
        num_left: trials that are finished elsewhere and not taken, since times are compared.
    """

    journal: Journal
    home: Home
    manifest: Manifest
    probe: Conditioning | None = None
    only: frozenset[str] | None = None
    taken: dict[str, str] = field(default_factory=dict)
    num_left: int = 0
    _sources: list[_Source] | None = None

    def __call__(self, trials: Sequence[Trial]) -> frozenset[str]:
        """Take what is finished elsewhere, and return its keys.

        The trials must be planned in this study's record.
        """
        wanted = {
            trial.key: trial
            for trial in trials
            if trial.budget.unit != "seconds" and (self.only is None or trial.key in self.only)
        }
        sources = [
            each for each in self._known_sources() if not wanted.keys().isdisjoint(each.finished)
        ]
        if not sources:
            return frozenset()
        for row in self.journal.trials():
            if row.status is not TrialStatus.PLANNED or row.attempt or row.unit:
                wanted.pop(row.key, None)
        if compared_times(self.manifest.question):
            self.num_left += sum(any(key in each.finished for each in sources) for key in wanted)
            return frozenset()
        found: set[str] = set()
        for source in sources:
            found |= self._take(source, [wanted[key] for key in wanted.keys() - found])
        return frozenset(found)

    def _known_sources(self) -> list[_Source]:
        if self._sources is None:
            studies = (
                _read(paths)
                for paths in list_studies(self.home)
                if paths.name != self.manifest.name
            )
            self._sources = [
                each
                for each in studies
                if each is not None and self._measured_the_same(each.manifest)
            ]
        return self._sources

    def _measured_the_same(self, other: Manifest) -> bool:
        # What a probe looks at is no part of a trial's key.
        same_probe = self.probe is None or other.probe == describe(self.probe)
        return same_probe and set(self.manifest.metrics) <= set(other.metrics)

    def _take(self, source: _Source, trials: Sequence[Trial]) -> set[str]:
        found: dict[str, list[LogRow]] = {}
        try:
            with Journal(source.paths.journal, read_only=True) as journal:
                for trial in sorted(trials, key=lambda trial: trial.ordinal):
                    if trial.key in source.finished:
                        reports = self._usable(trial, list(journal.reports(trial.key)))
                        if reports:
                            found[trial.key] = reports
        except _NOT_TO_BE_READ:
            # What was read whole before is sound all the same.
            pass
        for key, reports in found.items():
            trained_by = source.finished[key] or source.paths.name
            self.journal.adopt(
                key,
                reports,
                status=TrialStatus.FINISHED,
                value=reports[-1].payload["metrics"][self.manifest.metric],
                reused_from=trained_by,
            )
            self.taken[key] = trained_by
        return set(found)

    def _usable(self, trial: Trial, reports: list[LogRow]) -> list[LogRow]:
        """Return the reports as this study would have recorded them; none if it would not."""
        if [report.unit for report in reports] != trial.budget.report_units():
            return []
        if self.probe is None:
            reports = [replace(each, payload=_without_probe(each.payload)) for each in reports]
        return reports if reports[-1].payload["metrics"][self.manifest.metric] is not None else []

    def lines(self, num_trials: int) -> list[str]:
        """Return what to tell the user of a study of ``num_trials`` trials before it runs."""
        lines = []
        if self.taken:
            one = len(self.taken) == 1
            lines.append(
                f"{len(self.taken)} of {num_trials} trials {'is' if one else 'are'} taken from "
                f"{studies_in_words(self.taken.values())} (trained there); --no-reuse trains "
                f"{'it' if one else 'them'} anew"
            )
        if self.num_left:
            lines.append(
                f"{self.num_left} of {num_trials} trials are finished in other studies and still "
                f"trained here: the question compares "
                f"{' and '.join(compared_times(self.manifest.question))}, which is measured side "
                "by side or not at all"
            )
        return lines


def reuse_for(
    study: Study,
    journal: Journal,
    home: Home,
    *,
    probe: Conditioning | None,
    only: frozenset[str] | None,
    is_wanted: bool,
) -> Reuse | None:
    """Return what takes trials from other studies; None if this study shall train all itself.

    That it shall is asked once (``is_wanted`` is False) and holds whenever the study is resumed.
    """
    if not is_wanted:
        journal.set_meta(_ASKED, "no")
    if journal.meta(_ASKED) == "no":
        return None
    return Reuse(journal, home, study.manifest, probe, only)


def compared_times(question: Mapping[str, Any] | None) -> list[str]:
    """Return the measured times that an answer rests on; none if it rests on none."""
    return sorted(_MEASURED_TIMES & set((question or {}).get("costs") or ()))


def studies_in_words(trained_by: Iterable[str]) -> str:
    """Return the studies that trained something: one by name, several each with its number."""
    counted = Counter(trained_by)
    if len(counted) == 1:
        return f"study {next(iter(counted))}"
    return "other studies: " + ", ".join(
        f"{number} from {name}" for name, number in sorted(counted.items())
    )


def _without_probe(payload: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {name: value for name, value in payload["metrics"].items() if not is_probed(name)}
    return {**payload, "metrics": metrics}


def _read(paths: StudyPaths) -> _Source | None:
    try:
        manifest = Study.at(paths).manifest
        with Journal(paths.journal, read_only=True) as journal:
            return _Source(paths, manifest, journal.finished_keys())
    except _NOT_TO_BE_READ:
        return None
