"""Gaussian-process regression with its hyperparameters integrated over.

A handful of shapes cannot fix a process's scales, and the most likely ones alone make intervals too
narrow. So the scales are drawn from their prior (one fixed quasi-random sample), each draw is
weighted by its marginal likelihood, and a prediction is the mixture. Nothing is optimised, so
nothing fails to converge and the same input gives the same output. Leaving one point out is exact
and needs no new fit (Rasmussen and Williams 2006, section 5.4.2): its predictive mean and variance
follow from the inverse covariance, and its density divides out of each draw's weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.statistics.values import FloatArray

_LOG_2_PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Mixture:
    """Normal distributions with weights, one mixture a column.

    Attributes:
        weight: shape [draws, points], columns summing to 1.
        mean, variance: shape [draws, points].
    """

    weight: FloatArray
    mean: FloatArray
    variance: FloatArray

    @property
    def centre(self) -> FloatArray:
        """Means of the mixtures."""
        return np.asarray((self.weight * self.mean).sum(axis=0))

    def probability_above(self, limit: float) -> FloatArray:
        """Return the probability of exceeding ``limit``."""
        z = (self.mean - limit) / np.sqrt(self.variance)
        return np.asarray((self.weight * special.ndtr(z)).sum(axis=0))

    def quantile(self, share: float) -> FloatArray:
        """Return the quantile of each mixture, by bisection."""
        sd = np.sqrt(self.variance)
        reach = abs(float(special.ndtri(share))) + 1.0
        low = (self.mean - reach * sd).min(axis=0)
        high = (self.mean + reach * sd).max(axis=0)
        for _ in range(40):
            middle = (low + high) / 2
            below = (self.weight * special.ndtr((middle - self.mean) / sd)).sum(axis=0)
            low = np.where(below < share, middle, low)
            high = np.where(below < share, high, middle)
        return np.asarray((low + high) / 2)


@dataclass(frozen=True)
class Scales:
    """Draws of the hyperparameters, y having mean 0 and sd 1; each of shape [draws, ...].

    Attributes:
        slope: sd of the linear coefficient of each feature, [draws, features].
        product: sd of the coefficient of each product of two features.
        smooth: sd of the smooth part.
        inverse_length: of the smooth part, [draws, features]; small is an axis without a say.
        rough: sd of what no smooth function of the shape explains.
    """

    slope: FloatArray
    product: FloatArray
    smooth: FloatArray
    inverse_length: FloatArray
    rough: FloatArray

    @classmethod
    def draw(cls, features: int, draws: int, seed: int) -> "Scales":
        """Return a scrambled Sobol sample of the prior.

        All scales are log-normal: slopes about 0.5 sd a half-range, products about 0.2 sd, the
        smooth part about 0.5 sd with lengths about one half-range, the rest about 0.15 sd.
        """
        from scipy.stats import qmc  # slow to import, and few analyses fit a process

        exponent = int(np.ceil(np.log2(draws)))
        sampler = qmc.Sobol(2 * features + 3, scramble=True, rng=np.random.default_rng(seed))
        uniform = sampler.random_base2(exponent)[:draws]
        z = special.ndtri(np.clip(uniform, 1e-9, 1 - 1e-9))
        return cls(
            slope=0.5 * np.exp(1.0 * z[:, :features]),
            inverse_length=0.8 * np.exp(0.8 * z[:, features : 2 * features]),
            product=0.2 * np.exp(1.0 * z[:, -3]),
            smooth=0.5 * np.exp(0.8 * z[:, -2]),
            rough=0.15 * np.exp(1.0 * z[:, -1]),
        )

    def covariance(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the covariance of the latent surface, [draws, left, right], without ``rough``."""
        linear = np.einsum("nf,df,mf->dnm", left, self.slope**2, right, optimize=True)
        interaction = products(left) @ products(right).T
        squared = (left[:, None, :] - right[None, :, :]) ** 2
        distance = np.einsum("df,nmf->dnm", self.inverse_length**2, squared, optimize=True)
        smooth = self.smooth[:, None, None] ** 2 * np.exp(-distance / 2)
        return np.asarray(1.0 + linear + self.product[:, None, None] ** 2 * interaction + smooth)

    def prior_variance(self, features: FloatArray) -> FloatArray:
        """Return the variance of the latent surface at each point, [draws, points]."""
        linear = self.slope**2 @ (features**2).T
        interaction = self.product[:, None] ** 2 * (products(features) ** 2).sum(axis=1)
        return np.asarray(1.0 + linear + interaction + self.smooth[:, None] ** 2)


def products(features: FloatArray) -> FloatArray:
    """Return the products of every two features, [points, pairs]."""
    first, second = np.triu_indices(features.shape[1], 1)
    return np.asarray(features[:, first] * features[:, second])


