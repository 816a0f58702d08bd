"""The page in a real browser: it opens from a file, fetches nothing and can be used."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import report_examples as examples
from browser import DRAWN, open_browser, open_page, requested, wait_for

from analysis.report.build import ReportInput, write_report
from analysis.text.numbers import NONE

Make = Callable[[], ReportInput]


class Window:
    """A browser that opens every report at one address."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        # At an address that it knows, the browser has the library of the figures compiled.
        self.address = folder / "report.html"
        self.written: dict[Make, Path] = {}
        self.looked_at: Make | None = None

    def show(
        self, make: Make, *, width: int = 1000, scheme: str = "light", unfolded: bool = True
    ) -> Any:
        """Open a report for one test alone and return the browser."""
        self.looked_at = None
        if make not in self.written:
            path = self.folder / f"{len(self.written)}.html"
            self.written[make] = write_report(make(), path)
        shutil.copyfile(self.written[make], self.address)
        self.browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        open_page(self.browser, self.address, unfolded=unfolded)
        return self.browser

    def look(self, make: Make) -> Any:
        """Return the browser with a report for a test that reads it or filters its trials.

        The page may be open since the last such test: nothing but the filters is taken back.
        """
        if make != self.looked_at:
            self.show(make)
            self.looked_at = make
        self.browser.execute_script(
            "for (const [id, event] of [['text-filter', 'input'], ['status-filter', 'change']]) {"
            "const filter = document.getElementById(id);"
            "filter.value = '';"
            "filter.dispatchEvent(new Event(event));"
            "}"
        )
        return self.browser


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with open_browser() as browser:
        yield Window(browser, tmp_path_factory.mktemp("reports"))


@pytest.fixture
def show(window: Window) -> Any:
    return window.show


@pytest.fixture
def look(window: Window) -> Any:
    return window.look


def large_study() -> ReportInput:
    trials = pd.concat([examples.trials_frame()] * 186, ignore_index=True)
    trials["key"] = [f"{number:016x}" for number in range(len(trials))]
    return examples.report_input(trials=trials, reports=examples.reports_frame(trials))


def column(browser: Any, number: int) -> list[str]:
    """Return the shown text of one column of the table of trials."""
    script = (
        "return Array.from(document.querySelectorAll('#trials-table tr[aria-rowindex] td'), "
        "(cell) => cell.parentElement).filter((row, at, rows) => rows.indexOf(row) === at)"
        ".map((row) => row.cells[arguments[0]].textContent)"
    )
    return list(browser.execute_script(script, number))


def click_header(browser: Any, label: str) -> None:
    for button in browser.find_elements("css selector", "#trials-table th button"):
        if button.text == label:
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
            button.click()
            return
    raise AssertionError(f"no column {label}")


def click_point(browser: Any, figure: str, number: int) -> None:
    """Click a point of a figure, as plotly tells its listeners."""
    browser.execute_script(
        "const plot = document.getElementById('figure-' + arguments[0]);"
        "const trace = plot.data.find((item) => item.customdata);"
        "plot.emit('plotly_click', {points: [{customdata: trace.customdata[arguments[1]]}]})",
        figure,
        number,
    )


def hover(browser: Any, figure: str, points: str) -> str:
    """Move the mouse over the first point of a figure and return what is shown."""
    from selenium.webdriver.common.action_chains import ActionChains

    holder = browser.find_element("id", figure)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", holder)
    point = holder.find_element("css selector", points)
    ActionChains(browser).move_to_element(point).perform()
    shown = f"return document.querySelector('#{figure} .hoverlayer .hovertext') !== null"
    wait_for(browser, "a hover text", shown)
    lines = holder.find_elements("css selector", ".hoverlayer .hovertext tspan")
    texts = [line.text for line in lines] or [
        line.text for line in holder.find_elements("css selector", ".hoverlayer .hovertext text")
    ]
    return "\n".join(texts)


@pytest.mark.parametrize(
    ("make", "figures", "width", "scheme"),
    [
        (examples.report_input, 3, 320, "light"),
        (examples.lean_input, 2, 400, "dark"),
        (examples.groups_input, 3, 1600, "light"),
    ],
)
def test_it_opens_from_a_file_without_network_errors_or_scrolling_sideways(
    show: Any, make: Make, figures: int, width: int, scheme: str
) -> None:
    browser = show(make, width=width, scheme=scheme)
    assert [url for url in requested(browser) if not url.startswith(("file:", "data:"))] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    holders = browser.find_elements("css selector", "[data-figure]")
    assert len(holders) == figures
    for holder in holders:
        assert holder.find_elements("css selector", "svg.main-svg :is(.xtick, .annotation)")


