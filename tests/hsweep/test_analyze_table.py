"""`hsweep analyze --table`: any table, the fields of the answer, and what is wrong with a table."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from benchmarks.shapes import MARGIN, lean_sweep, shapes_sweep
from benchmarks.sweeps import Sweep, published, transition_sweep
from hsweep.cli import main

QUICK = ("--setting", "B=100", "--setting", "n_mc=99")
Analyze = Callable[..., Result]


@pytest.fixture
def analyze(tmp_path: Path) -> Analyze:
    def run(frame: pd.DataFrame | bytes, *options: str, ending: str = "csv") -> Result:
        path = tmp_path / f"runs.{ending}"
        if isinstance(frame, bytes):
            path.write_bytes(frame)
        elif ending == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)
        return CliRunner().invoke(main, ["analyze", "--table", str(path), *options])

    return run


def transition(analyze: Analyze, frame: pd.DataFrame, *options: str, **how: str) -> dict[str, Any]:
    result = analyze(frame, "--kind", "transition", "--json", *QUICK, *options, **how)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refusal(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


def as_options(sweep: Sweep) -> list[str]:
    """The options of the command line that say what the sweep's own say in Python."""
    return [
        part for name, value in sweep.options.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "h_star", "ending"),
    [("D4", 4, "csv"), ("E32", 4, "parquet"), ("D3", 3, "csv"), ("two_layers", 2, "csv")],
)
def test_the_published_tables(analyze: Analyze, name: str, h_star: int, ending: str) -> None:
    asked = ("--metric", "nmse", "--setting", "n_mc=499")
    found = transition(analyze, published(name), *asked, ending=ending)
    assert (found["verdict"], found["suggested"], found["h_star"]) == ("open", True, h_star)
    assert found["n1_assumed_sd"] == 0.1
    sure = ("--setting", "assumed_sd=0.1")
    stated = transition(analyze, published(name), *asked, *sure, ending=ending)
    assert (stated["verdict"], stated["h_star"]) == ("collapse", h_star)
    assert stated["answer"].startswith("With a stated seed sd of 0.1 decades: ")


@pytest.mark.parametrize(
    ("family", "verdicts"),
    [
        ("sharp", {"collapse"}),
        ("marco", {"collapse", "none"}),
        ("loss", {"collapse"}),
        ("null_power", {"none"}),
        ("asha_cell", {"collapse"}),
        ("asha_global", {"open"}),
    ],
)
def test_sweeps_of_every_scale_and_status(
    analyze: Analyze, family: str, verdicts: set[str]
) -> None:
    sweep = transition_sweep(family, 7)
    found = transition(analyze, sweep.frame, *as_options(sweep), ending="parquet")
    assert found["verdict"] in verdicts
    if found["verdict"] == "collapse":
        assert found["h_star"] == sweep.h_star
        assert sweep.h_star in found["h_set"]


def test_the_fields_that_are_documented(analyze: Analyze) -> None:
    sweep = transition_sweep("sharp", 1)
    found = transition(analyze, sweep.frame, "--metric", "nmse")
    assert {
        *("kind", "answer", "verdict", "reason", "shown_by", "growth", "suggested", "reading"),
        *("h_star", "bracket", "h_peak", "h_set", "p_h", "p", "scatter", "drop"),
        *("excess", "drops", "later_rise", "gamma", "gamma_below", "gamma_above", "level"),
        *("d_eff", "counts", "n1_assumed_sd", "settings", "warnings", "sensitivity"),
        *("missing", "qualifications", "noise_gap"),
    } <= set(found)
    assert sum(found["p_h"].values()) == pytest.approx(1)
    estimate, low, high = found["gamma"]["1"]
    assert low < estimate < high
    assert {"x", "by", "ended", "read", "setting"} == set(found["counts"][0])
    assert found["settings"]["B"] == 100


def test_names_words_and_budgets_are_the_users(analyze: Analyze) -> None:
    sweep = transition_sweep("asha_cell", 3)
    names = {
        "heads": "num heads", "seq_len": "context", "seed": "rep", "nmse": "val error",
        "epoch": "epochs trained", "status": "how it ended",
    }  # fmt: skip
    words = {"COMPLETE": "through", "PRUNED": "cut"}
    frame = sweep.frame.assign(status=sweep.frame["status"].map(words)).rename(columns=names)
    found = transition(
        analyze, frame.assign(**{"num heads": frame["num heads"].astype(str)}),
        *("--x", "num heads", "--by", "context", "--replicate", "rep", "--metric", "val error"),
        *("--status-column", "how it ended", "--complete", "through", "--pruned", "cut"),
        *("--budget-column", "epochs trained", "--target-budget", "27"),
        ending="parquet",
    )  # fmt: skip
    assert (found["verdict"], found["h_star"]) == ("collapse", sweep.h_star)
    assert found["x"] == "num heads"
    assert found["counts"][0]["ended"] == {"finished": 3, "stopped_early": 6}