class GaussianProcess:
    """The posterior of a surface given noisy values at some points.

    Args:
        features: shape [points, features], each within about [-1, 1].
        values: shape [points].
        noise: variance of each value about the surface at its point, shape [points].
        groups: group of each point; groups have levels of their own, about which nothing is known
            beforehand, and what shape does is measured within them.
        draws: hyperparameter draws.
        seed: of the draws.
    """

    def __init__(
        self,
        features: FloatArray,
        values: FloatArray,
        noise: FloatArray,
        groups: Sequence[object],
        draws: int,
        seed: int,
    ) -> None:
        self._features = features
        self._groups = list(groups)
        self._centre = float(values.mean())
        level = group_means(values, self._groups)
        self._sd = float((values - level).std()) or float(values.std()) or 1.0
        self._offset = (3 * float(level.std()) / self._sd) ** 2
        self._y = (values - self._centre) / self._sd
        self._noise = noise / self._sd**2
        self._scales = Scales.draw(features.shape[1], draws, seed)
        covariance = self._scales.covariance(features, features)
        covariance += self._shared_level(self._groups)
        at = np.arange(len(values))
        covariance[:, at, at] += self._scales.rough[:, None] ** 2 + self._noise + 1e-8
        self._inverse = np.linalg.inv(covariance)
        self._alpha = self._inverse @ self._y
        _, determinant = np.linalg.slogdet(covariance)
        self._log_weight = -0.5 * (self._alpha @ self._y + determinant + len(values) * _LOG_2_PI)

    def _shared_level(self, groups: Sequence[object]) -> FloatArray:
        """Return the covariance that a group's own level adds, [groups, points]."""
        same = [[mine == other for other in self._groups] for mine in groups]
        return self._offset * np.array(same, dtype=np.float64)

    def predict(self, features: FloatArray, groups: Sequence[object]) -> Mixture:
        """Return the expected value of a shape at each point, seeds averaged out."""
        between = self._scales.covariance(features, self._features)
        between += self._shared_level(groups)
        mean = np.einsum("dnm,dm->dn", between, self._alpha)
        # A shape has a part of its own that no neighbour tells.
        own = self._scales.prior_variance(features) + self._scales.rough[:, None] ** 2
        own += self._offset
        explained = np.einsum("dnm,dmk,dnk->dn", between, self._inverse, between, optimize=True)
        return self._mixture(mean, np.maximum(own - explained, 1e-12))

    def differences(self, features: FloatArray, at: int) -> Mixture:
        """Return the expected value at each point, taken to be of the same group, less that of
        tried point ``at``."""
        between = self._scales.covariance(features, self._features)
        tried = self._scales.covariance(self._features[at : at + 1], self._features)
        tried[:, 0, at] += self._scales.rough**2
        gap = between - tried
        mean = np.einsum("dnm,dm->dn", gap, self._alpha)
        here = self._features[at : at + 1]
        cross = self._scales.covariance(features, here)[:, :, 0]
        own = self._scales.prior_variance(features)
        base = self._scales.prior_variance(here)
        prior = own + base - 2 * cross + 2 * self._scales.rough[:, None] ** 2
        explained = np.einsum("dnm,dmk,dnk->dn", gap, self._inverse, gap, optimize=True)
        found = self._mixture(mean, np.maximum(prior - explained, 1e-12))
        return Mixture(found.weight, found.mean - self._centre, found.variance)

    def shuffled_errors(self, shuffles: int, seed: int) -> FloatArray:
        """Return the mean squared leave-one-out errors of values shuffled within groups,
        [shuffles]."""
        rng = np.random.default_rng(seed)
        diagonal = np.diagonal(self._inverse, axis1=1, axis2=2)
        _, determinant = np.linalg.slogdet(self._inverse)
        errors = []
        members = [
            np.array([at for at, own in enumerate(self._groups) if own == group])
            for group in dict.fromkeys(self._groups)
        ]
        for _ in range(shuffles):
            y = self._y.copy()
            for within in members:
                y[within] = self._y[rng.permutation(within)]
            alpha = self._inverse @ y
            miss = alpha / diagonal
            log_weight = -0.5 * (alpha @ y - determinant)
            density = -0.5 * (miss**2 * diagonal - np.log(diagonal))
            weight = _normalised(log_weight[:, None] - density)
            errors.append(float(((weight * miss).sum(axis=0) ** 2).mean()))
        return self._sd**2 * np.array(errors)

    def leave_one_out(self) -> Mixture:
        """Return what the other points say of each point's own noisy value."""
        diagonal = np.diagonal(self._inverse, axis1=1, axis2=2)
        variance = 1 / diagonal
        mean = self._y - self._alpha / diagonal
        density = -0.5 * ((self._y - mean) ** 2 / variance + np.log(variance) + _LOG_2_PI)
        weight = _normalised(self._log_weight[:, None] - density)
        return Mixture(weight, self._centre + self._sd * mean, self._sd**2 * variance)

    def _mixture(self, mean: FloatArray, variance: FloatArray) -> Mixture:
        weight = np.broadcast_to(_normalised(self._log_weight[:, None]), mean.shape)
        return Mixture(weight, self._centre + self._sd * mean, self._sd**2 * variance)


def group_means(values: FloatArray, groups: Sequence[object]) -> FloatArray:
    """Return the mean of each value's group, [points]."""
    means = {
        group: float(np.mean([v for v, own in zip(values, groups, strict=True) if own == group]))
        for group in dict.fromkeys(groups)
    }
    return np.array([means[group] for group in groups])


def _normalised(log_weight: FloatArray) -> FloatArray:
    weight = np.exp(log_weight - log_weight.max(axis=0))
    return np.asarray(weight / weight.sum(axis=0))
