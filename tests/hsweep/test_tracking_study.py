"""What an MLflow store shows of a study as a whole, and of what its trials were made of."""

import contextlib
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow_stores import Kill, Killed, Tracked, client, report

from hsweep.design.trial import TrialStatus
from hsweep.record.journal import TrialRow
from hsweep.record.weights import FinalWeights
from hsweep.tracking.contents import NOTE, STUDY_ID, WEIGHTS, study_tags
from hsweep.tracking.tracker import TrackingSummary
from hsweep.tracking.ui import VIEW_TAG

FINISHED = TrialStatus.FINISHED
STUDY: dict[str, Any] = {
    "description": "Is one head enough?",
}
ANSWER = {
    "kind": "transition", "answer": "It collapses at 3.", "verdict": "transition",
    "qualifications": ["one seed only"], "settle_command": "hsweep run",
    "numbers": {"h_star": 3.0, "drop": 2.5},
}  # fmt: skip


def plan(tracked: Tracked, key: str, **point: Any) -> None:
    parts = {"recipe": "r1"}
    number = len(tracked.journal.trials())
    tracked.journal.add_trials([TrialRow(key, number, point, 0, "", 8, {"num_params": 9}, parts)])


def sync(tracked: Tracked, **options: Any) -> TrackingSummary:
    tracked.study = replace(tracked.study, **STUDY)
    return tracked.sync(**options)


def write_answer(tracked: Tracked, seconds: int, **changes: Any) -> Path:
    path = tracked.path.parent / "analysis.json"
    path.write_text(json.dumps({**ANSWER, **changes}))
    os.utime(path, (seconds, seconds))
    return path


def test_runs_are_called_by_what_varies_and_keep_the_name_that_a_user_gives(
    tracked: Tracked,
) -> None:
    for key, heads in (("a", 1), ("b", 2)):
        plan(tracked, key, heads=heads, seq_len=8)
        report(tracked.journal, key, range(1, 3), FINISHED)
    sync(tracked)
    runs = tracked.runs
    assert [runs[key].info.run_name for key in "ab"] == ["heads=1 #0", "heads=2 #0"]
    client(tracked.target).update_run(runs["b"].info.run_id, name="my favourite")
    plan(tracked, "c", heads=2, seq_len=16)
    report(tracked.journal, "c", range(1, 3), FINISHED)
    sync(tracked)
    assert [tracked.runs[key].info.run_name for key in "abc"] == [
        "heads=1 #0", "my favourite", "heads=2 seq_len=16 #0",
    ]  # fmt: skip


def test_a_run_has_its_recipe_among_its_parameters(tracked: Tracked) -> None:
    plan(tracked, "a", heads=1, lr=0.5)
    recipe = {"lr": 0.5, "batch_size": 64, "optimizer_args": {"eps": 1e-6}}
    tracked.journal.set_metas({"recipe:r1": json.dumps(recipe)})
    report(tracked.journal, "a", range(1, 3), FINISHED)
    for _ in range(2):
        sync(tracked)
        tracked.state_file.unlink()
    run = tracked.runs["a"]
    assert run.data.params == {
        "heads": "1", "lr": "0.5", "replicate": "0", "epochs": "8", "num_params": "9",
        "batch_size": "64", "optimizer_args.eps": "1e-06",
    }  # fmt: skip


def test_the_studys_run_holds_the_answer_and_leaves_what_a_user_writes(tracked: Tracked) -> None:
    plan(tracked, "a", heads=1)
    assert sync(tracked) == TrackingSummary(0, 0)
    assert tracked.runs["parent"].data.tags[NOTE].endswith("Is one head enough?")
    figures = tracked.path.parent / "figures"
    figures.mkdir()
    (figures / "drop.png").write_bytes(b"a figure")
    for _ in range(2):
        sync(tracked, artifacts=[write_answer(tracked, 1_000), figures / "drop.png"])
        tracked.state_file.unlink()
    parent = tracked.runs["parent"]
    note, run_id = parent.data.tags[NOTE], parent.info.run_id
    settle = "To settle it: `hsweep run`"
    assert note.startswith(f"**It collapses at 3.**\n\n- one seed only\n\n{settle}\n\n[All tri")
    assert note.endswith("Is one head enough?")
    assert parent.data.tags["hsweep.verdict"] == "transition"
    assert parent.data.metrics == {"h_star": 3.0, "drop": 2.5}
    assert tracked.history("parent", "h_star") == [(0, 1_000_000, 3.0)]
    mlflow = client(tracked.target)
    paths = [each.path for each in mlflow.list_artifacts(run_id)]
    assert paths == ["analysis.json", "figures"]
    assert [each.path for each in mlflow.list_artifacts(run_id, "figures")] == ["figures/drop.png"]

    mlflow.log_metric(run_id, "mine", 1.0)
    later = {"verdict": None, "numbers": {"drop": 0.5}, "answer": "There is none."}
    sync(tracked, artifacts=[write_answer(tracked, 2_000, **later)])
    parent = tracked.runs["parent"]
    assert parent.data.tags[NOTE].startswith("**There is none.**")
    assert parent.data.tags["hsweep.verdict"] == ""
    assert (parent.data.metrics["drop"], parent.data.metrics["mine"]) == (0.5, 1.0)
    assert math.isnan(parent.data.metrics["h_star"])

    mlflow.set_tag(run_id, NOTE, "see my talk")
    sync(tracked, artifacts=[write_answer(tracked, 3_000)])
    parent = tracked.runs["parent"]
    assert parent.data.tags[NOTE] == "see my talk"
    assert parent.data.metrics == {"h_star": 3.0, "drop": 2.5, "mine": 1.0}