def test_a_setting_decides_and_is_recorded(analyze: Analyze) -> None:
    frame = transition_sweep("sharp", 2).frame
    found = transition(analyze, frame, "--metric", "nmse", "--setting", "min_drop=4")
    assert found["verdict"] == "none"
    assert found["settings"]["min_drop"] == 4


def test_a_goal_of_max_alone_means_an_accuracy(analyze: Analyze) -> None:
    sweep = transition_sweep("marco", 0)
    told = transition(analyze, sweep.frame, "--metric", "accuracy", "--scale", "accuracy")
    meant = transition(analyze, sweep.frame, "--metric", "accuracy", "--goal", "max")
    assert told == meant


def test_an_accuracy_is_spoken_of_in_points(analyze: Analyze) -> None:
    rng = np.random.default_rng(0)
    rows = [
        (heads, seed, (0.4 if heads < 4 else 0.97) + 0.003 * rng.normal(), heads)
        for heads in range(1, 7) for seed in range(3)
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["heads", "seed", "top1", "num_params"])
    asked = ("--metric", "top1", "--kind")
    told = analyze(frame, *asked, "transition", *QUICK).stdout
    assert "The error collapses at heads = 4" in told
    assert "there top1 is 56.5 points higher than at 3" in told
    assert "top1 is maximised (higher is better)" in told
    # A quarter of the error is left at each step: where most points are gained is not the place.
    errors = 0.8 * 0.25 ** frame["heads"] * np.exp(0.1 * rng.normal(size=len(frame)))
    slow = frame.assign(top1=1 - errors)
    steady = analyze(slow, *asked, "transition", *QUICK).stdout
    assert re.search(r"error falls most on the way to heads = \d, by [\d.]+ points", steady)
    few = frame.query("seed == 0")
    suggested = analyze(few, *asked, "transition", *QUICK).stdout
    assert "suggested, not tested: the error falls by 56.2 points there" in suggested
    flat = frame.assign(top1=frame["top1"] * 0.01 + 0.5)
    assert "less than a factor of 3.2" in analyze(flat, *asked, "transition", *QUICK).stdout
    both = pd.concat([frame.assign(depth=1), frame.assign(depth=2, top1=frame["top1"] + 0.02)])
    effects = analyze(both, *asked, "effects").stdout
    assert re.search(r"\d points", effects)
    for text in (told, suggested, effects):
        assert "decade" not in text


def test_the_terminal_shows_forty_rows_and_those_of_the_front_first(analyze: Analyze) -> None:
    shapes = [(f"s{at}", float(at), 1 + 0.01 * (at % 60)) for at in range(90)]
    frame = pd.DataFrame(shapes, columns=["config", "num_params", "loss"])
    told = analyze(frame, "--kind", "pareto", "--metric", "loss").stdout
    assert "1 of 90 shapes lie on the front" in told
    assert "the noise between seeds is not measured (single runs)" in told
    assert (
        "The first 40 of 90 rows; `hsweep analyze` with --json or --out FILE has them all" in told
    )
    lines = [line for line in told.splitlines() if "(untested)" in line]
    assert len(lines) == 40
    assert lines[0].startswith("s0 ")
    assert "on the front (untested)" in lines[0]


def test_the_front_of_several_costs_by_name(analyze: Analyze) -> None:
    frame = shapes_sweep("homo", 0).drop(columns="true")
    frame = frame.rename(columns={"shape": "config", "num_params": "params"})
    frame["memory"] = 3.0 * frame["params"]
    asked = ("--kind", "pareto", "--metric", "top1", "--cost", "params", "--cost", "memory")
    result = analyze(frame, *asked, "--json", "--setting", "draws=200", ending="parquet")
    found = json.loads(result.stdout)
    assert {row["label"] for row in found["table"]} == set(frame["config"])
    assert set(found["front"]) <= set(frame["config"])
    assert found["costs"] == ["params", "memory"]
    assert len(found["hv"]) == 3


