"""Nothing trained twice: what another study of the home has finished is taken from there."""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from mlflow import MlflowClient
from tiny import tiny_sweep
from tiny_runs import planned
from tiny_studies import new_study

from hsweep import Sweep, lean, seconds
from hsweep.coordination.recording import planned_row
from hsweep.design.trial import Report, Trial, TrialStatus
from hsweep.paths import Home
from hsweep.planning.code_changes import code_metas
from hsweep.planning.identity import describe, origin_text
from hsweep.record.journal import LogRow, TrialRow
from hsweep.record.log import segment_file
from hsweep.record.study import StudyFolder
from hsweep.record.tables import mixed_versions_lines
from hsweep.running.reuse import Reuse
from hsweep.workspace import load_sweep
from models.conditioning import METRICS as PROBED
from models.conditioning import Conditioning

Invoke = Callable[..., Result]


def finish(
    study: StudyFolder,
    *trials: Trial,
    units: tuple[int, ...] = (1, 2, 3),
    origin: str | None = None,
) -> None:
    """Record trials as if they had trained, what a probe reports included where there is one.

    With ``origin``, as if code and versions had been those."""
    probed = dict.fromkeys(PROBED, 2.0) if study.manifest.probe else {}
    with study.writer() as journal:
        for trial in trials:
            attempt = journal.begin_attempt(trial.key, origin or trial.origin)
            for unit in units:
                value = trial.ordinal + 1 / unit
                journal.record(
                    trial.key,
                    attempt,
                    Report(unit, 4 * unit, {"nmse": value, "fit": 0.5, **probed}, 1.0, unit == 3),
                    TrialStatus.FINISHED if unit == units[-1] else TrialStatus.RUNNING,
                )


def rows(study: StudyFolder) -> dict[str, TrialRow]:
    with study.journal() as journal:
        return {row.key: row for row in journal.trials()}


def reports(study: StudyFolder, key: str) -> list[LogRow]:
    with study.journal() as journal:
        return list(journal.reports([key]))


def take(study: StudyFolder, sweep: Sweep, **how: Any) -> tuple[frozenset[str], Reuse]:
    """Ask for all of a study's trials."""
    with study.writer() as journal:
        reuse = Reuse(journal, study, sweep.probe, **how)
        return reuse(planned(sweep)), reuse


class TestWhatIsTaken:
    def test_a_finished_trial_is_in_both_records_with_the_same_reports(self, home: Home) -> None:
        sweep = tiny_sweep()
        one, other = planned(sweep)[0], planned(sweep)[2]
        finish(new_study(home, "before", sweep), one, other)
        study = new_study(home, "mine", sweep)
        found, reuse = take(study, sweep)
        assert found == {one.key, other.key}
        assert reuse.lines(3) == [
            "2 of 3 trials taken from study before (trained there); --no-reuse trains again"
        ]
        row = rows(study)[one.key]
        assert (row.status, row.reused_from, row.unit) == (TrialStatus.FINISHED, "before", 3)
        assert row.attempt == 0
        assert row.metrics.get("nmse") == pytest.approx(1 / 3)
        told = [(each.unit, each.time, each.payload) for each in reports(study, one.key)]
        there = StudyFolder.open(home, "before")
        assert told == [(each.unit, each.time, each.payload) for each in reports(there, one.key)]

    def test_only_what_ran_to_its_end(self, home: Home) -> None:
        sweep = tiny_sweep()
        trials = planned(sweep)
        before = new_study(home, "before", sweep)
        with before.writer() as journal:
            for trial, status in zip(
                trials, (TrialStatus.STOPPED_EARLY, TrialStatus.DIVERGED), strict=False
            ):
                attempt = journal.begin_attempt(trial.key)
                report = Report(1, 4, {"nmse": 0.5, "fit": 0.5}, 1.0, is_last=False)
                journal.record(trial.key, attempt, report, status)
        assert take(new_study(home, "mine", sweep), sweep)[0] == frozenset()

    def test_the_study_that_trained_it_is_named_however_often_it_was_taken(
        self, home: Home
    ) -> None:
        sweep = tiny_sweep()
        trial = planned(sweep)[0]
        first = new_study(home, "first", sweep)
        finish(first, trial)
        take(new_study(home, "second", sweep), sweep)
        shutil.rmtree(first.paths.root)
        third = new_study(home, "third", sweep)
        take(third, sweep)
        assert rows(third)[trial.key].reused_from == "first"

    def test_several_studies_are_named_with_their_numbers(self, home: Home) -> None:
        sweep = tiny_sweep()
        trials = planned(sweep)
        finish(new_study(home, "a", sweep), trials[0])
        finish(new_study(home, "b", sweep), trials[1], trials[2])
        _, reuse = take(new_study(home, "mine", sweep), sweep)
        (line,) = reuse.lines(3)
        assert "taken from other studies: 1 from a, 2 from b (trained there)" in line

    def test_a_running_study_is_read_too(self, home: Home) -> None:
        sweep = tiny_sweep()
        trial = planned(sweep)[1]
        before = new_study(home, "before", sweep)
        finish(before, trial)
        with before.writer():
            assert take(new_study(home, "mine", sweep), sweep)[0] == {trial.key}

    def test_of_a_restricted_run_only_the_trials_asked_for(self, home: Home) -> None:
        sweep = tiny_sweep()
        trials = planned(sweep)
        finish(new_study(home, "before", sweep), *trials)
        study = new_study(home, "mine", sweep)
        only = frozenset({trials[1].key})
        assert take(study, sweep, only=only)[0] == only


