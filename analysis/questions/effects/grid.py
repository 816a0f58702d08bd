"""Pairs and squares of shapes that differ in one or two axes alone."""

from collections.abc import Sequence
from itertools import groupby, pairwise

from analysis.questions.effects.contrasts import Unit
from analysis.runs.configurations import describe
from analysis.runs.shape_runs import Shape, ShapeRuns
from analysis.values import Number, number

Step = tuple[Number, Number]


def pairs(runs: ShapeRuns, axis: str) -> dict[Step, list[tuple[str, Unit]]]:
    """Return the steps of ``axis`` with their pairs, each with the values held in words.

    A pair are neighbours on a line of tried shapes along which only ``axis`` changes; where a shape
    of the line cannot be compared its pairs are there too, so that they can be counted as lost.
    """
    others = [name for name in (*runs.axes, *runs.names) if name != axis]
    found: dict[Step, list[tuple[str, Unit]]] = {}
    for line in lines(runs.shapes, others):
        line.sort(key=lambda shape: float(shape.config[axis]))
        for low, high in pairwise(line):
            step = (number(float(low.config[axis])), number(float(high.config[axis])))
            held = describe({name: low.config[name] for name in others})
            found.setdefault(step, []).append((held, Unit((high,), (low,))))
    return dict(sorted(found.items()))


def squares(runs: ShapeRuns, first: str, second: str) -> dict[tuple[Step, Step], list[Unit]]:
    """Return the 2 x 2 squares of neighbouring values of two axes, all other axes held."""
    others = [name for name in (*runs.axes, *runs.names) if name not in (first, second)]
    found: dict[tuple[Step, Step], list[Unit]] = {}
    for plane in lines(runs.shapes, others):
        at = {(s.config[first], s.config[second]): s for s in plane}
        rows = sorted({float(s.config[first]) for s in plane})
        columns = sorted({float(s.config[second]) for s in plane})
        for a, b in pairwise(rows):
            for c, d in pairwise(columns):
                corners = [at.get(key) for key in ((b, d), (a, c), (b, c), (a, d))]
                if None not in corners:
                    up, down, left, right = (shape for shape in corners if shape is not None)
                    step = ((number(a), number(b)), (number(c), number(d)))
                    found.setdefault(step, []).append(Unit((up, down), (left, right)))
    return dict(sorted(found.items()))


def lines(shapes: Sequence[Shape], held: Sequence[str]) -> list[list[Shape]]:
    """Return the shapes in groups that agree in every axis of ``held``."""

    def key(shape: Shape) -> tuple[str, ...]:
        return tuple(repr(shape.config[name]) for name in held)

    return [list(group) for _, group in groupby(sorted(shapes, key=key), key)]
