"""Tables that other people and tools wrote: how they are read, and what is never guessed."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.runs.columns import budget_steps
from analysis.runs.load import read_table
from analysis.runs.table import Runs
from benchmarks.table_fits import fit_lean as lean
from hsweep.cli import main
from hsweep.errors import UserError

FOREIGN = Path(__file__).parents[3] / "shared" / "foreign"

PLAIN = "size,top1,note\n1234,0.931,a\n900,0.92,b\n"


WRITTEN = {
    "plain.csv": PLAIN.encode(),
    "marked.csv": b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(),
    "semicolons.csv": PLAIN.replace(",", ";").encode(),
    "tabs.tsv": PLAIN.replace(",", "\t").encode(),
    "spaced.csv": PLAIN.replace(",", ", ").encode(),
    "packed.csv.gz": gzip.compress(PLAIN.encode()),
    "wide.csv": PLAIN.encode("utf-16"),
    "commas.csv": PLAIN.replace(",", ";").replace(".", ",").encode(),
    "quoted.csv": b'size,top1,note\n1234,"0,931",a\n900,"0,92",b\n',
    "groups.csv": b'size,top1,note\n"1,234",0.931,a\n900,0.92,b\n',
    "percent.csv": b"size,top1,note\n1234,93.1%,a\n900,92 %,b\n",
    "office.csv": b"sep=;\nsize;top1;note\n1.234;93,1 %;a\n900;92 %;b\n;;\n;;\n",
    "thin.csv": "size,top1,note\n1\u202f234,0.931,a\n900,0.92,b\n".encode(),
    "blanks.txt": b"  size   top1 note\n  1234  0.931    a\n   900   0.92    b\n",
    "lines.jsonl": b'{"size":1234,"top1":0.931,"note":"a"}\n{"size":900,"top1":0.92,"note":"b"}\n',
    "list.json": b'[{"size":1234,"top1":0.931,"note":"a"},{"size":900,"top1":0.92,"note":"b"}]',
    "index.csv": b",size,top1,note\n0,1234,0.931,a\n1,900,0.92,b\n",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_text_is_read_however_it_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WRITTEN[name])
    frame, _ = read_table(tmp_path / name)
    assert frame.to_dict("list") == {"size": [1234, 900], "top1": [0.931, 0.92], "note": ["a", "b"]}


def test_a_folder_of_one_file_a_run_and_nested_objects_are_read(tmp_path: Path) -> None:
    for at in range(3):
        run = {"config": {"heads": at, "seed": 2**70 + at}, "loss": [1, 2][at % 2], "steps": 10**20}
        (tmp_path / f"run{at}.json").write_text(json.dumps(run))
    frame, _ = read_table(tmp_path)
    assert list(frame) == ["loss", "steps", "config.heads", "config.seed"]
    assert frame["config.seed"].map(str).tolist() == [str(2**70 + at) for at in range(3)]
    rows, _ = Runs(frame, "loss").rows(["config.heads"], ["steps"])
    assert rows.numbers["steps"].tolist() == [1e20] * 3


def test_whole_numbers_beyond_64_bits_are_numbers_unless_they_would_be_the_same(
    tmp_path: Path,
) -> None:
    lines = [f"{2**90 + seed},{10**19 * (seed + 1)},{seed}" for seed in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(["seed,flops,loss", *lines]))
    frame, _ = read_table(tmp_path / "t.csv")
    assert frame["flops"].astype(float).tolist() == [1e19, 2e19, 3e19]
    assert frame["seed"].nunique() == 3


def test_the_data_of_a_chart_are_refused_with_what_to_export(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "Step,a - loss,a - loss__MIN,b - loss,b - loss__MIN\n1,2,3,4,5\n"
    )
    with pytest.raises(UserError, match=r"a column for each run: .* Export the table of runs"):
        read_table(tmp_path / "t.csv")


COSTS = {
    "num_params": True, "Params (M)": True, "train_memory_bytes": True, "step_seconds": True,
    "flops_per_example": True, "seconds_per_step": True, "gmacs": True, "latency_ms": True,
    "tokens_per_second": False, "samples/s": False, "tokens_per_s": False, "throughput": False,
    "speedup": False, "mfu": False, "score": False, "quality": False,
}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_a_cost_is_kept_small_only_where_its_name_or_the_user_says_so(
    tmp_path: Path, name: str
) -> None:
    frame = pd.DataFrame(
        {"heads": heads, "seed": seed, name: 10 / heads, "top1": 0.8 + heads / 50 + seed / 1000}
        for heads in (1, 2, 4)
        for seed in range(3)
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["analyze", "--table", str(tmp_path / "t.csv"), "--kind", "pareto", "--metric", "top1"]
    words += ["--goal", "max", "--config", "heads", "--setting", "draws=100", "--cost"]
    plain, said = (CliRunner().invoke(main, [*words, cost]) for cost in (name, f"{name}:min"))
    assert (plain.exit_code == 0, said.exit_code) == (COSTS[name], 0), plain.output
    if not COSTS[name]:
        assert f"--cost {name}:min says so" in plain.stderr


def test_what_is_more_than_digits_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('size,top1\n"1,234",93.1%\n')
    _, notes = read_table(tmp_path / "t.csv")
    assert notes == ["read as numbers: size ('1,234' as 1234), top1 ('93.1%' as 0.931)"]


def test_names_of_nothing_are_names_among_names_and_missing_among_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("norm,site,top1\nNone,NA,0.5\nlayer,null,NA\n,EU,nan\n")
    frame, _ = read_table(tmp_path / "t.csv")
    assert frame["site"].tolist() == ["NA", "null", "EU"]
    assert frame["norm"].tolist()[:2] == ["None", "layer"]
    assert np.isnan(frame["top1"].to_numpy(np.float64)).tolist() == [False, True, True]
    rows, _ = Runs(frame, "top1").rows(["norm", "site"])
    assert rows.keys["norm"].tolist() == ["None", "layer", "none"]


def test_a_bad_number_is_quoted_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("heads,seed,top1\n1,0,0.5\n2,0,93%\n3,0,0.7\n")
    frame, _ = read_table(tmp_path / "t.csv")
    with pytest.raises(UserError, match="'top1' is not numeric: it holds '93%' in row 2"):
        Runs(frame, "top1").rows(["heads"])


@pytest.mark.parametrize(
    "content", [b"a,b\n1,2,3\n1\n", b"a\0b\n1\n", b'a,b\n"1,2\n', b"a,b\n\x81,2\n"]
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match="cannot read"):
        read_table(tmp_path / "t.csv")


def grid(**columns: Any) -> pd.DataFrame:
    """Four shapes in two kinds of cell with three rows each; columns are of the row's number."""
    rng = np.random.default_rng(0)
    rows = [(heads, at) for heads in (1, 2, 4, 8) for at in range(3)]
    frame = pd.DataFrame(rows, columns=["heads", "at"])
    frame["top1"] = 0.8 + 0.02 * frame["heads"] + 0.004 * rng.standard_normal(len(frame))
    added = {name: [make(*row, rng) for row in rows] for name, make in columns.items()}
    return frame.drop(columns="at").assign(**added)


