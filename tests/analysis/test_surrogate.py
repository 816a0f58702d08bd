"""What is expected of shapes never tried, how well, and where that is a guess."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_shapes import additive, analysed, grid, interacting, nothing

from analysis.questions.surrogate.fit import fit
from analysis.questions.surrogate.model import SurrogateModel
from analysis.questions.surrogate.result import SurrogateResult, SurrogateSettings
from analysis.questions.surrogate.space import ShapeSpace
from analysis.questions.surrogate.text import left_out_table, predictions_table, surrogate_sentence
from analysis.runs.shape_runs import ShapeRuns
from analysis.statistics.cost_model import CostModel
from analysis.statistics.gaussian_process import GaussianProcess, Scales
from hsweep.errors import UserError

SHAPE = ["heads", "depth"]
QUICK = SurrogateSettings(draws=256, permutations=99)
# No interval depends on whether there is skill, nor on what is suggested where there is. So few
# permutations never reach this level, and nothing is suggested.
INTERVALS = SurrogateSettings(draws=256, permutations=19, alpha=0.01)


def run(frame: pd.DataFrame, **changes: object) -> SurrogateResult:
    return analysed(
        fit, frame, **({"config": SHAPE, "metric": "score", "settings": QUICK} | changes)
    )


def learned(runs: ShapeRuns, *, settings: SurrogateSettings = QUICK) -> SurrogateModel:
    return SurrogateModel(runs, None, settings)


def expect(frame: pd.DataFrame, changes: dict[str, object] | None = None, **shape: object):
    model = analysed(learned, frame, **{"config": SHAPE, "metric": "score", **(changes or {})})
    (found,) = model.predictions([model.complete(shape)])
    return found


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch):
    """Leave the surface out of results: what a plot shows is predicted point by point, and takes
    far longer than what is asked of each of many simulated studies."""
    monkeypatch.setattr("analysis.questions.surrogate.fit._surface", lambda *_: ())


def test_a_smooth_truth_is_predicted_where_nothing_was_tried():
    frame = grid(additive, 1, sd=0.1)
    result = run(frame)
    assert result.verdict == "predicts"
    assert result.explained > 0.9
    assert result.error < 0.3 * result.error_of_mean
    found = expect(frame, heads=3, depth=3)
    assert (found.extrapolates, found.tried) == (False, False)
    assert found.mean.low < np.log2(3) - 0.5 * np.log2(3) < found.mean.high
    assert found.mean.high - found.mean.low < 1
    assert found.run.low < found.mean.low
    assert found.run.high > found.mean.high


@pytest.mark.usefixtures("undrawn")
def test_shapes_that_tell_nothing_are_seldom_credited_with_skill():
    results = [run(grid(nothing, seed)) for seed in range(40)]
    assert [result.verdict for result in results].count("predicts") <= 5
    none = next(result for result in results if result.verdict == "none")
    assert none.suggestions == ()
    assert "shows no skill" in surrogate_sentence(none)
    assert "It suggests no untried shape." in surrogate_sentence(none)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("truth", "sd"), [(additive, 0.3), (interacting, 0.3), (nothing, 1.0)])
def test_left_out_shapes_lie_in_their_intervals(truth, sd):
    covered = [run(grid(truth, seed, sd=sd), settings=INTERVALS).coverage for seed in range(20)]
    assert np.mean(covered) >= 0.93


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("truth", [additive, interacting])
def test_intervals_of_untried_shapes_hold_the_truth(truth):
    untried = [{"heads": heads, "depth": depth} for heads, depth in ((3, 3), (6, 2), (5, 1))]
    inside = []
    for seed in range(20):
        result = run(grid(truth, seed, sd=0.3), shapes=untried, settings=INTERVALS)
        for shape, found in zip(untried, result.predictions, strict=True):
            inside.append(found.mean.low <= truth(**shape) <= found.mean.high)
    assert np.mean(inside) >= 0.93


@pytest.mark.usefixtures("undrawn")
def test_a_run_with_a_fresh_seed_lies_in_its_interval():
    inside = []
    for seed in range(20):
        frame = grid(additive, seed, sd=0.5)
        found = expect(frame, {"settings": INTERVALS}, heads=3, depth=3).run
        fresh = np.random.default_rng(seed).normal(additive(3, 3), 0.5, size=20)
        inside += list((found.low <= fresh) & (fresh <= found.high))
    assert np.mean(inside) >= 0.92


def test_leaving_a_point_out_is_what_the_other_points_say_of_it():
    rng = np.random.default_rng(0)
    x, noise = rng.uniform(-1, 1, (7, 2)), np.full(7, 0.05)
    y = x[:, 0] + rng.normal(size=7) * 0.2
    process = GaussianProcess(x, y, noise, [0] * 7, draws=64, seed=3)
    left_out = process.leave_one_out()
    scales = Scales.draw(2, 64, 3)
    centre, sd = y.mean(), y.std()
    z = (y - centre) / sd
    full = scales.covariance(x, x)
    at = np.arange(7)
    full[:, at, at] += scales.rough[:, None] ** 2 + noise / sd**2 + 1e-8
    for k in range(7):
        rest = at != k
        weights, means = [], []
        for matrix in full:
            inner = matrix[np.ix_(rest, rest)]
            means.append(matrix[k, rest] @ np.linalg.solve(inner, z[rest]))
            _, determinant = np.linalg.slogdet(inner)
            weights.append(-0.5 * (z[rest] @ np.linalg.solve(inner, z[rest]) + determinant))
        share = np.exp(np.array(weights) - max(weights))
        expected = centre + sd * float(share @ np.array(means) / share.sum())
        assert left_out.centre[k] == pytest.approx(expected, abs=1e-6)


def test_it_says_when_and_why_it_extrapolates():
    frame = grid(additive, 2, sd=0.1, heads=(1, 2, 4, 8))
    frame = frame[(frame["heads"] < 8) | (frame["depth"] == 1)]
    assert not expect(frame, heads=3, depth=3).extrapolates
    assert expect(frame, heads=16, depth=1).why == "heads = 16 lies outside 1 to 8"
    assert expect(frame, heads=2, depth=8).why == "depth = 8 lies outside 1 to 4"
    assert expect(frame, heads=7, depth=4).why == "outside the convex hull of the shapes tried"
    tried = expect(frame, heads=8, depth=1)
    assert (tried.tried, tried.extrapolates) == (True, False)
    wide, near = expect(frame, heads=64, depth=4).mean, expect(frame, heads=3, depth=2).mean
    assert wide.high - wide.low > 2 * (near.high - near.low)


def test_a_gap_within_the_hull_is_an_extrapolation_too():
    corners = [{"heads": h, "depth": d} for h in (1, 2, 128, 256) for d in (1, 2)]
    space = ShapeSpace(["heads", "depth"], [], corners)
    assert "farther from every shape" in space.beyond({"heads": 16, "depth": 1})
    assert space.beyond({"heads": 2, "depth": 1}) == ""


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 64), st.integers(1, 64))
def test_nothing_outside_the_range_tried_counts_as_known(heads, depth):
    configs = [{"heads": h, "depth": d} for h in (2, 4, 8) for d in (1, 2, 4)]
    space = ShapeSpace(["heads", "depth"], [], configs)
    inside = 2 <= heads <= 8 and 1 <= depth <= 4
    assert bool(space.beyond({"heads": heads, "depth": depth})) is not inside


def test_untried_smaller_shapes_expected_to_be_no_worse_are_suggested():
    def deep_hurts(heads: int, depth: int) -> float:
        return float(np.log2(heads) - 0.5 * np.log2(depth))

    result = run(
        grid(deep_hurts, 3, sd=0.05),
        baseline={"heads": 8, "depth": 4},
        settings=SurrogateSettings(draws=256, permutations=99, margin=0.1),
    )
    assert result.reference == "heads=8, depth=4"
    assert result.suggestions
    costs = [found.cost for found in result.suggestions]
    assert costs == sorted(costs)
    for found in result.suggestions:
        assert not found.tried
        assert not found.extrapolates
        assert found.cost < 1400
        assert found.p_no_worse >= 0.5
        assert found.cost == 1000 + 100 * found.config["depth"]
        true = deep_hurts(**found.config)
        assert true >= deep_hurts(8, 4) - 0.3
    assert "expects these to be no worse than heads=8, depth=4 by 0.1" in surrogate_sentence(result)
    assert {row[0] for row in predictions_table(result, result.suggestions).rows}


def test_values_that_a_random_search_drew_are_not_all_combined():
    rng = np.random.default_rng(0)
    axes = [f"x{number}" for number in range(6)]
    frame = pd.DataFrame(rng.uniform(0.1, 1, (30, len(axes))), columns=axes)
    frame = frame.assign(score=frame["x0"], num_params=1000, seed=0)
    result = run(frame, config=axes)
    assert 30 ** len(axes) > 10**8, "no memory holds so many"
    assert result.verdict == "predicts"


def test_nothing_is_suggested_where_the_smallest_shape_is_the_best():
    result = run(grid(additive, 3, sd=0.05), baseline={"heads": 8, "depth": 1})
    assert (result.suggestions, result.candidates) == ((), 0)


def test_a_stopped_shape_teaches_nothing_and_is_not_suggested():
    frame = grid(additive, 4, sd=0.05)
    stopped = (frame["heads"] == 4) & (frame["depth"] == 2)
    frame.loc[stopped & (frame["seed"] == 0), "status"] = "stopped_early"
    result = run(frame, baseline={"heads": 4, "depth": 4})
    assert len(result.shapes) == 8
    assert result.excluded == ({"heads": 4, "depth": 2},)
    assert {"heads": 4, "depth": 2} not in [found.config for found in result.suggestions]
    assert any("1 of 9 shapes" in warning for warning in result.warnings)
    frame.loc[stopped, "score"] = 99.0
    assert run(frame, baseline={"heads": 4, "depth": 4}) == result


def test_it_survives_json_and_repeats_to_the_bit():
    frame = grid(interacting, 5, sd=0.2)
    shapes = [{"heads": 3, "depth": 3}, {"heads": 16, "depth": 1}]
    result = run(frame, shapes=shapes)
    text = json.dumps(result.to_json(), allow_nan=False)
    again = SurrogateResult.from_json(json.loads(text))
    assert again == result
    assert json.dumps(run(frame, shapes=shapes).to_json()) == text
    other = run(frame, settings=SurrogateSettings(draws=256, permutations=99, rng_seed=1))
    assert other.explained != result.explained
    assert other.explained == pytest.approx(result.explained, abs=0.1)


def test_errors_stay_positive_on_a_logarithmic_scale():
    frame = grid(additive, 6, sd=0.1)
    frame["score"] = 10.0 ** -frame["score"]
    result = run(frame, goal="min", scale="error")
    assert result.verdict == "predicts"
    found = expect(frame, {"goal": "min", "scale": "error"}, heads=3, depth=2)
    assert 0 < found.mean.low < 10 ** -additive(3, 2) < found.mean.high
    assert all(point.mean.low > 0 for point in result.surface)


def test_a_loss_and_its_mirror_are_predicted_alike():
    frame = grid(additive, 7, sd=0.2)
    mirror = frame.assign(score=-frame["score"])
    up, down = run(frame), run(mirror, goal="min")
    assert up.explained == pytest.approx(down.explained)
    one, other = (
        expect(frame, heads=3, depth=3),
        expect(mirror, {"goal": "min"}, heads=3, depth=3),
    )
    assert one.mean.estimate == pytest.approx(-other.mean.estimate)
    assert one.mean.low == pytest.approx(-other.mean.high)
    assert one.p_no_worse == pytest.approx(other.p_no_worse)


def test_tasks_of_different_level_are_predicted_within_each():
    near = grid(additive, 8, sd=0.2).assign(task="easy")
    far = grid(additive, 9, sd=0.2).assign(task="hard")
    far["score"] -= 1000
    frame, tasks = pd.concat([near, far]), {"config": [*SHAPE, "task"]}
    result = run(frame, **tasks)
    assert result.verdict == "predicts"
    assert result.error_of_mean < 3
    easy = expect(frame, tasks, heads=3, depth=3, task="easy")
    hard = expect(frame, tasks, heads=3, depth=3, task="hard")
    assert easy.mean.estimate - hard.mean.estimate == pytest.approx(1000, abs=1)
    assert easy.mean.high - easy.mean.low < 2
    assert np.isnan(hard.p_no_worse) or np.isnan(easy.p_no_worse)
    unknown = expect(frame, tasks, heads=3, depth=3, task="other")
    assert unknown.why == "task = other was never tried"


def test_only_tasks_tell_apart_is_no_skill():
    null = [grid(nothing, seed).assign(task=name) for seed, name in ((1, "a"), (2, "b"))]
    null[1]["score"] += 1000
    result = run(pd.concat(null), config=[*SHAPE, "task"])
    assert result.explained < 0.5
    assert result.verdict == "none"


def test_columns_that_never_varied_warn_when_a_prediction_changes_them():
    frame = grid(additive, 10, sd=0.1).assign(embed_dim=64)
    frame["head_dim"] = 64 // frame["heads"]
    widths = {"config": [*SHAPE, "embed_dim", "head_dim"]}
    result = run(frame, **widths)
    assert result.fixed == {"embed_dim": 64}
    assert not expect(frame, widths, heads=4, depth=3, embed_dim=64, head_dim=16).extrapolates
    wide = expect(frame, widths, heads=4, depth=3, embed_dim=128)
    assert wide.why == "embed_dim was 64 throughout"
    assert "moved with heads" in expect(frame, widths, heads=4, depth=3, head_dim=8).why


def test_single_runs_are_learned_from_with_the_noise_unknown():
    frame = grid(additive, 11, sd=0.05, seeds=1)
    result = run(frame)
    assert result.seed_sd is None
    assert any("single runs" in warning for warning in result.warnings)
    found = expect(frame, heads=3, depth=3)
    assert found.mean == found.run


def test_the_surface_covers_the_grid_and_a_step_beyond():
    result = run(grid(additive, 12, sd=0.1))
    assert result.surface_axes == ("heads", "depth")
    cells = {(point.first, point.second): point for point in result.surface}
    assert {first for first, _ in cells} == {1, 2, 3, 4, 5, 6, 7, 8, 16}
    assert {second for _, second in cells} == {1, 2, 3, 4, 8}
    assert sum(point.tried for point in result.surface) == 9
    assert cells[16, 1].extrapolates
    assert not cells[5, 3].extrapolates


def test_the_cost_of_a_layered_model_is_found_exactly():
    shapes = np.array([(h, d) for h in (2, 4, 8) for d in (1, 2, 4)], dtype=float)

    def cost(values: np.ndarray) -> np.ndarray:
        heads, depth = values.T
        return 5000 + depth * (700 + 4 * 64 * 16 * heads)

    model = CostModel(shapes, cost(shapes))
    assert model.error < 1e-6
    untried = np.array([(3.0, 3.0), (6.0, 5.0)])
    assert model.predict(untried) == pytest.approx(cost(untried))
    assert CostModel(shapes, np.random.default_rng(0).uniform(1, 9, 9)).error > 0.05


def test_the_left_out_table_has_every_shape():
    result = run(grid(additive, 13, sd=0.1))
    assert len(left_out_table(result).rows) == 9
    inside = [row[-1] for row in left_out_table(result).rows].count("yes")
    assert inside == round(result.coverage * 9)


FRAME = grid(additive, 14)


@pytest.mark.parametrize(
    ("frame", "changes", "message"),
    [
        (FRAME[FRAME["depth"] == 1], {}, "5 to 600 shapes"),
        (FRAME, {"config": ["heads", "width"]}, "no column 'width'"),
        (FRAME, {"metric": "loss"}, "no column 'loss'"),
        (FRAME.assign(status="failed"), {}, "full budget"),
        (FRAME, {"baseline": {"heads": 3}}, "picks 0 shapes"),
        (FRAME, {"baseline": {"heads": 2}}, "picks 3 shapes"),
        (FRAME, {"baseline": {"width": 2}}, "names width"),
        (FRAME, {"shapes": [{"heads": 3}]}, "depth is missing"),
        (FRAME, {"shapes": [{"heads": 3, "depth": 2, "width": 1}]}, "width"),
        (FRAME, {"shapes": [{"heads": "many", "depth": 2}]}, "must be a number"),
        (FRAME, {"shapes": [{"heads": 0, "depth": 2}]}, "above 0"),
        (FRAME.assign(heads="h" + FRAME["heads"].map(str), depth="d" + FRAME["depth"].map(str)),
         {}, "axis of numbers"),
        (FRAME.assign(family=FRAME["heads"].map(str) + "x" + FRAME["depth"].map(str)),
         {"config": [*SHAPE, "family"]}, "no two shapes agree in family"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_with_the_reason(frame, changes, message):
    with pytest.raises(UserError, match=message):
        run(frame, **changes)


@pytest.mark.parametrize("wrong", [{"alpha": 2}, {"draws": 1}, {"margin": -1}, {"permutations": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        SurrogateSettings(**wrong)