class TestWhatIsNotTaken:
    def test_a_trial_that_has_begun_here(self, home: Home) -> None:
        sweep = tiny_sweep()
        trials = planned(sweep)
        finish(new_study(home, "before", sweep), *trials)
        study = new_study(home, "mine", sweep)
        with study.writer() as journal:
            attempt = journal.begin_attempt(trials[0].key)
            report = Report(1, 4, {"nmse": 9.0, "fit": 0.0}, 1.0, is_last=False)
            journal.record(trials[0].key, attempt, report)
            journal.set_status(trials[0].key, attempt, TrialStatus.PLANNED, "interrupted")
        assert take(study, sweep)[0] == {trials[1].key, trials[2].key}
        assert rows(study)[trials[0].key].metrics["nmse"] == 9.0

    def test_budgets_in_seconds(self, home: Home) -> None:
        sweep = tiny_sweep(budget=seconds(3, report_every=1))
        finish(new_study(home, "before", sweep), *planned(sweep))
        assert take(new_study(home, "mine", sweep), sweep)[0] == frozenset()

    def test_reports_with_a_gap(self, home: Home) -> None:
        sweep = tiny_sweep()
        finish(new_study(home, "before", sweep), planned(sweep)[0], units=(1, 3))
        assert take(new_study(home, "mine", sweep), sweep)[0] == frozenset()

    def test_anything_where_times_are_compared_and_the_user_is_told_why(self, home: Home) -> None:
        sweep = tiny_sweep(
            question=lean({"width": 3}, margin=0.1, costs=("num_params", "latency_seconds"))
        )
        finish(new_study(home, "before", sweep), *planned(sweep))
        found, reuse = take(new_study(home, "mine", sweep), sweep)
        assert found == frozenset()
        (line,) = reuse.lines(3)
        assert line.startswith("3 of 3 trials are finished in other studies and still trained here")
        assert "latency_seconds" in line

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda study: segment_file(study.paths.journal, 1).write_bytes(b"no journal"),
            lambda study: segment_file(study.paths.journal, 1).unlink(),
        ],
        ids=["garbled journal", "no journal"],
    )
    def test_a_study_that_cannot_be_read_is_passed_over(
        self, home: Home, spoil: Callable[[StudyFolder], Any]
    ) -> None:
        sweep = tiny_sweep()
        trials = planned(sweep)
        broken = new_study(home, "broken", sweep)
        finish(broken, *trials)
        finish(new_study(home, "whole", sweep), trials[0])
        spoil(broken)
        study = new_study(home, "mine", sweep)
        assert take(study, sweep)[0] == {trials[0].key}
        assert rows(study)[trials[0].key].reused_from == "whole"


