"""Training scripts that everybody knows are swept unchanged, as their readers would."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from hsweep.paths import Home
from hsweep.record.study import StudyFolder

ROOT = Path(__file__).resolve().parents[2]
NANOGPT, TIMM = (ROOT.parent / "shared" / "scripts" / name for name in ("nanogpt", "timm"))

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

TIMM_SWEEP = """
from hsweep import Sweep, command, csv_file, epochs, grid, lean

SWEEP = Sweep(
    name="timm",
    space=grid(num_heads=[1, 2], depth=[1, 2]),
    train=command(
        "python train.py --data-dir DATA --model vit_tiny_patch16_224 --num-classes 10 "
        "--img-size 32 --input-size 3 32 32 --model-kwargs img_size=32 embed_dim=16 patch_size=8 "
        "num_heads={num_heads} depth={depth} --batch-size 32 --epochs {budget} --workers 1 "
        "--device cpu --opt adamw --lr 1e-3 --warmup-epochs 0 --sched cosine --seed {seed} "
        "--no-aug --output {folder} --experiment exp {resume}",
        metrics=csv_file("exp/summary.csv", unit="epoch"),
        resume="--resume {folder}/exp/last.pth.tar",
    ),
    metric="eval_top1",
    goal="max",
    budget=epochs(3),
    describe=lambda point: 3072 * point.depth,
    question=lean({"num_heads": 2, "depth": 2}, margin=5, scale="accuracy"),
)
"""


def run_python(*words: str, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
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


@pytest.mark.skipif(not TIMM.is_dir(), reason="timm's training script is not here")
def test_timm_is_swept_at_the_first_try(tmp_path: Path) -> None:
    folder = tmp_path / "timm"
    shutil.copytree(TIMM, folder)
    digits = load_digits()
    for at, (pixels, label) in enumerate(zip(digits.images[:120], digits.target, strict=False)):
        of_class = folder / "DATA" / ("validation" if at % 4 == 0 else "train") / str(label)
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype("uint8")).convert("RGB").save(of_class / f"{at}.png")
    # What a torchvision without its operators needs, before the script imports timm.
    (folder / "sitecustomize.py").write_text(
        "from models.torchvision_compat import make_torchvision_importable as make\n\nmake()\n"
    )
    (folder / "images.py").write_text(TIMM_SWEEP, "utf-8")
    run_python(
        *("-m", "hsweep", "run", "images.py", "--runner", "inline", "--study", "timm"),
        *("--home", str(tmp_path / "home")),
        cwd=folder,
        PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]),
    )
    study = StudyFolder.open(Home(tmp_path / "home"), "timm")
    with study.journal() as journal:
        reports = [entry.unit for entry in journal.reports()]
        rows = journal.trials()
    assert [str(row.status) for row in rows] == ["finished"] * 4
    # Its epochs 0 to 2 are three.
    assert reports == [1, 2, 3] * 4
