"""The winner's weights: which stay is what the record says, and they give the numbers it has."""

import itertools
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from mlflow import MlflowClient
from object_store import KEYS, object_store
from safetensors.torch import load_file
from stepped_trial import to_the_end
from task_contract import measured
from text_tables import sentences, write_table
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned
from tiny_studies import manifest, new_study, trained

import hsweep as public
from hsweep import (
    Asha,
    Point,
    Recipe,
    Run,
    Sweep,
    UserError,
    command,
    grid,
    lean,
)
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import planned_row
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import TrialStatus
from hsweep.paths import Home, weights_file
from hsweep.planning.options import SweepOptions
from hsweep.planning.prepare import prepare
from hsweep.python import Study
from hsweep.record.weights import WeightsFolder, WeightsKeeper
from hsweep.training.opening import data_of

Invoke = Callable[..., Result]
CPU = torch.device("cpu")

MODELS = {
    "vit": (
        'Images(data="digits")',
        "ViT(embed_dim=16, depth=1, heads=2, image_size=8, patch_size=4, in_chans=1,"
        " num_classes=10)",
    ),
    "gpt2": (
        'Stories("{folder}", seq_len=24, vocab_size=300)',
        "Decoder(embed_dim=16, depth=1, heads=2, seq_len=24, vocab_size=300, dropout=0.2)",
    ),
}
"""Of each family a task and a model, as a sweep file has them."""

FAMILY = '''"""A model of the library."""
from hsweep import Sweep, grid, steps
from models.decoder import Decoder
from models.vit import ViT
from tasks.language.stories import Stories
from tasks.vision.images import Images

SWEEP = Sweep(
    name="tiny", space=grid(width=[1]), task={task}, model={model},
    budget=steps(6, report_every=3), keep="last",
)
'''

TINY = '''"""Widths."""
from tiny import tiny_sweep

assert callable(tiny_sweep)  # which is done whenever the file is imported

SWEEP = tiny_sweep({options})
'''

BESIDE = """
from dataclasses import dataclass
from torch import nn

@dataclass(frozen=True)
class Beside:
    width: int
    def build(self):
        return nn.Sequential(nn.Linear(3, self.width), nn.{activation}(), nn.Linear(self.width, 3))
    def example_input(self):
        import torch
        return torch.zeros(1, 3)
"""

OWN_CLASSES = '''"""Classes of the user's own."""
from dataclasses import dataclass
from beside_sweep import Beside
from tiny import tiny_sweep
from torch import nn

@dataclass(frozen=True)
class Here(Beside):
    """In the sweep file itself."""

SWEEP = tiny_sweep(
    model=lambda point: (Here if point.width == 1 else Beside)(point.width), keep="last"
)
'''


def train(point: Point, run: Run) -> None:
    """Training by a function, whose checkpoint is a folder of texts."""
    for epoch in range(1, run.budget + 1):
        folder = run.folder / "state" / "inner"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.txt").write_text(f"{point.width} after {epoch}")
        (folder / "empty").touch()
        run.report(epoch, run.folder / "state" if point.width < 3 else None, nmse=1 / point.width)


def run_here(home: Home, sweep: Sweep, **changes: Any) -> Study:
    """Run a sweep in this process, without the command line and MLflow."""
    study = new_study(home, "demo", sweep, keep=sweep.keep, **changes)
    with study.writer() as journal:
        coordinator = Coordinator(
            journal=journal,
            sweep=sweep,
            trials=planned(sweep),
            checkpoints=study.checkpoints(),
            keeper=WeightsKeeper(study.manifest, study.weights()),
        )
        InlineRunner().run(coordinator)
    return public.load("demo", home.root)


def names(home: Home, study: str = "demo") -> set[str]:
    """The files of a study's weights."""
    folder = home.study(study).weights
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def by_width(home: Home, study: str = "demo") -> dict[int, str]:
    """The keys of a tiny study's trials."""
    record = public.load(study, home.root)._record
    with record.journal() as journal:
        return {row.point["width"]: row.key for row in journal.trials()}


def kept_widths(home: Home, study: str = "demo") -> set[int]:
    keys = {name.partition("-")[0] for name in names(home, study)}
    return {width for width, key in by_width(home, study).items() if key in keys}


def weights_in_mlflow(home: Home, study: str) -> dict[str, list[str]]:
    """The files of weights in MLflow, by the trial's key, of the runs that name weights."""
    client = MlflowClient(home.default_tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], f"tags.`hsweep.study` = '{study}'")
    return {
        run.data.tags["hsweep.trial"]: [
            Path(each.path).name for each in client.list_artifacts(run.info.run_id, "weights")
        ]
        for run in runs
        if "hsweep.weights" in run.data.tags
    }


