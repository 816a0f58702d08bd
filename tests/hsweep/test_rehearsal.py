"""What is tried out before a study begins, and what is said of a task or a model that fails it."""

import inspect
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from tiny import TinyData, TinyModel, TinyTask, tiny_sweep
from tiny_studies import new_study
from torch import Tensor, nn

from hsweep import Point, Recipe, grid
from hsweep.design.trial import Resources, Trial
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.plan import make_plan
from hsweep.training import rehearsal
from hsweep.training.rehearsal import check_trials
from models.base import PARAM_GROUPS, Counts
from tasks import arrays
from tasks.base import Metric
from tasks.division import own_slices, sum_over_processes

Invoke = Callable[..., Result]
HERE = Path(__file__)


def trials_of(**changes: Any) -> tuple[Trial, ...]:
    return make_plan(tiny_sweep(**changes), preset="quick", study_seed=0).trials


def refusal(**changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        check_trials(trials_of(**changes))
    return str(caught.value)


def line_of(kind: type, method: str, text: str = "def ") -> str:
    """Return how a message names the line of a method that holds ``text``."""
    lines, first = inspect.getsourcelines(getattr(kind, method))
    offset = next(number for number, line in enumerate(lines) if text in line)
    return f"{HERE}:{first + offset}"


class OddData(TinyData):
    """The tiny data with one part replaced."""

    def batches(self, start_step: int) -> Iterator[Any]:
        return iter(()) if self._task.dim == 4 else super().batches(start_step)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        loss = super().loss(model, batch)
        assert isinstance(self._task, OddTask)
        return self._task.odd_loss(model, loss)

    def evaluate(self, model: nn.Module) -> Any:
        assert isinstance(self._task, OddTask)
        return self._task.odd_metrics(super().evaluate(model))


@dataclass(frozen=True)
class OddTask(TinyTask):
    odd: str = ""

    def open(self, **settings: Any) -> TinyData:
        return OddData(self, *settings.values())

    def odd_loss(self, model: nn.Module, loss: Tensor) -> Any:
        if self.odd == "loss raises":
            raise KeyError("target")
        return {
            "a vector": loss.repeat(3),
            "a number": float(loss),
            "detached": loss.detach(),
            "of nothing": torch.zeros((), requires_grad=True),
        }.get(self.odd, loss)

    def odd_metrics(self, found: Any) -> Any:
        if self.odd == "evaluate raises":
            return 1 // 0
        return {
            "too few": {"nmse": found["nmse"]},
            "no dictionary": 0.5,
            "not finite": {**found, "fit": float("nan")},
            "a tensor": {**found, "fit": torch.tensor(0.5)},
        }.get(self.odd, found)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("odd", "message"),
        [
            ("too few", "the evaluation of task 'tiny' lacks 'fit'; declared"),
            ("no dictionary", "as a dictionary of numbers, not 0.5"),
        ],
    )
    def test_metrics_that_are_not_those_declared(self, odd: str, message: str) -> None:
        said = refusal(task=OddTask(odd=odd))
        assert said.startswith(f"{line_of(OddData, 'evaluate')}: ")
        assert message in said
        assert "(width=1, task 'tiny', model TinyModel)" in said
        assert "--no-check" in said

    @pytest.mark.parametrize(
        ("odd", "message"),
        [
            ("a vector", "must be a scalar tensor, the mean over the batch, not one of shape (3,)"),
            ("a number", "must be a scalar tensor"),
            ("detached", "the training loss has no gradient"),
            ("of nothing", "the training loss has no gradient for any parameter of the model"),
        ],
    )
    def test_a_loss_that_trains_nothing(self, odd: str, message: str) -> None:
        said = refusal(task=OddTask(odd=odd))
        assert said.startswith(f"{line_of(OddData, 'loss')}: ")
        assert message in said

    def test_what_raises_is_told_with_the_users_line(self) -> None:
        said = refusal(task=OddTask(odd="loss raises"))
        at = line_of(OddTask, "odd_loss", "raise KeyError")
        assert said.startswith(f"{at}: the training loss of a trial fails: KeyError: 'target'")
        said = refusal(task=OddTask(odd="evaluate raises"))
        at = line_of(OddTask, "odd_metrics", "1 // 0")
        assert said.startswith(f"{at}: the evaluation of a trial fails: ZeroDivisionError")

    def test_a_model_that_does_not_take_the_batches(self) -> None:
        said = refusal(model=lambda point: TinyModel(point.width, dim=5))
        assert "the training loss of a trial fails: RuntimeError: mat1 and mat2 shapes" in said
        assert "tiny.py:" in said

    def test_data_without_a_batch_or_a_step(self) -> None:
        assert "batches(0) ended before its first batch" in refusal(task=OddTask(dim=4))
        assert "steps_per_epoch must be a whole number of at least 1, not 0" in refusal(
            task=NoSteps()
        )

    def test_what_is_odd_and_right_all_the_same_is_let_through(self) -> None:
        for odd in ("not finite", "a tensor"):
            assert check_trials(trials_of(task=OddTask(odd=odd))).unchecked == ()


