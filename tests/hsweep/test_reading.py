"""What is read quickly of a record is what reading it entry by entry gives."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_studies import tables_of

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.tables import StudyTables, axis_kinds, reports_schema, trials_schema
from models.conditioning import is_probed

METRICS = ["nmse", "fit"]
COUNTS = {"num_params": 6, "flops_per_example": 12}
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBER = st.one_of(st.none(), st.floats(), st.integers(-5, 5))
NAMES = st.sampled_from([*METRICS, "other", "condition_number", "condition_number_layer_01"])


@st.composite
def recorded(draw: st.DrawFn) -> list[tuple[TrialRow, list[Report], TrialStatus | None, str]]:
    """Trials with whatever a record can hold."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        axis = st.one_of(st.integers(1, 3), st.booleans(), st.none(), TEXT, st.floats(0, 1))
        point = {"heads": draw(st.integers(1, 2)), "act": draw(axis)}
        row = TrialRow(
            f"{draw(st.sampled_from(['k', '1' * 19, '9e9']))}{number}", number, point, number % 2,
            draw(TEXT), 9, COUNTS if draw(st.booleans()) else {"num_params": number},
        )  # fmt: skip
        units = draw(st.lists(st.integers(1, 9), max_size=4, unique=True))
        reports = [
            Report(
                unit,
                draw(st.integers(0, 2**40)),
                draw(st.dictionaries(NAMES, NUMBER, max_size=3)),
                draw(st.floats(0, 1e9)),
                is_last=False,
                train_seconds=draw(st.floats(0, 1e9)),
                latency_seconds=draw(st.one_of(st.none(), st.floats(0, 9))),
                micro_batch=draw(st.one_of(st.none(), st.integers(1, 8))),
                note=draw(TEXT),
            )
            for unit in units
        ]
        ended = st.sampled_from([TrialStatus.FINISHED, TrialStatus.DIVERGED])
        found.append((row, reports, draw(st.one_of(st.none(), ended)), draw(TEXT)))
    return found


def write(journal: Journal, told: Sequence[Any]) -> None:
    journal.add_trials(row for row, *_ in told)
    for row, reports, status, reason in told:
        for report in reports:
            journal.record(row.key, 1, report)
        if status is not None:
            journal.set_status(row.key, 1, status, reason)


def entry_by_entry(
    journal: Journal, metrics: list[str], *, orphaned: bool
) -> tuple[pa.Table, pa.Table]:
    """Return the tables of a study by their definition."""
    rows = journal.trials(orphaned=orphaned)
    shown = {row.key for row in rows}
    entries = [entry for entry in journal.reports() if entry.key in shown]
    reported = {name for entry in entries for name in entry.payload["metrics"]}
    besides = [name for name in reported - set(metrics) if is_probed(name)]
    metrics = [*metrics, *sorted(besides, key=lambda name: (len(name), name))]
    last: dict[str, Mapping[str, Any]] = {}
    reports = []
    for entry in entries:
        last[entry.key] = told = entry.payload
        reports.append(
            {
                "key": entry.key, "unit": entry.unit, "attempt": entry.attempt, "time": entry.time,
                "step": told["step"], "wall_seconds": told["wall_seconds"],
                "micro_batch": told.get("micro_batch"), "note": told.get("note"),
                **{metric: told["metrics"].get(metric) for metric in metrics},
            }
        )  # fmt: skip
    axes = axis_kinds([row.point for row in rows])
    trials = []
    for row in rows:
        told = last.get(row.key, {"metrics": {}})
        point = {
            axis: value if kinds != "string" or value is None or isinstance(value, str)
            else json.dumps(value)
            for axis, kinds in axes.items()
            for value in [row.point.get(axis)]
        }  # fmt: skip
        trials.append(
            {
                "key": row.key, "study": "mine", "ordinal": row.ordinal, **point,
                "seed": row.replicate, "stratum": row.stratum, "status": str(row.status),
                "reason": row.reason, "orphaned": row.orphaned or None, "attempt": row.attempt,
                "failures": row.failures, "reused_from": row.reused_from or None,
                "micro_batch": told.get("micro_batch"), "reached": row.unit, "budget": row.budget,
                **{metric: told["metrics"].get(metric) for metric in metrics}, **row.counts,
                "wall_seconds": row.wall_seconds,
                **{name: told.get(name) for name in ("train_seconds", "latency_seconds")},
                "data_seconds": told.get("data_seconds"),
            }
        )  # fmt: skip
    schema = trials_schema(axes, metrics, orphaned=orphaned)
    return (
        pa.Table.from_pylist(trials, schema=schema),
        pa.Table.from_pylist(reports, schema=reports_schema(metrics)),
    )


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether tables are the same to the bit; NaN is itself."""
    return found.schema == expected.schema and all(
        repr(a.to_pylist()) == repr(b.to_pylist())
        for a, b in zip(found.columns, expected.columns, strict=True)
    )


@settings(deadline=None, max_examples=50)
@given(recorded(), st.booleans(), st.booleans())
def test_tables_are_what_entry_by_entry_gives(
    told: list[Any], orphaned: bool, probed: bool
) -> None:
    metrics = [*METRICS, *(["condition_number"] if probed else [])]
    with TemporaryDirectory() as folder, Journal(Path(folder) / "j", create=True) as journal:
        write(journal, told)
        journal.append(journal.removal_entries([row.key for row, *_ in told[:1]], "gone"))
        trials, reports = entry_by_entry(journal, metrics, orphaned=orphaned)
        found = tables_of(journal, metrics, orphaned=orphaned)
        # Without a probe no report is read for columns that only a probe has.
        assert same(found[0], trials if probed else trials.select(found[0].column_names))
        assert same(found[1], reports)
        tables = StudyTables(journal, "mine", metrics, orphaned=orphaned)
        assert tables.reported == set(reports["key"].to_pylist())
        few = sorted(tables.reported)[:2]
        listed = reports.to_pandas().query("key in @few").sort_values("key", kind="stable")
        columns = ["key", "unit", "nmse"]
        expected = listed[columns].reset_index(drop=True)
        pd.testing.assert_frame_equal(tables.reports_of(few)[columns], expected)


@settings(deadline=None, max_examples=20)
@given(recorded())
def test_totals_are_the_sums_over_the_trials(told: list[Any]) -> None:
    with TemporaryDirectory() as folder, Journal(Path(folder) / "j", create=True) as journal:
        write(journal, told)
        journal.append(journal.removal_entries([row.key for row, *_ in told[:1]], "gone"))
        everything = journal.trials(orphaned=True)
        rows = [row for row in everything if not row.orphaned]
        totals = journal.totals()
        for status in TrialStatus:
            assert totals[status] == sum(row.status == status for row in rows)
        assert totals["trials"] == len(rows)
        assert totals["orphaned"] == len(everything) - len(rows)
        assert totals["units_done"] == sum(row.unit for row in rows)
        assert totals["budget"] == max((row.budget for row in rows), default=0)
        assert totals["wall_seconds"] == pytest.approx(sum(row.wall_seconds for row in rows))
