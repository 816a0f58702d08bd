import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from task_contract import CPU, TaskContract, same, unchanged_global_state
from text_tables import sentences, undecodable, write_table, write_tokenizer
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import DataError, FurtherEvaluated, Task
from tasks.language.glue import Glue, GlueData
from tasks.language.glue_tasks import (
    EIGHT_TASKS,
    GLUE_TASKS,
    Examples,
    check,
    examples,
    metric_name,
    scored,
)
from tasks.language.masked_text import MaskedText

Numbers = NDArray[np.float64]

SIZE = 150
ALL = tuple(GLUE_TASKS)


class Bag(nn.Module):
    """A token's embedding, and the mean over all that are no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SIZE, 16)
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.embedding.weight.normal_(generator=random)
        self.dropout = nn.Dropout(0.0)

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        each = self.embedding(tokens)
        kept = torch.ones(tokens.shape) if mask is None else mask.float()
        mean = (each * kept[:, :, None]).sum(1) / kept.sum(1, keepdim=True)
        features: Tensor = self.dropout(each + mean[:, None])
        return features

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.linear(self.features(tokens), self.embedding.weight)


GRADIENTS: list[float] = []
"""The largest number of each gradient that came back to a watched bag."""


class WatchedBag(Bag):
    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        features = super().features(tokens, mask)
        if features.requires_grad:
            features.register_hook(lambda grad: GRADIENTS.append(float(grad.abs().max())))
        return features


class Attentive(Bag):
    """A bag whose tokens attend to each other."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(16, 2, dropout=0.0, batch_first=True)

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        each = super().features(tokens, mask)
        mixed, _ = self.attention(each, each, each, need_weights=False)
        features: Tensor = each + mixed
        return features


def labels_of(task: str, first: list[str]) -> list[float]:
    """What a bag of words can tell: whether there is a cat, how many."""
    cats = [text.count("cat") for text in first]
    if task == "stsb":
        return [float(min(number, 5)) for number in cats]
    return [min(number, GLUE_TASKS[task].num_classes - 1) for number in cats]


def write_task(folder: Path, task: str, **changed: Any) -> None:
    """Write a task's splits, and the README that names all tasks' files."""
    for number, split in enumerate(("train", *GLUE_TASKS[task].validation)):
        columns: dict[str, Any] = {
            column: sentences(240 if split == "train" else 60, seed=10 * number + place, words=5)
            for place, column in enumerate(GLUE_TASKS[task].columns)
        }
        columns["label"] = labels_of(task, columns[GLUE_TASKS[task].columns[0]])
        write_table(folder / task, split, columns | changed)
    entries = [
        f"- config_name: {path.parent.name}\n  data_files:"
        + "".join(
            f"\n  - {{split: {file.name.split('-')[0]}, path: {path.parent.name}/{file.name}}}"
            for file in sorted(path.parent.iterdir())
        )
        for path in sorted(folder.glob("*/train-*"))
    ]
    (folder / "README.md").write_text("---\nconfigs:\n" + "\n".join(entries) + "\n---\n")


@pytest.fixture
def glue(tmp_path: Path, tiny_texts: Path) -> Glue:
    for task in ("cola", "mrpc"):
        write_task(tmp_path / "glue", task)
    pretraining = MaskedText(str(tiny_texts), seq_len=16, vocab_size=SIZE)
    tasks = ("mrpc", "cola")
    return Glue(pretraining, str(tmp_path / "glue"), tasks, epochs=3, lr=1e-2, dropout=0.0)


def opened(task: Glue, sampling_seed: int = 2) -> GlueData:
    data = task.open(data_seed=1, sampling_seed=sampling_seed, batch_size=8, device=CPU)
    assert isinstance(data, GlueData)
    return data


def tuned(task: Glue, model: nn.Module | None = None, sampling_seed: int = 2) -> dict[str, float]:
    return dict(opened(task, sampling_seed).evaluate_further(model or Bag(), is_last=True))


