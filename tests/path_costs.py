"""Looks of the brightest paths between two markers, to tell whether one contour joins them."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

_SIZE = 32
_PLACES = np.arange(_SIZE**2).reshape(_SIZE, _SIZE)
_NEIGHBOURS = [
    (_PLACES[:, :-1], _PLACES[:, 1:], 1.0),
    (_PLACES[:-1], _PLACES[1:], 1.0),
    (_PLACES[:-1, :-1], _PLACES[1:, 1:], 2**0.5),
    (_PLACES[:-1, 1:], _PLACES[1:, :-1], 2**0.5),
]
_FROM = np.concatenate([one.ravel() for one, _, _ in _NEIGHBOURS])
_TO = np.concatenate([other.ravel() for _, other, _ in _NEIGHBOURS])
_LENGTH = np.concatenate([np.full(one.size, length) for one, _, length in _NEIGHBOURS])


def path_features(pixels: NDArray[np.uint8]) -> list[float]:
    """Return the distance of the markers and, for three prices of dark pixels, the cost of the
    cheapest path between them, its length, brightness, turns and darkest stretch."""
    start, end = _marker_centres(pixels)
    features = [float(np.hypot(*(start - end)))]
    brightness = np.minimum(pixels / 127.5, 1).ravel()
    source, target = (int(_PLACES[tuple(place)]) for place in (start, end))
    for dark in (0.02, 0.1, 0.3):
        price = 1 / (dark + brightness)
        weights = _LENGTH * (price[_FROM] + price[_TO]) / 2
        graph = coo_matrix((weights, (_FROM, _TO)), shape=(_SIZE**2, _SIZE**2)).tocsr()
        cost, before = dijkstra(graph, directed=False, indices=source, return_predecessors=True)
        path = [target]
        while before[path[-1]] >= 0:
            path.append(before[path[-1]])
        features += [cost[target], len(path), *_looks(path, brightness)]
    return features


def _marker_centres(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lit = np.argwhere(pixels >= 225)
    near = np.abs(lit - lit[0]).max(axis=1) <= 2
    other = lit[~near] if not near.all() else lit
    return tuple(np.rint(each.mean(axis=0)).astype(np.int64) for each in (lit[near], other))  # type: ignore[return-value]


def _looks(path: list[int], brightness: NDArray[np.float64]) -> list[float]:
    seen = brightness[path]
    places = np.stack(np.unravel_index(path, (_SIZE, _SIZE)), axis=1).astype(float)
    apart = 4
    ways = places[apart:] - places[:-apart] if len(path) > apart else np.zeros((1, 2))
    angles = np.arctan2(ways[:, 0], ways[:, 1])
    turns = np.zeros(1)
    if len(angles) > apart:
        turns = np.abs(np.angle(np.exp(1j * (angles[apart:] - angles[:-apart]))))
    darkest = np.convolve(seen, np.ones(3) / 3, "valid").min() if len(seen) > 2 else 0.0
    return [float(x) for x in (seen.mean(), turns.max(), turns.mean(), darkest)]
