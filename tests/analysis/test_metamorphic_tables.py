"""What may not matter to how a table is read, whatever is asked of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.questions.pareto.result import ParetoSettings
from analysis.questions.transition.result import TransitionSettings
from analysis.runs.load import read_table
from benchmarks.table_fits import fit_lean, fit_pareto, fit_transition
from hsweep.errors import UserError

NAMES = [
    "heads", "width", "depth", "layers", "lr", "optimizer", "warmup", "step", "steps", "budget",
    "tokens", "epoch", "epochs", "seed_of", "rep", "replicate", "run", "trial", "fold",
    "status_of", "state_of", "value", "complete", "reached", "loss_of", "error", "acc", "top1",
    "score", "metric", "per", "best", "time", "date", "seconds", "memory", "host", "grad",
    "config", "params", "params_x", "cost", "name", "index", "cell",
]  # fmt: skip
"""Names that columns have, among them those of the reader's own columns."""


def table(number: int) -> pd.DataFrame:
    """Errors of four head counts at two widths, with a collapse at 4 heads."""
    rng = np.random.default_rng(number)
    rows = [
        {
            **{"heads": heads, "width": width, "seed": seed},
            "error": 0.2 / heads * (1 if heads < 4 else 0.02) * rng.lognormal(0, 0.1),
            "cost": float(heads * width),
        }
        for heads in (1, 2, 4, 8)
        for width in (64, 128)
        for seed in range(4)
    ]
    return pd.DataFrame(rows)


def answers(frame: pd.DataFrame, **names: str) -> list[Any]:
    """Return what three kinds of question say of the table, whatever its columns are called."""
    heads, width, error, cost = (names.get(n, n) for n in ("heads", "width", "error", "cost"))
    seed = names.get("seed", "seed")
    roles: dict[str, Any] = {"metric": error, "replicate": seed, "goal": "min"}
    fall = fit_transition(
        frame, x=heads, by=width, settings=TransitionSettings(B=50, n_mc=49), **roles
    )
    shapes: dict[str, Any] = {"config": [heads, width], "costs": [cost], **roles}
    front = fit_pareto(frame, settings=ParetoSettings(draws=100), **shapes)
    lean = fit_lean(frame, baseline={heads: 8, width: 128}, margin=0.001, **shapes)
    # The order of a sum changes its last digit.
    return [
        (fall.verdict, fall.h_star, fall.drop, fall.p),
        [(*row.config.values(), round(row.mean, 12), row.n, row.class_) for row in front.table],
        [(*row.config.values(), row.outcome, round(row.p_holm or 1, 9)) for row in lean.table],
    ]


def renamed(frame: pd.DataFrame, names: dict[str, str]) -> list[Any]:
    return answers(frame.rename(columns=names), **names)


few = settings(max_examples=8, deadline=None, derandomize=True)
numbers = st.integers(0, 1000)


@few
@given(number=numbers, order=st.permutations(["heads", "width", "seed", "error", "cost"]))
def test_the_order_of_rows_and_columns(number: int, order: list[str]) -> None:
    frame = table(number)
    assert answers(frame.sample(frac=1, random_state=number)[order]) == answers(frame)


@few
@given(number=numbers, names=st.permutations(NAMES).map(lambda names: names[:5]))
def test_the_names_of_columns(number: int, names: list[str]) -> None:
    frame = table(number)
    assert renamed(frame, dict(zip(frame, names, strict=True))) == answers(frame)


@few
@given(number=numbers, name=st.sampled_from(NAMES), value=st.sampled_from([3, 0.5, "a", None]))
def test_a_constant_column(number: int, name: str, value: object) -> None:
    names = {"heads": "a", "width": "b", "error": "e", "cost": "k", "seed": "s"}
    frame = table(number).rename(columns=names)
    assert answers(frame.assign(**{name: value}), **names) == answers(frame, **names)


@few
@given(number=numbers, name=st.sampled_from(NAMES))
def test_a_column_that_numbers_the_rows(number: int, name: str) -> None:
    names = {"heads": "a", "width": "b", "error": "e", "cost": "k", "seed": "s"}
    frame = table(number).rename(columns=names)
    assert answers(frame.assign(**{name: range(len(frame))}), **names) == answers(frame, **names)


@few
@given(number=numbers, names=st.permutations([f"s{at}" for at in range(4)] + ["9", "x 1"]))
def test_the_names_of_seeds(number: int, names: list[str]) -> None:
    frame = table(number)
    assert answers(frame.assign(seed=frame["seed"].map(names.__getitem__))) == answers(frame)


@few
@given(number=numbers, copies=st.integers(1, 20))
def test_rows_that_are_copies(number: int, copies: int) -> None:
    frame = table(number)
    again = pd.concat([frame, frame.sample(copies, random_state=number)])
    assert answers(again) == answers(frame)


WRITTEN: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "floats": lambda frame: frame.astype({"heads": float, "width": float, "seed": float}),
    "texts": lambda frame: frame.astype({"heads": str, "width": str}),
    "texts of floats": lambda frame: frame.astype({"heads": float}).astype({"heads": str}),
    "small integers": lambda frame: frame.astype({"heads": "int8", "width": "uint16"}),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_how_whole_numbers_are_written(way: str) -> None:
    assert answers(WRITTEN[way](table(0))) == answers(table(0))


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt", "json", "jsonl", "parquet"])
def test_the_file_that_a_table_is_kept_in(tmp_path: Path, ending: str) -> None:
    frame, path = table(0), tmp_path / f"t.{ending}"
    match ending:
        case "json" | "jsonl":
            rows = [json.dumps(row) for row in frame.to_dict("records")]
            path.write_text("\n".join(rows) if ending == "jsonl" else f"[{','.join(rows)}]")
        case "parquet":
            frame.to_parquet(path)
        case _:
            sign = {"csv": ",", "tsv": "\t", "txt": " "}[ending]
            frame.to_csv(path, index=False, sep=sign)
    read, notes = read_table(path)
    assert notes == []
    assert answers(read) == answers(frame)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_file_that_is_split_in_two(tmp_path: Path, ending: str) -> None:
    frame = table(0)
    for name, part in (("a", frame[::2]), ("b", frame[1::2])):
        path = tmp_path / f"{name}.{ending}"
        if ending == "csv":
            part.to_csv(path, index=False)
        else:
            path.write_text("\n".join(map(json.dumps, part.to_dict("records"))))
    (tmp_path / "notes.md").write_text("no table")
    read, _ = read_table(tmp_path)
    assert answers(read) == answers(frame)


@few
@given(number=numbers, name=st.sampled_from(NAMES), seeds=st.sampled_from(["same", "others"]))
def test_the_rows_of_another_data_set_are_refused(number: int, name: str, seeds: str) -> None:
    names = {"heads": "a", "width": "b", "error": "e", "cost": "k", "seed": "s"}
    one = table(number).rename(columns=names)
    other = table(number + 1).rename(columns=names)
    other["s"] += 4 if seeds == "others" else 0
    both = pd.concat([one.assign(**{name: "c4"}), other.assign(**{name: "pile"})])
    with pytest.raises(UserError, match=f"^{name} .* inside a="):
        answers(both, **names)
