"""The head-count study as a user writes it from the tutorials of Ray Tune, MLflow and torch.

A function that trains and reports after every epoch, torch's MultiheadAttention over all tokens, a
DataLoader, a grid search, and Ray's own callback that logs to MLflow.
"""

import math

import ray
import torch
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.baselines.study_data import (
    BATCH_SIZE,
    BETAS,
    ENCODER_HIDDEN,
    HEAD_DIM,
    LEARNING_RATE,
    READOUT_HIDDEN,
    WARMUP_SHARE,
    options,
    read,
    tune_space,
    write_tune_results,
)


class Model(nn.Module):
    """Encoder, a class token in front, one layer of attention, and a read-out of that token."""

    def __init__(self, input_dim: int, heads: int) -> None:
        super().__init__()
        embed_dim = heads * HEAD_DIM
        self.encoder = nn.Sequential(
            nn.Linear(input_dim, ENCODER_HIDDEN), nn.GELU(), nn.Linear(ENCODER_HIDDEN, embed_dim)
        )
        self.class_token = nn.Parameter(torch.randn(1, 1, embed_dim))
        self.attention = nn.MultiheadAttention(embed_dim, heads, batch_first=True)
        self.last = nn.Linear(READOUT_HIDDEN, 1)
        self.readout = nn.Sequential(nn.Linear(embed_dim, READOUT_HIDDEN), nn.GELU(), self.last)

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions, (batch,), for x of shape (batch, tokens, input_dim)."""
        tokens = torch.cat((self.class_token.expand(len(x), -1, -1), self.encoder(x)), dim=1)
        attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        prediction: Tensor = self.readout(attended[:, 0]).squeeze(-1)
        return prediction


def nmse(model: nn.Module, loader: DataLoader) -> float:
    """Return the mean squared error over the variance of the targets."""
    model.eval()
    squared_error, targets = 0.0, []
    with torch.no_grad():
        for x, y in loader:
            squared_error += (model(x) - y).square().sum().item()
            targets.append(y)
    y = torch.cat(targets)
    return squared_error / len(y) / y.var(correction=0).item()


def train(config: dict) -> None:
    """Train one trial and report after every epoch."""
    torch.manual_seed(config["seed"])
    data = read(config["data"], config["seq_len"], config["seed"])
    train_set = TensorDataset(data.train_x, data.train_y)
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    train_again = DataLoader(train_set, batch_size=1000)
    validation_set = TensorDataset(data.validation_x, data.validation_y)
    validation_loader = DataLoader(validation_set, batch_size=1000)

    model = Model(data.train_x.shape[-1], config["heads"])
    with torch.no_grad():
        model.last.bias.fill_(data.train_y.mean().item())
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=0.0
    )
    num_steps = config["epochs"] * len(train_loader)
    warmup = round(WARMUP_SHARE * num_steps)

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for epoch in range(config["epochs"]):
        model.train()
        total = 0.0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        metrics = {
            "running_loss": total / len(train_loader),
            "nmse": nmse(model, validation_loader),
        }
        if epoch + 1 == config["epochs"]:
            metrics["train_nmse"] = nmse(model, train_again)
        tune.report(metrics)


def main() -> None:
    """Run the grid."""
    grid = options()
    ray.init(address="local", num_cpus=grid.processes)
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space=tune_space(grid),
        tune_config=tune.TuneConfig(metric="nmse", mode="min"),
        run_config=tune.RunConfig(
            name="head_count",
            storage_path=str(grid.out.absolute() / "ray"),
            callbacks=[
                MLflowLoggerCallback(
                    tracking_uri=f"sqlite:///{grid.out.absolute() / 'mlflow.db'}",
                    experiment_name="head_count",
                )
            ],
        ),
    )
    write_tune_results(grid.out, tuner.fit())


if __name__ == "__main__":
    main()
