"""Whatever a table holds: a finite answer, or one line that says what is wrong with it."""

import datetime
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from fuzzing import many, refused_or_done, tries
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.ask import table_kinds
from hsweep.cli import main

ASKED = table_kinds()
COLUMNS = (
    *("heads", "seq_len", "depth", "seed", "nmse", "top1", "num_params", "status", "config"),
    *("condition_number", "reached", "budget", "x", "", "[red]", "a,b", "a=b", "$x$", "\x1b[2J"),
)
STATUSES = ("finished", "stopped_early", "failed", "diverged", "running", "odd", "", None)
NUMBERS = st.one_of(
    st.integers(-3, 20),
    st.sampled_from([0, 1, 2, 4, 8, 16, 0.0, -1.0, 1e-300, 1e300, math.nan, math.inf, -math.inf]),
    st.floats(0, 1),
    st.just(None),
)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Any:
    """One column: plausible, or of anything."""
    many_of = lambda each: st.lists(each, min_size=rows, max_size=rows)  # noqa: E731
    kind = draw(st.sampled_from(
        ["few", "few", "float", "float", "any", "bool", "text", "status", "date", "category",
         "constant", "nested", "mixed", "huge", "digits"]
    ))  # fmt: skip
    if kind == "few":
        return draw(many_of(st.sampled_from([1, 2, 3, 4, 8])))
    if kind == "float":
        return draw(many_of(st.floats(1e-6, 1.0)))
    if kind == "any":
        return draw(many_of(NUMBERS))
    if kind == "bool":
        return draw(many_of(st.booleans()))
    if kind == "text":
        return draw(many_of(st.text(st.characters(codec="utf-8"), max_size=6)))
    if kind == "status":
        return draw(many_of(st.sampled_from(STATUSES)))
    if kind == "date":
        start = datetime.datetime(2026, 1, 1)
        return [start + datetime.timedelta(days=n) for n in draw(many_of(st.integers(0, 5)))]
    if kind == "category":
        return pd.Categorical(draw(many_of(st.sampled_from(["a", "b", None]))))
    if kind == "constant":
        return [draw(st.sampled_from([0, 1, 0.5, "same", None, math.nan]))] * rows
    if kind == "nested":
        return draw(many_of(st.lists(st.integers(0, 3), max_size=2)))
    if kind == "mixed":
        return draw(many_of(st.one_of(st.integers(0, 3), st.text(max_size=2), st.none())))
    if kind == "huge":
        return draw(many_of(st.sampled_from([10**15, 2**62, -(2**62), 1])))
    return draw(many_of(st.sampled_from(["1", "2", "007", " 4", "1e3", "x"])))


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """A table with some of the usual columns, and with whatever is in them."""
    rows = draw(st.sampled_from([0, 1, 2, 3, 6, 12, 24]))
    names = draw(st.lists(st.sampled_from(COLUMNS), unique=True, max_size=9))
    return pd.DataFrame({name: draw(columns(rows)) for name in names}, index=range(rows))


def good(seed: int = 0) -> pd.DataFrame:
    """A table that every kind of question has an answer to."""
    rng = np.random.default_rng(seed)
    grid = [(h, t, s) for h in (1, 2, 3, 4) for t in (8, 32) for s in range(3)]
    frame = pd.DataFrame(grid, columns=["heads", "seq_len", "seed"])
    frame["depth"] = np.where(frame["heads"] > 2, 1, 2)
    error = np.where(frame["heads"] < 3, 0.1, 1e-3) * np.exp(0.1 * rng.standard_normal(len(frame)))
    return frame.assign(
        nmse=error, top1=1 - error, num_params=frame["heads"] * 1000 * frame["depth"],
        condition_number=10.0 * frame["heads"] + rng.random(len(frame)), status="finished",
    )  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn) -> pd.DataFrame:
    """A good table of which a few columns are spoiled."""
    frame = good(draw(st.integers(0, 3)))
    for name in draw(st.lists(st.sampled_from(list(frame.columns)), max_size=2, unique=True)):
        change = draw(st.sampled_from(["drop", "replace", "constant", "missing", "few missing"]))
        if change == "drop":
            frame = frame.drop(columns=name)
        elif change == "replace":
            frame[name] = draw(columns(len(frame)))
        elif change == "constant":
            frame[name] = frame[name].iloc[0]
        elif change == "missing":
            frame[name] = None
        else:
            holes = draw(st.lists(st.integers(0, len(frame) - 1), max_size=6))
            frame[name] = frame[name].astype(object)
            frame.loc[holes, name] = draw(st.sampled_from([None, math.nan, math.inf, "x", -1, 0]))
    if draw(st.booleans()):
        kept = draw(st.lists(st.integers(0, len(frame) - 1), max_size=len(frame)))
        frame = frame.iloc[kept]
    return frame


