"""Small finished studies for the report's tests: results made by hand, no fit involved."""

import dataclasses
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from analysis.answer import Answer
from analysis.charts.chart import Chart
from analysis.charts.learning_curves import curve_chart
from analysis.questions.base import Finding
from analysis.questions.conditioning.kind import conditioning_finding
from analysis.questions.conditioning.result import ConditioningResult
from analysis.questions.effects.kind import effects_finding
from analysis.questions.groups import results_of, together
from analysis.questions.lean.kind import LEAN, lean_finding
from analysis.questions.lean.result import LeanResult, LeanRow, LeanSettings
from analysis.questions.pareto.kind import pareto_finding
from analysis.questions.pareto.result import ParetoResult, ParetoRow, ParetoSettings
from analysis.questions.transition.kind import transition_finding
from analysis.questions.transition.result import (
    CellCounts,
    CellValue,
    DropStep,
    Estimate,
    RetrievalDimension,
    RunValue,
    TransitionResult,
    TransitionSettings,
)
from analysis.report.build import ReportInput, searched_axis
from analysis.statistics.values import Interval
from analysis.text.trials import frame_remarks, outcomes_table
from hsweep.design.missing import Missing

HEADS = (1, 2, 3, 4, 5, 6)
LENGTHS = (8, 32, 128)
SEEDS = (0, 1, 2)


def log_error(heads: int, length: int, seed: int) -> float:
    """A collapse at four heads; below it the error grows with the length."""
    below = heads < 4
    return (
        (-1.6 - 0.15 * heads + 0.5 * math.log10(length / 8))
        if below
        else (-4.4 - 0.1 * (heads - 4))
    ) + 0.05 * math.sin(7 * heads + 3 * length + 11 * seed)


def transition_result(**changes: Any) -> TransitionResult:
    """A sharp transition at four heads, with any field replaced."""
    runs = tuple(
        RunValue(h, t, str(s), 10 ** log_error(h, t, s), log_error(h, t, s))
        for h in HEADS
        for t in LENGTHS
        for s in SEEDS
    )
    cells = tuple(
        CellValue(h, t, float(np.median([log_error(h, t, s) for s in SEEDS])), len(SEEDS))
        for h in HEADS
        for t in LENGTHS
    )
    level = {h: float(np.mean([c.z for c in cells if c.x == h])) for h in HEADS}
    drops = tuple(DropStep(a, b, level[a] - level[b]) for a, b in pairwise(HEADS))
    settings = TransitionSettings(max_growth=0.1, min_drop=0.5)
    result = TransitionResult(
        verdict="collapse",
        shown_by="abruptness",
        growth="gone",
        noise_gap="",
        reading="typical",
        h_star=4,
        bracket=(3, 4),
        h_peak=4,
        h_set=(4,),
        p_h={3: 0.01, 4: 0.98, 5: 0.01},
        p=0.004,
        scatter=0.06,
        drop=2.7,
        excess=2.5,
        drops=drops,
        gamma={h: Interval(g := 0.5 if h < 4 else 0.01, g - 0.06, g + 0.06) for h in HEADS},
        gamma_below=Interval(0.5, 0.46, 0.54),
        gamma_above=Interval(0.01, -0.02, 0.04),
        level={h: Estimate(z, 0.02) for h, z in level.items()},
        seed_sd=dict.fromkeys(HEADS, 0.05),
        phi=1.1,
        cells=cells,
        d_eff=RetrievalDimension(4, 4, 1, False),
        x="heads",
        by="seq_len",
        metric="nmse",
        goal="min",
        scale="error",
        runs=runs,
        counts=tuple(CellCounts(h, t, {"finished": 3}, 3) for h in HEADS for t in LENGTHS),
        missing=(),
        n1_assumed_sd=None,
        settings=settings,
        qualifications=(),
        warnings=(),
    )
    return dataclasses.replace(result, **changes)


