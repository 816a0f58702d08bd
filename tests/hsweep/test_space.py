"""Spaces are an algebra: what combines, what is refused, and that every sampler stays inside."""

import itertools
import math
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hsweep import (
    Point,
    Space,
    UserError,
    choice,
    grid,
    int_range,
    log_uniform,
    tuned,
    uniform,
    zipped,
)
from hsweep.design.space import parse_values

CLAIM = settings(deadline=None, derandomize=True, max_examples=60)


def in_words(space: Space) -> list[str]:
    return [" ".join(f"{axis}{point[axis]}" for axis in point) for point in space.points()]


def keeps_most(point: Point) -> bool:
    """An arbitrary condition that is the same in every process."""
    return zlib.crc32(repr(sorted(point.items())).encode()) % 4 != 0


VALUES = st.lists(st.integers(-9, 9), min_size=1, max_size=3, unique=True)


@st.composite
def finite_spaces(draw: st.DrawFn, axes: str = "abcd", depth: int = 3) -> Space:
    kinds = ["grid", "zipped", "range"]
    if depth > 0:
        kinds += ["union", "where", "derive"] + ["product"] * (len(axes) > 1)
    kind = draw(st.sampled_from(kinds))
    if kind == "product":
        cut = draw(st.integers(1, len(axes) - 1))
        return draw(finite_spaces(axes[:cut], depth - 1)) * draw(
            finite_spaces(axes[cut:], depth - 1)
        )
    if kind == "union":
        return draw(finite_spaces(axes, depth - 1)) + draw(finite_spaces(axes, depth - 1))
    if kind == "where":
        return draw(finite_spaces(axes, depth - 1)).where(keeps_most)
    if kind == "derive":
        inner = draw(finite_spaces(axes, depth - 1))
        name = f"sum_{depth}_{axes}"
        assume(name not in inner.axes)
        return inner.derive(**{name: lambda p: sum(v for v in p.values())})
    used = axes[: draw(st.integers(1, min(2, len(axes))))]
    if kind == "range":
        low, length, step = (draw(st.integers(1, 3)) for _ in range(3))
        return int_range(**dict.fromkeys(used, (low, low + length, step)))
    if kind == "zipped":
        rows = draw(st.lists(st.tuples(*(st.integers(0, 3) for _ in used)), min_size=1, max_size=4))
        columns = zip(*dict.fromkeys(rows), strict=True)
        return zipped(**{axis: list(column) for axis, column in zip(used, columns, strict=True)})
    return grid(**{axis: draw(VALUES) for axis in used})


def all_decoded(space: Space) -> list[Point]:
    """Every combination of the parameters' values, decoded."""
    parameters = space.parameters()
    listed = [domain.finite() for domain in parameters.values()]
    assume(math.prod(len(values) for values in listed if values is not None) <= 3_000)
    combinations = itertools.product(*(values for values in listed if values is not None))
    decoded = (space.decode(dict(zip(parameters, row, strict=True))) for row in combinations)
    return [Point(values) for values in decoded if values is not None]


