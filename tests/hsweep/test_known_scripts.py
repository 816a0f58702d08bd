"""Training scripts that everybody knows are swept unchanged, as their readers would."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hsweep.paths import Home
from hsweep.record.study import StudyFolder

ROOT = Path(__file__).resolve().parents[2]
NANOGPT = ROOT.parent / "shared" / "scripts" / "nanogpt"

SWEEP = r"""
from hsweep import Asha, Sweep, command, grid, lean, steps, stdout

SWEEP = Sweep(
    name="nano",
    space=grid(n_head=[1, 2], n_layer=[1]),
    train=command(
        "python train.py config/train_shakespeare_char.py --device=cpu --compile=False "
        "--eval_iters=2 --eval_interval=10 --log_interval=10 --block_size=16 --batch_size=4 "
        "--n_embd=16 --max_iters={budget} --lr_decay_iters=40 --warmup_iters=5 --dropout=0.0 "
        "--always_save_checkpoint=True --n_layer={n_layer} --n_head={n_head} --out_dir={folder} "
        "{resume}",
        metrics=stdout(
            r"number of parameters: (?P<num_params>\S+)"
            r"|step (?P<step>\d+): train loss (?P<train>[\d.]+), val loss (?P<val>[\d.]+)"
        ),
        resume="--init_from=resume",
    ),
    metric="val",
    goal="min",
    budget=steps(20),
    early_stopping=Asha(grace=10),
    question=lean({"n_head": 2}, margin=0.2),
)
"""


def run_python(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not NANOGPT.is_dir(), reason="nanoGPT's training script is not here")
def test_nanogpt_is_swept_at_the_first_try(tmp_path: Path) -> None:
    folder = tmp_path / "nanogpt"
    shutil.copytree(NANOGPT, folder)
    texts = folder / "data" / "shakespeare_char"
    (texts / "input.txt").write_text((ROOT / "README.md").read_text("utf-8") * 3, "utf-8")
    run_python("prepare.py", cwd=texts)
    (folder / "nano.py").write_text(SWEEP, "utf-8")
    run_python(
        *("-m", "hsweep", "run", "nano.py", "--runner", "inline", "--study", "nano"),
        *("--home", str(tmp_path / "home")),
        cwd=folder,
    )
    study = StudyFolder.open(Home(tmp_path / "home"), "nano")
    with study.journal() as journal:
        reports = [(entry.unit, entry.payload["metrics"]) for entry in journal.reports()]
        rows = journal.trials()
    assert [str(row.status) for row in rows] == ["finished", "finished"]
    # What it measures at step 0, before training, is no report, and the last is that of step 20.
    assert [unit for unit, _ in reports] == [10, 20, 10, 20]
    assert {metrics["num_params"] for _, metrics in reports} == {0.0}
