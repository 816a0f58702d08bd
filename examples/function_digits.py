"""Which of six small transformers names most handwritten digits after ten epochs?

Question. Do a second layer and more heads help a transformer of width 16 that reads a digit row by
row? The training is a function of plain PyTorch, `train(point, run)`: after each epoch it reports,
with a checkpoint, and a trial that was interrupted goes on from there to the same numbers.

Data. scikit-learn's 1,797 digits of 8 by 8 pixels, which come with the package.

Expectation. Two layers are better than one; heads matter less.

Seen. After three epochs all nine trials of one layer are among the twelve that are stopped. The
three that use their whole budget have two layers and two or four heads, and reach 92 to 94 %.

Cost. 18 trials of at most 10 epochs, of at most five seconds each; one minute on two cores.

    hsweep run examples/function_digits.py
"""

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from hsweep import Asha, Point, Run, Sweep, epochs, grid

NUM_TEST = 360
BATCH = 64


class Digits(nn.Module):
    """A transformer that reads an image row by row, (B, 8, 8), and returns logits, (B, 10)."""

    def __init__(self, heads: int, depth: int, width: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.1, batch_first=True)
        self.rows = nn.Linear(8, width)
        self.places = nn.Parameter(torch.zeros(8, width))
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, 10) of images (B, 8, 8)."""
        logits: Tensor = self.head(self.blocks(self.rows(images) + self.places).mean(dim=1))
        return logits


def build(point: Point) -> Digits:
    """Return the model of a point; the plan counts its parameters."""
    return Digits(point.heads, point.depth, point.width)


def train(point: Point, run: Run) -> None:
    """Train one trial, from its last checkpoint if it has one."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[order].to(run.device)
    labels = torch.tensor(digits.target)[order].to(run.device)

    torch.manual_seed(run.seeds.init)
    model = build(point).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=point.lr)
    done = 0
    if run.checkpoint:
        state = torch.load(run.checkpoint / "state.pt", map_location=run.device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]

    for epoch in range(done + 1, run.budget + 1):
        # An epoch's order and dropout depend on its number alone, not on where training began.
        torch.manual_seed(run.seeds.sampling + epoch)
        model.train()
        for rows in (NUM_TEST + torch.randperm(len(images) - NUM_TEST)).split(BATCH):
            loss = functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        model.eval()
        with torch.no_grad():
            logits = model(images[:NUM_TEST])
        top1 = (logits.argmax(1) == labels[:NUM_TEST]).float().mean().item()
        test_loss = functional.cross_entropy(logits, labels[:NUM_TEST]).item()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        run.report(epoch, checkpoint=save(states, run.folder), top1=top1, test_loss=test_loss)


def save(states: dict[str, object], folder: Path) -> Path:
    """Write a checkpoint and return its folder."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    torch.save(states, checkpoint / "state.pt")
    return checkpoint


SWEEP = Sweep(
    name="function-digits",
    space=grid(heads=[1, 2, 4], depth=[1, 2], width=[16], lr=[3e-3]),
    train=train,
    describe=build,
    metric="top1",
    goal="max",
    budget=epochs(10),
    replicates=3,
    early_stopping=Asha(grace=3),
)
