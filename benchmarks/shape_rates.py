"""How often effects of single axes are right, and which surrogate predicts best.

Grids of shapes with a known surface are simulated and analysed. The surrogate stands beside what
one would use without it: the mean, Bayesian linear regression, and scikit-learn's Gaussian process
with its most likely hyperparameters.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import BayesianRidge

from analysis.questions.effects import fit as effects
from analysis.runs.shape_runs import read_shapes
from analysis.statistics.gaussian_process import GaussianProcess, products
from analysis.statistics.values import FloatArray

NOISES = ("even", "uneven", "shared", "along depth")
SURFACES = ("nothing", "additive", "saturating", "interacting", "hump", "rough", "jump")
RIVALS = ("mean", "linear", "quadratic", "scikit-learn GP", "scikit-learn GP + linear")
OURS = "integrated GP"

Predicted = tuple[FloatArray, FloatArray, FloatArray]
"""Centre, low and high end of a 95 % interval of every shape left out."""


@dataclass(frozen=True, slots=True)
class EffectRates:
    """Shares of sweeps: three with nothing to find, one of intervals, one with a true effect."""

    noise: str
    seeds: int
    false_axis: float
    false_interaction: float
    false_equal_cost: float
    coverage: float
    found: float


def effect_rates(noise: str, seeds: int, sweeps: int, first_seed: int) -> EffectRates:
    """Analyse grids of 3 x 3 shapes in which nothing matters, and in which heads do.

    The true effect is one seed standard deviation a step.
    """
    null, true = [], []
    for number in range(first_seed, first_seed + sweeps):
        frame = _grid(noise, seeds, number)
        null.append(effects.fit(read_shapes(frame, config=("heads", "depth"), metric="score")))
        frame["score"] += np.log2(frame["heads"])
        true.append(effects.fit(read_shapes(frame, config=("heads", "depth"), metric="score")))
    told = ("helps", "hurts")
    return EffectRates(
        noise,
        seeds,
        _share(any(axis.verdict in told for axis in found.axes) for found in null),
        _share(found.interactions[0].verdict in told for found in null),
        _share(any(len(g.unbeaten) < len(g.shapes) for g in found.equal_cost) for found in null),
        _share(axis.effect.low <= 0 <= axis.effect.high for found in null for axis in found.axes),
        _share(found.axes[0].verdict == "helps" for found in true),
    )


def _share(hits: Iterable[bool]) -> float:
    return float(np.mean(list(hits)))


def _grid(noise: str, seeds: int, number: int) -> pd.DataFrame:
    rng = np.random.default_rng([number, NOISES.index(noise)])
    lift = rng.normal(size=seeds)
    rows = []
    for heads in (2, 4, 8):
        for depth in (1, 2, 4):
            sd = np.exp(rng.normal(0, 0.6)) if noise == "uneven" else 1.0
            score = sd * rng.normal(size=seeds)
            if noise == "shared":
                score = score + 2 * lift
            if noise == "along depth":
                score = score + lift * (np.log2(depth) - 1)
            rows += [(heads, depth, s, 1000 + 100 * depth, v) for s, v in enumerate(score)]
    return pd.DataFrame(rows, columns=["heads", "depth", "seed", "num_params", "score"])


@dataclass(frozen=True, slots=True)
class Skill:
    """One way to predict left-out shapes of one kind of surface.

    Attributes:
        error: root mean squared error over that of predicting the mean.
        coverage: share of left-out means within their 95 % intervals.
        width: mean width of these intervals, in seed standard deviations of a run.
    """

    surface: str
    method: str
    error: float
    coverage: float
    width: float


def skills(surface: str, sweeps: int, first_seed: int, draws: int, rivals: bool) -> list[Skill]:
    """Predict every left-out shape of simulated 3 x 3 grids of three seeds in every way."""
    names = (OURS, *RIVALS) if rivals else (OURS, "mean")
    squares = dict.fromkeys(names, 0.0)
    inside: dict[str, list[float]] = {name: [] for name in names}
    widths: dict[str, list[float]] = {name: [] for name in names}
    for number in range(first_seed, first_seed + sweeps):
        rng = np.random.default_rng([number, SURFACES.index(surface)])
        x = np.array([(a, b) for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0)])
        sd = 0.5 if surface == "nothing" else 0.2
        runs = _surface(surface, x, rng)[:, None] + sd * rng.normal(size=(len(x), 3))
        y = runs.mean(axis=1)
        noise = np.full(len(y), runs.var(axis=1, ddof=1).mean() / 3)
        for name in names:
            centre, low, high = _left_out(name, x, y, noise, draws)
            squares[name] += float(((y - centre) ** 2).mean())
            inside[name].append(float(((low <= y) & (y <= high)).mean()))
            widths[name].append(float((high - low).mean()) / sd)
    return [
        Skill(
            surface,
            name,
            float(np.sqrt(squares[name] / squares["mean"])),
            float(np.mean(inside[name])),
            float(np.mean(widths[name])),
        )
        for name in names
    ]


def _surface(name: str, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    slopes = x @ rng.normal(size=2)
    if name == "nothing":
        return np.zeros(len(x))
    if name == "saturating":
        return np.asarray(np.exp(-1.2 * (1 + x)) @ (1.5 * rng.normal(size=2)))
    if name == "interacting":
        return np.asarray(slopes + 1.2 * rng.normal() * x[:, 0] * x[:, 1])
    if name == "hump":
        top, height = rng.uniform(-0.5, 0.5), rng.uniform(1, 2)
        return np.asarray(0.5 * rng.normal() * x[:, 1] - height * (x[:, 0] - top) ** 2)
    if name == "rough":
        return np.asarray(slopes + 0.3 * rng.normal(size=len(x)))
    if name == "jump":
        return np.asarray(2.0 * (x[:, 0] > rng.uniform(-0.8, 0.8)) + 0.3 * rng.normal() * x[:, 1])
    return np.asarray(slopes)


def _left_out(name: str, x: FloatArray, y: FloatArray, noise: FloatArray, draws: int) -> Predicted:
    if name == OURS:
        found = GaussianProcess(x, y, noise, [0] * len(y), draws, 0).leave_one_out()
        return found.centre, found.quantile(0.025), found.quantile(0.975)
    predict = _RIVALS[name]
    ends = []
    for at in range(len(y)):
        rest = np.arange(len(y)) != at
        left = _Left(x[rest], y[rest], noise[rest], x[at : at + 1], float(noise[at]))
        centre, sd, reach = predict(left)
        ends.append((centre, centre - reach * sd, centre + reach * sd))
    centre_of, low, high = np.array(ends).T
    return centre_of, low, high


class _Left(NamedTuple):
    """The shapes that remain, and the one left out with its noise."""

    x: FloatArray
    y: FloatArray
    noise: FloatArray
    new: FloatArray
    here: float


def _mean(left: _Left) -> tuple[float, float, float]:
    count = len(left.y)
    sd = float(left.y.std(ddof=1) * np.sqrt(1 + 1 / count))
    return float(left.y.mean()), sd, float(stats.t.ppf(0.975, count - 1))


def _ridge(features: Callable[[FloatArray], FloatArray]) -> Callable[..., tuple[float, ...]]:
    def predict(left: _Left) -> tuple[float, float, float]:
        model = BayesianRidge().fit(features(left.x), left.y)
        centre, sd = model.predict(features(left.new), return_std=True)
        return float(centre[0]), float(sd[0]), 1.96

    return predict


def _process(linear: bool) -> Callable[..., tuple[float, ...]]:
    def predict(left: _Left) -> tuple[float, float, float]:
        kernel = ConstantKernel(1.0) * RBF([1.0] * left.x.shape[1], (0.1, 100)) + WhiteKernel(
            0.05, (1e-4, 1)
        )
        model = GaussianProcessRegressor(
            DotProduct() + kernel if linear else kernel,
            alpha=left.noise / (left.y.var() or 1.0) + 1e-8,
            normalize_y=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            centre, sd = model.fit(left.x, left.y).predict(left.new, return_std=True)
        return float(centre[0]), float(np.sqrt(sd[0] ** 2 + left.here)), 1.96

    return predict


_RIVALS: dict[str, Callable[..., tuple[float, ...]]] = {
    "mean": _mean,
    "linear": _ridge(lambda x: x),
    "quadratic": _ridge(lambda x: np.concatenate([x, x**2, products(x)], axis=1)),
    "scikit-learn GP": _process(linear=False),
    "scikit-learn GP + linear": _process(linear=True),
}