class TestWhatIsLoaded:
    @pytest.mark.parametrize("family", ["vit", "gpt2"])
    def test_a_loaded_model_gives_the_numbers_of_the_last_report(
        self, family: str, home: Home, tmp_path: Path
    ) -> None:
        for split, count in (("train", 60), ("validation", 20)):
            write_table(tmp_path / "texts", split, {"text": sentences(count)})
        task, model = MODELS[family]
        source = FAMILY.replace("{task}", task.format(folder=tmp_path / "texts"))
        trained(home.root, tmp_path, source.replace("{model}", model))
        study = public.load("demo", home.root)
        ((key, _),) = study._record.weights().sizes()
        with study._record.journal() as journal:
            (*_, last) = journal.reports([key])
        (trial,) = prepare(tmp_path / "sweep.py", SweepOptions()).plan.trials
        with torch.no_grad():
            found = measured(data_of(trial, CPU), study.trial(key[:9]).load_model())
        # How much was seen in training is no number of the model's.
        assert {**found, "tokens_seen": 0.0} == {**last.payload["metrics"], "tokens_seen": 0.0}

    def test_classes_of_the_user_are_found_and_a_changed_one_is_told(
        self, home: Home, tmp_path: Path
    ) -> None:
        beside = tmp_path / "beside_sweep.py"
        beside.write_text(BESIDE.replace("{activation}", "ReLU"))
        trained(home.root, tmp_path, OWN_CLASSES)
        (tmp_path / "sweep.py").unlink()  # the record has it
        # As in a new process, which has imported none of it.
        program = (
            "import sys, hsweep\n"
            "for key in sys.argv[2:]:\n"
            "    trial = hsweep.load('demo', sys.argv[1]).trial(key)\n"
            "    try:\n"
            "        print(type(trial.load_model()[1]).__name__, trial.point['width'])\n"
            "    except hsweep.UserError as error:\n"
            "        print(error)\n"
        )

        def loaded() -> tuple[list[str], str]:
            keys = by_width(home)
            done = subprocess.run(
                [sys.executable, "-c", program, str(home.root), keys[1], keys[2]],
                capture_output=True,
                text=True,
                check=True,
                env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
            )
            return done.stdout.splitlines(), done.stderr

        assert loaded() == (["ReLU 1", "ReLU 2"], "")
        changed = BESIDE.replace("{activation}", "GELU").replace(
            "width, 3)", "width, 2 + self.width)"
        )
        beside.write_text(changed)
        (same_shape, other_shape), told = loaded()
        assert same_shape == "GELU 1"
        assert told.count("model code (beside_sweep.py) has changed since") == 1
        assert "do not go into the model" in other_shape
        assert "(changed since: model code (beside_sweep.py))" in other_shape


