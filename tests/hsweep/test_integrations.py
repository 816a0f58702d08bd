"""The callbacks, in the libraries' own training loops.

The same trials killed and resumed are in tests/examples.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from own_runs import RunOnDisk
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from hsweep import StopTrial, UserError
from models.torchvision_compat import make_torchvision_importable

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule

make_torchvision_importable()
DIM, COUNT, BATCH = 4, 64, 8
STEPS_PER_EPOCH = COUNT // BATCH
OUTPUTS_FOLLOW = torch.arange(1.0, DIM + 1)


def examples() -> tuple[Tensor, Tensor]:
    x = torch.randn(COUNT, DIM, generator=torch.Generator().manual_seed(0))
    return x, x @ OUTPUTS_FOLLOW


def units(run: RunOnDisk) -> list[int]:
    return [report["unit"] for report in run.reports]


class Resumable:
    """A loader that knows its place in an epoch."""

    def __init__(self) -> None:
        self._next = 0

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        self._next %= STEPS_PER_EPOCH
        while self._next < STEPS_PER_EPOCH:
            rows = slice(self._next * BATCH, (self._next + 1) * BATCH)
            self._next += 1
            yield tuple(part[rows] for part in examples())

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]


def network() -> nn.Sequential:
    """With dropout, so that training depends on the state of a random generator."""
    return nn.Sequential(nn.Linear(DIM, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))


@pytest.mark.skipif(not importlib.util.find_spec("accelerate"), reason="needs accelerate")
@pytest.mark.filterwarnings("ignore:.* is no number")
class TestTransformers:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            outputs = self.layers(x).squeeze(1)
            return {"loss": functional.mse_loss(outputs, labels), "logits": outputs}

    class Rows(Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            x, labels = examples()
            return {"x": x[index], "labels": labels[index]}

    def train(self, run: RunOnDisk, **arguments: Any) -> None:
        from transformers import Trainer, TrainingArguments

        from hsweep.integrations.transformers import TransformersCallback

        report = TransformersCallback(run)
        standard: dict[str, Any] = {
            "output_dir": str(run.folder),
            "per_device_train_batch_size": BATCH,
            "learning_rate": 0.01,
            "save_total_limit": 1,
            "use_cpu": True,
            "report_to": "none",
            "disable_tqdm": True,
        }
        trainer = Trainer(
            model_init=self.Model,
            args=TrainingArguments(**(standard | arguments)),
            train_dataset=self.Rows(),
            eval_dataset=self.Rows(),
            callbacks=[report],
            compute_metrics=lambda _: {"by_class": {"a": 1.0}, "what": "text", "zero": 0},
        )
        trainer.train(resume_from_checkpoint=report.resume_from)

    def test_steps_are_reported_and_resumed_within_an_epoch_to_the_same_numbers(
        self, tmp_path: Path
    ) -> None:
        every_third = {"max_steps": 12, "eval_strategy": "steps", "eval_steps": 3}
        undisturbed = RunOnDisk(tmp_path / "undisturbed", 12, "steps")
        self.train(undisturbed, **every_third)
        assert units(undisturbed) == [3, 6, 9, 12]

        self.train(RunOnDisk(tmp_path / "stopped", 12, "steps", stops_at=3), **every_third)
        resumed = RunOnDisk(tmp_path / "stopped", 12, "steps")
        assert units(resumed) == [3]
        self.train(resumed, **every_third)
        assert resumed.reports == undisturbed.reports

    def test_a_notice_within_an_epoch_costs_no_step(self, tmp_path: Path) -> None:
        each_epoch = {"num_train_epochs": 2, "eval_strategy": "epoch"}
        undisturbed = RunOnDisk(tmp_path / "undisturbed", 2)
        self.train(undisturbed, **each_epoch)
        noticed = RunOnDisk(tmp_path / "noticed", 2, notice_at=STEPS_PER_EPOCH + 3)
        with pytest.raises(StopTrial):
            self.train(noticed, **each_epoch)
        resumed = RunOnDisk(tmp_path / "noticed", 2)
        assert units(resumed) == [1]
        self.train(resumed, **each_epoch)
        assert resumed.reports == undisturbed.reports
        assert resumed.num_questions == STEPS_PER_EPOCH - 3

    def test_an_evaluation_before_training_is_no_report(self, tmp_path: Path) -> None:
        arguments = {"max_steps": 12, "eval_strategy": "steps", "eval_steps": 6, "save_steps": 2}
        self.train(RunOnDisk(tmp_path, 12, "steps", stops_at=6), eval_on_start=True, **arguments)
        resumed = RunOnDisk(tmp_path, 12, "steps")
        self.train(resumed, eval_on_start=True, **arguments)
        assert units(resumed) == [6, 12]

    def test_what_is_no_number_is_left_out_and_said(self, tmp_path: Path) -> None:
        run = RunOnDisk(tmp_path, 1)
        with pytest.warns(UserWarning, match="eval_by_class is no number, so no report has it"):
            self.train(run, num_train_epochs=1, eval_strategy="epoch")
        assert run.reports[0]["eval_zero"] == 0
        assert not {"eval_by_class", "eval_what"} & run.reports[0].keys()

    def test_an_evaluation_within_an_epoch_is_no_report_of_epochs(self, tmp_path: Path) -> None:
        run = RunOnDisk(tmp_path, 2)
        half = STEPS_PER_EPOCH // 2
        self.train(run, num_train_epochs=2, eval_strategy="steps", eval_steps=half)
        assert units(run) == [1, 2]
        assert run.reports[0].keys() == {"unit", "eval_loss", "eval_zero"}

    @pytest.mark.parametrize(
        "arguments", [{}, {"eval_strategy": "epoch", "save_strategy": "best"}], ids=str
    )
    def test_arguments_that_would_leave_out_reports_are_refused(
        self, arguments: dict[str, str], tmp_path: Path
    ) -> None:
        with pytest.raises(UserError, match="eval_strategy must be 'epoch' or 'steps'"):
            self.train(RunOnDisk(tmp_path, 1), metric_for_best_model="loss", **arguments)

    def test_seconds_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="not seconds"):
            self.train(RunOnDisk(tmp_path, 60, "seconds"))


@pytest.mark.skipif(not importlib.util.find_spec("lightning"), reason="needs lightning")
@pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)`")
@pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers")
class TestLightning:
    @staticmethod
    def module() -> "LightningModule":
        from lightning.pytorch import LightningModule

        class Module(LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layers = network()

            def training_step(self, batch: list[Tensor]) -> Tensor:
                loss = functional.mse_loss(self.layers(batch[0]).squeeze(1), batch[1])
                self.log("train_loss", loss, on_step=False, on_epoch=True)
                return loss

            def validation_step(self, batch: list[Tensor]) -> None:
                loss = functional.mse_loss(self.layers(batch[0]).squeeze(1), batch[1])
                self.log("validation_loss", loss)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.AdamW(self.parameters(), lr=0.01)

        return Module()

    def train(
        self, run: RunOnDisk, *, validates: bool = True, loader: Any = None, **options: Any
    ) -> None:
        import lightning
        from lightning.pytorch import Trainer

        from hsweep.integrations.lightning import LightningCallback

        lightning.seed_everything(1, verbose=False)
        report = LightningCallback(run)
        trainer = Trainer(
            accelerator="cpu",
            callbacks=[report],
            default_root_dir=run.folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        )
        data = TensorDataset(*examples())
        held_out = DataLoader(data, COUNT) if validates else None
        loader = loader or DataLoader(data, BATCH, shuffle=True)
        trainer.fit(self.module(), loader, held_out, ckpt_path=report.resume_from)

    def test_steps_are_reported_and_resumed_after_an_epoch_to_the_same_numbers(
        self, tmp_path: Path
    ) -> None:
        half = {"max_steps": 3 * STEPS_PER_EPOCH, "val_check_interval": STEPS_PER_EPOCH // 2}
        undisturbed = RunOnDisk(tmp_path / "undisturbed", half["max_steps"], "steps")
        self.train(undisturbed, **half)
        assert units(undisturbed) == [4, 8, 12, 16, 20, 24]

        self.train(RunOnDisk(tmp_path / "stopped", 24, "steps", stops_at=8), **half)
        resumed = RunOnDisk(tmp_path / "stopped", 24, "steps")
        assert units(resumed) == [4, 8]
        self.train(resumed, **half)
        assert resumed.reports == undisturbed.reports

        _, _, within_an_epoch, at_its_end, *_ = undisturbed.reports
        assert within_an_epoch.keys() == {"unit", "validation_loss"}
        assert at_its_end.keys() == {"unit", "train_loss", "validation_loss"}

    def test_a_notice_within_an_epoch_costs_no_step(self, tmp_path: Path) -> None:
        undisturbed = RunOnDisk(tmp_path / "undisturbed", 2)
        self.train(undisturbed, loader=Resumable(), max_epochs=2)
        noticed = RunOnDisk(tmp_path / "noticed", 2, notice_at=STEPS_PER_EPOCH + 3)
        with pytest.raises(StopTrial):
            self.train(noticed, loader=Resumable(), max_epochs=2)
        resumed = RunOnDisk(tmp_path / "noticed", 2)
        assert units(resumed) == [1]
        self.train(resumed, loader=Resumable(), max_epochs=2)
        # What Lightning averages over an epoch is then of its rest.
        losses = [[row["validation_loss"] for row in run.reports] for run in (resumed, undisturbed)]
        assert losses[0] == losses[1]
        # It is not asked at an epoch's last step.
        assert resumed.num_questions == STEPS_PER_EPOCH - 1 - 4

    def test_epochs_are_reported_after_their_validation(self, tmp_path: Path) -> None:
        run = RunOnDisk(tmp_path, 4)
        self.train(run, max_epochs=4, check_val_every_n_epoch=2)
        assert units(run) == [2, 4]
        assert run.reports[0].keys() == {"unit", "train_loss", "validation_loss"}

    @pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
    def test_without_validation_each_epoch_is_reported(self, tmp_path: Path) -> None:
        run = RunOnDisk(tmp_path, 2)
        self.train(run, validates=False, max_epochs=2)
        assert units(run) == [1, 2]
        assert run.reports[0].keys() == {"unit", "train_loss"}

    def test_no_other_checkpoint_is_left_in_the_folder(self, tmp_path: Path) -> None:
        run = RunOnDisk(tmp_path, 1)
        self.train(run, max_epochs=1)
        assert list(run.folder.iterdir()) == []

    def test_seconds_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="not seconds"):
            self.train(RunOnDisk(tmp_path, 60, "seconds"), max_epochs=1)