NAMES = st.one_of(st.sampled_from(COLUMNS), st.sampled_from(["", "none", "nmse,top1", "heads=1"]))
SETTING = st.sampled_from(
    [
        *(
            "B=0",
            "B=-1",
            "B=5",
            "B=1e9",
            "B=x",
            "alpha=nan",
            "alpha=2",
            "alpha=0.5",
            "min_drop=inf",
        ),
        *(
            "max_growth=-1",
            "max_growth=0",
            "min_drop=nan",
            "rng_seed=-1",
            "rng_seed=x",
            "n_mc=0",
            "=1",
        ),
        *("confidence=1", "confidence=0", "margin=-1", "draws=0", "nonsense=1", "B", "n_mc=99"),
        *("draws=1", "draws=100000000000", "B=100000000000", "permutations=100000000000"),
        *("suggestions=100000000000", "target=nan", "alpha=0"),
        *("rng_seed=1000000000000000000000000", "alpha=1e-300"),
    ]
)
OPTIONS = st.one_of(
    st.tuples(
        st.sampled_from(
            [
                *("--x", "--by", "--metric", "--replicate", "--config", "--cost", "--nuisance"),
                *("--status-column", "--budget-column"),
            ]
        ),
        NAMES,
    ),
    st.tuples(st.just("--setting"), SETTING),
    st.tuples(st.sampled_from(["--complete", "--pruned", "--failed"]), st.text(max_size=4)),
    st.tuples(
        st.sampled_from(["--margin", "--target-budget", "--eval-size"]),
        st.sampled_from(["0", "-1", "nan", "inf", "1", "0.01", "x", "1000", "1e400"]),
    ),
    st.tuples(
        st.sampled_from(["--baseline", "--predict"]),
        st.sampled_from(
            [
                *("heads=4", "heads=4,depth=1", "heads=99", "heads=x", "heads=", "=", "a", "heads"),
                *("heads=nan", "heads={1}", "heads=(1,2)", "depth=1,heads=4", "nmse=1", "config=a"),
            ]
        ),
    ),
    st.tuples(st.just("--goal"), st.sampled_from(["min", "max"])),
    st.tuples(st.just("--scale"), st.sampled_from(["error", "accuracy", "loss"])),
)
QUICK = {
    "transition": ["B=20", "n_mc=19"],
    "pareto": ["draws=20"],
}


def quick(kind: str) -> list[str]:
    return [word for setting in QUICK.get(kind, []) for word in ("--setting", setting)]


def usual(kind: str) -> list[str]:
    """Options with which a kind answers a table that is not spoiled."""
    if kind == "transition":
        return ["--metric", "nmse", *quick(kind)]
    shape = [word for name in ("heads", "depth", "seq_len") for word in ("--config", name)]
    lean = ["--baseline", "heads=4,depth=1,seq_len=32", "--margin", "0.01"]
    return ["--metric", "top1", "--goal", "max", *shape, *quick(kind), *lean * (kind == "lean")]


def ask(file: Path, kind: str, options: Sequence[str], *flags: str) -> Result:
    """Ask with those of the options that the kind has: others are refused before anything else."""
    others = {option.flag for each in ASKED.values() for option in each.options}
    others -= {option.flag for option in ASKED[kind].options}
    pairs = zip(options[::2], options[1::2], strict=True)
    own = [word for pair in pairs if pair[0] not in others for word in pair]
    arguments = ["analyze", "--table", str(file), "--kind", kind, *own, *flags]
    return CliRunner().invoke(main, arguments)