def test_repeated_runs_with_what_came_out_are_repeated_runs() -> None:
    honest = grid(
        val_loss=lambda heads, at, rng: 1 / heads + 0.01 * rng.random(),
        sharpness=lambda heads, at, rng: round(heads + rng.random(), 2),
        top5=lambda heads, at, rng: round(0.97 + 0.01 * rng.random(), 2),
        best_epoch=lambda heads, at, rng: int(rng.integers(10, 14)),
        wall_seconds=lambda heads, at, rng: int(rng.integers(60, 63)),
        samples_per_step=lambda heads, at, rng: int(rng.integers(1, 3)),
        hostname=lambda heads, at, rng: f"node{rng.integers(3)}",
        id=lambda heads, at, rng: f"{heads}-{at}",
        num_params=lambda heads, at, rng: 1000 * heads,
        name=lambda heads, at, rng: f"shape{heads}",
    )
    rows, _ = Runs(honest, "top1").rows(["heads"])
    assert rows.runs["replicate"].tolist() == ["0", "1", "2"] * 4


@pytest.mark.parametrize(
    "make",
    [
        {"layers": lambda heads, at, rng: (2, 4, 8)[at]},
        {"data": lambda heads, at, rng: ("c4", "pile", "rw")[at]},
        {"amp": lambda heads, at, rng: at > 0},
        {"config/lr": lambda heads, at, rng: rng.random()},
        {"params_lr": lambda heads, at, rng: rng.random()},
        {"chinchilla": lambda heads, at, rng: (0.5, 1.0, 5.0)[at]},
        {"rng_seed": lambda heads, at, rng: at},
    ],
)
def test_rows_that_an_unnamed_column_tells_apart_are_no_seeds(make: dict[str, Any]) -> None:
    frame = grid(**make)
    with pytest.raises(UserError) as refused:
        Runs(frame, "top1").rows(["heads"])
    name, message = next(iter(make)), str(refused.value)
    assert message.startswith(f"{name} (")
    for way in ("--where", "--config", "--nuisance", "--budget-column", "--replicate", "--ignore"):
        assert f"{way} {name}" in message
    # The user's own word that they are repeated runs stands.
    rows, _ = Runs(frame, "top1", {"replicate": None}).rows(["heads"])
    assert len(rows.runs) == len(frame)