def test_lean_equivalents_by_name(analyze: Analyze) -> None:
    frame = lean_sweep("equal", 2).drop(columns="true").rename(columns={"shape": "config"})
    asked = ("--kind", "lean", "--metric", "top1", "--baseline", "s08", "--margin", str(MARGIN))
    found = json.loads(analyze(frame, *asked, "--json").stdout)
    established = [row for row in found["table"] if row["outcome"] == "established"]
    assert found["choice"] == established[0]["label"]
    assert established[0]["config"] == {"config": found["choice"]}
    missing = refusal(analyze(frame, *asked[:5], "s99", *asked[6:]))
    assert "picks 0 shapes" in missing


def test_a_column_that_tells_runs_of_a_cell_apart_is_a_setting_only_where_it_is_named(
    analyze: Analyze,
) -> None:
    frame = transition_sweep("tuned_sharp", 3).frame.assign(minutes=lambda runs: runs.index / 7)
    asked = transition(analyze, frame, "--metric", "nmse", "--nuisance", "lr")
    assert asked["nuisance"] == ["lr"]
    unnamed = analyze(frame, "--kind", "transition", "--metric", "nmse")
    assert "lr (1.0, 0.1, 0.01, and 3 more) varies inside heads=1, seq_len=8, seed=0" in refusal(
        unnamed
    )