def correlation(one: Numbers, other: Numbers) -> float:
    """Covariance over the deviations' product."""
    a, b = one - one.mean(), other - other.mean()
    return float((a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum()))


class TestGlue(TaskContract):
    @pytest.fixture
    def task(self, glue: Glue) -> Task:
        return glue

    @pytest.fixture
    def variant(self, glue: Glue) -> Task:
        return replace(glue, tasks=("cola",))

    @pytest.fixture
    def model(self) -> nn.Module:
        return Bag()


class TestMetrics:
    def test_all_nine_have_their_own_scores(self, glue: Glue) -> None:
        names = [metric.name for metric in replace(glue, tasks=ALL).metrics]
        assert names[0] == "glue_average"
        assert names[1 : -len(glue.pretraining.metrics)] == [
            "cola_matthews",
            "sst2_accuracy",
            *("mrpc_f1", "mrpc_accuracy", "qqp_f1", "qqp_accuracy"),
            *("stsb_pearson", "stsb_spearman"),
            *("mnli_accuracy", "mnli_mismatched_accuracy"),
            *("qnli_accuracy", "rte_accuracy", "wnli_accuracy"),
        ]
        assert set(ALL) - set(EIGHT_TASKS) == {"wnli"}

    def test_the_average_is_over_the_tasks_first_scores(self, glue: Glue) -> None:
        values = tuned(glue)
        assert set(values) == {"glue_average", "cola_matthews", "mrpc_f1", "mrpc_accuracy"}
        expected = (values["cola_matthews"] + values["mrpc_f1"]) / 2
        assert values["glue_average"] == pytest.approx(expected)

    def test_mnlis_two_sets_count_apart(self, glue: Glue) -> None:
        write_task(Path(glue.data), "mnli")
        values = tuned(replace(glue, tasks=("mnli",)))
        parts = [values["mnli_accuracy"], values["mnli_mismatched_accuracy"]]
        assert values["glue_average"] == pytest.approx(sum(parts) / 2)
        assert metric_name("mnli", "validation_mismatched", "accuracy") in values

    @pytest.mark.parametrize("name", ALL)
    def test_any_task_can_be_alone(self, glue: Glue, name: str) -> None:
        write_task(Path(glue.data), name)
        task = replace(glue, tasks=(name,), epochs=1)
        declared = {metric.name for metric in task.metrics}
        assert set(tuned(task)) == declared - {metric.name for metric in glue.pretraining.metrics}

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=40))
    def test_scores_of_classes_follow_their_definitions(self, pairs: list[tuple[int, int]]) -> None:
        predicted, truth = (np.array(column) for column in zip(*pairs, strict=True))
        (tn, fp), (fn, tp) = (
            [int(((truth == t) & (predicted == p)).sum()) for p in (0, 1)] for t in (0, 1)
        )
        f1 = 2 * tp / (2 * tp + fp + fn) if tp else 0.0
        assert scored("f1", predicted, truth) == pytest.approx(f1)
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        matthews = (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0
        assert scored("matthews", predicted, truth) == pytest.approx(matthews)
        assert scored("accuracy", predicted, truth) == pytest.approx((tp + tn) / len(pairs))

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=40))
    def test_scores_of_numbers_follow_their_definitions(self, pairs: list[tuple[int, int]]) -> None:
        predicted, truth = (np.array(column, float) / 10 for column in zip(*pairs, strict=True))
        if len(set(predicted)) == 1 or len(set(truth)) == 1:
            return
        assert scored("pearson", predicted, truth) == pytest.approx(correlation(predicted, truth))
        ranks = [
            np.array([(each < x).sum() + (each == x).sum() / 2 for x in each])
            for each in (predicted, truth)
        ]
        assert scored("spearman", predicted, truth) == pytest.approx(correlation(*ranks))

    def test_telling_nothing_apart_scores_nothing(self) -> None:
        truth, alike = np.array([0.0, 1.0, 2.0]), np.ones(3)
        assert scored("pearson", alike, truth) == scored("spearman", alike, truth) == 0
        assert scored("matthews", np.ones(3, int), np.array([0, 1, 1])) == 0
        assert scored("f1", np.zeros(3, int), np.array([0, 1, 1])) == 0