def test_the_pages_have_a_view_of_the_trials_until_a_user_deletes_it(tracked: Tracked) -> None:
    mlflow = client(tracked.target)

    def views() -> dict[str, str]:
        experiment = mlflow.get_experiment(tracked.state.experiment)
        return {name: v for name, v in experiment.tags.items() if name.startswith(VIEW_TAG)}

    plan(tracked, "a", heads=1)
    sync(tracked)
    ((name, view),) = views().items()
    assert name == f"{VIEW_TAG}{study_tags(tracked.study)[STUDY_ID]}"
    assert json.loads(view)["name"] == "heads-1"
    state = json.loads(json.loads(view)["state"])
    assert state["orderByKey"] == "metrics.`nmse`"
    assert {chart["type"] for chart in state["compareRunCharts"]} == {"LINE", "SCATTER", "PARALLEL"}
    mlflow.delete_experiment_tag(tracked.state.experiment, name)
    sync(tracked)
    assert views() == {}


class TestWeights:
    @pytest.fixture
    def weights(self, tracked: Tracked, tmp_path: Path) -> FinalWeights:
        plan(tracked, "a", heads=1, lr=0.5)
        report(tracked.journal, "a", range(1, 4), FINISHED)
        file = tmp_path / "a-00001.safetensors"
        file.write_bytes(b"weights")
        return FinalWeights("a", file.name, str(file))

    def copies(self, tracked: Tracked) -> list[str]:
        run_id = tracked.runs["a"].info.run_id
        return [each.path for each in client(tracked.target).list_artifacts(run_id, "weights")]

    def test_a_run_names_the_weights_while_they_are_kept_and_has_a_copy_on_request(
        self, tracked: Tracked, weights: FinalWeights
    ) -> None:
        for _ in range(2):
            assert sync(tracked, weights=[weights]).is_complete
            assert tracked.runs["a"].data.tags[WEIGHTS] == weights.location
            assert self.copies(tracked) == [], "the weights stay where they are"
            tracked.state_file.unlink()
        sync(tracked, weights=[])
        assert WEIGHTS not in tracked.runs["a"].data.tags
        copied = replace(weights, file=Path(weights.location))
        for _ in range(2):
            assert sync(tracked, weights=[copied]).is_complete
            assert self.copies(tracked) == [f"weights/{weights.name}"]
        sync(tracked, weights=[])
        assert len(self.copies(tracked)) == 1, "what was copied stays"

    def test_a_kill_after_any_single_call_to_the_store_does_no_harm(
        self, tracked: Tracked, weights: FinalWeights, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weights = replace(weights, file=Path(weights.location))
        kill = Kill(
            monkeypatch,
            *("set_tag", "log_artifact", "set_experiment_tag", "log_batch"),
        )
        kills, is_done = 0, False
        while not is_done:
            kill.calls_left = kills + 1
            with contextlib.suppress(Killed):
                done = sync(tracked, weights=[weights], artifacts=[write_answer(tracked, 1_000)])
                is_done = done.is_complete and kill.calls_left > 0
            kills += not is_done
            if not is_done:
                with contextlib.suppress(ValueError):
                    tracked.state_file.unlink()
        assert kills == 5, "a run with weights takes five calls once it exists"
        monkeypatch.undo()
        run = tracked.runs["a"]
        assert run.data.tags[WEIGHTS] == weights.location
        assert self.copies(tracked) == [f"weights/{weights.name}"]
        assert tracked.history("parent", "h_star") == [(0, 1_000_000, 3.0)]