NAMES = [
    "dataset",
    "optimizer",
    "steps",
    "clip",
    "lr",
    "per_device_batch",
    "grad_clip",
    "loss_fn",
    "metric_kind",
    "time_limit",
    "score_fn",
    "best_of",
    "seed_set",
    "run_group",
    "host",
    "epoch",
    "tokens",
    "val_top1",
    "wall",
    "x",
]
VALUES: dict[str, tuple[Any, ...]] = {
    "names": ("c4", "pile"), "steps": (400, 1600), "rates": (0.001, 0.01), "flags": (True, False),
    "none or one": (None, 1.0), "as text": ("400", "1600"),
}  # fmt: skip
SEEDS = ("none", "recurring", "in turn", "of each run")


def crossed(name: str, values: Sequence[Any], seeds: str, missing: int = 0) -> pd.DataFrame:
    """Four head counts with three runs at each of two values of a column."""
    rng = np.random.default_rng(0)
    rows = [
        {
            **{"heads": heads, name: value, "top1": rng.normal(0.8 + 0.05 * at, 0.01)},
            **({"seed": run} if seeds == "recurring" else {}),
            **({"seed": 3 * at + run} if seeds == "in turn" else {}),
            **({"seed": int(rng.integers(10**9))} if seeds == "of each run" else {}),
        }
        for heads in (1, 2, 4, 8)
        for at, value in enumerate(values)
        for run in range(3)
    ]
    keep = np.ones(len(rows), bool)
    keep[rng.choice(len(rows), missing, replace=False)] = False
    return pd.DataFrame(rows).loc[keep].sample(frac=1, random_state=0)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    name=st.sampled_from(NAMES),
    values=st.sampled_from(sorted(VALUES)),
    seeds=st.sampled_from(SEEDS),
    missing=st.integers(0, 2),
)
def test_no_name_hides_a_choice(name: str, values: str, seeds: str, missing: int) -> None:
    frame = crossed(name, VALUES[values], seeds, missing)
    with pytest.raises(UserError, match=f"^{name} .* inside heads="):
        Runs(frame, "top1").rows(["heads"])
    # Named, it is what it was said to be.
    assert len(Runs(frame, "top1").rows(["heads", name])[0].runs) == len(frame)


def test_two_data_sets_are_no_setting_of_which_the_best_counts(tmp_path: Path) -> None:
    frame = crossed("data", ("c4", "pile"), "recurring")
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = ask(tmp_path / "t.csv", "transition", "--metric top1 --goal max --x heads")
    assert (result.exit_code, "data (" in result.stderr) == (2, True)