def answered_or_refused(frame: pd.DataFrame, file: Path, kind: str, options: Sequence[str]) -> None:
    if file.suffix == ".csv":
        frame.to_csv(file, index=False, errors="replace")
    else:
        try:
            frame.to_parquet(file)
        except Exception:  # pyarrow has no such table
            return
    result = ask(file, kind, options, "--json")
    if refused_or_done(result):
        # Strict: neither NaN nor an infinity stands in an answer.
        content = json.loads(result.stdout, parse_constant=pytest.fail)
        assert content["answer"]
        said = ask(file, kind, options)
        assert said.exit_code == 0, said.exception
        assert "\x1b" not in said.output
    else:
        assert len(result.stderr.strip().splitlines()) <= 4, result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


ENDINGS = st.sampled_from(["csv", "parquet"])
EXTRAS = st.lists(OPTIONS, max_size=2).map(lambda pairs: [word for pair in pairs for word in pair])


@pytest.mark.parametrize("kind", ASKED)
def test_the_table_that_is_spoiled_has_an_answer_before(folder: Path, kind: str) -> None:
    good().to_csv(folder / "good.csv", index=False)
    result = ask(folder / "good.csv", kind, usual(kind))
    assert result.exit_code == 0, result.output


@given(spoiled(), st.sampled_from(sorted(ASKED)), ENDINGS, EXTRAS)
@tries(60)
def test_a_spoiled_table_is_answered_or_refused(
    folder: Path, frame: pd.DataFrame, kind: str, ending: str, extra: list[str]
) -> None:
    answered_or_refused(frame, folder / f"spoiled.{ending}", kind, [*usual(kind), *extra])


@given(tables(), st.sampled_from(sorted(ASKED)), ENDINGS, NAMES, EXTRAS)
@tries(80)
def test_any_table_is_answered_or_refused(
    folder: Path, frame: pd.DataFrame, kind: str, ending: str, metric: str, extra: list[str]
) -> None:
    answered_or_refused(
        frame, folder / f"any.{ending}", kind, ["--metric", metric, *quick(kind), *extra]
    )


@given(st.binary(max_size=300), st.sampled_from(["csv", "parquet", "json", "xlsx", "txt", "CSV"]))
@example(b"heads,nmse\n1,2\n1\n1,2,3\n", "csv")
@example(b"heads,heads\n1,2\n", "csv")
@example(b'heads,nmse\n"1,2\n', "csv")
@example(b"\xff\xfeh\x00e\x00", "csv")
@example(b"PAR1PAR1", "parquet")
@tries(60)
def test_any_bytes_are_a_table_or_refused(folder: Path, content: bytes, ending: str) -> None:
    file = folder / f"bytes.{ending}"
    file.write_bytes(content)
    refused_or_done(ask(file, "transition", ["--metric", "nmse", *quick("transition")], "--json"))


@given(st.integers(0, 3000), st.integers(0, 255), ENDINGS)
@tries(60)
def test_a_table_cut_or_garbled_is_read_or_refused(
    folder: Path, at: int, byte: int, ending: str
) -> None:
    whole = folder / f"whole.{ending}"
    if not whole.exists():
        frame = pd.DataFrame({"heads": [1, 2] * 6, "seq_len": 8, "seed": range(12), "nmse": 0.5})
        frame.to_csv(whole, index=False) if ending == "csv" else frame.to_parquet(whole)
    content = bytearray(whole.read_bytes())
    at %= len(content)
    file = folder / f"damaged.{ending}"
    options = ["--metric", "nmse", *quick("transition")]
    for damaged in (content[:at], content[:at] + bytes([byte]) + content[at + 1 :]):
        file.write_bytes(bytes(damaged))
        refused_or_done(ask(file, "transition", options, "--json"))


@given(spoiled(), st.sampled_from(sorted(ASKED)), ENDINGS, EXTRAS)
@many(600)
def test_a_spoiled_table_at_length(
    folder: Path, frame: pd.DataFrame, kind: str, ending: str, extra: list[str]
) -> None:
    answered_or_refused(frame, folder / f"spoiled.{ending}", kind, [*usual(kind), *extra])


@given(tables(), st.sampled_from(sorted(ASKED)), ENDINGS, NAMES, EXTRAS)
@many(1000)
def test_any_table_at_length(
    folder: Path, frame: pd.DataFrame, kind: str, ending: str, metric: str, extra: list[str]
) -> None:
    answered_or_refused(
        frame, folder / f"any.{ending}", kind, ["--metric", metric, *quick(kind), *extra]
    )