def inconclusive_result(**changes: Any) -> TransitionResult:
    """Two cells without a full-budget run: nothing is claimed."""
    return transition_result(
        verdict="open",
        reason="2 of 18 cells have no full-budget run",
        h_star=None,
        bracket=None,
        h_set=(),
        p_h={},
        p=None,
        missing=tuple(Missing({"heads": h, "seq_len": 8}, 3, "no run") for h in (5, 6)),
        warnings=("early stopping compared trials of different cells",),
        **changes,
    )


def suggested_result(**changes: Any) -> TransitionResult:
    """One seed a cell: a drop at four heads that nothing tests."""
    return transition_result(
        **{
            "verdict": "open",
            "suggested": True,
            "reason": "one seed a cell, so the noise between seeds is not measured",
            "noise_gap": "one seed a cell",
            "h_set": HEADS,
            "p_h": {},
            "d_eff": None,
            "n1_assumed_sd": 0.1,
            "missing": tuple(
                Missing({"heads": h, "seq_len": t}, 2, "few seeds") for h in HEADS for t in LENGTHS
            ),
            **changes,
        }
    )


def empty_result() -> TransitionResult:
    """Nothing finished at all."""
    return inconclusive_result(
        cells=(), runs=(), level={}, gamma={}, drops=(), counts=(), seed_sd={}
    )


SHAPES = [(heads, depth) for depth in (2, 4, 6) for heads in (4, 8)]


def _shape(heads: int, depth: int) -> dict[str, int | float | str]:
    return {"heads": heads, "depth": depth}


def _label(heads: int, depth: int) -> str:
    return f"heads={heads}, depth={depth}"


def _accuracy(heads: int, depth: int) -> float:
    return 0.70 + 0.01 * heads + 0.012 * depth


def _parameters(heads: int, depth: int) -> float:
    return 1e5 * depth * (3 + heads)


def pareto_result(**changes: Any) -> ParetoResult:
    """Six shapes: two sure, two undecided, two off the front."""
    classes = ("on", "undecided", "off", "undecided", "off", "on")
    chances = (0.99, 0.6, 0.02, 0.4, 0.01, 0.97)
    table = tuple(
        ParetoRow(
            config=_shape(*shape),
            label=_label(*shape),
            mean=_accuracy(*shape),
            ci=Interval(_accuracy(*shape), _accuracy(*shape) - 0.01, _accuracy(*shape) + 0.01),
            n=3,
            values=(_accuracy(*shape),) * 3,
            crash_share=0.25 if shape == (4, 4) else 0.0,
            costs={"num_params": _parameters(*shape)},
            p_front=chance,
            class_=class_,
            is_dominated=False,
        )
        for shape, class_, chance in zip(SHAPES, classes, chances, strict=True)
    )
    result = ParetoResult(
        table=table,
        hv=Interval(0.61, 0.58, 0.64),
        hv_note="exact, two objectives",
        metric="top1",
        goal="max",
        costs=("num_params",),
        prior_sd=0.004,
        prior_df=12.0,
        settings=ParetoSettings(),
        warnings=(),
    )
    return dataclasses.replace(result, **changes)


def lean_result(**changes: Any) -> LeanResult:
    """The baseline is the largest shape; the second largest is as good."""
    baseline = (8, 6)
    table = tuple(
        LeanRow(
            config=_shape(*shape),
            label=_label(*shape),
            mean=_accuracy(*shape),
            n=5,
            values=(_accuracy(*shape),) * 5,
            sd=0.006,
            diff=(diff := _accuracy(*shape) - _accuracy(*baseline)),
            ci=Interval(diff, diff - 0.008, diff + 0.008),
            df=14.0,
            p_raw=0.001 if shape == (8, 4) else 0.6,
            p_holm=0.005 if shape == (8, 4) else 1.0,
            p_worse=1.0,
            outcome="established" if shape == (8, 4) else "undecided",
            seeds_needed=7,
            costs={"num_params": _parameters(*shape)},
            saving={"num_params": 1 - _parameters(*shape) / _parameters(*baseline)},
            crash_share=0.0,
        )
        for shape in SHAPES
        if shape != baseline
    )
    result = LeanResult(
        verdict="found",
        reason="heads=8, depth=4 is no worse than the margin",
        baseline=_shape(*baseline),
        baseline_label=_label(*baseline),
        baseline_mean=_accuracy(*baseline),
        baseline_n=5,
        margin=0.04,
        sd=0.006,
        table=table,
        stopped=(),
        missing=(),
        choice=_label(8, 4),
        metric="top1",
        goal="max",
        costs=("num_params",),
        settings=LeanSettings(),
        warnings=(),
        is_share=True,
    )
    return dataclasses.replace(result, **changes)