def test_a_host_that_the_metric_moves_with_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        {"heads": heads, "seed": seed, "node": f"node{rng.integers(3)}"}
        for heads in (1, 2, 4, 8)
        for seed in range(9)
    ]
    frame = pd.DataFrame(rows)
    slow = frame["node"].eq("node0")
    frame["top1"] = 0.8 - 0.05 * slow + 0.01 * rng.standard_normal(len(frame))
    frame["seconds"] = rng.integers(60, 70, len(frame))
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = "--metric top1 --goal max --config heads --cost heads"
    first, *_ = answer(tmp_path / "t.csv", "pareto", options)["qualifications"]
    assert first == (
        "Inside cells or shapes top1 also moves with node: say what that is if it was chosen for"
        " the runs and did not come out of them."
    )


def optuna_export(rng: np.random.Generator) -> pd.DataFrame:
    frame = pd.DataFrame(
        {"number": at, "params_heads": heads, "params_seed": seed, "state": "COMPLETE"}
        for at, (heads, seed) in enumerate((h, s) for h in (1, 2, 4, 8) for s in range(4))
    )
    start = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**6, len(frame)), "s")
    return frame.assign(
        value=rng.random(len(frame)), datetime_start=start, duration=rng.integers(50, 60, 16),
        user_attrs_params=1000 * frame["params_heads"], user_attrs_epochs=rng.integers(5, 9, 16),
    )  # fmt: skip


def mlflow_export(rng: np.random.Generator) -> pd.DataFrame:
    frame = optuna_export(rng)
    return pd.DataFrame(
        {
            "run_id": [f"{at:032x}" for at in rng.integers(10**9, size=16)],
            "experiment_id": 7, "status": "FINISHED", "artifact_uri": "s3://here",
            "start_time": frame["datetime_start"], "metrics.top1": frame["value"],
            "metrics.best_epoch": frame["user_attrs_epochs"].astype(float),
            "params.heads": frame["params_heads"].astype(str), "params.lr": "0.001",
            "params.seed": frame["params_seed"].astype(str), "tags.mlflow.user": "me",
            "tags.mlflow.runName": [f"bold-cat-{at}" for at in range(16)],
        }
    )  # fmt: skip


def wandb_export(rng: np.random.Generator) -> pd.DataFrame:
    frame = optuna_export(rng)
    return pd.DataFrame(
        {
            "Name": [f"fine-dust-{at}" for at in range(16)], "State": "finished", "Notes": None,
            "User": "me", "Tags": None, "Created": frame["datetime_start"], "Sweep": "ab12",
            "Runtime": frame["duration"], "heads": frame["params_heads"], "lr": 0.001,
            "seed": frame["params_seed"], "_step": 400, "epoch": frame["user_attrs_epochs"],
            "train_loss": rng.random(16), "top1": frame["value"],
        }
    )  # fmt: skip


def ray_export(rng: np.random.Generator) -> pd.DataFrame:
    frame = optuna_export(rng)
    return pd.DataFrame(
        {
            "top1": frame["value"], "timestamp": rng.integers(10**9, size=16), "done": True,
            "training_iteration": 20, "trial_id": [f"{at:05x}" for at in range(16)],
            "date": "2026-01-01", "time_total_s": rng.random(16), "pid": [100, 101] * 8,
            "hostname": ["a", "b"] * 8, "node_ip": ["10.0.0.1", "10.0.0.2"] * 8,
            "config/heads": frame["params_heads"], "config/seed": frame["params_seed"],
            "logdir": [f"/tmp/{at}" for at in range(16)],
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "metric", "prefix"),
    [
        (optuna_export, "value", "params_"), (mlflow_export, "metrics.top1", "params."),
        (wandb_export, "top1", ""), (ray_export, "top1", "config/"),
    ],
)  # fmt: skip
def test_exports_with_all_their_columns_are_read(
    make: Callable[[np.random.Generator], pd.DataFrame], metric: str, prefix: str
) -> None:
    for draw in range(20):
        runs = Runs(make(np.random.default_rng(draw)), metric)
        rows, _ = runs.rows([f"{prefix}heads"])
        assert (runs.replicate, len(rows.runs)) == (f"{prefix}seed", 16)