OWN = """from dataclasses import dataclass
from tiny import TinyModel, tiny_sweep

@dataclass(frozen=True)
class Net(TinyModel):
    def build(self):
        return super().build()

SWEEP = tiny_sweep(model=lambda p: Net(p.width))
"""


class TestCodeAndVersions:
    """What code and which versions trained a result decides whether it is taken."""

    @pytest.fixture
    def load(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Sweep]:
        monkeypatch.setattr(sys, "path", list(sys.path))

        def loaded(source: str) -> Sweep:
            path = tmp_path / "question.py"
            path.write_text(source)
            return load_sweep(path).sweep

        return loaded

    CHANGED = OWN.replace("super().build()", "super().build().eval()")

    def test_results_of_other_code_are_not_taken_and_the_file_is_named(
        self, home: Home, load: Callable[[str], Sweep]
    ) -> None:
        before = load(OWN)
        study = new_study(home, "before", before)
        finish(study, *planned(before))
        with study.writer() as journal:
            journal.set_metas(code_metas(planned(before)))
        sweep = load(self.CHANGED)
        found, reuse = take(new_study(home, "mine", sweep), sweep)
        assert found == frozenset()
        assert reuse.lines(3) == [
            "3 of 3 trials trained although finished by study before: the model code "
            "(the sweep file) has changed since; --accept-code takes them all the same"
        ]

    def test_another_sweep_over_the_same_axes_is_no_older_state_of_this_one(
        self, home: Home, load: Callable[[str], Sweep]
    ) -> None:
        before = load(OWN)
        finish(new_study(home, "before", before), *planned(before))
        sweep = load(self.CHANGED.replace("tiny_sweep(", "tiny_sweep(name='other', "))
        for accepts_code in (False, True):
            study = new_study(home, f"mine-{accepts_code}", sweep)
            found, reuse = take(study, sweep, accepts_code=accepts_code)
            assert (found, reuse.lines(3)) == (frozenset(), [])

    def test_they_are_when_that_is_accepted_and_a_third_study_is_asked_again(
        self, home: Home, load: Callable[[str], Sweep]
    ) -> None:
        before = load(OWN)
        finish(new_study(home, "before", before), *planned(before))
        sweep = load(self.CHANGED)
        mine = new_study(home, "mine", sweep)
        found, _ = take(mine, sweep, accepts_code=True)
        assert len(found) == 3
        (entry,) = mine.manifest.accepted
        assert (entry["what"], entry["trials"]) == ("before", 3)
        assert list(entry["files"]) == ["model_code"]
        with mine.journal() as journal:
            told = journal.origins()
        there = {trial.parts["model_code"] for trial in planned(before)}
        assert {json.loads(text)["code"]["model_code"] for (text,) in told.values()} == there
        third = new_study(home, "third", sweep)
        shutil.rmtree(StudyFolder.open(home, "before").paths.root)
        assert take(third, sweep)[0] == frozenset()
        # The code that did train them is the code of the first: there they are taken.
        assert len(take(new_study(home, "fourth", before), before)[0]) == 3

    def test_a_study_that_holds_the_results_of_both_is_asked_for_the_right_one(
        self, home: Home, load: Callable[[str], Sweep]
    ) -> None:
        before, sweep = load(OWN), load(self.CHANGED)
        study = new_study(home, "before", before)
        (one, *_), (other, *_) = planned(before), planned(sweep)
        with study.writer() as journal:
            journal.add_trials([planned_row(other)])
        finish(study, other, one)
        for asked, how in ((before, {}), (sweep, {}), (before, {"accepts_code": True})):
            study = new_study(home, "mine", asked)
            (first, *_) = planned(asked)
            found, _ = take(study, asked, **how)
            assert (found, [*study.manifest.accepted]) == ({first.key}, [])
            shutil.rmtree(study.paths.root)

    def test_results_of_the_same_code_are_taken_first(
        self, home: Home, load: Callable[[str], Sweep]
    ) -> None:
        before = load(OWN)
        finish(new_study(home, "before", before), *planned(before))
        sweep = load(self.CHANGED)
        finish(new_study(home, "same", sweep), planned(sweep)[0])
        _, reuse = take(new_study(home, "mine", sweep), sweep, accepts_code=True)
        assert Counter(reuse.trained_by.values()) == {"before": 2, "same": 1}

    @pytest.mark.parametrize("accepts_code", [False, True])
    def test_results_of_other_versions_are_not_taken_and_the_user_is_told(
        self, home: Home, accepts_code: bool
    ) -> None:
        sweep = tiny_sweep()
        one, *others = planned(sweep)
        study = new_study(home, "before", sweep)
        now = json.loads(one.origin)
        assert {"python", "torch", "numpy"} <= now["versions"].keys()
        finish(study, one, origin=origin_text(now["code"], {**now["versions"], "torch": "0.4"}))
        finish(study, *others)
        found, reuse = take(new_study(home, "mine", sweep), sweep, accepts_code=accepts_code)
        assert found == {trial.key for trial in others}
        torch = now["versions"]["torch"]
        assert reuse.lines(3)[1] == (
            "1 of 3 trials trained although finished by study before: trained with torch "
            f"0.4 there, torch {torch} here"
        )

    def test_a_study_says_which_versions_it_mixes(self, home: Home) -> None:
        sweep = tiny_sweep()
        one, other, third = planned(sweep)
        study = new_study(home, "mine", sweep)
        now = json.loads(one.origin)
        earlier = origin_text(now["code"], {**now["versions"], "torch": "0.4"})
        with study.writer() as journal:
            keys = [one.key, other.key, third.key]
            journal.begin_attempt(one.key, earlier)
            assert mixed_versions_lines(journal, keys) == []
            journal.begin_attempt(one.key, one.origin)
            journal.begin_attempt(other.key, earlier)
            journal.begin_attempt(third.key, third.origin)
            torch = now["versions"]["torch"]
            assert mixed_versions_lines(journal, keys) == [
                f"trained with different versions: torch 0.4 (2 trials), torch {torch} (2 trials)"
            ]
        with study.reading() as tables:
            assert len(mixed_versions_lines(tables.journal)) == 1