def hover_texts(chart: Chart) -> list[str]:
    """What the page says of the points of a chart."""
    return [point.hover for series in chart.series for point in series.points if point.hover]


FAMILIES = ("vit", "xcit", "deit")


def lean_groups() -> Finding:
    """Two families with the same comparison, and one whose baseline did not finish."""
    nothing = tuple(
        dataclasses.replace(row, outcome="excluded", p_worse=0.01) for row in lean_result().table
    )
    none = {"verdict": "excluded", "choice": None, "table": nothing}
    found = {
        "vit": lean_result(at={"family": "vit"}),
        "xcit": lean_result(at={"family": "xcit"}, **none),
    }
    findings = {family: lean_finding(result) for family, result in found.items()}
    return together(LEAN, "family", findings, {"deit": "the baseline has no full-budget run"})


def groups_input(**changes: Any) -> ReportInput:
    """A finished study of shapes in several families, with any field replaced."""
    rows = tuple(
        dataclasses.replace(
            row, config={"family": family, **row.config}, label=f"family={family}, {row.label}"
        )
        for family in FAMILIES
        for row in pareto_result().table
    )
    trials = pd.concat(
        [shape_trials().assign(family=family) for family in FAMILIES], ignore_index=True
    )
    groups = lean_groups()
    return lean_input(
        **{
            "axes": ("family", "heads", "depth"),
            "lean": None,
            "lean_groups": groups,
            "pareto": pareto_result(table=rows),
            "trials": trials,
            **changes,
        }
    )


def trials_frame() -> pd.DataFrame:
    """One row a run of the transition example; one stopped early, one failed, one diverged."""
    rows = []
    for number, (h, t, s) in enumerate((h, t, s) for h in HEADS for t in LENGTHS for s in SEEDS):
        status = {5: "stopped_early", 7: "failed", 11: "diverged"}.get(number, "finished")
        finished = status == "finished"
        rows.append(
            {
                "key": f"{number:016x}",
                "heads": h,
                "seq_len": t,
                "seed": s,
                "stratum": f"heads={h}, seq_len={t}",
                "status": status,
                "reason": {"failed": "ValueError: no such file", "diverged": "loss is nan"}.get(
                    status, ""
                ),
                "reached": 20 if finished else 5,
                "budget": 20,
                "nmse": 10 ** log_error(h, t, s) if finished else math.nan,
                "num_params": 1000 * h,
                "wall_seconds": 1.5 + 0.1 * number,
                "mlflow_url": f"https://mlflow.example/#/experiments/1/runs/{number:032x}",
            }
        )
    return pd.DataFrame(rows)


def reports_frame(trials: pd.DataFrame) -> pd.DataFrame:
    """Four reports a trial, fewer where it ended early."""
    rows = []
    for trial in trials.to_dict("records"):
        final = trial["nmse"] if math.isfinite(trial["nmse"]) else 0.1
        for unit in range(5, int(trial["reached"]) + 1, 5):
            rows.append(
                {
                    "key": trial["key"],
                    "unit": unit,
                    "step": 10 * unit,
                    "wall_seconds": 0.1 * unit,
                    "nmse": final * (20 / unit) ** 0.8,
                }
            )
    return pd.DataFrame(rows)


def shape_trials() -> pd.DataFrame:
    """Three seeds of each shape."""
    return pd.DataFrame(
        {
            "key": f"{depth:02d}{heads:02d}{seed:02d}",
            "heads": heads,
            "depth": depth,
            "seed": seed,
            "stratum": "",
            "status": "finished",
            "top1": _accuracy(heads, depth) + 0.003 * (seed - 1),
            "num_params": _parameters(heads, depth),
            "mlflow_url": f"https://mlflow.example/runs/{depth}{heads}{seed}abcdef",
        }
        for heads, depth in SHAPES
        for seed in SEEDS
    )


