import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.fields import share, whole_number, yes_or_no
from models.shape import Stage, every_stage

SIZES = st.integers(1, 64)


@settings(deadline=None, derandomize=True)
@given(heads=SIZES, head_width=SIZES)
def test_coupled_heads_share_the_embedding_among_them(heads: int, head_width: int) -> None:
    shape = Stage(embed_dim=heads * head_width, depth=1, heads=heads, seq_len=8)
    assert shape.head_dim is None
    assert shape.head_width == head_width
    assert shape.inner_dim == shape.embed_dim


@settings(deadline=None, derandomize=True)
@given(embed_dim=SIZES, heads=SIZES, head_dim=SIZES)
def test_decoupled_heads_have_the_width_that_is_given(
    embed_dim: int, heads: int, head_dim: int
) -> None:
    shape = Stage(embed_dim=embed_dim, depth=1, heads=heads, head_dim=head_dim, seq_len=8)
    assert shape.head_dim == head_dim
    assert (shape.head_width, shape.inner_dim) == (head_dim, heads * head_dim)


def test_coupled_heads_that_do_not_divide_the_embedding_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError) as refusal:
        Stage(embed_dim=768, depth=12, heads=7, seq_len=197)
    assert str(refusal.value) == (
        "embed_dim must be a multiple of heads when head_dim is coupled: "
        "768 is not a multiple of 7; give head_dim to decouple"
    )
    assert Stage(embed_dim=768, depth=12, heads=7, head_dim=64, seq_len=197).inner_dim == 448


@pytest.mark.parametrize("name", ["embed_dim", "depth", "heads", "head_dim", "seq_len"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "4", [4], float("nan"), float("inf")])
def test_a_size_that_is_not_a_positive_whole_number_is_refused_by_name(
    name: str, value: object
) -> None:
    sizes: dict[str, object] = {"embed_dim": 8, "depth": 1, "heads": 2, "seq_len": 4, name: value}
    with pytest.raises(ValueError, match=f"^{name} must be a whole number of at least 1, not "):
        Stage(**sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("four", [4, 4.0, np.int64(4), np.uint8(4), np.float64(4.0)])
def test_whole_numbers_of_other_types_become_ints(four: int) -> None:
    shape = Stage(embed_dim=four, depth=four, heads=four, head_dim=four, seq_len=four)
    assert shape == Stage(embed_dim=4, depth=4, heads=4, head_dim=4, seq_len=4)
    assert {type(value) for value in (shape.embed_dim, shape.depth, shape.head_dim)} == {int}


def test_numpy_booleans_are_refused_too() -> None:
    with pytest.raises(ValueError, match="heads must be a whole number"):
        whole_number("heads", np.True_)


@pytest.mark.parametrize("ratio", [-1, float("nan"), float("inf"), True, "4", None])
def test_an_mlp_ratio_that_is_not_a_finite_number_of_at_least_zero_is_refused(
    ratio: object,
) -> None:
    with pytest.raises(ValueError, match="mlp_ratio must be a finite number of at least 0"):
        Stage(embed_dim=8, depth=1, heads=2, mlp_ratio=ratio, seq_len=4)  # type: ignore[arg-type]


def test_the_hidden_width_is_rounded_down_and_may_be_absent_but_not_vanish() -> None:
    assert Stage(embed_dim=10, depth=1, heads=2, mlp_ratio=2.55, seq_len=4).mlp_dim == 25
    assert Stage(embed_dim=10, depth=1, heads=2, mlp_ratio=0, seq_len=4).mlp_dim == 0
    with pytest.raises(ValueError, match="at least one hidden unit"):
        Stage(embed_dim=10, depth=1, heads=2, mlp_ratio=0.05, seq_len=4)


def test_a_number_below_its_upper_bound_is_required_where_there_is_one() -> None:
    assert share("drop_path", np.float32(0.5)) == 0.5
    with pytest.raises(ValueError, match=r"drop_path must lie in \[0, 1\), not 1"):
        share("drop_path", 1)


def test_a_switch_takes_only_booleans() -> None:
    assert yes_or_no("residual", False) is False
    with pytest.raises(ValueError, match="residual must be True or False, not 'no'"):
        yes_or_no("residual", "no")


def test_a_shape_is_a_frozen_value() -> None:
    shape = Stage(embed_dim=8, depth=1, heads=2, seq_len=4)
    assert hash(shape) == hash(Stage(embed_dim=8, depth=1, heads=2, seq_len=4))
    with pytest.raises(FrozenInstanceError):
        shape.heads = 4  # type: ignore[misc]


def test_shapes_and_counts_are_importable_without_torch() -> None:
    program = (
        "import models.shape, models.counts, models.base, sys; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_value_for_every_stage_is_repeated_or_already_as_many() -> None:
    assert every_stage("heads", 8, 3, whole_number) == (8, 8, 8)
    assert every_stage("heads", [8, 4.0, 2], 3, whole_number) == (8, 4, 2)
    with pytest.raises(ValueError) as refusal:
        every_stage("heads", (8, 4), 3, whole_number)
    assert str(refusal.value) == (
        "heads must have one value or 3, one for each stage, not 2: (8, 4)"
    )
    with pytest.raises(ValueError, match=r"^heads of stage 1 must be "):
        every_stage("heads", (8, 0, 4), 3, whole_number)
    with pytest.raises(ValueError, match=r"^depth must have one value or 3, .* not 0: \(\)"):
        every_stage("depth", (), 3, whole_number)