class TestTheAlgebra:
    @pytest.mark.parametrize(
        ("space", "points"),
        [
            # The last axis changes fastest; a single value fixes its axis.
            (grid(a=[1, 2], b=[3, 4]), ["a1 b3", "a1 b4", "a2 b3", "a2 b4"]),
            (grid(a=4, b="gelu", c=None), ["a4 bgelu cNone"]),
            (grid(a=[2]).derive(b=lambda p: p.a * 8, c=lambda p: p.b * 4), ["a2 b16 c64"]),
            (zipped(a=[2, 2, 4], b=[1, 2, 1]), ["a2 b1", "a2 b2", "a4 b1"]),
            (grid(a=[1]) + grid(a=[1], b=[True]), ["a1", "a1 bTrue"]),
        ],
    )
    def test_points_come_in_their_order(self, space: Space, points: list[str]) -> None:
        assert in_words(space) == points
        assert set(space.axes) == {axis for point in space.points() for axis in point}

    @pytest.mark.parametrize("values", [np.array([1, 2]), range(1, 3), [np.int64(1), np.int64(2)]])
    def test_an_axis_takes_arrays_and_ranges(self, values: Any) -> None:
        found = [point["heads"] for point in grid(heads=values).points()]
        assert found == [1, 2]
        assert {type(value) for value in found} == {int}

    def test_numpy_values_become_plain_ones(self) -> None:
        [point] = grid(lr=np.float32(0.5), heads=[np.int64(4)]).points()
        assert type(point.lr) is float
        assert type(point.heads) is int

    @CLAIM
    @given(finite_spaces("ab"), finite_spaces("cd"))
    def test_a_product_has_each_pair_once(self, left: Space, right: Space) -> None:
        points = list((left * right).points())
        assert len(points) == len(list(left.points())) * len(list(right.points()))
        assert points == [
            Point({**one, **other}) for one in left.points() for other in right.points()
        ]

    @CLAIM
    @given(finite_spaces("abc"), finite_spaces("abc"))
    def test_a_union_has_the_left_points_then_the_new_ones_of_the_right(
        self, left: Space, right: Space
    ) -> None:
        both = list((left + right).points())
        assert both == list(dict.fromkeys([*left.points(), *right.points()]))

    @CLAIM
    @given(finite_spaces())
    def test_where_keeps_exactly_the_points_that_satisfy_it(self, space: Space) -> None:
        kept = list(space.where(lambda p: sum(p.values()) % 2 == 0).points())
        assert kept == [point for point in space.points() if sum(point.values()) % 2 == 0]

    @CLAIM
    @given(finite_spaces())
    def test_derive_adds_an_axis_and_changes_nothing_else(self, space: Space) -> None:
        derived = list(space.derive(double=lambda p: 2 * sum(p.values())).points())
        assert derived == [Point({**p, "double": 2 * sum(p.values())}) for p in space.points()]

    @CLAIM
    @given(finite_spaces())
    def test_a_space_lists_the_same_points_in_the_same_order_every_time(self, space: Space) -> None:
        assert list(space.points()) == list(space.points())

    @CLAIM
    @given(finite_spaces())
    def test_points_have_no_axis_that_the_space_does_not_name(self, space: Space) -> None:
        assert all(set(point) <= set(space.axes) for point in space.points())
        assert len(set(space.axes)) == len(space.axes)

    @CLAIM
    @given(finite_spaces())
    def test_the_parameters_reach_exactly_the_listed_points(self, space: Space) -> None:
        assert set(all_decoded(space)) == set(space.points())

    def test_an_axis_may_be_called_like_a_parameter_of_a_union(self) -> None:
        space = grid(side=[1, 2], left=[3]) * (grid(heads=[1]) + grid(heads=[2]))
        assert set(space.sample(4, seed=0)) == set(space.points())

    def test_the_order_of_points_is_the_same_in_every_process(self) -> None:
        program = (
            "from hsweep import grid, zipped\n"
            "space = grid(a=['x', 'y'], b=[None, True])\n"
            "space *= grid(c=[1]) + zipped(c=[1, 2], d=[3, 4])\n"
            "print([dict(p) for p in space.points()], [dict(p) for p in space.sample(3, 5)])"
        )
        outputs = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={"PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(outputs) == 1


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: grid(heads=[]), "at least one value"),
            (lambda: grid(heads=[1, 2, 1]), "1 is listed twice"),
            (lambda: grid(lr=[math.nan]), "finite numbers; got nan"),
            (lambda: grid(lr=[(1.0, math.inf)]), "finite numbers; got inf"),
            (lambda: grid(model=[object]), "of type type"),
            (lambda: grid(betas=[(0.9, {})]), "of type dict"),
            (lambda: grid(**{"head dim": [1]}), "Python identifier; got 'head dim'"),
            (lambda: grid(keys=[8, 16]), "cannot be called 'keys': .* such as num_keys"),
            (lambda: zipped(items=[1], heads=[2]), "cannot be called 'items'"),
            (lambda: grid(heads=[1]).derive(values=lambda p: 1), "cannot be called 'values'"),
            (lambda: grid(_width=[1]), "cannot be called '_width': .* such as num_width"),
            (lambda: grid(heads=[1]) * grid(heads=[2]), "'heads' stands on both sides"),
            (lambda: grid(heads=[1]).derive(heads=lambda p: 1), "'heads' exists already"),
            (lambda: zipped(a=[1, 2], b=[1]), "equally many values, .* got {'a': 2, 'b': 1}"),
            (lambda: zipped(), "got {}"),
            (lambda: zipped(a=[]), "at least one each"),
            (lambda: zipped(a=[1, 1], b=[2, 2]), r"\{'a': 1, 'b': 2\} is listed twice"),
            (lambda: int_range(heads=(4, 1)), "low=4, high=1, step=1"),
            (lambda: int_range(heads=(1, 4, 0)), "step=0"),
            (lambda: int_range(heads=(1.5, 4)), "whole numbers of .* got low=1.5"),
            (lambda: uniform(lr=(1.0, 1.0)), "low < high"),
            (lambda: uniform(lr=(0.0, math.inf)), "finite numbers low < high"),
            (lambda: log_uniform(lr=(0.0, 1.0)), "low > 0; got low=0.0"),
        ],
    )
    def test_a_wrong_space_says_what_is_wrong(
        self, build: Callable[[], Space], message: str
    ) -> None:
        with pytest.raises(UserError, match=message):
            build()

    def test_an_infinite_space_cannot_be_listed_and_names_its_axis(self) -> None:
        with pytest.raises(UserError, match=r"'lr' has infinitely many.*random_search"):
            (grid(heads=[1, 2]) * log_uniform(lr=(1e-4, 1e-1))).points()

    def test_a_huge_range_is_finite_and_need_not_be_listed_to_know(self) -> None:
        assert int_range(seed_offset=(0, 10**15)).is_finite

    @pytest.mark.parametrize("value", [[1], {1: 2}, np.array([1, 2]), math.nan, object()])
    def test_a_derived_axis_takes_the_values_that_any_axis_takes(self, value: object) -> None:
        space = grid(heads=[1]).derive(thing=lambda p: value)
        if isinstance(value, list):
            assert in_words(space) == ["heads1 thing(1,)"]
        else:
            with pytest.raises(UserError, match=r"derive\(thing=...\)"):
                list(space.points())

    def test_a_derived_axis_may_be_computed_by_numpy(self) -> None:
        [point] = grid(heads=[2]).derive(width=lambda p: np.prod([p.heads, 3])).points()
        assert (point.width, type(point.width)) == (6, int)


