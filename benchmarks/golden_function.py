"""Digits learned by a user's own function, with checkpoints and early stopping.

hsweep run benchmarks/golden_function.py --runner inline
"""

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from hsweep import Asha, Point, Run, Sweep, epochs, grid

NUM_TEST = 360


def build(point: Point) -> nn.Module:
    """Two maps, and dropout between."""
    return nn.Sequential(
        nn.Linear(64, point.width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(point.width, 10)
    )


def train(point: Point, run: Run) -> None:
    """Train one trial, from its last checkpoint if it has one."""
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    torch.manual_seed(run.seeds.init)
    model = build(point)
    optimizer = torch.optim.AdamW(model.parameters(), lr=point.lr)
    done = 0
    if run.checkpoint:
        state = torch.load(Path(run.checkpoint) / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
    for epoch in range(done + 1, run.budget + 1):
        torch.manual_seed(run.seeds.sampling + epoch)
        model.train()
        for rows in torch.split(NUM_TEST + torch.randperm(len(images) - NUM_TEST), 64):
            loss = functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(images[:NUM_TEST])
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        folder = run.folder / "checkpoint"
        folder.mkdir(exist_ok=True)
        torch.save(states, folder / "state.pt")
        run.report(
            epoch,
            checkpoint=folder,
            top1=(logits.argmax(1) == labels[:NUM_TEST]).float().mean().item(),
            test_loss=functional.cross_entropy(logits, labels[:NUM_TEST]).item(),
        )


SWEEP = Sweep(
    name="golden_function",
    space=grid(width=[4, 8, 16, 32], lr=[3e-3]),
    train=train,
    describe=build,
    metric="top1",
    goal="max",
    budget=epochs(9),
    replicates=3,
    early_stopping=Asha(grace=2),
)
