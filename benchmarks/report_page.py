"""How long a report of many trials takes to be built, to open and to be drawn.

A page is opened in headless Chromium from a file, each time by a new process with an empty cache,
and all of it unfolded at once. It is interactive when a click on a column's title has sorted the
table and the browser has drawn the result; times count from the start of the navigation.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from analysis.answer import Answer
from analysis.questions.base import Finding
from analysis.questions.lean import fit as lean
from analysis.questions.lean.kind import LeanFinding
from analysis.questions.pareto import fit as pareto
from analysis.questions.transition import fit as transition
from analysis.questions.transition.kind import TransitionFinding
from analysis.report.build import ReportInput, build_report

Kind = Literal["transition", "shapes"]
KINDS: Final[tuple[Kind, ...]] = ("transition", "shapes")
BUDGET: Final = 50

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--window-size=1000,900")  # fmt: skip
_PROBE: Final = """
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  const title = Array.from(document.querySelectorAll("#trials-table th button"))
    .find((button) => button.textContent === "seed");
  title.click();
  title.click();
  requestAnimationFrame(() => setTimeout(() => {
    window.probe = { interactive: performance.now(), order: title.parentElement.ariaSort };
  }));
});
const timer = setInterval(() => {
  const plots = Array.from(document.querySelectorAll("[data-figure]"));
  const isDrawn = (plot) => plot.querySelector(".main-svg :is(.xtick, .annotation)");
  if (!window.probe || !plots.every(isDrawn)) return;
  clearInterval(timer);
  window.probe.drawn = performance.now();
  window.probe.nodes = document.getElementsByTagName("*").length;
}, 20);
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One page.

    Attributes:
        kind: what the study asks.
        trials, reports: how many it has.
        build_seconds: from results and tables to the page's text.
        megabytes: the file's size.
        interactive_seconds: until a click has sorted the table, one value an opening.
        drawn_seconds: until every picture stands, one value an opening.
        cpu_seconds: what the page's thread computed until then, one value an opening.
        nodes: elements of the page with everything drawn.
    """

    kind: Kind
    trials: int
    reports: int
    build_seconds: float
    megabytes: float
    interactive_seconds: tuple[float, ...]
    drawn_seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    nodes: int


def measure(kind: Kind, trials: int, openings: int) -> Measured:
    """Build the page of a made-up study and open it ``openings`` times."""
    report_input = study(kind, trials)
    began = time.perf_counter()
    page = build_report(report_input)
    built = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page, "utf-8")
        found = [_open(path) for _ in range(openings)]
        size = path.stat().st_size
    return Measured(
        kind=kind,
        trials=len(report_input.trials),
        reports=len(report_input.reports),
        build_seconds=built,
        megabytes=size / 1e6,
        interactive_seconds=tuple(one["interactive"] / 1e3 for one in found),
        drawn_seconds=tuple(one["drawn"] / 1e3 for one in found),
        cpu_seconds=tuple(one["cpu"] for one in found),
        nodes=max(one["nodes"] for one in found),
    )


def study(kind: Kind, trials: int, seed: int = 0) -> ReportInput:
    """Return a made-up study with `BUDGET` reports a trial, some failed, some stopped early.

    Args:
        kind: ``transition`` varies heads and lengths, ``shapes`` heads and depth of 200 shapes.
        trials: how many.
        seed: of everything random in it.
    """
    random = np.random.default_rng(seed)
    number = np.arange(trials)
    if kind == "transition":
        shape = {"heads": 1 + number % 10, "seq_len": 8 * 2 ** (number // 10 % 5)}
        cells, metric = 50, "nmse"
        few = shape["heads"] < 4
        log_error = np.where(few, -1.6 + 0.5 * np.log10(shape["seq_len"] / 8), -4.4)
        value = 10 ** (log_error - 0.1 * shape["heads"] + random.normal(0, 0.1, trials))
        size = shape["heads"] * 1000
    else:
        shape = {"heads": 1 + number % 20, "depth": 1 + number // 20 % 10}
        cells, metric = 200, "top1"
        value = 0.6 + 0.02 * np.log2(shape["heads"]) + 0.04 * np.log2(shape["depth"])
        value = value + random.normal(0, 0.01, trials)
        size = 10_000 * shape["depth"] * (6 + shape["heads"])
    status = random.choice(["finished", "stopped_early", "failed"], trials, p=[0.97, 0.02, 0.01])
    table = pd.DataFrame(
        {
            "key": [f"{n:020x}" for n in number],
            **shape,
            "seed": number // cells,
            "stratum": "",
            "status": status,
            "reason": np.where(status == "failed", "RuntimeError: out of memory", ""),
            "reached": np.where(status == "finished", BUDGET, BUDGET // 5),
            "budget": BUDGET,
            metric: np.where(status == "finished", value, np.nan),
            "num_params": size,
            "train_memory_bytes": 16 * size,
            "wall_seconds": random.uniform(10, 100, trials).round(2),
            "mlflow_url": [f"http://127.0.0.1:5000/#/experiments/1/runs/{n:032x}" for n in number],
        }
    )
    axes = tuple(shape)
    finding: Finding
    if kind == "transition":
        result = transition.fit(table, metric=metric, x="heads", by="seq_len", goal="min")
        finding = TransitionFinding(result)
    else:
        front = pareto.fit(
            table, config=list(axes), metric=metric, goal="max", costs=["num_params"]
        )
        equivalents = lean.fit(
            table,
            baseline={"heads": 10, "depth": 10},
            margin=0.02,
            config=list(axes),
            metric=metric,
            goal="max",
            costs=["num_params"],
        )
        finding = LeanFinding(equivalents, front)
    return ReportInput(
        study=f"{trials}-trials",
        sweep="made up",
        preset="quick",
        question="How long does a report of many trials take?",
        answer=Answer((finding,)),
        metric=metric,
        goal="min" if kind == "transition" else "max",
        axes=axes,
        trials=table,
        reports=_reports(table["key"], value, metric),
        provenance={},
        repeat_command="python -m benchmarks report-page",
        budget_unit="epochs",
    )


def _reports(keys: "pd.Series[Any]", final: np.ndarray, metric: str) -> pd.DataFrame:
    unit = np.tile(np.arange(1, BUDGET + 1), len(keys))
    return pd.DataFrame(
        {
            "key": np.repeat(keys.to_numpy(), BUDGET),
            "unit": unit,
            "step": 10 * unit,
            "wall_seconds": 0.5 * unit,
            metric: np.repeat(final, BUDGET)
            * (BUDGET / unit) ** (0.8 if metric == "nmse" else -0.2),
        }
    )


def _open(path: Path) -> dict[str, Any]:
    with _browser() as browser:
        browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _PROBE})
        browser.get(path.as_uri())
        deadline = time.monotonic() + 120
        while not (found := browser.execute_script("return window.probe")) or "drawn" not in found:
            if time.monotonic() > deadline:
                raise TimeoutError("the page was not drawn within two minutes")
        if found["order"] != "descending":
            raise RuntimeError(f"the table is sorted {found['order']}, not descending")
        metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        cpu = next(one["value"] for one in metrics if one["name"] == "TaskDuration")
        return {**found, "cpu": cpu}


@contextmanager
def _browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    binary = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver_path = shutil.which("chromedriver")
    if binary is None or driver_path is None:
        raise FileNotFoundError("needs chromium and chromedriver on the PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        driver.set_script_timeout(120)
        try:
            yield driver
        finally:
            driver.quit()