class TestFineTuning:
    @pytest.mark.parametrize("task", ["cola", "stsb"])
    def test_what_can_be_learned_is_learned(self, glue: Glue, task: str) -> None:
        write_task(Path(glue.data), task)
        values = tuned(replace(glue, tasks=(task,), epochs=10))
        assert values["glue_average"] > 0.6

    def test_it_follows_from_the_sampling_seed_and_the_weights(self, glue: Glue) -> None:
        write_task(Path(glue.data), "stsb")
        task = replace(glue, tasks=("stsb",), dropout=0.3)
        torch.manual_seed(1)
        first = tuned(task)
        torch.manual_seed(2)
        assert tuned(task) == first
        assert tuned(task, sampling_seed=3) != first
        other = Bag()
        with torch.no_grad():
            other.embedding.weight.mul_(-3)
        assert tuned(task, other) != first

    def test_the_model_and_all_randomness_are_left_as_they_are(self, glue: Glue) -> None:
        data, model = opened(replace(glue, dropout=0.3)), Bag().eval()
        model.embedding.weight.grad = torch.ones(SIZE, 16)
        before = copy.deepcopy(model.state_dict())
        with unchanged_global_state():
            data.evaluate_further(model, is_last=True)
        assert same(list(before.values()), list(model.state_dict().values()))
        assert bool((model.embedding.weight.grad == 1).all())
        assert not model.training
        assert model.dropout.p == 0

    def test_it_can_be_called_where_gradients_are_off(self, glue: Glue) -> None:
        with torch.no_grad():
            assert tuned(glue) == tuned(glue)

    def test_weights_learn_under_autocast_as_well(self, glue: Glue) -> None:
        task = replace(glue, tasks=("cola",), epochs=10)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert tuned(task)["cola_matthews"] > 0.6

    def test_gradients_in_float16_are_scaled_so_that_they_do_not_vanish(self, glue: Glue) -> None:
        def first_gradient(precision: torch.dtype) -> float:
            GRADIENTS.clear()
            with torch.autocast("cpu", dtype=precision):
                tuned(replace(glue, tasks=("cola",)), WatchedBag())
            return GRADIENTS[0]

        scale = first_gradient(torch.float16) / first_gradient(torch.bfloat16)
        assert scale == pytest.approx(2**16, rel=0.1)

    def test_it_waits_for_the_last_report_unless_asked(self, glue: Glue) -> None:
        data = opened(glue)
        assert isinstance(data, FurtherEvaluated)
        assert data.evaluate_further(Bag(), is_last=False) == {}
        often = opened(replace(glue, every_report=True))
        assert often.evaluate_further(Bag(), is_last=False) == tuned(glue)

    def test_fewer_examples_can_be_used(self, glue: Glue) -> None:
        few = opened(replace(glue, max_train=10))
        assert {len(split.train.labels) for split in few._splits.values()} == {10}
        whole = opened(glue)._splits["cola"].train
        ends = np.concatenate(([0], whole.ends))
        chosen = [whole.tokens[ends[row] : ends[row + 1]] for row in range(0, 240, 24)]
        assert np.array_equal(few._splits["cola"].train.tokens, np.concatenate(chosen))

    def test_dropout_is_on(self, glue: Glue) -> None:
        assert tuned(replace(glue, dropout=0.9)) != tuned(glue)

    def test_attention_drops_its_weights_too(self, glue: Glue) -> None:
        write_task(Path(glue.data), "stsb")
        task = replace(glue, tasks=("stsb",), dropout=0.2)
        with_it, without = Attentive(), Attentive()
        without.attention.dropout = 0  # type: ignore[assignment]  not a rate, so it is left alone
        assert tuned(task, with_it) != tuned(task, without)
        assert with_it.attention.dropout == 0.0

    def test_a_model_of_shorter_sequences_is_refused_before_training(self, glue: Glue) -> None:
        class Short(Bag):
            def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
                if tokens.shape[1] > 8:
                    raise ValueError("at most 8 tokens")
                return super().features(tokens, mask)

        class Pooled(Bag):
            def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
                return super().features(tokens, mask).mean(1)

        with pytest.raises(ValueError, match="at most 8 tokens"):
            opened(glue).warm_start(Short())
        with pytest.raises(ValueError, match=r"must return \(1, \d+, width\) .* not \(1, 16\)"):
            opened(glue).warm_start(Pooled())

    def test_a_model_without_features_is_refused_before_training(self, glue: Glue) -> None:
        with pytest.raises(ValueError, match=r"must have features\(tokens, mask\).*Linear has not"):
            opened(glue).warm_start(nn.Linear(1, 1))