OWN = ("budget", "step", "status", "reached", "complete", "replicate", "value", "cell", "is_short")


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("budget", [None, "updates"])
def test_a_column_of_the_table_keeps_its_meaning(name: str, budget: str | None) -> None:
    frame = crossed("width", (64, 128), "recurring").assign(updates=100)
    columns: Any = {"budget_column": budget, "status_column": "end"}
    frame["end"] = "done"
    plain, _ = Runs(frame, "top1", columns).rows(["heads", "width"])
    named = frame.rename(columns={"width": name})
    rows, _ = Runs(named, "top1", columns).rows(["heads", name], ["updates"])
    assert rows.keys[name].tolist() == plain.keys["width"].tolist()
    pd.testing.assert_frame_equal(rows.runs, plain.runs)


@pytest.mark.parametrize("kind", ["transition", "pareto", "lean", "effects"])
def test_axes_that_move_together_are_named(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"heads": heads, "width": 64 * heads, "depth": depth, "seed": seed, "num_params": heads}
        for heads in (1, 2, 4, 8)
        for depth in (1, 2)
        for seed in range(3)
    ]
    frame = pd.DataFrame(rows)
    frame["nmse"] = 0.1 / frame["heads"] * rng.lognormal(0, 0.1, len(frame))
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {
        "transition": "--x heads --by depth",
        "lean": "--margin 0.1 --baseline heads=8,width=512,depth=2",
    }.get(kind, "")
    found = answer(tmp_path / "t.csv", kind, f"--metric nmse {options}")
    said = " ".join([*found["qualifications"], *found["warnings"]]).lower()
    assert "width moves with heads" in said or "heads and width move together" in said


def test_a_cost_that_differs_within_a_shape_is_named(tmp_path: Path) -> None:
    frame = crossed("width", (64, 128), "recurring").assign(num_params=lambda runs: runs["heads"])
    frame.loc[frame["heads"].eq(4) & frame["seed"].eq(1), "num_params"] *= 3
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = answer(tmp_path / "t.csv", "pareto", "--metric top1 --config heads --config width")
    assert (
        "num_params differs 3fold between the runs of heads=4, width=128: is it one?"
        in (found["warnings"])
    )


def test_rows_that_are_copies_count_once(tmp_path: Path) -> None:
    frame = crossed("width", (64, 128), "recurring")
    once, _ = Runs(frame, "top1").rows(["heads", "width"])
    rows, [warning] = Runs(pd.concat([frame, frame[:5]]), "top1").rows(["heads", "width"])
    assert rows.runs["value"].tolist() == once.runs["value"].tolist()
    assert warning == "5 rows are copies of others and count once"


def test_names_of_log_files_are_no_seeds_that_explain_a_setting() -> None:
    frame = grid(log=lambda heads, at, rng: f"{heads}/{at}.txt", layers=lambda h, at, rng: at)
    with pytest.raises(UserError, match="layers"):
        Runs(frame, "top1", {"replicate": "log"}).rows(["heads"])
    assert len(
        Runs(frame.drop(columns="layers"), "top1", {"replicate": "log"}).rows(["heads"])[0].runs
    )


def test_budgets_that_differ_by_rounding_are_one_and_reports_are_not() -> None:
    rounded = np.array([10.003e9, 9.999e9, 20.0e9, 20.1e9, np.nan])
    np.testing.assert_array_equal(
        budget_steps(rounded), [10.003e9, 10.003e9, 20.1e9, 20.1e9, np.nan]
    )
    epochs = np.arange(1.0, 301.0)
    np.testing.assert_array_equal(budget_steps(epochs), epochs)


def ladder(**columns: Any) -> pd.DataFrame:
    """Three shapes at three budgets, and a second run of the middle one."""
    rows = [
        {"width": width, "run": run, "budget": budget, "loss": 3 / width / budget + 0.01 * len(run)}
        for width in (1, 2, 4)
        for budget, run in ((1, "one"), (2, "one"), (2, "other"), (4, "one"))
    ]
    return pd.DataFrame(rows).assign(**columns)


@pytest.mark.parametrize("target", [None, 2.0, 2.01])
def test_runs_of_other_budgets_are_not_stopped_runs(target: float | None) -> None:
    columns: Any = {"replicate": "run", "budget_column": "budget", "target_budget": target}
    rows, _ = Runs(ladder(), "loss", columns).rows(["width"])
    assert set(rows.runs["status"]) == {"finished"}
    assert set(rows.runs["reached"]) == {4 if target is None else 2}
    assert len(rows.runs) == (3 if target is None else 6)