class NoStepsData(TinyData):
    @property
    def steps_per_epoch(self) -> int:
        return 0

    def batches(self, start_step: int) -> Iterator[Any]:
        raise AssertionError("an epoch without steps has no batch")


@dataclass(frozen=True)
class NoSteps(TinyTask):
    def open(self, **settings: Any) -> TinyData:
        return NoStepsData(self, *settings.values())


@dataclass(frozen=True)
class Words:
    """Name the last token of a text; ``rare`` stands in the last validation text alone."""

    num_tokens: int = 10
    rare: int = 9
    num_texts: int = 64

    name = "words"
    metrics = (Metric("loss", "min", "loss", "cross-entropy"),)

    def fingerprint(self) -> str:
        return "words"

    def open(self, **settings: Any) -> "WordsData":
        return WordsData(self, settings["batch_size"])


class WordsData:
    steps_per_epoch = 2
    eval_size = 4

    def __init__(self, task: Words, batch_size: int) -> None:
        self._task, self._batch_size = task, batch_size
        self._texts = torch.arange(task.num_texts * 3).reshape(-1, 3) % task.num_tokens
        self._held_out = self._texts.clone()
        self._held_out[-1, 0] = task.rare

    def batches(self, start_step: int) -> Iterator[Tensor]:
        while True:
            yield self._texts[: self._batch_size]

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(batch), batch[:, -1])

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        losses = torch.zeros(())
        for rows in own_slices(len(self._held_out), at_once=8):
            texts = self._held_out[rows]
            losses += nn.functional.cross_entropy(model(texts), texts[:, -1], reduction="sum")
        return {"loss": float(sum_over_processes(losses)) / len(self._held_out)}

    def warm_start(self, model: nn.Module) -> None:
        pass


class Reader(nn.Module):
    """Counts the rows it computes."""

    rows = 0

    def __init__(self, config: "ReaderConfig") -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.ids, 4)
        self.head = nn.Linear(4, config.outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        Reader.rows += len(tokens)
        logits: Tensor = self.head(self.token_embedding(tokens).mean(1))
        return logits


@dataclass(frozen=True)
class ReaderConfig:
    ids: int = 10
    outputs: int = 10
    flops: int = 100

    def build(self) -> nn.Module:
        return Reader(self)

    def counts(self) -> Counts:
        numbers = {"embedding": 4 * self.ids, "head": 5 * self.outputs}
        return Counts(
            params=dict.fromkeys(PARAM_GROUPS, 0) | numbers,
            forward_flops=self.flops,
            activation_elements=10,
        )


def reading(task: Words = Words(), **config: int) -> dict[str, Any]:
    return {"task": task, "model": lambda point: ReaderConfig(**config), "metric": "loss"}


class TestTokens:
    def test_an_id_that_an_embedding_has_no_row_for_is_found_in_training_and_evaluation(
        self,
    ) -> None:
        for wrong in (reading(ids=7), reading(Words(rare=30))):
            said = refusal(**wrong)
            assert "index out of range" in said
            assert f"{HERE}:" in said

    def test_batches_are_short_and_an_evaluation_that_can_be_divided_is_of_one_row(self) -> None:
        Reader.rows = 0
        assert check_trials(trials_of(**reading(), space=grid(width=[1]))).unchecked == ()
        assert Reader.rows == 2 + 2 * 2 + 1  # its loss, two updates and an evaluation


class TestLargeShapes:
    def test_a_large_shape_is_named_and_not_tried(self) -> None:
        found = check_trials(trials_of(**reading(flops=10**14), space=grid(width=[1])))
        assert found.unchecked == ("width=1: too large to be tried out on the CPU",)
        assert found.lines()[-1].startswith("not checked before the start: width=1")

    def test_an_evaluation_that_takes_long_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rehearsal, "EVALUATION_SECONDS", 0.0)
        found = check_trials(trials_of(space=grid(width=[2])))
        assert found.unchecked == ("width=2: its evaluation takes more than 0 s",)

    def test_what_does_not_run_on_the_cpu_is_no_mistake_of_a_trial_on_a_device(self) -> None:
        model = lambda point: ForDevices(point.width)  # noqa: E731
        assert "NotImplementedError" in refusal(model=model)
        found = check_trials(trials_of(model=model, resources=Resources(cpus=1, gpus=1)))
        assert "does not run on the CPU (NotImplementedError: on CUDA alone)" in found.unchecked[0]


class OtherModel(TinyModel):
    """A model of another class."""