def test_shapes_stand_at_their_best_setting_of_a_nuisance_axis(analyze: Analyze) -> None:
    frame = lean_sweep("tuned_equal", 0).drop(columns="true").rename(columns={"shape": "config"})
    asked = ("--metric", "top1", "--nuisance", "lr", "--json")
    question = ("--kind", "lean", "--baseline", "s08", "--margin", str(MARGIN))
    found = json.loads(analyze(frame, *question, *asked).stdout)
    assert [row["setting"]["tried"] for row in found["table"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {row["n"] for row in found["table"]} == {5}
    front = json.loads(analyze(frame, "--kind", "pareto", *asked).stdout)
    assert len(front["table"]) == 9
    unknown = refusal(analyze(frame, *question, "--metric", "top1", "--nuisance", "rate"))
    assert "unknown column in --nuisance 'rate'" in unknown


def test_a_table_says_what_a_constant_predictor_scores(analyze: Analyze) -> None:
    frame = lean_sweep("untrained", 0).drop(columns="true").rename(columns={"shape": "config"})
    asked = ("--kind", "lean", "--metric", "top1", "--baseline", "s08", "--margin", str(MARGIN))
    result = analyze(frame, *asked, "--setting", "chance=0.1")
    assert "No answer: the baseline" in result.output
    assert "than a constant predictor" in result.output


def test_a_shape_is_its_axes_or_the_one_name_that_fixes_them(analyze: Analyze) -> None:
    rng = np.random.default_rng(0)
    rows = [
        (heads, depth, seed, 0.8 + 0.001 * rng.standard_normal(), heads * depth,
         1000 * heads + int(rng.integers(50)))
        for heads in (2, 4) for depth in (1, 2) for seed in range(3)
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["heads", "depth", "seed", "top1", "num_params", "bytes"])
    asked = ("--kind", "lean", "--metric", "top1", "--margin", "0.05", "--json", "--baseline")
    by_axes = json.loads(analyze(frame, *asked, "heads=4,depth=2").stdout)
    assert by_axes["choice"] == "heads=2, depth=1"
    named = frame.assign(name="vit-" + frame["heads"].astype(str) + frame["depth"].astype(str))
    assert json.loads(analyze(named, *asked, "vit-42").stdout)["choice"] == "vit-21"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_shapes_that_lack_an_axis_are_shapes_all_the_same(analyze: Analyze, ending: str) -> None:
    points = [{"kind": "plain", "heads": heads} for heads in (1, 2, 4)]
    points += [
        {"kind": "gated", "heads": heads, "rank": rank} for heads in (1, 2) for rank in (4, 8)
    ]
    points += [{"kind": "gated", "heads": 4, "rank": 2, "bias": bias} for bias in (True, False)]
    frame = pd.DataFrame(
        {**point, "seed": seed, "top1": 0.7 + 0.01 * at + 0.002 * seed, "num_params": 100 + at}
        for at, point in enumerate(points)
        for seed in range(3)
    )
    front = json.loads(
        analyze(frame, "--kind", "pareto", "--metric", "top1", "--json", ending=ending).stdout
    )
    assert len(front["table"]) == len(points)
    assert set(front["table"][0]["config"]) == {"kind", "heads", "rank", "bias"}


def test_the_result_is_written(analyze: Analyze, tmp_path: Path) -> None:
    frame = transition_sweep("sharp", 0).frame
    out = tmp_path / "result.json"
    found = transition(analyze, frame, "--metric", "nmse", "--out", str(out))
    own = json.loads(out.read_text())
    # What qualifies the answer is said in sentences, each once.
    for name in ("qualifications", "warnings"):
        del own[name]
    assert own.items() <= found.items()


def sharp(**columns: Any) -> pd.DataFrame:
    return transition_sweep("sharp", 3).frame.assign(**columns)


def first(value: float) -> pd.DataFrame:
    frame = sharp()
    return frame.assign(nmse=frame["nmse"].where(frame.index > 0, value))


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (b"", "", "is empty"),
        (sharp().drop(columns="heads"), "", "name the searched axis with --x COLUMN"),
        (sharp().drop(columns="nmse"), "", "unknown column 'nmse'"),
        (first(-0.1), "", "holds -0.1; an error cannot be below 0"),
        (sharp(nmse=0.0), "", "every run has nmse = 0; give eval_size"),
        (sharp().rename(columns={"nmse": "score"}), "--metric score", "--goal min or --goal max"),
        (pd.concat([sharp(), sharp(nmse=0.5)]), "", "repeat a run"),
        (sharp(), "--x heads --by heads", "'heads' is asked for in two roles"),
        (sharp(), "--replicate rep", "unknown column 'rep'"),
        (sharp(), "--pruned cut", "need the column of the words"),
        (sharp(), "--setting alpha=3", "alpha must lie between 0 and 1"),
        (sharp(epoch=1), "--budget-column epoch --target-budget 0", "above 0, not 0.0"),
        (sharp(epoch=np.nan), "--budget-column epoch", "column 'epoch' is empty"),
        (sharp(), "--kind pareto", "--cost COLUMN"),
        (sharp(), "--kind pareto --cost nmse", "both the metric and a cost"),
        (sharp(), "--kind pareto --cost seq_len --x heads", "belongs to --kind transition"),
        (
            sharp(params=1),
            "--kind lean --cost params --baseline heads=9 --margin 1 --config heads"
            " --config seq_len",
            "picks 0 shapes",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_said(
    analyze: Analyze, frame: pd.DataFrame | bytes, options: str, message: str
) -> None:
    asked = ["--kind", "transition", "--metric", "nmse", *options.split()]
    assert message in refusal(analyze(frame, *asked))


@pytest.mark.parametrize(
    ("query", "by", "reason"),
    [
        ("heads == 2", "seq_len", "1 value of heads cannot show a collapse"),
        ("heads <= 2", "seq_len", "2 values of heads cannot tell"),
    ],
)
def test_a_sweep_too_small_leaves_the_answer_open_and_asks_for_more(
    analyze: Analyze, query: str, by: str, reason: str
) -> None:
    found = transition(analyze, sharp().query(query), "--metric", "nmse", "--by", by)
    assert found["verdict"] == "open"
    assert reason in found["reason"]
    assert found["missing"]


def test_one_length_shows_a_collapse_and_says_nothing_of_growth(analyze: Analyze) -> None:
    found = transition(
        analyze, sharp().query("seq_len == 8"), "--metric", "nmse", "--by", "seq_len"
    )
    assert (found["verdict"], found["growth"], found["gamma_above"]) == ("collapse", "open", None)
    assert "Growth with seq_len cannot be judged by one value of it." in found["qualifications"]


def test_runs_without_a_value_are_no_obstacle(analyze: Analyze) -> None:
    found = transition(analyze, first(np.nan), "--metric", "nmse")
    assert found["verdict"] == "collapse"
    said = [*found["qualifications"], *found["warnings"]]
    assert any("counted as failed" in text for text in said)
    frame = first(np.inf)
    frame["status"] = np.where(frame.index > 0, "COMPLETE", "FAIL")
    assert transition(analyze, frame, "--metric", "nmse")["verdict"] == "collapse"


def test_many_seeds_are_no_obstacle(analyze: Analyze) -> None:
    rng = np.random.default_rng(0)
    frame = sharp().query("seed == 0").loc[lambda runs: runs.index.repeat(150)]
    frame = frame.assign(
        seed=np.tile(np.arange(150), len(frame) // 150),
        nmse=frame["nmse"] * 10 ** rng.normal(0, 0.1, len(frame)),
    )
    found = transition(analyze, frame, "--metric", "nmse")
    assert (found["verdict"], found["counts"][0]["ended"]) == ("collapse", {"finished": 150})


def test_options_of_a_table_are_refused_for_a_study() -> None:
    result = CliRunner().invoke(main, ["analyze", "mine", "--setting", "alpha=0.1"])
    assert "--setting belongs to --table" in refusal(result)