class TestOverride:
    @CLAIM
    @given(finite_spaces(), VALUES, st.data())
    def test_an_overridden_space_has_the_new_values_on_that_axis_alone(
        self, space: Space, values: list[int], data: st.DataObject
    ) -> None:
        axis = data.draw(st.sampled_from(space.axes))
        try:
            changed = space.override(axis, values)
        except UserError:
            return
        assert set(changed.axes) == set(space.axes)
        assert {point[axis] for point in changed.points() if axis in point} <= set(values)

    @pytest.mark.parametrize(
        ("space", "axis", "values", "points"),
        [
            (
                (grid(a=[1, 2]) * zipped(b=[1, 2], c=[3, 4])).derive(d=lambda p: p.b * p.c),
                *("a", [8], ["a8 b1 c3 d3", "a8 b2 c4 d8"]),
            ),
            # On both sides of a union, doubles dropped; a condition still holds.
            (grid(a=[1]) + grid(a=[2]) + grid(b=[3]), "a", [4, 5], ["a4", "a5", "b3"]),
            (grid(a=[1]).where(lambda p: p.a % 2 == 0), "a", [1, 2, 3, 4], ["a2", "a4"]),
            (log_uniform(a=(1e-4, 1.0)), "a", [0.1], ["a0.1"]),
            # One value frees an axis from its zip, as many as before stay in step.
            (zipped(a=[1, 2, 2], b=[5, 6, 7]), "b", [9], ["a1 b9", "a2 b9"]),
            (zipped(a=[1, 2], b=[5, 6]), "b", [8, 8], ["a1 b8", "a2 b8"]),
        ],
    )
    def test_values_are_replaced(
        self, space: Space, axis: str, values: list[Any], points: list[str]
    ) -> None:
        assert in_words(space.override(axis, values)) == points

    @pytest.mark.parametrize(
        ("space", "axis", "values", "message"),
        [
            (grid(heads=[1]), "head", [1], "known: heads. Did you mean 'heads'?"),
            (grid(heads=[1]) * grid(depth=[1]), "deep", [1], "unknown axis 'deep'"),
            (grid(heads=[1]) + grid(depth=[1]), "width", [1], "unknown axis 'width'"),
            (zipped(a=[1, 2, 3], b=[1, 2, 3]), "a", [1, 2], "zipped with b: give 1 or 3 values"),
            (grid(a=[1]).derive(b=lambda p: 1), "b", [1], "derived from a; set one of those"),
            (grid(heads=[1]), "heads", [], "at least one value"),
            (grid(heads=[1]), "heads", [2, 2], "2 is listed twice"),
        ],
    )  # fmt: skip
    def test_a_wrong_override_says_what_is_wrong(
        self, space: Space, axis: str, values: list[int], message: str
    ) -> None:
        with pytest.raises(UserError) as refused:
            space.override(axis, values)
        assert message in str(refused.value)


