"""What a conditioning probe sees, and that nothing happens to whom it watches."""

import math
import pickle
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention_probe import (
    condition_numbers,
    effective_ranks,
    find_attention,
    singular_values,
    watching,
)
from models.conditioning import (
    LARGEST_CONDITION_NUMBER,
    METRICS,
    Conditioning,
    LayerConditioning,
    gaussian_condition_number,
    is_probed,
    layer_metric,
    summarised,
)
from models.davit import DaViT
from models.decoder import Decoder
from models.encoder import CrammedBert
from models.nystromformer import Nystromformer
from models.rank_encoder import RankEncoder
from models.ranker import Ranker
from models.retrieval import RetrievalTransformer
from models.tnt import TNT
from models.torchvision_compat import make_torchvision_importable
from models.vit import ViT
from models.volo import VOLO
from models.xcit import XCiT

ROOT = Path(__file__).parents[2]


class UserAttention(nn.Module):
    """As somebody might write it."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        def split(part: Tensor) -> Tensor:
            return part.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

        query, key, value = map(split, self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(query, key, value)
        output: Tensor = self.out_proj(mixed.transpose(-3, -2).flatten(-2))
        return output


class Stack(nn.Module):
    """User's attention layers, one after another, each with a class of its own before it."""

    def __init__(self, depth: int = 2, **settings: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(UserAttention(**settings) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x.mean(1)


class Windows(nn.Module):
    """Attention within windows of four tokens, a leading axis of examples times windows."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = UserAttention()

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unflatten(1, (-1, 4))
        mixed: Tensor = self.attention(windows.flatten(0, 1))
        return mixed.unflatten(0, windows.shape[:2]).flatten(1, 2)


def gpt2() -> nn.Module:
    make_torchvision_importable()
    from transformers import GPT2Config, GPT2Model

    sizes = {"vocab_size": 20, "n_positions": 8, "n_embd": 12, "n_layer": 2, "n_head": 3}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return LastState(GPT2Model(GPT2Config(**sizes, **tokens)))


def bert() -> nn.Module:
    make_torchvision_importable()
    from transformers import BertConfig, BertModel

    sizes = {"vocab_size": 20, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
    return LastState(BertModel(BertConfig(**sizes, intermediate_size=16)))


def llama() -> nn.Module:
    make_torchvision_importable()
    from transformers import LlamaConfig, LlamaModel

    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6}
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return LastState(LlamaModel(LlamaConfig(**sizes, **heads, **tokens)))


class LastState(nn.Module):
    """One of transformers' models, called by keyword and reduced to a tensor."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        state: Tensor = self.inner(input_ids=x).last_hidden_state
        return state


def vit(**settings: Any) -> nn.Module:
    sizes = {"embed_dim": 12, "heads": 3, "image_size": 32, "patch_size": 8, "num_classes": 5}
    return ViT(**{"depth": 3, **sizes, **settings}).build()


def images(number: int) -> Tensor:
    return torch.randn(number, 3, 32, 32)


def words(number: int) -> Tensor:
    return torch.randint(0, 20, (number, 8))


def tokens(number: int) -> Tensor:
    return torch.randn(number, 8, 12)


TEXT: dict[str, Any] = {
    **{"embed_dim": 12, "depth": 2, "heads": 3, "head_dim": 5, "seq_len": 8, "vocab_size": 20}
}


def xcit() -> nn.Module:
    sizes = {"embed_dim": 12, "depth": 2, "heads": 3, "head_dim": 6}
    return XCiT(**sizes, image_size=32, patch_size=16, num_classes=5).build()


def tnt() -> nn.Module:
    sizes = {"embed_dim": 12, "depth": 2, "heads": 3, "head_dim": 6}
    inner = {"inner_dim": 8, "inner_heads": 2}
    return TNT(**sizes, **inner, image_size=32, patch_size=16, num_classes=5).build()


def volo() -> nn.Module:
    sizes = {"embed_dim": (8, 12, 12, 12), "heads": (2, 3, 3, 3)}
    return VOLO(**sizes, depth=1, image_size=32, stem_hidden_dim=4, num_classes=5).build()


def davit() -> nn.Module:
    sizes = {"embed_dim": (8, 8, 12, 12), "heads": (2, 2, 3, 3)}
    return DaViT(**sizes, depth=1, image_size=32, window_size=2, num_classes=5).build()


def retrieval(depth: int) -> nn.Module:
    return RetrievalTransformer(heads=3, head_dim=4, seq_len=8, input_dim=12, depth=depth).build()


@dataclass(frozen=True)
class Case:
    """A model and what there is to see of it.

    Attributes:
        build: makes the model.
        inputs: makes so many examples.
        sizes: (rows, columns, heads) of every layer that can be looked at.
        num_left_out: layers that compute one row alone.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    sizes: list[tuple[int, int, int]]
    num_left_out: int = 0


CASES = {
    "vit": Case(lambda: vit(skip_unread_tokens=False), images, [(17, 12, 3)] * 3),
    "vit, last block's class token alone": Case(vit, images, [(17, 12, 3)] * 2, 1),
    "vit, decoupled": Case(lambda: vit(head_dim=5), images, [(17, 15, 3)] * 2, 1),
    "xcit": Case(xcit, images, [(4, 18, 3)] * 2, 2),
    "tnt": Case(tnt, images, [(16, 8, 2), (5, 18, 3), (16, 8, 2)], 1),
    "volo": Case(volo, images, [(16, 8, 2), *[(4, 12, 3)] * 3], 2),
    # Windows and channels in turn, the last stage a single token.
    "davit": Case(
        davit,
        images,
        [
            *[(4, 8, 2), (64, 8, 2), (4, 8, 2), (16, 8, 2)],
            *[(4, 12, 3), (4, 12, 3), (4, 12, 3)],
        ],
        1,
    ),
    "retrieval, one layer": Case(lambda: retrieval(1), tokens, [], 1),
    "retrieval": Case(lambda: retrieval(3), tokens, [(9, 12, 3)] * 2, 1),
    "ranker": Case(
        lambda: Ranker(heads=3, head_dim=5, seq_len=8, input_dim=12, embed_dim=12).build(),
        tokens,
        [(8, 15, 3)] * 2,
    ),
    "rank encoder": Case(
        lambda: RankEncoder(embed_dim=12, depth=2, heads=6, head_dim=4, seq_len=8).build(),
        tokens,
        [(8, 24, 6)] * 2,
    ),
    "decoder": Case(lambda: Decoder(**TEXT).build(), words, [(8, 15, 3)] * 2),
    "encoder": Case(lambda: CrammedBert(**TEXT).build(), words, [(8, 15, 3)] * 2),
    "nystromformer": Case(
        lambda: Nystromformer(**TEXT, num_classes=2, landmarks=4, conv_kernel=3).build(),
        words,
        [(8, 15, 3)] * 2,
    ),
    "gpt2": Case(gpt2, words, [(8, 12, 3)] * 2),
    "bert": Case(bert, words, [(8, 12, 3)] * 2),
    "llama": Case(llama, words, [(8, 24, 4)] * 2),
    "a user's": Case(Stack, tokens, [(8, 12, 3)] * 2),
    "windows": Case(Windows, tokens, [(4, 12, 3)]),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def model(case: Case) -> nn.Module:
    torch.manual_seed(0)
    return case.build().eval()


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def captured(model: nn.Module, x: Tensor) -> list[Tensor]:
    """What enters each output projection, seen by hooks of this test's own."""
    seen: list[Tensor] = []
    handles = [
        attention.projection.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
        for attention in find_attention(model)
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return seen


def condition_number(matrix: Tensor) -> float:
    return min(float(torch.linalg.cond(matrix.double())), LARGEST_CONDITION_NUMBER)


class TestEveryFamily:
    def test_its_attention_layers_are_found_with_their_sizes(
        self, case: Case, model: nn.Module
    ) -> None:
        with torch.no_grad(), watching(model, 3) as watch:
            model(case.inputs(5))
        seen = [layer for layer in watch.layers() if not layer.left_out]
        assert [(layer.rows, layer.columns, layer.heads) for layer in seen] == case.sizes
        assert len(watch.layers()) - len(seen) == case.num_left_out
        assert all(layer.num_matrices == 3 for layer in seen)
        for layer in watch.layers():
            if layer.left_out:
                assert "single row" in layer.left_out
                assert layer.condition_number is None

    def test_every_figure_is_there_and_possible(self, case: Case, model: nn.Module) -> None:
        with torch.no_grad(), watching(model, 3) as watch:
            model(case.inputs(5))
        for layer in watch.layers():
            if layer.left_out:
                continue
            assert layer.condition_number is not None
            assert layer.condition_number_per_head is not None
            assert layer.effective_rank is not None
            assert 1 <= layer.condition_number <= LARGEST_CONDITION_NUMBER
            assert 1 <= layer.condition_number_per_head <= LARGEST_CONDITION_NUMBER
            assert 1 <= layer.effective_rank <= min(layer.rows, layer.columns)

    def test_a_layers_condition_number_is_the_median_over_the_first_examples(
        self, case: Case, model: nn.Module
    ) -> None:
        x = case.inputs(5)
        with torch.no_grad(), watching(model, 5) as watch:
            model(x)
        seen = [layer for layer in watch.layers() if not layer.left_out]
        matrices = [each for each in captured(model, x) if each[0].ndim > 1]
        matrices = [each.flatten(1, -2) for each in matrices if each[0, ..., 0].numel() > 1]
        assert len(matrices) == len(case.sizes)
        for layer, outputs in zip(seen, matrices, strict=True):
            windows = len(outputs) // 5
            chosen = [outputs[i * windows + i * windows // 5] for i in range(5)]
            expected = [condition_number(each) for each in chosen]
            median, mean = statistics.median(expected), statistics.fmean(expected)
            assert layer.condition_number == pytest.approx(median, rel=1e-3)
            assert layer.condition_number_mean == pytest.approx(mean, rel=1e-3)
            each_head = [
                condition_number(head) for m in chosen for head in m.chunk(layer.heads, -1)
            ]
            median = statistics.median(each_head)
            assert layer.condition_number_per_head == pytest.approx(median, rel=1e-3)

    @pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
    def test_outputs_are_the_same_to_the_bit_and_no_random_number_is_drawn(
        self, case: Case, model: nn.Module, precision: torch.dtype
    ) -> None:
        x, more = case.inputs(5), case.inputs(5)
        mixed = torch.autocast("cpu", dtype=precision, enabled=precision is not torch.float32)
        with torch.no_grad(), mixed:
            expected, expected_more = model(x), model(more)
            state = torch.get_rng_state()
            with watching(model, 3) as watch:
                outputs = model(x)
                outputs_more = model(more)
            after = model(x)
        assert torch.equal(outputs, expected)
        assert torch.equal(outputs_more, expected_more)
        assert torch.equal(after, expected)
        assert torch.equal(torch.get_rng_state(), state)
        assert watch.metrics().keys() >= METRICS.keys()

    def test_gradients_are_the_same_to_the_bit(self, case: Case, model: nn.Module) -> None:
        x = case.inputs(3)

        def gradients() -> list[Tensor]:
            model.zero_grad()
            model(x).square().sum().backward()
            return [p.grad.clone() for p in model.parameters() if p.grad is not None]

        expected = gradients()
        with watching(model, 2):
            watched = gradients()
        assert all(map(torch.equal, watched, expected))

    def test_nothing_is_left_of_the_probe(self, case: Case, model: nn.Module) -> None:
        before = hooks_of(model)
        with torch.no_grad(), watching(model, 3):
            assert hooks_of(model) > before
            model(case.inputs(2))
        assert hooks_of(model) == before


class TestExamples:
    def test_only_the_first_ones_count_however_they_are_batched(self) -> None:
        model, x = Stack().eval(), tokens(12)
        found = []
        for sizes in ([12], [5, 7], [1] * 12, [7, 1, 4], [8, 4]):
            with torch.no_grad(), watching(model, 7) as watch:
                for batch in x.split(sizes):
                    model(batch)
            found.append(watch.layers())
            assert [layer.num_matrices for layer in found[-1]] == [7, 7]
        with torch.no_grad(), watching(model, 100) as watch:
            model(x[:7])
        for layers in [*found, watch.layers()]:
            for layer, expected in zip(layers, found[0], strict=True):
                assert layer.condition_number == pytest.approx(expected.condition_number, rel=1e-4)

    def test_a_layer_that_has_shown_enough_runs_unwatched(self) -> None:
        model = Stack().eval()
        with torch.no_grad(), watching(model, 3):
            model(tokens(2))
            assert all(hooks_of(layer) for layer in model.layers)
            model(tokens(2))
            assert not any(hooks_of(layer) for layer in model.layers)

    def test_so_does_one_that_has_shown_nothing_but_single_rows(self) -> None:
        model = retrieval(1)
        with torch.no_grad(), watching(model, 3):
            model(tokens(4))
            assert sum(map(hooks_of, model.children())) == 0

    @pytest.mark.parametrize("sizes", [[5], [1] * 5, [2, 3], [9]])
    def test_each_example_shows_one_of_its_windows_and_together_they_show_all(
        self, sizes: list[int]
    ) -> None:
        class Graded(nn.Module):
            """Five windows an example, whose condition numbers are 1, 10, ... 10 000."""

            def __init__(self) -> None:
                super().__init__()
                self.num_heads, self.proj = 1, nn.Linear(3, 3)

            def forward(self, x: Tensor) -> Tensor:
                windows = [torch.diag(torch.tensor([1.0, 1.0, 10.0**w])) for w in range(5)]
                output: Tensor = self.proj(torch.stack(windows * len(x)))
                return output

        model = Graded()
        with torch.no_grad(), watching(model, 5) as watch:
            for size in sizes:
                model(torch.zeros(size, 1))
        (layer,) = watch.layers()
        assert layer.num_matrices == 5
        assert layer.condition_number == pytest.approx(100)
        assert layer.condition_number_mean == pytest.approx(11_111 / 5, rel=1e-3)

    def test_a_batch_in_a_dictionary_given_by_keyword_is_understood(self) -> None:
        class Keyed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Windows()

            def forward(self, *, name: str, batch: dict[str, Tensor]) -> Tensor:
                output: Tensor = self.inner(batch["x"])
                return output

        model, x = Keyed(), tokens(3)
        with torch.no_grad(), watching(model, 3) as watch:
            model(name="three", batch={"x": x})
        with torch.no_grad(), watching(model.inner, 3) as plain:
            model.inner(x)
        assert watch.metrics() == plain.metrics()

    def test_layers_are_watched_where_only_a_part_of_the_model_is_called(self) -> None:
        model, x = Stack(), tokens(4)
        with torch.no_grad(), watching(model, 3) as watch:
            model.layers[1](x)
        first, second = watch.layers()
        assert (first.left_out, second.num_matrices) == ("its output projection was not called", 3)

    def test_without_any_every_figure_is_missing(self) -> None:
        with watching(Stack()) as watch:
            pass
        assert {name for name, value in watch.metrics().items() if value is not None} == {
            "probed_layers"
        }
        assert watch.metrics()["probed_layers"] == 0


class TestWhatItKeepsItsHandsOff:
    def test_torchs_own_encoder_stays_on_its_fast_path(self) -> None:
        layer = nn.TransformerEncoderLayer(12, 2, 16, batch_first=True)
        model = nn.TransformerEncoder(layer, 2).eval()
        x = tokens(4)
        with torch.no_grad():
            expected = model(x)
            with watching(model, 4) as watch:
                assert hooks_of(model) == 0
                assert torch.equal(model(x), expected)
        assert [layer.left_out for layer in watch.layers()] == [
            "nn.MultiheadAttention projects inside one fused call"
        ] * 2

    def test_attention_around_torchs_own_is_looked_at(self) -> None:
        class Around(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.heads, self.proj = 3, nn.Linear(12, 12)
                self.inner = nn.MultiheadAttention(12, 3, batch_first=True)

            def forward(self, x: Tensor) -> Tensor:
                output: Tensor = self.proj(self.inner(x, x, x, need_weights=False)[0])
                return output

        model, x = Around().eval(), tokens(4)
        with torch.no_grad():
            expected = model(x)
            with watching(model, 4) as watch:
                assert torch.equal(model(x), expected)
        assert watch.layers()[0].condition_number is not None

    def test_a_model_that_raises_is_left_as_it_was(self) -> None:
        class Raising(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.heads, self.proj = 3, nn.Linear(12, 12)

            def forward(self, x: Tensor) -> Tensor:
                raise KeyboardInterrupt if len(x) > 4 else RuntimeError("on purpose")

        for size, error in ((2, RuntimeError), (5, KeyboardInterrupt)):
            model = nn.Sequential(UserAttention(), Raising())
            with pytest.raises(error), watching(model):
                model(tokens(size))
            assert hooks_of(model) == 0

    def test_a_compiled_model_computes_the_same_and_is_left_out(self) -> None:
        model = torch.compile(Stack().eval(), backend="eager")
        x = tokens(4)
        with torch.no_grad():
            expected = model(x)
            with watching(model, 4) as watch:
                assert torch.equal(model(x), expected)
        assert watch.metrics()["probed_layers"] == 0
        torch.compiler.reset()

    def test_what_only_looks_like_attention_is_not_taken_for_it(self) -> None:
        class Patches(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.num_heads, self.proj = 2, nn.Conv2d(3, 4, 2)

        class Switch(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.heads, self.proj = True, nn.Linear(3, 4)

        assert find_attention(nn.ModuleList([Patches(), Switch(), nn.Linear(3, 4)])) == []


class TestFigures:
    @settings(max_examples=40, deadline=None)
    @given(
        seed=st.integers(0, 2**31),
        rows=st.integers(1, 20),
        columns=st.integers(1, 20),
        decades=st.floats(0, 6),
    )
    def test_singular_values_are_those_of_a_decomposition(
        self, seed: int, rows: int, columns: int, decades: float
    ) -> None:
        rng = torch.Generator().manual_seed(seed)
        exact = spectrum_matrix(torch.logspace(0, -decades, min(rows, columns)), rows, columns, rng)
        values = singular_values(exact[None])[0]
        assert torch.allclose(values, torch.linalg.svdvals(exact).flip(0), rtol=2e-3, atol=0)
        assert condition_numbers(values).item() == pytest.approx(values[-1] / values[0])

    def test_equal_singular_values_are_counted_by_the_effective_rank(self) -> None:
        for number in (1, 3, 10):
            values = torch.zeros(10).index_fill_(0, torch.arange(10 - number, 10), 2.5)
            assert effective_ranks(values).item() == pytest.approx(number)
        # By the definition: shares 1/2, 1/4, 1/4 have an entropy of 1.5 ln 2.
        assert effective_ranks(torch.tensor([1.0, 1.0, 2.0])).item() == pytest.approx(2**1.5)

    @pytest.mark.parametrize("smallest", [0.0, 1e-12, 1e-8])
    def test_a_singular_matrix_has_the_largest_condition_number_there_is(
        self, smallest: float
    ) -> None:
        rng = torch.Generator().manual_seed(0)
        matrix = spectrum_matrix(torch.tensor([1.0, 0.5, smallest]), 6, 3, rng)
        number = condition_numbers(singular_values(matrix)).item()
        assert number == LARGEST_CONDITION_NUMBER == 1 / torch.finfo(torch.float32).eps

    def test_so_has_a_matrix_of_zeros_and_it_has_no_effective_rank(self) -> None:
        values = singular_values(torch.zeros(2, 4, 3))
        assert condition_numbers(values).tolist() == [LARGEST_CONDITION_NUMBER] * 2
        assert effective_ranks(values).isnan().all()

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_what_is_not_finite_spoils_its_own_matrix_alone(self, bad: float) -> None:
        matrices = torch.randn(3, 5, 4)
        clean = condition_numbers(singular_values(matrices))
        matrices[1, 2, 3] = bad
        found = condition_numbers(singular_values(matrices))
        assert found.isnan().tolist() == [False, True, False]
        assert torch.equal(found[::2], clean[::2])

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_one_example_without_a_figure_leaves_the_layer_without(self, bad: float) -> None:
        model, x = UserAttention(), tokens(4)
        x[2, 3] = bad
        with torch.no_grad(), watching(model, 4) as watch:
            model(x)
        metrics = watch.metrics()
        present = {name for name, value in metrics.items() if value is not None}
        assert present == {"predicted_condition_number", "probed_layers"}

    def test_capped_matrices_are_counted(self) -> None:
        model, x = UserAttention(heads=1), tokens(4)
        x[:3] = x[:3, :1]  # equal tokens: equal rows
        with torch.no_grad(), watching(model, 4) as watch:
            model(x)
        (layer,) = watch.layers()
        assert layer.capped_share == 0.75
        assert layer.condition_number == LARGEST_CONDITION_NUMBER


def spectrum_matrix(values: Tensor, rows: int, columns: int, rng: torch.Generator) -> Tensor:
    """A float64 matrix with these singular values."""
    left, right = (
        torch.linalg.qr(torch.randn(size, len(values), generator=rng, dtype=torch.float64))[0]
        for size in (rows, columns)
    )
    return (left * values.double()) @ right.mT


class TestTheory:
    @pytest.mark.parametrize(
        ("heads", "expected"),
        [(2, 9.3), (3, 156), (4, 15.3), (6, 6.1), (8, 4.3), (12, 3.05), (16, 2.56), (18, 2.41)],
    )
    def test_it_is_not_monotone_over_the_heads_of_vit_b(self, heads: int, expected: float) -> None:
        assert gaussian_condition_number(197, 64 * heads) == pytest.approx(expected, rel=0.01)

    def test_it_is_infinite_for_a_square_and_the_same_for_the_transpose(self) -> None:
        assert gaussian_condition_number(64, 64) == math.inf
        assert gaussian_condition_number(64, 16) == gaussian_condition_number(16, 64) == 3

    def test_large_gaussian_matrices_have_it(self) -> None:
        rng = torch.Generator().manual_seed(0)
        matrices = torch.randn(8, 100, 400, generator=rng)
        measured = condition_numbers(singular_values(matrices)).median().item()
        assert measured == pytest.approx(gaussian_condition_number(100, 400), rel=0.05)

    def test_a_square_layer_has_a_measured_figure_and_no_predicted_one(self) -> None:
        model = UserAttention()
        with torch.no_grad(), watching(model) as watch:
            model(torch.randn(3, 12, 12))
        assert watch.metrics()["condition_number"] is not None
        assert watch.metrics()["predicted_condition_number"] is None


def layer(number: float | None, **changes: Any) -> LayerConditioning:
    figures = dict.fromkeys(
        ("condition_number_mean", "condition_number_per_head", "effective_rank"), number
    )
    return LayerConditioning("a", 16, 64, 4, 3, number, **{**figures, **changes})


class TestSummary:
    def test_it_is_the_mean_over_layers(self) -> None:
        metrics = summarised([layer(10.0), layer(1000.0)])
        assert metrics["condition_number"] == 505
        assert metrics["log10_condition_number"] == pytest.approx(2)
        assert metrics["predicted_condition_number"] == 3
        assert metrics["probed_layers"] == 2

    def test_layers_left_out_keep_their_number(self) -> None:
        left_out = LayerConditioning("b", left_out="it computes a single row")
        metrics = summarised([left_out, layer(10.0), left_out, layer(20.0)])
        assert metrics["condition_number"] == 15
        assert {name for name in metrics if name not in METRICS} == {
            "condition_number_layer_01",
            "condition_number_layer_03",
        }

    def test_a_mean_without_one_of_its_layers_is_missing(self) -> None:
        metrics = summarised([layer(10.0, effective_rank=2.0), layer(None, effective_rank=4.0)])
        assert metrics["condition_number"] is metrics["log10_condition_number"] is None
        assert metrics["effective_rank"] == 3
        assert metrics["condition_number_layer_00"] == 10
        assert metrics["condition_number_layer_01"] is None

    @given(st.lists(st.floats(1, LARGEST_CONDITION_NUMBER) | st.none(), max_size=5))
    def test_whatever_there_is_is_finite(self, numbers: list[float | None]) -> None:
        metrics = summarised([layer(number) for number in numbers])
        assert all(value is None or math.isfinite(value) for value in metrics.values())
        assert all(map(is_probed, metrics))

    def test_names_say_that_they_come_from_a_probe(self) -> None:
        assert is_probed(layer_metric(0))
        assert is_probed(layer_metric(123))
        assert not is_probed("condition")


class TestConditioning:
    @pytest.mark.parametrize("wrong", [{"every": 0}, {"every": 1.5}, {"examples": -1}])
    def test_impossible_wishes_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="whole number of at least 1"):
            Conditioning(**wrong)

    def test_it_travels(self) -> None:
        probe = Conditioning(every=3, examples=8)
        assert pickle.loads(pickle.dumps(probe)) == probe

    @pytest.mark.parametrize(
        ("every", "due"), [(1, {2, 4, 6, 7}), (2, {4, 7}), (3, {6, 7}), (9, {7})]
    )
    def test_every_so_many_reports_are_due_and_the_last(self, every: int, due: set[int]) -> None:
        assert Conditioning(every=every).due([2, 4, 6, 7]) == due

    def test_it_watches_so_many_examples(self) -> None:
        model = Stack()
        with torch.no_grad(), watching(model, examples=3) as watch:
            model(tokens(5))
        assert [each.num_matrices for each in watch.layers()] == [3, 3]

    def test_a_sweep_can_wish_for_it_without_torch(self) -> None:
        program = (
            "import sys; from models.conditioning import Conditioning; Conditioning(); "
            "print('torch' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "False"