def test_rows_without_seeds_at_rising_budgets_are_one_run_a_shape() -> None:
    frame = ladder().query("run == 'one'").drop(columns="run")
    rows, _ = Runs(frame, "loss", {"budget_column": "budget"}).rows(["width"])
    assert (rows.runs["replicate"].tolist(), rows.runs["reached"].tolist()) == (
        ["0"] * 3,
        [4.0] * 3,
    )
    close = pd.concat([frame, frame.query("budget == 4").assign(budget=4.01)])
    with pytest.raises(UserError, match=r"budget=4 and 4\.01, the same budget but for rounding"):
        Runs(close, "loss", {"budget_column": "budget"}).rows(["width"])


def test_a_baseline_says_what_makes_a_shape_beside_the_names_of_runs(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"run": f"run{heads}-{run}", "heads": heads, "num_params": heads, "top1": rng.normal()}
        for heads in (1, 2, 4, 8)
        for run in range(4)
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = "--metric top1 --goal max --margin 1 --baseline"
    by_heads = answer(tmp_path / "t.csv", "lean", f"{words} heads=8")["read_as"]
    assert (by_heads["shape"], by_heads["unused"]) == (["heads"], ["run"])
    by_run = answer(tmp_path / "t.csv", "lean", f"{words} run=run8-1")["read_as"]
    assert by_run["shape"] == ["run"]


def test_numbers_in_a_column_called_status_are_no_words_of_how_a_run_ended() -> None:
    frame = ladder().assign(status=lambda runs: 3 * runs["width"])
    assert Runs(frame, "loss", {"replicate": "run"}).status_column is None
    with pytest.raises(UserError, match="unknown status"):
        Runs(frame.assign(status=True), "loss", {"replicate": "run"}).rows(["width"])


@pytest.mark.parametrize("seeds", ["seed", None])
def test_a_named_column_of_budgets_holds_several_budgets_also_without_seeds(
    tmp_path: Path, seeds: str | None
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"heads": heads, "seed": seed, "tokens": tokens, "err": 10.0 ** -(1.5 * (heads > 2))}
        for heads in (1, 2, 3, 4, 6, 8)
        for seed in range(3)
        for tokens in (100, 200, 400)
    )
    frame["err"] *= np.exp(0.1 * rng.standard_normal(len(frame))) / frame["tokens"] ** 0.2
    frame.drop(columns=[] if seeds else "seed").to_csv(tmp_path / "t.csv", index=False)
    words = "--metric err --goal min --scale error --x heads --by= --budget-column tokens"
    found = answer(tmp_path / "t.csv", "transition", words)
    assert [rung["budget"] for rung in found["sensitivity"]["answers"]] == [100, 200, 400]
    assert found["h_star"] == 3


def test_a_run_that_ends_on_the_way_is_short_unless_a_word_says_stopped() -> None:
    frame = ladder().query("run == 'one'")
    other = frame.query("budget < 4").assign(run="stopped")
    columns: Any = {"replicate": "run", "budget_column": "budget"}
    both = pd.concat([frame, other])
    rows, _ = Runs(both, "loss", columns).rows(["width"])
    assert rows.runs["status"].value_counts().to_dict() == {"finished": 3, "short": 3}
    ends = both.assign(end=np.where(both["run"].eq("stopped"), "pruned", "done"))
    rows, _ = Runs(ends, "loss", columns).rows(["width"])
    assert rows.runs["status"].value_counts().to_dict() == {"finished": 3, "stopped_early": 3}


def test_curves_that_end_at_different_budgets_are_refused_with_the_way_to_ask() -> None:
    frame = pd.DataFrame(
        {"width": width, "step": step, "loss": 1 / width / step}
        for width in (1, 2, 4)
        for step in range(1, 20 * width)
    )
    with pytest.raises(UserError) as refused:
        Runs(frame, "loss", {"budget_column": "step"}).rows(["width"])
    message = str(refused.value)
    assert "1 of 3 (width) have a run at the largest budget, step=79" in message
    for way in ("--target-budget", "the last row of each run"):
        assert way in message
    rows, _ = Runs(frame, "loss", {"budget_column": "step", "target_budget": 19}).rows(["width"])
    assert rows.runs["reached"].tolist() == [19, 19, 19]


