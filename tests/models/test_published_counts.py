"""The parameter counts that the lean paper prints beside those of the models built here."""

from collections.abc import Iterator

import pytest
from published_models import PRESETS, ROWS, model_of

from models.base import ModelConfig
from models.counts import checked_build

# Millions of parameters of every row's model, as timm builds it or closed forms give it.
MEASURED = {
    "T4": "86.568 40.113 86.568 40.113 84.396 59.003 65.429 30.898 86.325 47.454 87.954 62.653",
    "T5": "203.614 98.598 203.614 98.598 189.096 103.793 192.962 105.557 196.812 139.986",
    "Fig3": "61.365 67.663",
    "T1": "119.590 84.182",
    "T2": "89.161 64.151",
}
THOUSANDS = {
    "T3": "209.802 192.906 370.562 353.666 395.138 378.242 174.986 158.090 173.954 157.058",
}
CANNOT_BE_RIGHT = {
    ("T4", "DaViT-B ([1,1,5,1],[4,8,32,32])"),
    ("T3", "retrieval (1,4)"),
    ("T3", "image (2,2)"),
    ("T3", "image (1,4)"),
    ("T3", "pathfinder (2,2)"),
    ("T3", "pathfinder (1,4)"),
}


def count(config: ModelConfig) -> int:
    """Build a model without memory, and return its count, which is that of what was built."""
    checked_build(config)
    return config.counts().num_params


def num_params(model: str, **settings: object) -> int:
    return count(PRESETS[model](**settings))


@pytest.fixture(scope="module")
def built() -> list[int]:
    """The counts of all printed rows, in their order."""
    return [count(model_of(row)) for row in ROWS]


def expected() -> Iterator[tuple[str, float]]:
    for tables, unit in ((MEASURED, 1e6), (THOUSANDS, 1e3)):
        for table, figures in tables.items():
            yield from ((table, float(figure) * unit) for figure in figures.split())


def test_every_row_has_the_measured_count_to_the_printed_digit(built: list[int]) -> None:
    rounded = [round(count, -3 if count > 1e6 else 0) for count in built]
    tables = [row["table"] for row in ROWS]
    assert list(zip(tables, rounded, strict=True)) == [
        (table, round(count)) for table, count in expected()
    ]


def test_all_rows_are_within_half_a_percent_of_print_but_those_that_a_note_explains(
    built: list[int],
) -> None:
    units = {"k": 1e3, "M": 1e6}
    printed = [float(row["printed"][:-1]) * units[row["printed"][-1]] for row in ROWS]
    rows = zip(ROWS, built, printed, strict=True)
    off = [row for row, count, expected in rows if abs(count / expected - 1) > 0.005]
    assert {(row["table"], row["row"]) for row in off} == CANNOT_BE_RIGHT
    assert all(row["note"] for row in off)


def test_a_wrong_note_on_the_mlp_would_show_in_the_count() -> None:
    """The widths that the paper prints, and the counts they would have."""

    def millions(model: str, **settings: object) -> float:
        return round(num_params(model, **settings) / 1e6, 1)

    assert millions("vit_large", depth=24, heads=16, mlp_ratio=4) == 304.3
    assert millions("tnt_base", depth=8, heads=16, mlp_ratio=4) == 44.0
    lean = {"depth": (4, 4, 8, 2), "heads": (24, 32, 32, 32)}
    assert millions("volo_d4", **lean, mlp_ratio=2) == 85.5
    assert millions("xcit_medium", depth=12, heads=16) == 46.4
    assert millions("xcit_large", depth=12, heads=24, head_dim=48) == 118.0


@pytest.mark.parametrize(
    ("settings", "thousands"),
    [
        ({"task": "retrieval", "depth": 1, "heads": 4, "mlp_ratio": 4}, 394.754),
        ({"task": "retrieval", "depth": 1, "heads": 4, "head_dim": 48}, 394.818),
        ({"task": "image", "depth": 1, "heads": 4, "head_dim": 64}, 191.242),
        ({"task": "pathfinder", "depth": 1, "heads": 4, "head_dim": 64}, 190.210),
    ],
)
def test_the_shapes_that_would_give_the_printed_long_range_counts(
    settings: dict[str, object], thousands: float
) -> None:
    assert num_params("lra", **settings) == round(1000 * thousands)
