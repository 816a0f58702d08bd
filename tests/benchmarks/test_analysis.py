"""The made-up studies are what the tool would have recorded, and the benchmark runs end to end."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.large_studies import KINDS, Kind, make_trials, payload_of, write_study
from hsweep.design.trial import Report, TrialStatus
from hsweep.paths import Home
from hsweep.record.journal import Journal


@pytest.mark.parametrize("kind", KINDS)
def test_a_made_up_study_is_what_the_record_itself_would_have_written(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = write_study(Home(tmp_path / "home"), kind, 30, 10, "made-up")
    metric = study.manifest.metric
    clock: Iterator[float] = iter(range(1_750_000_000, 1_760_000_000))
    monkeypatch.setattr(time, "time", lambda: next(clock) + 0.25)
    with Journal(tmp_path / "journal.db", create=True) as expected:
        made = list(make_trials(kind, 30, 10))
        expected.add_trials(trial.row for trial in made)
        for trial in made:
            attempt = expected.begin_attempt(trial.row.key)
            for unit, error in enumerate(trial.errors, start=1):
                told = payload_of(metric, unit, error)
                is_last = unit == len(trial.errors)
                expected.record(
                    trial.row.key,
                    attempt,
                    Report(unit, is_last=False, **told),
                    trial.status if is_last else TrialStatus.RUNNING,
                    trial.reason if is_last else "",
                )
        with study.journal() as found:
            assert found.trials() == expected.trials()
            assert found.totals() == expected.totals()
            logs = []
            for journal in (found, expected):
                log = [replace(entry, seq=0, time=0.0) for entry in journal.log()]
                logs.append(sorted(log, key=lambda entry: entry.key))  # stable: in its own order
            assert logs[0] == logs[1]
    statuses = {trial.status for trial in make_trials(kind, 2000, 5)}
    assert len(statuses) == (4 if kind == "transition" else 3)


@pytest.mark.slow
def test_the_benchmark_of_analysis_runs() -> None:
    ran = CliRunner().invoke(main, ["analysis", "--quick"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.output.strip().splitlines()[-1])
    assert {each["name"].partition(":")[0] for each in told["quantities"]} == set(KINDS)
    assert all(each["value"] > 0 for each in told["quantities"])