class OnDevices(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.device.type == "cpu":
            raise NotImplementedError("on CUDA alone")
        return super().forward(inputs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ForDevices(TinyModel):
    def build(self) -> nn.Module:
        return OnDevices(super().build())


class Split(nn.Module):
    """Splits eight numbers among heads, which it finds out when it is called."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.read = heads, nn.Linear(8, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.read(inputs.view(len(inputs), self.heads, 8 // self.heads).flatten(1))[:, 0]  # type: ignore[no-any-return]


class TestWhatIsTried:
    def test_the_smallest_and_the_largest_shape_of_each_pair_of_classes(self) -> None:
        def model(point: Point) -> TinyModel:
            return (OtherModel if point.kind == "other" else TinyModel)(point.width)

        kinds = grid(kind=["one"], width=[1, 2, 3]) + grid(kind=["other"], width=[4, 5, 6])
        found = check_trials(trials_of(space=kinds, model=model, replicates=2))
        assert sorted(found.shapes) == [
            "kind=one width=1",
            "kind=one width=3",
            "kind=other width=4",
            "kind=other width=6",
        ]

    def test_a_shape_in_the_middle_that_fails_in_its_forward_pass_is_named(self) -> None:
        inputs = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
        said = refusal(
            space=grid(heads=[1, 2, 3, 4]),
            model=lambda point: Split(point.heads),
            task=arrays(inputs, inputs.sum(1)),
            metric="mse",
        )
        assert "the training loss of a trial fails: " in said
        assert "(heads=3, task 'arrays', model Split)" in said

    def test_nothing_of_this_process_is_changed(self) -> None:
        torch.manual_seed(5), random.seed(5), np.random.seed(5)
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
        check_trials(trials_of(task=Meddling(), recipe=Recipe(precision="bfloat16")))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        assert np.array_equal(np.random.get_state()[1], before[2])
        assert torch.get_default_dtype() is torch.float32


class MeddlingData(TinyData):
    def evaluate(self, model: nn.Module) -> Any:
        torch.set_default_dtype(torch.float64)
        random.random(), np.random.rand()
        return super().evaluate(model)


@dataclass(frozen=True)
class Meddling(TinyTask):
    def open(self, **settings: Any) -> TinyData:
        return MeddlingData(self, *settings.values())


BAD_FILE = """
from dataclasses import dataclass
from tiny import *

class BadData(TinyData):
    def evaluate(self, model):
        print("to be seen by people")
        return {"nmse": 1.0}

@dataclass(frozen=True)
class BadTask(TinyTask):
    def open(self, **settings):
        return BadData(self, *settings.values())

SWEEP = tiny_sweep(task=BadTask())
"""


class TestCommands:
    @pytest.fixture
    def bad(self, tmp_path: Path) -> Path:
        path = tmp_path / "bad.py"
        path.write_text(BAD_FILE)
        return path

    @pytest.mark.parametrize("command", [("plan", "--check"), ("run", "--runner", "inline")])
    def test_a_mistake_is_said_before_anything_is_recorded(
        self, hsweep: Invoke, bad: Path, home: Home, command: tuple[str, ...]
    ) -> None:
        result = hsweep(command[0], bad, *command[1:])
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"hsweep: {bad}:6: the evaluation of task 'tiny' lacks 'fit'" in result.stderr
        assert "Traceback" not in result.stderr
        assert not home.root.exists()

    @pytest.mark.parametrize(
        ("given", "reason"), [((), "lacks 'fit'"), (("--no-check",), "cannot be used")]
    )
    def test_the_check_can_be_left_out(
        self, hsweep: Invoke, bad: Path, given: tuple[str, ...], reason: str
    ) -> None:
        # The storage is looked at next, so that nothing has to train.
        result = hsweep("run", bad, "--storage", "nothing://such", *given)
        assert result.exit_code == 2
        assert reason in result.stderr

    def test_an_edited_sweep_is_tried_out_as_far_as_it_is_new(
        self, hsweep: Invoke, bad: Path, home: Home
    ) -> None:
        study = new_study(home)
        before = study.paths.manifest.read_bytes()
        result = hsweep("run", bad, "--study", "mine", "--runner", "inline")
        assert result.exit_code == 2
        assert ":6: the evaluation of task 'tiny' lacks 'fit'" in result.stderr
        assert study.paths.manifest.read_bytes() == before

    def test_a_plan_says_what_was_tried(self, hsweep: Invoke, tmp_path: Path) -> None:
        path = tmp_path / "good.py"
        path.write_text("from tiny import tiny_sweep\nSWEEP = tiny_sweep()\n")
        assert ": width=1; width=3" in hsweep("plan", path, "--check").stdout
        content = json.loads(hsweep("plan", path, "--check", "--json").stdout)
        assert content["checked"]["shapes"] == ["width=1", "width=3"]
        assert "checked" not in json.loads(hsweep("plan", path, "--json").stdout)