class TestExamples:
    def read(self, glue: Glue, task: str, seq_len: int = 128) -> Examples:
        subwords = glue.pretraining.subwords()
        return examples(glue.data, task, "train", subwords, seq_len)

    def test_texts_lie_between_special_tokens(self, glue: Glue) -> None:
        subwords = glue.pretraining.subwords()
        one, two = (sentences(1, seed=place, words=5)[0] for place in (0, 1))
        found = self.read(glue, "mrpc")
        first, separator = subwords.special("first"), subwords.special("separator")
        a, b = subwords.encode([one, two])
        expected = [first, *a, separator, *b, separator]
        assert found.tokens[: found.ends[0]].tolist() == expected
        assert len(found.ends) == len(found.labels) == 240

    def test_the_longer_text_is_cut_first(self, glue: Glue) -> None:
        write_table(
            Path(glue.data) / "mrpc",
            "train",
            {"sentence1": ["the cat"], "sentence2": ["dog " * 50], "label": [1]},
        )
        found = self.read(glue, "mrpc", seq_len=10)
        words = glue.pretraining.subwords().tokenizer
        tokens = [words.id_to_token(int(token)) for token in found.tokens]
        assert tokens == ["[CLS]", "the", "cat", "[SEP]", *["dog"] * 5, "[SEP]"]

    def test_they_are_encoded_once(self, glue: Glue, monkeypatch: pytest.MonkeyPatch) -> None:
        first = self.read(glue, "cola")
        subwords = glue.pretraining.subwords()
        monkeypatch.setattr(type(subwords), "encode", None)
        again = examples(glue.data, "cola", "train", subwords, 128)
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