class TestSampling:
    @CLAIM
    @given(finite_spaces(), st.integers(1, 12), st.integers(0, 2**63))
    def test_samples_are_different_points_of_the_space_as_many_as_asked_for_or_there_are(
        self, space: Space, num_points: int, seed: int
    ) -> None:
        points = set(space.points())
        assume(points)
        drawn = space.sample(num_points, seed)
        assert len(drawn) == len(set(drawn)) == min(num_points, len(points))
        assert set(drawn) <= points
        assert drawn == space.sample(num_points, seed)

    def test_all_points_of_a_large_space_are_found(self) -> None:
        space = int_range(a=(1, 70), b=(1, 60))
        assert set(space.sample(4_200, seed=0)) == set(space.points())

    def test_a_rare_point_is_found(self) -> None:
        space = int_range(a=(1, 300), b=(1, 300)).where(lambda p: p.a == p.b == 17)
        assert space.sample(3, seed=0) == [Point({"a": 17, "b": 17})]

    def test_another_seed_draws_other_points(self) -> None:
        space = uniform(lr=(0.0, 1.0))
        assert set(space.sample(3, seed=1)).isdisjoint(space.sample(3, seed=2))

    @CLAIM
    @given(st.floats(1e-12, 1e6), st.floats(1.001, 1e6), st.integers(0, 2**32))
    def test_intervals_are_not_left(self, low: float, factor: float, seed: int) -> None:
        high = low * factor
        space = log_uniform(a=(low, high)) * uniform(b=(-high, low))
        for point in space.sample(5, seed):
            assert low <= point.a <= high
            assert -high <= point.b <= low

    def test_a_logarithmic_axis_has_as_much_below_its_geometric_middle_as_above(self) -> None:
        drawn = log_uniform(lr=(1e-4, 1.0)).sample(2_000, seed=0)
        share = sum(point.lr < 1e-2 for point in drawn) / len(drawn)
        assert abs(share - 0.5) < 0.05  # 4.5 standard deviations

    def test_conditions_that_nothing_satisfies_are_an_error(self) -> None:
        with pytest.raises(UserError, match="loosen them"):
            uniform(lr=(0.0, 1.0)).where(lambda p: False).sample(1, seed=0)
        with pytest.raises(UserError, match="loosen them"):
            grid(heads=[1, 2]).where(lambda p: False).sample(1, seed=0)

    def test_choice_is_grid_under_its_sampling_name(self) -> None:
        assert choice(heads=[1, 2]) == grid(heads=[1, 2])


