"""Made-up studies have the trials they are asked for, and the benchmark runs end to end."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.large_studies import KINDS, Kind, make_trials, write_study
from hsweep.design.trial import TrialStatus
from hsweep.paths import Home


@pytest.mark.parametrize("kind", KINDS)
def test_a_made_up_study_has_its_trials_and_what_they_reported(tmp_path: Path, kind: Kind) -> None:
    study = write_study(Home(tmp_path / "home"), kind, 30, 10, "made-up")
    made = list(make_trials(kind, 30, 10))
    with study.journal() as journal:
        assert {row.key: row.status for row in journal.trials()} == {
            trial.row.key: trial.status for trial in made
        }
        reports = [
            (entry.key, entry.unit, entry.payload["metrics"][study.manifest.metric])
            for entry in journal.reports()
        ]
    assert sorted(reports) == sorted(
        (trial.row.key, unit, error)
        for trial in made
        for unit, error in enumerate(trial.errors, start=1)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_some_trials_do_not_reach_their_end(kind: Kind) -> None:
    statuses = {trial.status for trial in make_trials(kind, 2000, 5)}
    ends = {TrialStatus.FINISHED, TrialStatus.FAILED, TrialStatus.DIVERGED}
    assert statuses == ends | ({TrialStatus.STOPPED_EARLY} if kind == "transition" else set())


@pytest.mark.slow
def test_the_benchmark_of_analysis_runs() -> None:
    ran = CliRunner().invoke(main, ["analysis", "--quick"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.output.strip().splitlines()[-1])
    assert {each["name"].partition(":")[0] for each in told["quantities"]} == set(KINDS)
    assert all(each["value"] > 0 for each in told["quantities"])