class TestWhatIsWrongIsNamed:
    def test_a_task_that_is_not_there(self, glue: Glue) -> None:
        with pytest.raises(DataError, match="configuration 'rte'"):
            replace(glue, tasks=("rte",)).fingerprint()

    def test_all_tasks_that_cannot_be_used_are_named_together(self, glue: Glue) -> None:
        columns = {"sentence": ["a cat", "it"], "label": [1, -1]}
        write_table(Path(glue.data) / "cola", "train", columns)
        with pytest.raises(DataError, match=r"(?s)cola, .* must lie in 0\.\.1.*'rte'.*'wnli'"):
            replace(glue, tasks=("cola", "mrpc", "rte", "wnli")).fingerprint()

    def test_data_that_are_not_there_are_named_once(self, glue: Glue) -> None:
        with pytest.raises(DataError, match="HSWEEP_HUB=1") as raised:
            replace(glue, data="nyu-mll/nowhere").fingerprint()
        assert str(raised.value).count("nyu-mll/nowhere") == 1

    def test_a_label_that_is_missing(self, glue: Glue) -> None:
        columns = {"sentence": ["a cat", "it", "a"], "label": [1, 0, None]}
        write_table(Path(glue.data) / "cola", "train", columns)
        match = r"row 2: there is no label"
        with pytest.raises(DataError, match=match):
            glue.fingerprint()

    def test_a_tokenizer_without_a_first_token(self, glue: Glue, tmp_path: Path) -> None:
        write_tokenizer(tmp_path, ("[PAD]", "[UNK]", "[SEP]", "[MASK]", "cat"))
        pretraining = replace(glue.pretraining, tokenizer=str(tmp_path))
        assert pretraining.fingerprint()
        with pytest.raises(DataError, match="role 'first'"):
            replace(glue, pretraining=pretraining).fingerprint()

    def test_a_split_that_is_not_there(self, glue: Glue) -> None:
        (Path(glue.data) / "cola" / "validation-00000-of-00001.parquet").unlink()
        write_task_readme = Path(glue.data) / "README.md"
        text = write_task_readme.read_text()
        line = "\n  - {split: validation, path: cola/validation-00000-of-00001.parquet}"
        write_task_readme.write_text(text.replace(line, ""))
        with pytest.raises(DataError, match="cola, must have a split 'validation'"):
            glue.fingerprint()

    @pytest.mark.parametrize("column", ["sentence", "label"])
    def test_a_column_that_is_not_there(self, glue: Glue, column: str) -> None:
        columns: dict[str, Any] = {"sentence": ["a cat"], "label": [1]}
        columns["other"] = columns.pop(column)
        for split in ("train", "validation"):
            write_table(Path(glue.data) / "cola", split, columns)
        with pytest.raises(DataError, match=rf"cola.* must have the .*'{column}'.*'other'"):
            glue.fingerprint()

    def test_a_column_that_one_split_lacks(
        self, glue: Glue, capfd: pytest.CaptureFixture[str]
    ) -> None:
        write_table(Path(glue.data) / "cola", "train", {"sentence": ["a cat"], "score": [1]})
        with pytest.raises(DataError, match=r"(?s)cannot load .* 'cola'.*column names don't match"):
            glue.fingerprint()

    @pytest.mark.parametrize("label", [5.5, -0.1, float("nan")])
    def test_a_similarity_out_of_range(self, glue: Glue, label: float) -> None:
        write_task(Path(glue.data), "stsb")
        columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [1.0, label]}
        write_table(Path(glue.data) / "stsb", "validation", columns)
        with pytest.raises(DataError, match=r"stsb, split 'validation', row 1: .* 0\.\.5"):
            replace(glue, tasks=("stsb",)).fingerprint()

    def test_bytes_that_are_no_text(self, glue: Glue) -> None:
        columns = {"sentence": undecodable([b"a cat", b"\xff"]), "label": [1, 0]}
        write_table(Path(glue.data) / "cola", "train", columns)
        with pytest.raises(DataError, match=r"cola, split 'train', row 1: .* 0xff"):
            glue.fingerprint()


class TestRealGlue:
    @pytest.mark.parametrize("task", ["cola", "sst2", "mrpc", "stsb", "rte", "wnli"])
    def test_its_columns_and_splits_are_there(
        self, task: str, shared_data: Callable[[str], str]
    ) -> None:
        table = check(shared_data("glue"), task)
        assert {"train", "validation"} <= set(table.splits)

    def test_a_task_without_a_split_to_train_on_is_refused_when_planning(
        self, shared_data: Callable[[str], str], glue: Glue
    ) -> None:
        task = replace(glue, data=shared_data("glue"), tasks=("qnli",))
        with pytest.raises(DataError, match="qnli, must have a split 'train'; it has 'validation'"):
            task.fingerprint()

    def test_a_task_is_fine_tuned(self, shared_data: Callable[[str], str], glue: Glue) -> None:
        task = replace(glue, data=shared_data("glue"), tasks=("wnli",), epochs=1)
        values = tuned(replace(task, max_train=64, seq_len=32))
        assert set(values) == {"glue_average", "wnli_accuracy"}
        assert opened(task).eval_size == 71
