"""Delivery to TensorBoard and W&B, read back by their own packages."""

import json
import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from tiny_studies import new_study, recording

from hsweep.design.trial import Report, TrialStatus
from hsweep.paths import Home
from hsweep.record.study import StudyFolder
from hsweep.tracking.target import FURTHER
from hsweep.tracking.tracker import Tracker

_BLOCK, _WHOLE, _LAST = 32768, 1, 4

Invoke = Callable[..., Result]
Curves = dict[str, dict[int, float]]
"""By the label of a trial: the error by unit."""


def train(study: StudyFolder, units: range, *, is_last: bool = False) -> None:
    """Report each unit of every trial; the first fails at the end, the others finish."""
    with recording(study) as (journal, trials):
        for trial in trials:
            if units.start == 1:
                journal.begin_attempt(trial.key)
            for unit in units:
                status = TrialStatus.RUNNING
                if is_last and unit == units[-1]:
                    is_first = trial.key == trials[0].key
                    status = TrialStatus.FAILED if is_first else TrialStatus.FINISHED
                report = Report(unit, 10 * unit, {"nmse": 1 / unit}, 0.5 * unit, False)
                journal.record(trial.key, 1, report, status)


def deliver(study: StudyFolder, kind: str) -> None:
    summary = Tracker(study.paths.journal, FURTHER[kind], study.manifest).sync()
    assert summary.is_complete, summary


def transactions(file: Path) -> Iterator[bytes]:
    """Yield the records of W&B's file: a log of LevelDB's form behind a header of 7 bytes."""
    data, at, begun = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if _BLOCK - at % _BLOCK < 7:
            at += _BLOCK - at % _BLOCK
            continue
        _checksum, length, kind = struct.unpack_from("<IHB", data, at)
        begun += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (_WHOLE, _LAST):
            yield begun
            begun = b""


def assert_whole(curves: Curves, units: range) -> None:
    assert len(curves) == 3
    for label, curve in curves.items():
        assert curve == pytest.approx({unit: 1 / unit for unit in units}), label


class TestTensorBoard:
    def curves(self, study: StudyFolder) -> Curves:
        """Read as TensorBoard does: every step once, or the test fails."""
        accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        curves: Curves = {}
        for folder in sorted(study.paths.tensorboard.iterdir()):
            reader = accumulators.EventAccumulator(str(folder))
            reader.Reload()
            scalars = reader.Scalars("nmse")
            curves[folder.name] = {scalar.step: scalar.value for scalar in scalars}
            assert len(curves[folder.name]) == len(scalars)
            assert "_hparams_/session_start_info" in reader.summary_metadata
        return curves

    def test_every_report_is_shown_once_however_often_it_is_sent(self, home: Home) -> None:
        study = new_study(home)
        train(study, range(1, 4))
        deliver(study, "tensorboard")
        state = study.paths.tracking_state("tensorboard")
        before = state.read_text()
        assert_whole(self.curves(study), range(1, 4))
        train(study, range(4, 9), is_last=True)
        deliver(study, "tensorboard")
        assert_whole(self.curves(study), range(1, 9))
        state.write_text(before)  # killed before it had noted the delivery
        deliver(study, "tensorboard")
        assert_whole(self.curves(study), range(1, 9))
        state.unlink()
        deliver(study, "tensorboard")
        assert_whole(self.curves(study), range(1, 9))


