"""Lightning, swept: which number of heads names most handwritten digits after ten epochs?

Question. Do more heads help a transformer of one layer and width 16 that reads a digit row by row?
To a module and a Trainer as Lightning's documentation has them, the sweep adds one callback and
where to go on from. Needs `pip install lightning`.

Data. scikit-learn's 1,797 digits of 8 by 8 pixels, which come with the package.

Expectation. More heads are a little better; two seeds are too few to show it.

Cost. 6 trials of at most 10 epochs; one minute on two cores.

    hsweep run examples/lightning_digits.py
"""

import lightning
import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, random_split

from hsweep import Asha, Point, Run, Sweep, epochs, grid
from hsweep.integrations.lightning import LightningCallback

NUM_TEST = 360


class Digits(LightningModule):
    """A transformer that reads an image row by row, (B, 8, 8), and returns logits, (B, 10)."""

    def __init__(self, heads: int, depth: int, width: int, lr: float) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.1, batch_first=True)
        self.rows = nn.Linear(8, width)
        self.places = nn.Parameter(torch.zeros(8, width))
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)
        self.lr = lr

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, 10) of images (B, 8, 8)."""
        logits: Tensor = self.head(self.blocks(self.rows(images) + self.places).mean(dim=1))
        return logits

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """Return the loss of a batch of images and labels."""
        images, labels = batch
        return functional.cross_entropy(self(images), labels)

    def validation_step(self, batch: list[Tensor]) -> None:
        """Log the share of images that are named correctly, and the loss."""
        images, labels = batch
        logits = self(images)
        self.log("top1", (logits.argmax(1) == labels).float().mean())
        self.log("validation_loss", functional.cross_entropy(logits, labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def loaders() -> tuple[DataLoader[list[Tensor]], DataLoader[list[Tensor]]]:
    """Return loaders of the digits to train on and of those to validate on."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)
    data = TensorDataset(images, torch.tensor(digits.target))
    sizes = [len(data) - NUM_TEST, NUM_TEST]
    train_data, test_data = random_split(data, sizes, torch.Generator().manual_seed(0))
    return DataLoader(train_data, 64, shuffle=True), DataLoader(test_data, NUM_TEST)


def train(point: Point, run: Run) -> None:
    """Train one trial, from its last checkpoint if it has one."""
    lightning.seed_everything(run.seeds.init, verbose=False)
    report = LightningCallback(run)
    trainer = Trainer(
        max_epochs=run.budget,
        accelerator=run.device.type,
        devices=1,
        callbacks=[report],
        default_root_dir=run.folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Digits(point.heads, point.depth, point.width, point.lr)
    trainer.fit(module, *loaders(), ckpt_path=report.resume_from)


SWEEP = Sweep(
    name="lightning-digits",
    space=grid(heads=[1, 2, 4], depth=[1], width=[16], lr=[3e-3]),
    train=train,
    describe=lambda point: Digits(point.heads, point.depth, point.width, point.lr),
    metric="top1",
    goal="max",
    budget=epochs(10),
    replicates=2,
    early_stopping=Asha(grace=3),
)
