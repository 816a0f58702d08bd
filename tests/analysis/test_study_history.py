"""A study's own reports say how its stopped trials were stopped."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny import tiny_sweep
from tiny_studies import new_study, recording

from analysis.ask import answer_study
from analysis.questions.transition.history import study_history
from analysis.questions.transition.result import TransitionResult
from hsweep import Sweep, Transition, grid
from hsweep.design.trial import Report, TrialStatus
from hsweep.paths import Home
from hsweep.record.study import Study


def stopped_study(home: Home) -> tuple[Study, Sweep]:
    """Six replicates of four widths; the worse three of each stop after one of three epochs. The
    error collapses at three."""
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4]), replicates=6,
        question=Transition(x="width", by=None),
    )  # fmt: skip
    study = new_study(home, sweep=sweep)
    rng = np.random.default_rng(0)
    with recording(study, sweep) as (journal, trials):
        cells: dict[int, list[float]] = {}
        ends = {}
        for trial in trials:
            level = -1.0 - 0.3 * trial.point.width - 1.5 * (trial.point.width >= 3)
            ends[trial.key] = level + 0.1 * rng.standard_normal()
            cells.setdefault(trial.point.width, []).append(ends[trial.key])
        for trial in trials:
            goes_on = ends[trial.key] <= sorted(cells[trial.point.width])[2]
            attempt = journal.begin_attempt(trial.key)
            for epoch in (1, 2, 3) if goes_on else (1,):
                nmse = 10 ** (ends[trial.key] + 0.2 * (3 - epoch))
                status = TrialStatus.RUNNING if epoch < 3 else TrialStatus.FINISHED
                if not goes_on:
                    status = TrialStatus.STOPPED_EARLY
                report = Report(epoch, 4 * epoch, {"nmse": nmse, "fit": 0.0}, 1.0, epoch == 3)
                journal.record(trial.key, attempt, report, nmse, status)
    return study, sweep


def test_a_study_brings_its_own_history(tmp_path: Path) -> None:
    study, _ = stopped_study(Home(tmp_path / "home"))
    result = answer_study(study).result(TransitionResult)
    assert result is not None
    assert (result.h_star, result.reading) == (3, "attainable")
    assert {(cell.started, cell.complete, cell.pruned) for cell in result.counts} == {(6, 3, 3)}
    assert result.pruning is not None
    assert result.pruning.competition == "within_cells"
    assert [(rung.budget, rung.stopped) for rung in result.pruning.rungs] == [(1, 12)]
    assert result.pruning.rungs[0].improvement == pytest.approx(0.4)


def test_a_history_is_taken_only_where_one_budget_is_full() -> None:
    trials = pd.DataFrame({"key": ["a", "b", "c"], "status": ["finished"] * 2 + ["stopped_early"]})
    reports = pd.DataFrame(
        {"key": ["a", "a", "b", "c", "x"], "unit": [1, 3, 3, 1, 9], "nmse": [0.3, 0.1, 0.2, 0.9, 1]}
    )
    told = study_history(trials, reports, "nmse")
    assert told is not None
    assert told["key"].tolist() == ["a", "a", "b", "c"]
    longer = reports.assign(unit=[1, 3, 6, 1, 9])
    assert study_history(trials, longer, "nmse") is None
    assert study_history(trials.assign(status="finished"), reports, "nmse") is None
    assert study_history(trials, reports[reports["key"] != "b"], "nmse") is None