class TestWandb:
    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        wandb = pytest.importorskip("wandb")
        monkeypatch.setenv("WANDB_MODE", "offline")
        yield
        wandb.teardown()

    def runs(self, study: StudyFolder) -> tuple[Curves, dict[str, int], dict[str, str]]:
        """Read the files that ``wandb sync`` sends: curves, exit codes and groups by name."""
        from wandb.proto.wandb_internal_pb2 import Record

        names: dict[str, str] = {}
        curves: Curves = defaultdict(dict)
        codes: dict[str, int] = {}
        groups: dict[str, str] = {}
        for file in sorted(study.paths.wandb.glob("wandb/offline-run-*/*.wandb")):
            run_id = ""
            for data in transactions(file):
                record = Record.FromString(data)
                if record.HasField("run"):
                    run_id = record.run.run_id
                    names[run_id] = record.run.display_name
                    groups[names[run_id]] = record.run.run_group
                if record.HasField("history"):
                    items = {
                        item.key or ".".join(item.nested_key): json.loads(item.value_json)
                        for item in record.history.item
                    }
                    curves[names[run_id]][int(record.history.step.num)] = items["nmse"]
                if record.HasField("exit"):
                    codes[names[run_id]] = record.exit.exit_code
        assert len(names) == len(set(names.values()))
        return dict(curves), codes, groups

    def test_trials_are_runs_of_the_studys_group_also_where_they_go_on(self, home: Home) -> None:
        study = new_study(home)
        train(study, range(1, 4))
        deliver(study, "wandb")
        train(study, range(4, 9), is_last=True)
        deliver(study, "wandb")
        curves, codes, groups = self.runs(study)
        assert_whole(curves, range(1, 9))
        assert sorted(codes.values()) == [0, 0, 1]
        assert set(groups.values()) == {study.name}

    def test_a_run_shows_its_trials_everywhere_and_stays_with_the_places(
        self, home: Home, hsweep: Invoke, sweep_file: Path
    ) -> None:
        run = ("run", sweep_file, "--study", "mine", "--runner", "inline", "--no-check")
        done = hsweep(*run, "--track", "wandb", "--track", "tensorboard")
        assert done.exit_code == 0, done.output
        study = StudyFolder.open(home, "mine")
        assert study.manifest.track == ["wandb", "tensorboard"]
        curves, codes, _ = self.runs(study)
        assert TestTensorBoard().curves(study).keys() == {
            f"{label} {key[:8]}" for label, key in labels_and_keys(study)
        }
        assert curves.keys() == {label for label, _ in labels_and_keys(study)}
        assert set(codes.values()) == {0}
        rows = json.loads(hsweep("sync", "mine", "--json").stdout)
        assert [row["delivered"] for row in rows] == [0, 0, 0]
        assert [row["store"] for row in rows[1:]] == ["W&B", "TensorBoard"]
        assert all(row["complete"] for row in rows)

    def test_without_a_key_nothing_begins(
        self, home: Home, hsweep: Invoke, sweep_file: Path, monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.setenv("NETRC", str(tmp_path / "none"))
        monkeypatch.delenv("WANDB_API_KEY", raising=False)
        refused = hsweep("run", sweep_file, "--runner", "inline", "--track", "wandb")
        assert refused.exit_code == 2
        assert "--track wandb has no key: set WANDB_API_KEY" in refused.stderr
        assert not list(home.studies.glob("*"))


def test_a_place_that_is_recorded_and_cannot_be_used_keeps_nothing_waiting(
    home: Home, hsweep: Invoke, monkeypatch: pytest.MonkeyPatch, sweep_file: Path
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "hsweep.tracking.wandb_runs", raising=False)
    new_study(home, track=["wandb", "tensorboard"])
    done = hsweep("sync", "mine", "--tracking-uri", home.default_tracking_uri, "--json")
    assert done.exit_code == 1, done.output
    rows = {row["store"]: row for row in json.loads(done.stdout)}
    assert [row["complete"] for row in rows.values()] == [True, False, True]
    assert "pip install 'hsweep[wandb]'" in rows["W&B"]["error"]


def test_a_place_whose_package_is_missing_is_refused_with_what_to_install(
    home: Home, hsweep: Invoke, sweep_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "hsweep.tracking.wandb_runs", raising=False)
    refused = hsweep("run", sweep_file, "--runner", "inline", "--track", "wandb")
    assert refused.exit_code == 2
    assert "pip install 'hsweep[wandb]'" in refused.stderr
    assert not list(home.studies.glob("*"))


def labels_and_keys(study: StudyFolder) -> list[tuple[str, str]]:
    from hsweep.record.rows import labels_of

    with study.journal() as journal:
        labels = labels_of(journal.trials())
    return [(label, key) for key, label in labels.items()]
