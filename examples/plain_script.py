"""Train a small transformer on handwritten digits, row by row."""

import argparse
import json
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--heads", type=int, default=2)
parser.add_argument("--depth", type=int, default=1)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=Path, default=Path("out"))
parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
args = parser.parse_args()
args.out.mkdir(parents=True, exist_ok=True)

digits = load_digits()
order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
images = torch.tensor(digits.images / 16, dtype=torch.float32)[order]
labels = torch.tensor(digits.target)[order]

torch.manual_seed(args.seed)
layer = nn.TransformerEncoderLayer(args.width, args.heads, 2 * args.width, batch_first=True)
blocks = nn.TransformerEncoder(layer, args.depth, enable_nested_tensor=False)
model = nn.Sequential(nn.Linear(8, args.width), blocks, nn.Flatten(), nn.Linear(8 * args.width, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
epoch = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    epoch = state["epoch"]

while epoch < args.epochs:
    model.train()
    for rows in (360 + torch.randperm(len(images) - 360)).split(64):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        top1 = (model(images[:360]).argmax(1) == labels[:360]).float().mean().item()
    epoch += 1

    with (args.out / "log.jsonl").open("a") as log:
        log.write(json.dumps({"epoch": epoch, "top1": top1, "loss": loss.item()}) + "\n")

    # Written under another name first, so that the checkpoint is a whole one at any moment.
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state | {"random": torch.get_rng_state()}, args.out / "checkpoint.tmp")
    (args.out / "checkpoint.tmp").replace(args.out / "checkpoint.pt")