@pytest.mark.parametrize(
    "make", [examples.report_input, examples.lean_input, examples.groups_input]
)
def test_question_answer_picture_limits_and_next_step_fit_the_first_screen(
    show: Any, make: Any
) -> None:
    browser = show(make, unfolded=False)
    ends = browser.execute_script(
        "return ['h1', '#answer', '.first figure', '#limits', '#next'].map((selector) => "
        "document.querySelector(selector).getBoundingClientRect().bottom)"
    )
    assert max(ends) <= 800
    assert browser.find_elements("css selector", ".first svg.main-svg .xtick")
    # All else is folded, and not drawn before it is opened.
    folds = browser.find_elements("css selector", "details")
    assert len(folds) >= 6
    assert not any(fold.get_attribute("open") for fold in folds)
    assert len(browser.find_elements("css selector", "[data-figure].js-plotly-plot")) == 1


def many_candidates() -> ReportInput:
    row = examples.lean_result().table[0]
    rows = (
        replace(row, config={"heads": heads, "depth": 2}, label=f"heads={heads}, depth=2")
        for heads in range(1, 15)
    )
    return examples.lean_input(lean=examples.lean_result(table=tuple(rows)))


def test_a_first_figure_with_many_rows_ends_before_its_caption_begins(show: Any) -> None:
    browser = show(many_candidates, unfolded=False)
    drawn, caption = browser.execute_script(
        "const figure = document.querySelector('.first figure');"
        "return [figure.querySelector('svg.main-svg .xtitle').getBoundingClientRect().bottom,"
        "figure.querySelector('figcaption').getBoundingClientRect().top]"
    )
    assert drawn <= caption


def test_the_first_figure_is_there_at_load_a_fold_opens_by_a_click_and_a_term_by_its_link(
    show: Any, window: Window
) -> None:
    count = "document.querySelectorAll('#answer ~ .first svg.main-svg .xtick').length"
    script = f"addEventListener('load', () => {{ window.drawnAtLoad = {count}; }})"
    added = window.browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": script}
    )
    browser = show(examples.report_input, unfolded=False)
    window.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    assert browser.execute_script("return window.drawnAtLoad") > 2
    browser.find_element("css selector", "#curves > summary").click()
    drawn = "return document.querySelector('#figure-learning-curves .xtick') !== null"
    wait_for(browser, "the curves", drawn)
    term = browser.find_element("css selector", "#answer a.term, #limits a.term")
    assert term.text.lower() in ("seeds", "abrupt", "cell", "95% set")
    meaning = term.get_attribute("title")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", term)
    term.click()
    wait_for(browser, "the words", "return document.getElementById('words').open")
    assert meaning in browser.find_element("id", "words").text


def found(browser: Any) -> str:
    return str(browser.find_element("id", "text-filter").get_property("value"))


def test_trials_are_found_by_status_by_words_and_by_values_of_a_column(look: Any) -> None:
    from selenium.webdriver.support.select import Select

    browser = look(examples.report_input)
    status = Select(browser.find_element("id", "status-filter"))
    status.select_by_visible_text("failed")
    assert column(browser, 0) == ["failed"]
    assert browser.find_element("id", "shown-count").text == "1 of 54 trials"
    assert status.options[0].text == "all", "no search left one out"
    status.select_by_value("")
    find = browser.find_element("id", "text-filter")
    find.send_keys("no such file")
    assert column(browser, 0) == ["failed"]
    for asked, heads in (
        ("heads=4 seed=1", {"4"}),
        ("heads>=5", {"5", "6"}),
        ("heads<2 seq_len>8", {"1"}),
        ("heads!=1 nmse>1e-3", {"2", "3"}),
        ("parameters=2,000", {"2"}),
        ('stratum="heads=3, seq_len=8"', {"3"}),
        ("nmse=none", {"1", "2"}),
        ("heads=2|4|none", {"2", "4"}),
        ("nowhere", set()),
    ):
        find.clear()
        find.send_keys(asked)
        assert set(column(browser, 1)) == heads, asked


def searched_study() -> ReportInput:
    trials = examples.trials_frame()
    trials.loc[trials["heads"].gt(3), "status"] = "not_needed"
    return examples.report_input(trials=trials)


