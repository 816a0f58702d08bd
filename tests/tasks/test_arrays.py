"""Tasks made of arrays."""

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_contract import CPU, PROJECT, TaskContract, measured
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from tasks import array_store, arrays
from tasks.array_task import ArrayData
from tasks.base import Task

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 5))
CLASSES = RANDOM.integers(3, size=60)
NUMBERS = X[:, :2].sum(1)
LABELS = (RANDOM.random((60, 4)) > 0.5).astype(float)


def closeness(outputs: Tensor, targets: Tensor) -> Tensor:
    return 1 / (1 + (outputs - targets).abs().mean())


class Both(nn.Module):
    """A model of two inputs by name that returns a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(3, 4), nn.Linear(9, 3)

    def forward(self, ids: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        return {"logits": self.read(torch.cat((self.embed(ids), numbers), 1)), "ids": ids}


class Rows(Dataset[tuple[Any, int]]):
    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return 60

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return X[row] + self.noise * RANDOM.normal(), int(CLASSES[row])


class TestClasses(TaskContract):
    @pytest.fixture
    def task(self) -> Task:
        return arrays(X, CLASSES)

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return arrays(X + np.eye(60, 5), CLASSES)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(5, 3)


class TestNumbers(TestClasses):
    @pytest.fixture
    def task(self) -> Task:
        return arrays(X, NUMBERS, validation=(X[:9], NUMBERS[:9]))

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return arrays(X, NUMBERS, validation=(X[1:9], NUMBERS[1:9]))

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(5, 1)


class TestALossAndAMetricOfOnesOwn(TestClasses):
    @pytest.fixture
    def task(self) -> Task:
        loss = functional.binary_cross_entropy_with_logits
        metric = functional.l1_loss
        return arrays(X, LABELS, loss=loss, metric=metric, goal="min", validation=0.5)

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return arrays(X, 1 - LABELS, loss=nn.BCEWithLogitsLoss())

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(5, 4)


class TestInputsByName(TestClasses):
    @pytest.fixture
    def task(self) -> Task:
        return arrays({"ids": CLASSES, "numbers": X}, CLASSES)

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return arrays({"ids": CLASSES, "numbers": 2 * X}, CLASSES)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        torch.manual_seed(0)
        return Both()


def opened(task: Task) -> ArrayData:
    data = task.open(data_seed=1, sampling_seed=2, batch_size=8, device=CPU)
    assert isinstance(data, ArrayData)
    return data


def names(task: Task) -> list[tuple[str, str, str]]:
    return [(each.name, each.goal, each.scale) for each in task.metrics if not each.of_training]


def test_loss_and_metric_follow_the_targets() -> None:
    assert names(arrays(X, CLASSES)) == [
        ("top1", "max", "accuracy"),
        ("validation_loss", "min", "loss"),
    ]
    assert names(arrays(X, CLASSES.astype(bool))) == names(arrays(X, CLASSES))
    assert names(arrays(X, NUMBERS)) == [("mse", "min", "error")]
    assert names(arrays(X, NUMBERS, metric="nmse"))[0] == ("nmse", "min", "error")
    assert names(arrays(X, LABELS, loss=nn.BCEWithLogitsLoss())) == [
        ("validation_loss", "min", "loss")
    ]
    assert names(arrays(X, LABELS, metric=closeness, goal="max"))[0] == (
        *("closeness", "max", "accuracy"),
    )


def test_chance_is_what_a_constant_scores() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([best]).expand(len(x), -1)

    held_out = X[:20], CLASSES[:20]
    commonest = np.bincount(CLASSES[:20], minlength=3)
    best = list(map(float, commonest == commonest.max()))
    task = arrays(X, CLASSES, validation=held_out)
    assert measured(opened(task), Constant())["top1"] == pytest.approx(task.metrics[0].chance)
    for metric, constant in (
        ("mse", NUMBERS[:20].mean()),
        ("nmse", NUMBERS[:20].mean()),
        ("mae", np.median(NUMBERS[:20])),
    ):
        best = [float(constant)]
        task = arrays(X, NUMBERS, metric=metric, validation=(X[:20], NUMBERS[:20]))
        scored = measured(opened(task), Constant())[metric]
        assert scored == pytest.approx(task.metrics[0].chance, rel=1e-4)


@pytest.mark.parametrize("outputs", ["tensor", "tuple", "object", "dictionary"])
def test_outputs_of_every_usual_form_are_scored_alike(outputs: str) -> None:
    class Model(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            logits = super().forward(x)
            forms: dict[str, Any] = {"tensor": logits, "tuple": (logits, x)}
            forms["object"] = type("Output", (), {"logits": logits})()
            forms["dictionary"] = {"hidden": x, "logits": logits}
            return forms[outputs]

    torch.manual_seed(0)
    model, plain = Model(5, 3), nn.Linear(5, 3)
    plain.load_state_dict(model.state_dict())
    data = opened(arrays(X, CLASSES))
    assert measured(data, model) == measured(data, plain)


def test_shapes_that_torch_would_broadcast_are_refused() -> None:
    data = opened(arrays(X, np.stack([NUMBERS] * 3, 1)))
    with pytest.raises(ValueError, match=r"y has the shape \(8, 3\) .*, not \(8, 1\)"):
        data.loss(nn.Linear(5, 1), next(data.batches(0)))
    data = opened(arrays(X, CLASSES))
    with pytest.raises(ValueError, match=r"logits of shape \(8, classes\), not \(8, 1, 3\)"):
        data.loss(nn.Sequential(nn.Linear(5, 3), nn.Unflatten(1, (1, 3))), next(data.batches(0)))


def test_a_class_for_each_token_is_learned() -> None:
    tokens = RANDOM.integers(7, size=(60, 4))
    task = arrays(tokens, tokens)
    assert measured(opened(task), nn.Embedding.from_pretrained(torch.eye(7)))["top1"] == 1


def test_a_data_set_is_its_pairs_and_a_random_one_is_refused() -> None:
    whole = arrays(X, CLASSES)
    assert arrays(Rows()) == whole
    assert arrays(torch.tensor(X), torch.tensor(CLASSES)) == whole
    assert arrays(TensorDataset(torch.tensor(X), torch.tensor(CLASSES))) == whole
    with pytest.raises(ValueError, match="another first example when it is asked again"):
        arrays(Rows(noise=1.0))


def test_the_key_has_the_content_and_the_loss_and_not_where_they_lie() -> None:
    from hsweep.planning.identity import content_hash

    def key(**settings: Any) -> str:
        return content_hash(arrays(X, LABELS, **settings), for_key=True)

    assert arrays(X.copy(), LABELS.tolist()).fingerprint() == arrays(X, LABELS).fingerprint()
    assert arrays(X[::-1], LABELS).fingerprint() != arrays(X, LABELS).fingerprint()
    weighted = nn.BCEWithLogitsLoss(pos_weight=torch.ones(4))
    losses = [None, nn.HuberLoss(), nn.HuberLoss(delta=2.0), weighted, nn.BCEWithLogitsLoss()]
    losses.append(nn.BCEWithLogitsLoss(pos_weight=torch.full((4,), 2.0)))
    losses += [partial(functional.huber_loss, delta=each) for each in (1.0, 2.0)]
    assert len({key(loss=each) for each in losses}) == len(losses)
    assert key(loss=nn.HuberLoss()) == key(loss=nn.HuberLoss())
    assert key(loss="huber_loss") == key(loss=functional.huber_loss)
    assert key(validation=0.25) != key()


def test_large_arrays_reach_another_process_by_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / "cache"))
    x = RANDOM.normal(size=(3000, 100))
    task = arrays(x, x.sum(1))
    sent = pickle.dumps(task)
    assert len(sent) < 1000
    assert len(pickle.dumps(arrays(X, NUMBERS))) > X.size * 4
    code = (
        "import pickle, sys, torch; task = pickle.load(sys.stdin.buffer)\n"
        "data = task.open(data_seed=0, sampling_seed=0, batch_size=8, device=torch.device('cpu'))\n"
        "print(next(data.batches(0))[0][0].sum().item())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, cwd=PROJECT, check=True
    )
    data = task.open(data_seed=0, sampling_seed=0, batch_size=8, device=CPU)
    assert float(found.stdout) == next(data.batches(0))[0][0].sum().item()
    monkeypatch.setattr(array_store, "_ARRAYS", {})
    monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="set HSWEEP_CACHE to a folder that all machines"):
        pickle.loads(sent).example_input()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((X,), "y is missing"),
        ((X, CLASSES[:9]), "x has 60 examples and y 9"),
        ((X, CLASSES - 1), r"y holds the class -1; classes are 0, 1, \.\.\., and -100 where"),
        ((X, [str(each) for each in CLASSES]), "y must hold numbers, not <U1"),
        ((np.where(X > 2, np.nan, X), CLASSES), r"x holds nan at \[\d+, \d+\]; replace it"),
        (([[1], [1, 2]], [0, 1]), "x is no array"),
        (([], []), "holds no examples"),
    ],
)
def test_arrays_that_cannot_be_learned_from_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        arrays(*given)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"validation": 0.001}, "leaves none to train on or none to validate on"),
        ({"validation": 2}, r"validation must lie in \[0, 1\)"),
        ({"validation": (X[:, :4], CLASSES)}, "x is float32 of shape .5,., .* not float32 of .*4"),
        ({"validation": (X, NUMBERS)}, "y is int64 .* not float32"),
        ({"metric": "mse"}, r"mse' does not fit y, .* classes: give top1, or .*astype\(float\)"),
        ({"metric": "top2"}, "metric must be one of 'top1', 'mse'"),
        ({"goal": "min"}, "the goal of top1 is 'max', not 'min'"),
        ({"metric": closeness}, "goal of a metric that is a function must be one of 'min', 'max'"),
        ({"metric": lambda a, b: 1, "goal": "max"}, "a metric needs a name"),
        ({"loss": "mse"}, "loss must be a function .* such as 'mse_loss', not 'mse'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        arrays(X, CLASSES, **settings)


def test_targets_of_minus_100_count_nowhere() -> None:
    """What is left out changes no loss, no score and no gradient, whatever batches it lies in."""
    sequences = RANDOM.integers(3, size=(60, 4))
    hidden = np.where(RANDOM.random((60, 4)) < np.linspace(0, 0.9, 60)[:, None], -100, sequences)
    hidden[7] = -100
    x = np.repeat(X[:, None], 4, 1)
    task = arrays(x, hidden, validation=(x, hidden))
    counted = hidden != -100
    shares = np.bincount(hidden[counted]) / counted.sum()
    assert next(each.chance for each in task.metrics if each.name == "top1") == shares.max()
    data = task.open(data_seed=0, sampling_seed=0, batch_size=60, device=CPU)
    assert isinstance(data, ArrayData)
    model = nn.Linear(5, 3)
    logits = model(torch.tensor(x[counted], dtype=torch.float32))
    truth = torch.tensor(hidden[counted])
    found = data.evaluate(model)
    assert found["validation_loss"] == pytest.approx(functional.cross_entropy(logits, truth).item())
    assert found["top1"] == pytest.approx((logits.argmax(1) == truth).double().mean().item())
    batch = next(data.batches(0))
    for at_once in (60, 16, 1):
        losses = [data.loss(model, part) * share for part, share in data.parts(batch, at_once)]
        assert torch.stack(losses).sum().item() == pytest.approx(found["validation_loss"])


def test_a_number_of_minus_100_is_one_like_any_other() -> None:
    task = arrays(X, np.full(60, -100.0), validation=(X, NUMBERS))
    data = task.open(data_seed=0, sampling_seed=0, batch_size=60, device=CPU)
    assert isinstance(data, ArrayData)
    [(_, share), *_] = data.parts(next(data.batches(0)), 15)
    assert share == 0.25