class TestProbes:
    PROBED = replace(tiny_sweep(), probe=Conditioning(every=1))

    def probed_study(self, home: Home, name: str, probe: Conditioning | None = None) -> StudyFolder:
        sweep = replace(self.PROBED, probe=probe or self.PROBED.probe)
        metrics = ["nmse", "fit", *PROBED]
        return new_study(home, name, sweep, metrics=metrics, probe=describe(sweep.probe))

    @pytest.mark.parametrize(("every", "number"), [(None, 0), (2, 0), (1, 3)])
    def test_only_what_the_same_probe_measured_is_taken(
        self, home: Home, every: int | None, number: int
    ) -> None:
        if every is None:
            before = new_study(home, "before", tiny_sweep())
        else:
            before = self.probed_study(home, "before", Conditioning(every=every))
        finish(before, *planned(self.PROBED))
        assert len(take(self.probed_study(home, "mine"), self.PROBED)[0]) == number

    def test_what_this_study_did_not_ask_for_stays_there(self, home: Home) -> None:
        finish(self.probed_study(home, "before"), *planned(self.PROBED))
        study = new_study(home, "mine", tiny_sweep())
        (key, *_), _ = take(study, tiny_sweep())
        assert set(reports(study, key)[-1].payload["metrics"]) == {"nmse", "fit"}


SWEEP = """from hsweep import grid
from tiny import tiny_sweep
SWEEP = tiny_sweep(space=grid(width=[{widths}]))
"""


