"""The study as tables: declared columns, honest types, and files that read back the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from tiny_studies import tables_of

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.tables import EXPORT_FORMATS, axis_kinds, write_table

COUNTS = {
    "num_params": 6,
    "flops_per_example": 12,
    "train_flops_per_example": 36,
    "train_memory_bytes": 480,
}


def rows(*points: dict[str, Any]) -> list[TrialRow]:
    return [TrialRow(f"t{i}", i, p, i % 2, "s", 9, COUNTS) for i, p in enumerate(points)]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal", create=True) as journal:
        journal.add_trials(
            rows({"width": 1, "lr": 0.1, "act": "gelu"}, {"width": 2, "lr": 1, "act": None})
        )
        attempt = journal.begin_attempt("t0")
        metrics: list[dict[str, float | None]] = [{"nmse": 0.5, "fit": 0.5}, {"nmse": 0.2}]
        journal.record("t0", attempt, Report(3, 12, metrics[0], 1.5, False))
        journal.record(
            "t0",
            attempt,
            Report(9, 36, metrics[1], 4.5, True, train_seconds=3.5, data_seconds=0.5),
            TrialStatus.FINISHED,
        )
        attempt = journal.begin_attempt("t1")
        diverged = Report(3, 12, {"nmse": None, "fit": None}, 1.0, False, diverged_at=7)
        journal.record("t1", attempt, diverged, TrialStatus.DIVERGED, "not finite at step 7")
        yield journal


class TestTypes:
    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ([1, 2], "int64"),
            ([1, 2.5], "float64"),
            ([0.5], "float64"),
            ([True, False], "bool"),
            ([True, 1], "string"),
            (["a", "b"], "string"),
            (["a", 1], "string"),
            ([[0.9, 0.99]], "string"),
            ([None, 4], "int64"),
            ([None], "string"),
            ([2**63], "string"),
            ([-(2**63)], "int64"),
        ],
    )
    def test_an_axis_has_the_type_that_holds_all_its_values(
        self, values: list[Any], kind: str
    ) -> None:
        assert axis_kinds([{"a": value} for value in values]) == {"a": kind}

    def test_an_axis_of_only_some_points_is_missing_in_the_others(self) -> None:
        assert axis_kinds([{"a": 1}, {"b": True}]) == {"a": "int64", "b": "bool"}


class TestStudyTables:
    def test_a_row_says_what_became_of_a_trial(self, journal: Journal) -> None:
        trials, _ = tables_of(journal, ["nmse", "fit"])
        finished, diverged = trials.to_pylist()
        assert finished == {
            "key": "t0",
            "study": "mine",
            "ordinal": 0,
            "width": 1,
            "lr": 0.1,
            "act": "gelu",
            "seed": 0,
            "stratum": "s",
            "status": "finished",
            "reason": "",
            "attempt": 1,
            "failures": 0,
            "reused_from": None,
            "micro_batch": None,
            "reached": 9,
            "budget": 9,
            "nmse": 0.2,
            "fit": None,
            **COUNTS,
            "wall_seconds": 4.5,
            "train_seconds": 3.5,
            "data_seconds": 0.5,
            "latency_seconds": None,
        }
        assert (diverged["status"], diverged["reason"]) == ("diverged", "not finite at step 7")
        assert (diverged["nmse"], diverged["act"], diverged["lr"]) == (None, None, 1.0)

    def test_a_row_says_in_what_parts_a_batch_was_computed_how_often_it_failed_and_who_trained(
        self, journal: Journal
    ) -> None:
        journal.add_trials(rows({"width": 1}, {"width": 2}, {"width": 3}, {"width": 4}))
        attempt = journal.begin_attempt("t2")
        journal.set_status("t2", attempt, TrialStatus.PLANNED, "lost its way", failures=1)
        whole = Report(3, 12, {"nmse": 0.5}, 1.5, False)
        parts = Report(9, 36, {"nmse": 0.2}, 4.5, True, micro_batch=2, note="parts from step 20 on")
        attempt = journal.begin_attempt("t2")
        journal.record("t2", attempt, whole)
        journal.record("t2", attempt, parts, TrialStatus.FINISHED)
        told = list(journal.reports(["t2"]))
        journal.append(
            journal.adoption_entries("t3", told, status=TrialStatus.FINISHED, reused_from="theirs")
        )
        trials, reports = tables_of(journal, ["nmse"])
        found = {row["key"]: row for row in trials.to_pylist()}
        columns = ("failures", "micro_batch", "reused_from")
        assert [found["t2"][name] for name in columns] == [1, 2, None]
        assert [found["t3"][name] for name in columns] == [0, 2, "theirs"]
        assert [
            (row["unit"], row["micro_batch"], row["note"])
            for row in reports.to_pylist()
            if row["key"] == "t2"
        ] == [(3, None, None), (9, 2, "parts from step 20 on")]

    def test_reports_say_rate_norm_and_speed_unless_a_metric_has_the_name(
        self, journal: Journal
    ) -> None:
        journal.add_trials([TrialRow("t2", 2, {"width": 3}, 0, "s", 9, COUNTS)])
        attempt = journal.begin_attempt("t2")
        metrics = {"nmse": 0.5, "grad_norm": 7.0}
        said = Report(3, 12, metrics, 1.5, False, learning_rate=0.1, grad_norm=2.0)
        journal.record("t2", attempt, said)

        def row(*metrics: str) -> dict[str, Any]:
            _, reports = tables_of(journal, list(metrics))
            return next(row for row in reports.to_pylist() if row["key"] == "t2")

        names = ("learning_rate", "grad_norm", "examples_per_second")
        assert [row("nmse")[name] for name in names] == [0.1, 2.0, None]
        assert [row("nmse", "grad_norm")[name] for name in names] == [0.1, 7.0, None]


def read(path: Path, schema: pa.Schema) -> pa.Table:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    if path.suffix == ".csv":
        options = pyarrow.csv.ConvertOptions(column_types=schema, strings_can_be_null=True)
        return pyarrow.csv.read_csv(path, convert_options=options)
    return pa.Table.from_pylist(json.loads(path.read_text()), schema=schema)


class TestFiles:
    @pytest.mark.parametrize("ending", EXPORT_FORMATS)
    def test_a_table_reads_back_as_it_was(
        self, journal: Journal, tmp_path: Path, ending: str
    ) -> None:
        for number, table in enumerate(tables_of(journal, ["nmse", "fit"])):
            path = tmp_path / "new" / f"table-{number}{ending}"
            write_table(table, path)
            back = read(path, table.schema).to_pylist()
            if ending == ".csv":
                # A csv file has no difference between no reason and an empty one.
                back = [
                    {**row, "reason": row["reason"] or ""} if "reason" in row else row
                    for row in back
                ]
            assert back == table.to_pylist()
            assert [each.name for each in path.parent.iterdir()].count(path.name) == 1
        assert not list((tmp_path / "new").glob(".*"))
