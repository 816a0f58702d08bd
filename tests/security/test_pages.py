"""Pages show what came from data and obey none of it, in a real browser."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import report_examples as examples
from browser import open_browser, open_page, requested
from click.testing import Result
from injection_cases import ATTACK, WEB, named, runs

from analysis.answer import Answer
from analysis.ask import KINDS, ask_runs, read_runs, table_kinds
from analysis.charts.matplotlib_print import save_figures
from analysis.charts.plotly_page import figure_json
from analysis.report.build import Live, ReportInput, build_report, report_charts, write_report
from hsweep.paths import Home
from hsweep.tracking.ui import LOCAL_UI

SWEEP = '''
"""What is planted here: {note}"""
from dataclasses import dataclass

from hsweep import Recipe, Sweep, Transition, epochs, grid
from tasks.base import Metric
from tiny import TinyData, TinyTask, tiny_model

ATTACK = {attack!r}


class Planted(TinyData):
    def evaluate(self, model):
        return {{**super().evaluate(model), "loss " + ATTACK: 0.5}}


@dataclass(frozen=True)
class PlantedTask(TinyTask):
    note: str = ATTACK

    @property
    def name(self):
        return "tiny " + ATTACK

    @property
    def metrics(self):
        return (*super().metrics, Metric("loss " + ATTACK, "min", "loss", ATTACK))

    def open(self, *, data_seed, sampling_seed, batch_size, device):
        return Planted(self, data_seed, sampling_seed, batch_size, device)

    def before_update(self, number):
        if self.dim == 4 and number > 2:  # two are tried out before the start
            raise RuntimeError(ATTACK)


def model(point):
    if point.width == 7:
        raise ValueError(ATTACK)
    return tiny_model(point, dim=4 if point.width == 4 else 3)


SWEEP = Sweep(
    name="planted",
    space=grid(width=[1, 2, 3, 4, 7], word=["plain", ATTACK]),
    task=lambda p: PlantedTask(dim=4 if p.width == 4 else 3, note=p.word),
    model=model, recipe=Recipe(lr=0.05, batch_size=8),
    metric="nmse", goal="min", budget=epochs(2), max_failures=0,
    question=Transition("width", None, nuisance=("word",)),
)
'''
# Where values come from sweep files: control characters are refused there.
ON_AN_AXIS = ATTACK.replace("\x1b", "").replace("\u2028", "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "runs.parquet"
    runs().to_parquet(path)
    return path


def ask(table: Path, kind: str, **changes: Any) -> Answer:
    chosen = next(each for each in KINDS if each.name == kind)
    none = {option.name: () if option.multiple else None for option in chosen.options}
    asked: dict[str, Any] = {
        "metric": named("accuracy"), "goal": "max", "scale": None, "replicate": named("seed"),
        "status_column": named("status"), "ignore": (), "complete": (), "pruned": (), "failed": (),
        "budget_column": None, "target_budget": None, "settings": (), "where": (),
        **none, **changes,
    }  # fmt: skip
    return ask_runs(read_runs(table, chosen, asked), chosen, asked)


def answers(table: Path) -> dict[str, Answer]:
    axes = (named("heads"), named("length"))
    cost = (named("params"),)
    return {
        "transition": ask(
            table, "transition", metric=named("error"), goal="min", x=axes[0], by=axes[1],
            settings=("B=50", "n_mc=19"),
        ),
        "pareto": ask(table, "pareto", config=[named("family")], cost=cost),
        "lean": ask(
            table, "lean", config=[named("family")], cost=cost, baseline=f"4x32 {ATTACK}",
            margin=0.02,
        ),
        "effects": ask(table, "effects", config=axes),
        "conditioning": ask(
            table, "conditioning", config=axes, x=axes[0], cost=cost,
        ),
    }  # fmt: skip


def page_of(answer: Answer) -> ReportInput:
    """A report in which all that a sweep, a study or a table names is planted."""
    trials = runs().rename(columns={named("status"): "status"}).assign(
        key=[f"{number} {ATTACK}" for number in range(36)], reason=ATTACK, stratum=ATTACK,
        mlflow_url=WEB,
    )  # fmt: skip
    return examples.report_input(
        study=ATTACK, sweep=ATTACK, preset=ATTACK, question=ATTACK,
        answer=dataclasses.replace(answer, confirm_command=ATTACK),
        metric=named("accuracy"), goal="max", budget_unit=ATTACK,
        axes=(named("heads"), named("length")), trials=trials,
        reports=pd.DataFrame(
            {"key": key, "unit": unit, "step": unit, named("accuracy"): 0.5 + unit / 10}
            for key in trials["key"] for unit in (1, 2)
        ),
        provenance={ATTACK: {ATTACK: ATTACK}}, repeat_command=ATTACK,
        warnings=(ATTACK,),
    )  # fmt: skip


def nothing_ran(browser: Any, path: Path) -> None:
    open_page(browser, path)
    page = browser.current_url
    assert browser.execute_script("return window.injected === undefined")
    # A picture of many cells is drawn as an image of the page's own.
    asked = {url for url in requested(browser) if not url.startswith("data:image/png;base64,")}
    assert asked <= {page, "data:,"}
    problems = [entry["message"] for entry in browser.get_log("browser")]
    assert problems == []
    for tag in ("img", "iframe", "object", "embed", "base", "form"):
        assert browser.find_elements("css selector", f"body {tag}") == [], tag
    links = browser.execute_script(
        "return Array.from(document.querySelectorAll('a'), (a) => a.getAttribute('href') "
        "|| a.getAttribute('xlink:href'))"
    )
    assert [link for link in links if not (link or "").startswith(("#", LOCAL_UI))] == []
    handlers = browser.execute_script(
        "return Array.from(document.querySelectorAll('*')).filter((node) => "
        "Array.from(node.attributes).some((a) => a.name.startsWith('on'))).length"
    )
    assert handlers == 0


def strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for name, part in content.items():
            yield from (name, *strings(part))
    elif isinstance(content, list):
        for part in content:
            yield from strings(part)


TAG = re.compile(r"<(?!/?(?:b|br|extra|i)/?>)[a-zA-Z/!].{0,40}")


ASKED = list(table_kinds())


@pytest.fixture(scope="module")
def answered(table: Path) -> dict[str, Answer]:
    return answers(table)


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(
    "kind",
    [kind if kind == "lean" else pytest.param(kind, marks=pytest.mark.slow) for kind in ASKED],
)
def test_a_page_of_planted_names_runs_none_of_them(
    browser: Any, answered: dict[str, Answer], tmp_path: Path, kind: str
) -> None:
    nothing_ran(browser, write_report(page_of(answered[kind]), tmp_path / "report.html"))
    assert browser.find_element("tag name", "h1").text.startswith("\"'></title></style>")


@pytest.mark.xdist_group("browser")
def test_what_happens_now_is_shown_as_text(
    browser: Any, answered: dict[str, Answer], tmp_path: Path
) -> None:
    table = {"header": [ATTACK, ATTACK], "rows": [[ATTACK, ATTACK]], "more": ATTACK}
    curve = {"name": ATTACK, "units": [1, 2], "values": [0.5, None]}
    now = {
        "state": ATTACK, "ended": 1, "share": 0.5, "counts": ATTACK, "time": ATTACK,
        "training": table, "curves": [curve], "metric": ATTACK, "unit": ATTACK, "log": True,
        "lately": table,
    }  # fmt: skip
    page = build_report(page_of(answered["lean"]), Live(now, "/nowhere", 1))
    path = tmp_path / "watched.html"
    path.write_text(page, encoding="utf-8")
    open_page(browser, path)
    assert browser.execute_script("return window.injected === undefined")
    shown = browser.execute_script(
        "return Array.from(document.querySelectorAll('#now b, #lately-table td'),"
        " (each) => each.textContent)"
    )
    assert set(shown) == {ATTACK}
    for tag in ("img", "iframe", "object", "embed", "base", "form"):
        assert browser.find_elements("css selector", f"body {tag}") == [], tag
    assert browser.find_elements("css selector", "#figure-growing .scatterlayer .point")


@pytest.mark.parametrize("kind", ASKED)
def test_figures_hold_no_tag_that_came_from_data(answered: dict[str, Answer], kind: str) -> None:
    # Plotly reads a part of HTML in every text it shows.
    drawn = report_charts(page_of(answered[kind]))
    assert drawn
    for chart in drawn:
        for text in strings(figure_json(chart)):
            found = re.findall(r"<(?!/?(?:b|br|extra|i)/?>)[a-zA-Z/!].{0,40}", text)
            assert found == [], chart.name


def test_what_is_embedded_in_a_script_cannot_end_it(answered: dict[str, Answer]) -> None:
    page = build_report(page_of(answered["lean"]))
    blocks = re.findall(
        r'<script type="application/json" id="([\w-]+)">(.*?)</script>', page, re.DOTALL
    )
    assert {name for name, _ in blocks} == {"trials-data", "figures-data"}
    for _, block in blocks:
        assert not set("<>&\u2028\u2029") & set(block)
        json.loads(block)


@pytest.mark.slow
def test_figures_for_a_paper_read_no_mathematics_into_names(
    answered: dict[str, Answer], tmp_path: Path
) -> None:
    for kind in ("transition", "lean"):
        made = save_figures(report_charts(page_of(answered[kind])), tmp_path / kind)
        assert made
        for path in made:
            if path.suffix == ".svg":
                assert "<script" not in path.read_text("utf-8")


@pytest.mark.slow
def test_a_study_of_which_every_text_is_planted_reports_compares_and_exports(
    browser: Any, hsweep: Callable[..., Result], home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "planted_sweep.py"
    file.write_text(SWEEP.format(attack=ON_AN_AXIS, note=ON_AN_AXIS.replace("\\", "")))
    result = hsweep("run", file, "--runner", "inline")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    study = home.studies / "planted-quick"
    nothing_ran(browser, study / "report.html")
    second = hsweep("run", file, "--runner", "inline", "--study", "again", "--set", "width=1,2,3")
    assert second.exit_code == 0, second.output
    assert (
        hsweep("compare", "planted-quick", "again", "--report", tmp_path / "c.html").exit_code == 0
    )
    nothing_ran(browser, tmp_path / "c.html")
    for ending in ("csv", "json", "parquet"):
        out = tmp_path / f"trials.{ending}"
        assert hsweep("export", "planted-quick", out).exit_code == 0
    trials = pd.read_csv(tmp_path / "trials.csv")
    assert set(trials["word"]) == {"plain", ON_AN_AXIS}
    assert trials["reason"].str.contains("RuntimeError").any()
    for verb in ("show", "report", "analyze"):
        done = hsweep(verb, "planted-quick")
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output
