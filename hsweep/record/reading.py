"""A study's tables, each read once and only when it is asked for, all as of one instant.

A report is a row of the record. Of a large study most questions need the last one of each trial
alone, or those of a few trials, so the whole log is read only for what does need it.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hsweep.record.journal_reader import ORIGIN_META, JournalReader
from hsweep.record.rows import TrialRow
from hsweep.record.summary import SEARCH_END
from hsweep.record.tables import frame, is_probed, reports_schema, reports_table, trials_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class StudyTables:
    """What a study has recorded, as tables.

    Args:
        journal: the record, within a snapshot for as long as this is used.
        orphaned: also trials that are no longer part of the study, with a column that says why.
    """

    def __init__(
        self, journal: JournalReader, study: str, metrics: Sequence[str], *, orphaned: bool = False
    ) -> None:
        self._journal = journal
        self._study = study
        self._metrics = list(metrics)
        self._orphaned = orphaned

    @cached_property
    def trials(self) -> "pa.Table":
        metrics = self._metrics
        if any(map(is_probed, metrics)):
            # How many layers were probed is known only from all reports.
            metrics = self.reports.column_names[len(reports_schema(()).names) :]
        return trials_table(self._columns, self._study, metrics, orphaned=self._orphaned)

    def trials_frame(self) -> "pd.DataFrame":
        return frame(self.trials)

    @cached_property
    def reports(self) -> "pa.Table":
        """The table of all reports, in the order they were recorded."""
        return reports_table(self._journal.report_batches(), self._metrics, self._keys)

    @cached_property
    def reported(self) -> frozenset[str]:
        return self._journal.reported_keys() & self._keys

    def history(self, metric: str) -> "pd.DataFrame":
        """Return ``key``, ``unit`` and a metric of all reports, as a pandas frame of its own."""
        only = ("key", "unit", metric)
        batches = self._journal.report_batches()
        return frame(reports_table(batches, self._metrics, self._keys, only))

    def reports_of(self, keys: Collection[str]) -> "pa.Table":
        return reports_table(self._journal.report_batches(keys), self._metrics, self._keys)

    def notes(self) -> dict[str, tuple[str, ...]]:
        """Return the notes of the trials that have any, in the order they were recorded."""
        found: dict[str, list[str]] = {}
        for entry in self._journal.remarked_reports():
            if entry.key in self._keys and (note := entry.payload.get("note")):
                found.setdefault(entry.key, []).append(str(note))
        return {key: tuple(notes) for key, notes in found.items()}

    @property
    def search_end(self) -> str | None:
        """Why an adaptive search proposed fewer points than it was asked for; None if it did
        not."""
        return self._journal.meta(SEARCH_END)

    @property
    def num_runs(self) -> int:
        """Trials that will have been started when the study is complete."""
        return self._journal.num_runs()

    @property
    def last_seq(self) -> int:
        """The newest entry of the record that is read."""
        return self._journal.last_seq()

    def orphaned_counts(self) -> dict[str, int]:
        return self._journal.orphaned_counts()

    def mixed_versions(self) -> list[str]:
        return mixed_versions_lines(self._journal, self._columns["key"])

    @cached_property
    def rows(self) -> list[TrialRow]:
        """The trials, in the order of the plan."""
        return self._journal.trials(orphaned=self._orphaned)

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(self._columns["key"])

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return self._journal.trial_columns(orphaned=self._orphaned)


def mixed_versions_lines(journal: JournalReader, keys: Iterable[str] | None = None) -> list[str]:
    """Return which of the trials with these keys (None: all on record) were trained with which
    versions; nothing where all had the same."""
    if len(journal.metas(ORIGIN_META)) < 2:
        return []
    texts = journal.origins()
    versions = [
        [json.loads(text)["versions"] for text in texts[key]]
        for key in (texts if keys is None else keys)
        if key in texts
    ]
    found: dict[str, set[str]] = {}
    for each in (one for of_trial in versions for one in of_trial):
        for name, version in each.items():
            found.setdefault(name, set()).add(version)
    names = [name for name, different in found.items() if len(different) > 1]
    counted = Counter(filter(None, (_in_words(of_trial, names) for of_trial in versions)))
    if len(counted) < 2:
        return []
    parts = [
        f"{number} trial{'' if number == 1 else 's'} with {words}"
        for words, number in counted.items()
    ]
    return [f"trained with different versions: {'; '.join(parts)}"]


def _in_words(versions: Sequence[Mapping[str, str]], names: Sequence[str]) -> str:
    each = [", ".join(f"{name} {one[name]}" for name in names if name in one) for one in versions]
    return ", later ".join(dict.fromkeys(filter(None, each)))