def ask(table: Path, kind: str, options: str) -> Result:
    quick = ("--setting", "draws=100") if kind == "pareto" else ()
    words = ["analyze", "--table", str(table), "--kind", kind, *options.split(), *quick, "--json"]
    return CliRunner().invoke(main, words)


def answer(table: Path, kind: str, options: str) -> dict[str, Any]:
    result = ask(table, kind, options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_answer_says_which_columns_it_took(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = tmp_path / "export.csv"
    pd.DataFrame(
        {
            **{"Name": f"run-{at}", "State": "crashed" if at == 5 else "finished"},
            **{"heads": heads, "lr": lr, "seed": seed, "epoch": 30, "num_params": 100 * heads},
            **{"Runtime": 600 + at % 7, "val_acc": 0.8 + heads / 100 + 0.01 * rng.random()},
        }
        for at, (heads, lr, seed) in enumerate(
            (heads, lr, seed) for heads in (2, 4) for lr in (0.1, 0.2) for seed in range(3)
        )
    ).to_csv(table, index=False)
    question = "--metric val_acc --goal max"
    assert answer(table, "pareto", f"{question} --nuisance lr")["read_as"] == {
        "metric": "val_acc",
        "shape": ["heads"],
        "settings": ["lr"],
        "seed": "seed",
        "budget": None,
        "at_budget": None,
        "status": "State",
        "is_repeated": True,
        "why": {"shape": "by the values", "seeds": "by its name", "status": "by its words"},
        "unused": ["Name", "epoch", "Runtime"],
    }
    words = ["analyze", "--table", str(table), "--kind", "pareto", *question.split()]
    shown = CliRunner().invoke(main, [*words, "--nuisance", "lr"])
    taken = (
        "metric val_acc; shape heads (by the values); settings lr; seeds seed (by its name); budget"
        " none; status State (by its words); not used Name, epoch, Runtime"
    )
    assert f"read as: {taken}" in shown.stdout
    alone = answer(table, "pareto", f"{question} --config heads --where lr=0.2")
    assert alone["read_as"]["settings"] == []
    refused = ask(table, "pareto", f"{question} --where lr=7")
    assert "--where lr: no row has 7; there are 0.1, 0.2" in refused.stderr


def shared(name: str) -> Path:
    if not FOREIGN.is_dir():
        pytest.skip(f"{FOREIGN} is not there: tables that other people recorded")
    return FOREIGN / name


LOSS = "--metric loss --goal min"
SHAPES = "--config width --config depth --config heads"
LADDER = "--metric c4_loss --goal min --config size"
RECORDS = "--metric val_loss --goal min --config record"


@pytest.mark.parametrize(
    ("name", "kind", "options", "message"),
    [
        ("openlm_grid", "pareto", f"{LOSS} {SHAPES}", "--nuisance warmup"),
        ("openlm_grid", "effects", f"{LOSS} {SHAPES}", "--nuisance warmup"),
        ("openlm_grid", "transition", f"{LOSS} --x heads --by width", "depth (12, 16"),
        ("gemstones", "pareto", f"{LOSS} --config shape", "--budget-column tokens"),
        ("gemstones", "pareto", LOSS, "--budget-column tokens"),
        (
            *("gemstones", "pareto", f"{LOSS} --config shape --budget-column tokens"),
            "schedule (hot, hot_half_lr) varies",
        ),
        ("olmo_ladder_final", "pareto", LADDER, "and run (first, rerun) vary"),
        (
            *("olmo_ladder_final", "pareto", f"{LADDER} --replicate run --budget-column step"),
            "1 of 5 (size) have a run at the largest budget",
        ),
        (
            *("olmo_ladder_curves", "pareto"),
            f"{LADDER} --replicate run --budget-column chinchilla",
            "step, pile_loss, hellaswag_bpb tells them apart",
        ),
        (
            *("olmo_ladder_curves", "pareto"),
            f"{LADDER} --config chinchilla --replicate run --budget-column step",
            "the last row of each run",
        ),
        (
            *("nanogpt_optimizers_final", "pareto", f"{RECORDS} --cost steps_planned"),
            "step (2850, 2900)",
        ),
        (
            *(
                "nanogpt_optimizers_final",
                "pareto",
                f"{RECORDS} --replicate log --cost reports:min",
            ),
            "inside record=(single)",
        ),
        (
            *("nanogpt_optimizers_curves", "pareto", f"{RECORDS} --cost steps_planned"),
            "--budget-column step",
        ),
        (
            *("timm_transformers", "pareto", "--metric top1 --goal max --config arch"),
            "--config img_size",
        ),
    ],
)
def test_a_foreign_table_is_not_misread(name: str, kind: str, options: str, message: str) -> None:
    result = ask(shared(f"{name}.csv"), kind, options)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output


def means(found: dict[str, Any]) -> dict[str, float]:
    return {row["label"]: row["mean"] for row in found["table"]}


def test_a_grid_with_a_setting_has_the_published_front() -> None:
    question = f"{LOSS} {SHAPES} --nuisance warmup"
    found = answer(shared("openlm_grid.csv"), "pareto", question)
    assert len(found["table"]) == 130
    front, best = [], np.inf
    for row in sorted(found["table"], key=lambda row: (row["costs"]["num_params"], row["mean"])):
        if row["mean"] < best:
            best = row["mean"]
            front.append(row["label"])
    assert len(front) == 28
    for width, depth, heads in ((96, 8, 4), (512, 8, 4), (576, 24, 8), (1024, 24, 8)):
        assert f"width={width}, depth={depth}, heads={heads}" in front


@pytest.mark.parametrize(("budget", "order"), [("20e9", 1), ("40e9", 0), (None, -1)])
def test_shapes_of_a_token_ladder_are_compared_at_the_budget_asked(
    budget: str | None, order: int
) -> None:
    asked = f"{LOSS} --config shape --budget-column tokens --where schedule=hot"
    asked += f" --target-budget {budget}" if budget else ""
    found = answer(shared("gemstones.csv"), "pareto", asked)
    loss = means(found)
    assert len(loss) == 22
    ahead = loss["256x80"] - loss["512x13"]
    assert (0 if abs(ahead) < 0.006 else np.sign(ahead)) == order
    assert 0.14 < loss["768x3"] - min(loss["256x80"], loss["512x13"]) < 0.2


def test_token_counts_that_differ_by_rounding_are_one_budget() -> None:
    asked = f"{LOSS} --config shape --config schedule --where schedule=hot,hot_half_lr"
    asked += " --budget-column tokens --target-budget 100e9"
    found = answer(shared("gemstones.csv"), "pareto", asked)
    assert len(found["table"]) == 42


def test_a_ladder_of_sizes_keeps_its_order_and_its_two_runs() -> None:
    table = shared("olmo_ladder_final.csv")
    asked = f"{LADDER} --budget-column chinchilla --replicate run"
    sizes = ["190M", "370M", "760M", "1B", "3B"]
    for budget in ("0.5", "1", "2", "5", "10"):
        found = answer(table, "pareto", f"{asked} --target-budget {budget}")
        loss = means(found)
        assert sorted(loss, key=lambda size: -loss[size]) == sizes
        assert {row["n"] for row in found["table"]} == {2 if budget == "1" else 1}
    longest = answer(table, "pareto", asked)
    assert (longest["read_as"]["at_budget"], len(longest["table"])) == (10, 5)


def test_recipes_are_compared_by_their_logs() -> None:
    frame = pd.read_csv(shared("nanogpt_optimizers_final.csv"))
    pair = ["20260501_skylight001", "20260501_contra_muon"]
    runs = Runs(frame[frame["record"].isin(pair)], "val_loss", {"replicate": "log"})
    found = lean(
        runs, config=["record", "steps_planned"], goal="min", costs=["steps_planned"], margin=1e-4,
        baseline={"record": pair[0], "steps_planned": 3250},
    )  # fmt: skip
    (row,) = found.table
    assert row.n == 16
    assert not row.accepted