class TestWhichStay:
    def test_the_best_and_the_baseline_and_none_that_was_stopped(
        self, home: Home, tmp_path: Path, hsweep: Invoke
    ) -> None:
        sweep = tiny_sweep(
            keep="best",
            space=grid(width=[1, 2, 3, 4]),
            question=lean({"width": 1}, margin=0.1),
            early_stopping=Asha(grace=1, reduction_factor=3, min_survivors=1),
        )
        study = run_here(home, sweep)
        with study._record.journal() as journal:
            rows = {row.point["width"]: row for row in journal.trials()}
        finished = [row for row in rows.values() if row.status is TrialStatus.FINISHED]
        assert len(finished) < 4, "nothing was stopped early"
        others = [row for row in finished if row.point["width"] != 1]
        best = min(others, key=lambda row: row.metrics.get("nmse"))
        assert kept_widths(home) == {1, best.point["width"]}
        shown = json.loads(hsweep("show", "demo", "--json").stdout)["weights"]
        assert shown["kept"] == sorted(
            (rows[1].key, best.key), key=[row.key for row in rows.values()].index
        )
        assert shown["missing"] == []
        sizes = [path.stat().st_size for path in home.study("demo").weights.iterdir()]
        assert shown["bytes"] == sum(sizes)
        assert best.key[:9] in hsweep("show", "demo").stdout
        stopped = next(row for row in rows.values() if row.status is TrialStatus.STOPPED_EARLY)
        refused = hsweep("model", "demo", stopped.key, "--out", tmp_path / "out")
        assert refused.exit_code == 2
        assert "stopped_early" in refused.output

    @pytest.mark.parametrize("order", [*itertools.permutations(range(4))][::5])
    def test_what_stays_depends_on_no_order_and_no_interruption(
        self, order: tuple[int, ...], tmp_path: Path
    ) -> None:
        sweep = tiny_sweep(keep="best", replicates=2, question=lean({"width": 1}, margin=0.1))
        trials, asked = planned(sweep)[:4], manifest("demo", sweep, keep="best")
        values = [0.3, 0.2, 0.2, None]
        folder = tmp_path / "weights"
        folder.mkdir()
        for interrupted_after in range(5):
            for path in folder.iterdir():
                path.unlink()
            rows = [planned_row(trial) for trial in trials]
            keeper = WeightsKeeper(asked, WeightsFolder(str(folder)))
            for count, number in enumerate(order):
                row = rows[number]
                row.attempt = 2
                row.unit, row.last = 3, {"metrics": {sweep.metric: values[number]}}
                row.status = TrialStatus.FINISHED
                for attempt in (1, 2):
                    (folder / weights_file(row.key, attempt)).touch()
                if count < interrupted_after:
                    keeper.ended(row)
            (folder / weights_file("t" + "0" * 20, 1)).touch()
            again = WeightsKeeper(asked, WeightsFolder(str(folder)))
            again.recall(rows)
            # Trials 0 and 1 are the baseline's; of equal ones the first of the plan stays.
            assert {path.name for path in folder.iterdir()} == {
                weights_file(trials[1].key, 2),
                weights_file("t" + "0" * 20, 1),
            }

    def test_a_driver_killed_between_file_and_record_leaves_what_the_record_says(
        self, home: Home, tmp_path: Path, hsweep: Invoke
    ) -> None:
        (tmp_path / "sweep.py").write_text(TINY.replace("{options}", 'keep="best"'))
        program = (
            "import os, signal, sys\n"
            "from hsweep.cli import main\n"
            "from hsweep.record.journal import Journal\n"
            "record, finished = Journal.record, []\n"
            "def dying(self, key, attempt, report, *others):\n"
            "    if report.is_last:\n"
            "        finished.append(key)\n"
            "        if len(finished) == 2:\n"
            "            os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return record(self, key, attempt, report, *others)\n"
            "Journal.record = dying\n"
            "main(sys.argv[1:])\n"
        )
        arguments = ["run", tmp_path / "sweep.py", "--runner", "inline", "--study", "demo"]
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments), "--home", str(home.root)],
            env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == -9, done.stderr
        assert len(names(home)) == 2
        keys = by_width(home)
        assert hsweep("model", "demo", keys[2], "--out", tmp_path / "out").exit_code == 2
        resumed = hsweep("resume", "demo", "--runner", "inline")
        assert resumed.exit_code == 0, resumed.output
        study = public.load("demo", home.root)
        best = min(keys.values(), key=lambda key: study.trial(key).value)
        assert names(home) == {weights_file(best, study.trial(best)._row.attempt)}

    def test_weights_that_cannot_be_written_pause_the_study_before_the_trial_counts_as_finished(
        self, home: Home, tmp_path: Path, hsweep: Invoke
    ) -> None:
        (tmp_path / "sweep.py").write_text(TINY.replace("{options}", 'keep="last"'))
        run = ("run", tmp_path / "sweep.py", "--runner", "inline", "--study", "demo")
        assert hsweep(*run, "--set", "keep=none").exit_code == 0
        home.study("demo").weights.write_text("in the way")
        edited = hsweep(*run, "--set", "keep=last", "--set", "replicates=2")
        assert "paused: weights in" in edited.output
        assert edited.exit_code == 1
        home.study("demo").weights.unlink()
        resumed = hsweep("resume", "demo", "--runner", "inline")
        assert resumed.exit_code == 0
        assert len(names(home)) == 3
        assert "not there, although keep=last" in resumed.output

    def test_an_attempt_that_only_sends_its_last_report_again_has_weights_of_its_own(
        self, tmp_path: Path
    ) -> None:
        # Its checkpoint at the end is kept, since a longer budget may go on from there.
        trial = planned(tiny_sweep(recipe=Recipe(schedule="constant", batch_size=8)))[0]
        assert trial.branch_point
        for attempt in (1, 2):
            assignment = replace(
                assignment_of(trial, tmp_path / "checkpoints", attempt=attempt),
                weights=str(tmp_path / "weights"),
            )
            to_the_end(assignment)
            names = [path.name for path in (tmp_path / "weights").iterdir()]
            assert names == [weights_file(trial.key, attempt)]