def test_trials_that_a_search_never_asked_for_are_rows_on_request_alone(look: Any) -> None:
    from selenium.webdriver.support.select import Select

    browser = look(searched_study)
    status = Select(browser.find_element("id", "status-filter"))
    shown = browser.find_element("id", "shown-count")
    assert status.first_selected_option.text == "all that were asked for"
    assert shown.text == "27 of 27 trials"
    assert "not needed" not in column(browser, 0)
    status.select_by_value("not_needed")
    assert shown.text == "27 of 54 trials"
    assert set(column(browser, 0)) == {"not needed"}


def test_a_button_copies_a_command_as_it_stands(look: Any) -> None:
    browser = look(examples.report_input)
    code = browser.find_element("css selector", ".command > code")
    button = browser.find_element("css selector", ".command > .copy")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert browser.execute_script("return String(getSelection())") == code.get_property("innerText")
    assert button.text == "Copied"


@pytest.mark.parametrize("make", [examples.report_input, examples.lean_input])
def test_titles_of_axes_are_whole_on_a_telephone(show: Any, make: Make) -> None:
    titles = (
        "return Array.from(document.querySelectorAll('svg.main-svg :is(.xtitle, .ytitle)'))"
        ".map((title) => [title.textContent, title.getBoundingClientRect(),"
        " title.closest('svg').getBoundingClientRect()])"
    )

    def written(width: int) -> list[str]:
        found = show(make, width=width).execute_script(titles)
        for text, title, figure in found:
            for edge, far in (("left", "right"), ("top", "bottom")):
                assert figure[edge] <= title[edge] + 1, text
                assert title[far] <= figure[far] + 1, text
        return ["".join(text.split()) for text, *_ in found]

    assert written(400) == written(1600) != []


def test_shapes_of_many_axes_are_told_apart_on_a_telephone(show: Any) -> None:
    result = examples.lean_result()
    rows = [
        replace(row, config={"query_heads": row.config["heads"], "key_heads": 2, **row.config})
        for row in result.table
    ]
    page = show(lambda: examples.lean_input(lean=replace(result, table=tuple(rows))), width=400)
    names = page.execute_script(
        "return Array.from(document.querySelectorAll('[data-figure=candidates] .ytick text'))"
        ".map((name) => name.textContent)"
    )
    assert len(set(names)) == len(rows)
    assert all(name.startswith("q=") for name in names), names


