"""The examples, trained: stopped early, and killed and resumed to the numbers of an undisturbed
trial."""

import importlib.util
import json
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_runs import EXAMPLES, RunOnDisk, train, train_in_a_process

from hsweep.training.own.run import StopTrial

pytestmark = [
    # Of Lightning 2.6 on torch 2.13.
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)`"),
    pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers"),
]

BUDGET = 3
WEIGHTS = {
    "function_digits": "state.pt",
    "lightning_digits": "lightning.ckpt",
    "trainer_gpt2": "model.safetensors",
}
NEEDED = {"lightning_digits": "lightning", "trainer_gpt2": "accelerate"}


@pytest.fixture(scope="module", autouse=True)
def one_thread_and_a_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HSWEEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(threads)


@pytest.fixture(params=list(WEIGHTS), scope="module")
def name(request: pytest.FixtureRequest) -> str:
    """Of an example whose libraries are installed."""
    name: str = request.param
    library = NEEDED.get(name, "torch")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    return name


@pytest.fixture(scope="module")
def undisturbed(name: str, tmp_path_factory: pytest.TempPathFactory) -> RunOnDisk:
    return train(name, tmp_path_factory.mktemp(name), {"budget": BUDGET})


def weights(name: str, run: RunOnDisk) -> dict[str, torch.Tensor]:
    assert run.checkpoint is not None
    file = run.checkpoint / WEIGHTS[name]
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(file)
    states = torch.load(file)
    found: dict[str, torch.Tensor] = states.get("model") or states["state_dict"]
    return found


def test_a_trial_reports_every_epoch_and_learns(undisturbed: RunOnDisk) -> None:
    reports = undisturbed.reports
    assert [report["unit"] for report in reports] == [1, 2, 3]
    losses = [value for report in reports for key, value in report.items() if key.endswith("loss")]
    assert len(losses) == BUDGET
    assert losses == sorted(losses, reverse=True)


def test_a_trial_that_is_stopped_trains_no_further(
    name: str, undisturbed: RunOnDisk, tmp_path: Path
) -> None:
    options = {"budget": BUDGET, "stops_at": 1}
    if name in NEEDED:
        run = train(name, tmp_path, options)  # the library's training ends, and returns
        assert run.reports == undisturbed.reports[:1]
    else:
        with pytest.raises(StopTrial):
            train(name, tmp_path, options)


def test_a_trial_that_was_killed_goes_on_to_the_same_numbers_and_weights(
    name: str, undisturbed: RunOnDisk, tmp_path: Path
) -> None:
    killed = train_in_a_process(name, tmp_path, {"budget": BUDGET, "dies_at": 2})
    assert killed == -signal.SIGKILL
    resumed = RunOnDisk(tmp_path, BUDGET)
    assert resumed.reports == undisturbed.reports[:1]

    resumed = train(name, tmp_path, {"budget": BUDGET})
    assert resumed.reports == undisturbed.reports
    ours, theirs = weights(name, resumed), weights(name, undisturbed)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


class TestThePlainScript:
    """Which knows nothing of sweeps."""

    KILLED = """
import os, runpy, signal, sys
from pathlib import Path

replace = Path.replace

def replace_once(path, target):
    if target.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(path, target)

Path.replace = replace_once
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    SCRIPT = EXAMPLES / "plain_script.py"

    @staticmethod
    def options(out: Path, *more: object) -> list[str]:
        return ["--epochs", str(BUDGET), "--out", str(out), *map(str, more)]

    @staticmethod
    def log(out: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]

    def run(self, monkeypatch: pytest.MonkeyPatch, out: Path, *more: object) -> None:
        monkeypatch.setattr(sys, "argv", [str(self.SCRIPT), *self.options(out, *more)])
        runpy.run_path(str(self.SCRIPT), run_name="__main__")

    def test_it_resumes_after_a_kill_to_the_same_numbers(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
        self.run(monkeypatch, undisturbed)
        # In the second epoch, whose line is written and whose checkpoint is not.
        command = [sys.executable, "-c", self.KILLED, str(self.SCRIPT), *self.options(disturbed)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert [line["epoch"] for line in self.log(disturbed)] == [1, 2]

        self.run(monkeypatch, disturbed, "--resume", disturbed / "checkpoint.pt")
        first, second, *rest = self.log(disturbed)
        assert [first, *rest] == self.log(undisturbed)
        assert second == rest[0]