class TestOnTheCommandLine:
    @pytest.fixture
    def sweep(self, tmp_path: Path) -> Callable[[str], Path]:
        def write(widths: str) -> Path:
            path = tmp_path / "question.py"
            path.write_text(SWEEP.format(widths=widths))
            return path

        return write

    def run(self, hsweep: Invoke, path: Path, name: str, *more: str) -> Result:
        result = hsweep("run", path, "--runner", "inline", "--study", name, *more)
        assert result.exit_code == 0, result.output
        return result

    def test_a_second_study_trains_only_what_is_new(
        self, hsweep: Invoke, home: Home, sweep: Callable[[str], Path]
    ) -> None:
        self.run(hsweep, sweep("1, 2"), "first")
        result = self.run(hsweep, sweep("1, 2, 3"), "second")
        said = "2 of 3 trials taken from study first (trained there); --no-reuse trains again"
        assert said in result.stdout
        assert "3 finished (2 taken from study first)" in result.stdout
        second = rows(StudyFolder.open(home, "second"))
        assert sorted((row.point["width"], row.reused_from) for row in second.values()) == [
            (1, "first"),
            (2, "first"),
            (3, ""),
        ]
        assert [row.attempt for row in second.values()] == [0, 0, 1]
        shown = hsweep("show", "second").stdout
        assert "2 taken from study first" in shown
        assert "(2 reused)" in hsweep("list").stdout
        page = StudyFolder.open(home, "second").paths.report.read_text()
        assert "<b>2 taken from study first (trained there)</b>: width=1, width=2" in page
        listed = json.loads(hsweep("show", "second", "--json").stdout)["trials_list"]
        assert [row["reused_from"] for row in listed] == ["first", "first", None]

        store = MlflowClient(tracking_uri=home.default_tracking_uri)
        (experiment,) = [e for e in store.search_experiments() if e.name == "tiny"]
        runs = store.search_runs(
            [experiment.experiment_id],
            "tags.`hsweep.study` = 'second' and tags.`hsweep.trial` != ''",
        )
        origin = "hsweep.reused_from"
        origins = {run.data.params["width"]: run.data.tags.get(origin) for run in runs}
        assert origins == {"1": "first", "2": "first", "3": None}
        for run in runs:
            history = store.get_metric_history(run.info.run_id, "nmse")
            assert (run.info.status, sorted(point.step for point in history)) == (
                "FINISHED", [1, 2, 3],
            )  # fmt: skip

    def test_what_was_taken_of_other_code_is_recorded_and_shown(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        path = tmp_path / "question.py"
        one = OWN.replace("tiny_sweep(model", "tiny_sweep(space=grid(width=[2]), model")
        one = f"from hsweep import grid\n{one}"
        path.write_text(one)
        study = new_study(home, "first", load_sweep(path).sweep)
        finish(study, *planned(load_sweep(path).sweep))
        path.write_text(one.replace("super().build()", "super().build().eval()"))
        self.run(hsweep, path, "second", "--accept-code")
        line = "1 trial taken from study first although the model code had changed"
        assert line in hsweep("show", "second").stdout
        shown = json.loads(hsweep("show", "second", "--json").stdout)
        (entry,) = shown["accepted"]
        assert (entry["what"], entry["trials"], entry["time"] > 0) == ("first", 1, True)
        assert (
            "accepted changes of code" in StudyFolder.open(home, "second").paths.report.read_text()
        )

    def test_what_a_search_proposes_is_looked_up_as_well(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        path = tmp_path / "question.py"
        path.write_text("from tiny_searches import adaptive\nSWEEP = adaptive(3)\n")
        self.run(hsweep, path, "first")
        result = self.run(hsweep, path, "second")
        assert "3 finished (3 taken from study first)" in result.stdout
        first, second = (rows(StudyFolder.open(home, name)) for name in ("first", "second"))
        assert {key: row.metrics.get("nmse") for key, row in first.items()} == {
            key: row.metrics.get("nmse") for key, row in second.items()
        }
        assert {row.attempt for row in second.values()} == {0}

    def test_no_reuse_trains_all_and_stays_so_on_resume(
        self, hsweep: Invoke, home: Home, sweep: Callable[[str], Path]
    ) -> None:
        self.run(hsweep, sweep("1, 2"), "first")
        ended_early = ("--runner", "inline", "--study", "second", "--time-budget", "0.000001")
        hsweep("run", sweep("1, 2"), *ended_early, "--no-reuse")
        result = hsweep("resume", "second", "--runner", "inline")
        assert result.exit_code == 0, result.output
        assert "taken from" not in result.stdout
        first, second = (rows(StudyFolder.open(home, name)) for name in ("first", "second"))
        assert {row.reused_from for row in second.values()} == {""}
        assert 0 not in {row.attempt for row in second.values()}
        assert {key: row.metrics.get("nmse") for key, row in first.items()} == {
            key: row.metrics.get("nmse") for key, row in second.items()
        }