def test_figures_turn_dark_and_light_with_the_page(show: Any) -> None:
    fills = (
        "return [getComputedStyle(document.body).backgroundColor,"
        "document.querySelector('#figure-slopes .xtick text').style.fill]"
    )
    light, dark = (
        ["rgb(255, 255, 255)", "rgb(31, 35, 40)"],
        ["rgb(21, 24, 28)", "rgb(228, 231, 235)"],
    )
    tick = "document.querySelector('#figure-slopes .xtick text').style.fill"
    browser = show(examples.report_input, scheme="dark")
    assert browser.execute_script(fills) == dark
    for name, colours in (("light", light), ("dark", dark)):
        features = [{"name": "prefers-color-scheme", "value": name}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        wait_for(browser, f"{name} ticks", f"return {tick} === '{colours[1]}'")
        assert browser.execute_script(fills) == colours
    # In print all are light and fit the paper.
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    printed, widths = browser.execute_script(
        "const plots = Array.from(document.querySelectorAll('[data-figure]'));"
        "return [plots.map((plot) => plot.querySelector('.xtick text').style.fill),"
        "plots.map((plot) => plot.querySelector('svg.main-svg').clientWidth)]"
    )
    assert set(printed) == {"rgb(31, 35, 40)"}
    assert set(widths) == {680}


def test_a_click_on_a_header_sorts_numbers_and_a_second_one_turns_them_round(look: Any) -> None:
    browser = look(examples.report_input)
    click_header(browser, "seq_len")
    assert list(dict.fromkeys(column(browser, 2))) == ["8", "32", "128"]
    for is_reversed in (False, True):
        click_header(browser, "nmse")
        shown = column(browser, 4)
        numbers = [float(text) for text in shown if text != NONE]
        assert numbers == sorted(numbers, reverse=is_reversed)
        assert shown[-3:] == [NONE, NONE, NONE]


def test_the_table_is_sorted_and_filtered_with_the_keyboard_alone(show: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = show(examples.report_input)
    browser.find_element("id", "text-filter").send_keys("heads=6", Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("id") == "trials-scroll"
    for label in ("status", "heads", "seq_len", "seed", "nmse"):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        assert browser.switch_to.active_element.text == label
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    numbers = [float(text) for text in column(browser, 4)]
    assert numbers == sorted(numbers)
    head = browser.find_element("css selector", "#trials-table th:nth-child(5)")
    assert head.get_attribute("aria-sort") == "ascending"


def test_every_control_and_region_has_a_name(look: Any) -> None:
    browser = look(examples.lean_input)
    nameless = browser.execute_script(
        "return Array.from(document.querySelectorAll('[role], [tabindex], input, select'))"
        ".filter((node) => !node.closest('svg') && !node.getAttribute('aria-label')"
        " && !(node.labels && node.labels.length)).map((node) => node.outerHTML.slice(0, 80))"
    )
    assert nameless == []


def test_a_study_of_ten_thousand_trials_stays_light_and_makes_rows_when_needed(show: Any) -> None:
    browser = show(large_study, unfolded=False)
    count = "return document.getElementsByTagName('*').length"
    assert browser.execute_script(count) < 3_000
    folds = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
    browser.execute_script(folds)
    wait_for(browser, "the figures", DRAWN)
    assert browser.execute_script(count) < 10_000
    assert browser.find_element("id", "shown-count").text == "10,044 of 10,044 trials"
    assert len(column(browser, 0)) < 100
    numbers = "return Array.from(document.querySelectorAll('#trials-table td:last-child'), "
    numbers += "(cell) => Number(cell.parentElement.getAttribute('aria-rowindex')) - 1)"
    for share in (0.5, 1.0):
        browser.execute_async_script(
            "const done = arguments[1];"
            "const body = document.querySelector('#trials-table tbody');"
            "new MutationObserver(() => done()).observe(body, {childList: true});"
            "const box = document.getElementById('trials-scroll');"
            "box.scrollTop = arguments[0] * (box.scrollHeight - box.clientHeight);",
            share,
        )
        shown = browser.execute_script(numbers)
        assert shown == list(range(shown[0], shown[0] + len(shown)))
        assert len(shown) < 100
        assert shown[0] < 10_044 * share <= shown[-1] + 1
    assert shown[-1] == 10_044
    click_header(browser, "nmse")
    best = examples.trials_frame()["nmse"].min()
    assert float(column(browser, 4)[0]) == pytest.approx(best, rel=1e-3)


def test_a_shape_tells_its_uncertainty_and_a_click_finds_its_trials_and_pages(look: Any) -> None:
    browser = look(examples.lean_input)
    text = hover(browser, "figure-front-num_params", ".points path")
    assert "heads=4, depth=2" in text
    assert "top1 0.764, 95% interval 0.754 to 0.774" in text
    assert "P(front) 0.99, on the front" in text
    assert "parameters: 1.4 M" in text
    assert "3 full-budget runs" in text
    click_point(browser, "front-num_params", 0)
    assert len(column(browser, 0)) == len(examples.SEEDS)
    assert found(browser) == "heads=4 depth=2"
    said = browser.find_element("css selector", "#figure-front-num_params ~ .picked")
    assert said.text == "heads=4, depth=2 MLflow: seed 0, seed 1, seed 2 · in the table of trials"
    links = [link.get_attribute("href") for link in said.find_elements("tag name", "a")]
    assert links[:3] == [f"https://mlflow.example/runs/24{seed}abcdef" for seed in range(3)]
    assert links[3].endswith("#trials")


def test_hovering_over_a_run_names_its_cell_its_seed_and_its_error(look: Any) -> None:
    text = hover(look(examples.report_input), "figure-error", ".points path.point")
    assert "seq_len=" in text
    assert "seed=" in text
    assert "nmse " in text


def test_only_web_addresses_become_links_and_a_click_on_one_run_opens_its_page(show: Any) -> None:
    trials = examples.trials_frame()
    addresses = trials["mlflow_url"].tolist()
    trials.loc[0, "mlflow_url"] = "javascript:window.injected=1"
    browser = show(partial(examples.report_input, trials=trials))
    links = browser.find_elements("css selector", "#trials-table a")
    assert len(links) == len(trials) - 1
    assert all(link.get_attribute("href").startswith("https://") for link in links)
    browser.execute_script("window.opened = []; window.open = (url) => window.opened.push(url)")
    click_point(browser, "error", 0)
    assert browser.execute_script("return window.opened") == []
    click_point(browser, "error", 1)
    # A median is of several runs, of which none is opened; they are listed.
    click_point(browser, "learning-curves", 0)
    assert browser.execute_script("return window.opened") == [addresses[1]]
    assert browser.execute_script("return window.injected === undefined")