class TestPoint:
    POINT = Point({"heads": 4, "lr": 0.1})

    def test_axes_read_as_items_and_as_attributes(self) -> None:
        assert self.POINT["heads"] == self.POINT.heads == 4
        assert self.POINT.get("embed_dim", 7) == 7
        assert "heads" in self.POINT
        assert "embed_dim" not in self.POINT

    def test_an_axis_it_does_not_have_is_an_error_with_a_suggestion(self) -> None:
        for read in (lambda: self.POINT.head, lambda: self.POINT["head"]):
            with pytest.raises(UserError, match=r"unknown axis 'head'.*Did you mean 'heads'\?"):
                read()

    def test_it_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError, match="cannot be changed"):
            self.POINT.heads = 8
        values = {"heads": 4}
        point = Point(values)
        values["heads"] = 8
        assert point.heads == 4

    @CLAIM
    @given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.text()))
    def test_equal_points_hash_equally_in_any_order_of_axes(self, values: dict[str, Any]) -> None:
        other = Point(dict(reversed(values.items())))
        assert Point(values) == other == values
        assert hash(Point(values)) == hash(other)

    def test_it_survives_pickling(self) -> None:
        assert pickle.loads(pickle.dumps(self.POINT)) == self.POINT


class TestParseValues:
    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("4", [4]),
            ("1,2, 4", [1, 2, 4]),
            ("[1, 2]", [1, 2]),
            ("1e-3,0.01", [1e-3, 0.01]),
            ("True", [True]),
            ("None,4", [None, 4]),
            ("gelu", ["gelu"]),
            ("gelu,relu", ["gelu", "relu"]),
            ("'a,b'", ["a,b"]),
            ("(0.9, 0.99)", [(0.9, 0.99)]),
            ("(0.9, 0.99), (0.9, 0.999)", [(0.9, 0.99), (0.9, 0.999)]),
            ("-1", [-1]),
            ("cls token", ["cls token"]),
        ],
    )
    def test_one_value_or_several(self, text: str, values: list[Any]) -> None:
        assert parse_values(text) == values

    @settings(deadline=None, derandomize=True, max_examples=300)
    @given(st.text(max_size=30) | st.text("0123456789.,()[]{}'\"-+eE_jNoneTrue \\", max_size=20))
    def test_any_text_gives_values(self, text: str) -> None:
        assert isinstance(parse_values(text), list)

    @pytest.mark.parametrize("text", ["(" * 5_000, "-" * 50_000 + "1", "{[]}", "{[]: 1}", "\0"])
    def test_not_even_hostile_text_raises(self, text: str) -> None:
        assert isinstance(parse_values(text), list)


class TestTunedAxes:
    @pytest.mark.parametrize(
        ("ends", "per_decade", "values"),
        [
            ((1e-3, 1e-1), 2, [0.001, 0.0032, 0.01, 0.032, 0.1]),
            ((1e-3, 1e-1), 3, [0.001, 0.0022, 0.0046, 0.01, 0.022, 0.046, 0.1]),
            ((3e-3, 3e-2), 2, [0.003, 0.0095, 0.03]),
            ((1e-3, 3.2e-2), 2, [0.001, 0.0032, 0.01, 0.032]),
            ((1, 2), 1, [1.0, 2.0]),
            ((1e-4, 5e-4), 2, [0.0001, 0.00022, 0.0005]),
        ],
    )
    def test_it_lists_values_evenly_spaced_in_their_logarithm(
        self, ends: tuple[float, float], per_decade: int, values: list[float]
    ) -> None:
        space = grid(lr=tuned(*ends, per_decade=per_decade))
        assert [point.lr for point in space.points()] == values

    def test_a_space_knows_its_tuned_axes_wherever_they_stand(self) -> None:
        space = (grid(a=[1]) * grid(lr=tuned(1, 10))) + (grid(a=[2], lr=[3.0]))
        space = space.derive(b=lambda point: point.a).where(lambda point: point.a > 0)
        assert space.tuned_axes == ("lr",)
        assert space.override("lr", [5.0, 6.0]).tuned_axes == ("lr",)
        assert grid(lr=[1.0, 10.0]).tuned_axes == ()

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: tuned(1e-1, 1e-3), "low < high"),
            (lambda: tuned(0, 1), "low > 0"),
            (lambda: tuned(1, 10, per_decade=0), "per_decade must be a whole number from 1 to 20"),
            (lambda: tuned("a", 1), "finite numbers .* got low='a'"),  # type: ignore[arg-type]
            (lambda: zipped(a=[1, 2], lr=tuned(1, 10)), "cannot change in step with others"),  # type: ignore[arg-type]
        ],
    )
    def test_what_cannot_be_tuned_is_refused(self, make: Callable[[], Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            make()