class TestOwnTraining:
    def test_a_functions_last_checkpoint_is_given_back_as_files(
        self, home: Home, tmp_path: Path, hsweep: Invoke
    ) -> None:
        sweep = tiny_sweep(task=None, model=None, recipe=Recipe(), train=train, keep="last")
        study = run_here(home, sweep, training="train")
        keys = by_width(home)
        assert kept_widths(home) == {1, 2}
        assert hsweep("model", "demo", keys[2], "--out", tmp_path / "out").exit_code == 0
        inner = tmp_path / "out" / "inner"
        assert (inner / "weights.txt").read_text() == "2 after 3"
        assert (inner / "empty").read_bytes() == b""
        with pytest.raises(UserError, match="how its model is built is not known here"):
            study.trial(keys[2]).load_model()
        with pytest.raises(UserError, match="its last report gave no checkpoint"):
            study.trial(keys[3]).load_model()

    def test_a_command_keeps_its_own(self) -> None:
        with pytest.raises(UserError, match=r"a command gives none.*\{folder\}"):
            tiny_sweep(
                task=None,
                model=None,
                recipe=Recipe(),
                train=command("python x.py"),
                keep="best",
            )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("kept")
    return trained(
        folder / "home",
        folder,
        TINY.replace("{options}", ""),
        "--set",
        "keep=best",
        "--log-weights",
    )


class TestCommand:
    def test_it_writes_the_file_and_says_what_is_wrong_otherwise(
        self, study: Home, tmp_path: Path, hsweep: Invoke
    ) -> None:
        keys = by_width(study)
        (best,) = kept_widths(study)
        at = ("--home", study.root)
        out = tmp_path / "new" / "best.safetensors"
        assert hsweep("model", "demo", keys[best][:10], "--out", out, *at).exit_code == 0
        assert sum(each.numel() for each in load_file(out).values()) == 6 * best
        new = tmp_path / "other"
        for trial, place, words in (
            (keys[best], out, "exists; give another name, or --force"),
            ("t", new, "3 trials of demo are ("),
            ("x", new, "no trial is called 'x'"),
            (keys[3 - best % 2], new, "keep='best', and this trial is not the best"),
        ):
            refused = hsweep("model", "demo", trial, "--out", place, *at)
            assert (refused.exit_code, "Traceback" in refused.output) == (2, False)
            assert words in refused.output
        assert hsweep("model", "demo", keys[best], "--out", out, "--force", *at).exit_code == 0

    def test_what_another_study_has_trained_takes_its_weights_along(
        self, study: Home, tmp_path: Path, hsweep: Invoke
    ) -> None:
        (best,) = kept_widths(study)
        best_key = by_width(study)[best]
        (tmp_path / "sweep.py").write_text(TINY.replace("{options}", 'keep="last"'))
        arguments = ("run", tmp_path / "sweep.py", "--runner", "inline", "--study", "again")
        assert hsweep(*arguments, "--home", study.root).exit_code == 0
        assert names(study, "again") == {weights_file(best_key, 0)}
        again = public.load("again", study.root)
        again.trial(best_key).load_model()
        with pytest.raises(UserError, match="taken from study demo, which keeps none of it"):
            again.trial(by_width(study)[3 - best % 2]).load_model()
        # The first study was asked for artifacts when it ran, this one is only now.
        assert weights_in_mlflow(study, "demo") == {best_key: [weights_file(best_key, 1)]}
        assert weights_in_mlflow(study, "again") == {best_key: []}
        for _ in range(2):
            assert hsweep("sync", "again", "--log-weights", "--home", study.root).exit_code == 0
        assert weights_in_mlflow(study, "again") == {best_key: [weights_file(best_key, 0)]}
        refused = hsweep(*arguments, "--set", "keep=none", "--log-weights")
        assert refused.exit_code == 2
        assert "add --set keep=best" in refused.output

    def test_mlflow_has_the_recipe_of_every_trial(self, study: Home) -> None:
        client = MlflowClient(study.default_tracking_uri)
        experiment = client.get_experiment_by_name("tiny")
        assert experiment is not None
        wanted = "tags.`hsweep.study` = 'demo' AND tags.`hsweep.trial` != ''"
        runs = client.search_runs([experiment.experiment_id], wanted)
        assert {run.info.run_name for run in runs} == {f"width={n} #0" for n in by_width(study)}
        for run in runs:
            assert {"batch_size", "optimizer", "lr", "schedule"} <= run.data.params.keys()
            assert Path(run.data.tags["mlflow.source.name"]).suffix == ".py"


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with object_store("bucket") as held:
        yield held.uri()


def test_a_study_on_an_object_store_keeps_its_weights_there(
    stored: str, home: Home, tmp_path: Path, hsweep: Invoke
) -> None:
    trained(home.root, tmp_path, TINY.replace("{options}", 'keep="best"'), "--storage", stored)
    study = public.load("demo", home.root)
    folder = WeightsFolder(home.study("demo").stored(stored, home.study("demo").weights))
    ((key, attempt),) = folder.sizes()
    assert not home.study("demo").weights.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.trial(key).load_model()
    assert hsweep("model", "demo", key, "--out", tmp_path / "out").exit_code == 0
    folder.remove((key, attempt))
    assert folder.sizes() == {}