def finding(result: Any, *before: Any) -> Finding:
    """What stands for a result in an answer; a front marks what the lean result before it chose."""
    if isinstance(result, Finding):
        return result
    if isinstance(result, TransitionResult):
        return transition_finding(result)
    if isinstance(result, LeanResult):
        return lean_finding(result)
    if isinstance(result, ParetoResult):
        return pareto_finding(result, results_of(map(finding, before), LeanResult))
    if isinstance(result, ConditioningResult):
        return conditioning_finding(result)
    return effects_finding(result)


def sentence(result: Any) -> str:
    """The sentences of a result."""
    return " ".join(finding(result).sentences)


def badge(result: Any) -> tuple[str, str]:
    """The verdict of a result in a few words, and its tone."""
    found = finding(result).badge
    assert found is not None
    return found


_NAMES: tuple[str, ...] = (
    *("transition", "lean", "lean_groups"),
    *("pareto", "conditioning", "effects"),
)


def answer(**results: Any) -> Answer:
    """The answer that consists of these results by kind."""
    named = {name: each for name in _NAMES if (each := results.get(name)) is not None}
    lean = [named[name] for name in ("lean", "lean_groups") if name in named]
    return Answer(
        tuple(finding(each, *(lean if name == "pareto" else ())) for name, each in named.items())
    )


def _with_results(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Put what is asked of the answer's results together, unless there is an answer."""
    every = {**base, **changes}
    results = {name: every.pop(name) for name in _NAMES if name in every}
    return {"answer": answer(**results), **every}


def report_input(**changes: Any) -> ReportInput:
    """A finished study of the transition, with any field or any kind's result replaced; ``reports``
    and ``budget_unit`` make its learning curves."""
    trials = trials_frame()
    base = {
        "study": "retrieval",
        "sweep": "sweeps/retrieval_heads.py",
        "preset": "quick",
        "question": "How many heads does retrieval need?\n\nExpected: a collapse at D heads.",
        "transition": transition_result(),
        "metric": "nmse",
        "goal": "min",
        "axes": ("heads", "seq_len"),
        "trials": trials,
        "reports": reports_frame(trials),
        "provenance": {"git": {"commit": "abc123", "dirty": False}, "torch": "2.13"},
        "repeat_command": "hsweep run sweeps/retrieval_heads.py --preset quick",
        "warnings": ("one node went away",),
        "budget_unit": "epochs",
    }
    fields = _with_results(base, changes)
    reports, unit = fields.pop("reports"), fields.pop("budget_unit")
    fields["curves"] = curves(
        fields["trials"],
        reports,
        fields["metric"],
        fields["axes"],
        searched_axis(fields["answer"]),
        unit=unit,
        log=fields["goal"] == "min",
    )
    trials = fields["trials"]
    remarks = frame_remarks(trials, fields["axes"]) if "status" in trials else ()
    endings = outcomes_table(remarks, {})
    return ReportInput(**{"endings": endings, **fields})


def curves(trials: pd.DataFrame, reports: pd.DataFrame, *asked: Any, **options: Any) -> Chart | str:
    """The learning curves of trials, from a table of their reports."""
    keys = set(reports["key"]) if "key" in reports else set()
    return curve_chart(
        trials, keys, lambda keys: reports[reports["key"].isin(keys)], *asked, **options
    )


def lean_input(**changes: Any) -> ReportInput:
    """A finished study of shapes against a baseline, with any field or result replaced."""
    base = {
        "study": "vit-lean",
        "metric": "top1",
        "goal": "max",
        "axes": ("heads", "depth"),
        "transition": None,
        "pareto": pareto_result(),
        "lean": lean_result(),
        "trials": shape_trials(),
        "reports": pd.DataFrame(),
        "warnings": (),
    }
    return report_input(**{**base, **changes})
