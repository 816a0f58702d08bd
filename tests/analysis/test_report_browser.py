"""The page in a real browser: it opens from a file, fetches nothing and can be used."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import report_examples as examples

from analysis.report import ReportInput, write_report
from analysis.wording import NONE

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1000,900",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium.webdriver.chrome.service import Service

    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver_path = shutil.which("chromedriver")
    if binary is None or driver_path is None:
        pytest.skip("needs chromium and chromedriver on the PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        driver.set_script_timeout(60)
        yield driver
        driver.quit()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Any:
    """Return a function that writes a report, opens it and returns the browser."""

    def open_page(report_input: ReportInput, *, width: int = 1000, scheme: str = "light") -> Any:
        path = write_report(report_input, tmp_path / "report.html")
        browser.get_log("browser")
        browser.get_log("performance")
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        browser.get(path.as_uri())
        return browser

    return open_page


def requested(browser: Any) -> list[str]:
    """Return every address that the page asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def column(browser: Any, number: int) -> list[str]:
    """Return the shown text of one column of the table of trials."""
    script = (
        "return Array.from(document.querySelectorAll('#trials-table tbody tr'))"
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


@pytest.mark.parametrize("make", [examples.report_input, examples.lean_input])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_from_a_file_without_network_or_console_errors(
    show: Any, make: Any, scheme: str
) -> None:
    browser = show(make(), scheme=scheme)
    assert [url for url in requested(browser) if not url.startswith(("file:", "data:"))] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_every_picture_is_drawn(show: Any) -> None:
    browser = show(examples.report_input())
    holders = browser.find_elements("css selector", "[data-figure]")
    assert len(holders) == 6
    for holder in holders:
        assert holder.find_elements("css selector", "svg.main-svg .xtick")


def test_a_dark_page_draws_its_pictures_in_dark_partners(show: Any) -> None:
    script = (
        "return [getComputedStyle(document.body).backgroundColor,"
        "document.querySelector('#figure-drops .xtick text').style.fill]"
    )
    light = show(examples.report_input()).execute_script(script)
    dark = show(examples.report_input(), scheme="dark").execute_script(script)
    assert light == ["rgb(255, 255, 255)", "rgb(31, 35, 40)"]
    assert dark == ["rgb(21, 24, 28)", "rgb(228, 231, 235)"]


@pytest.mark.parametrize("make", [examples.report_input, examples.lean_input])
@pytest.mark.parametrize("width", [320, 400, 1600])
def test_the_page_never_scrolls_sideways(show: Any, make: Any, width: int) -> None:
    browser = show(make(), width=width)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


def test_a_click_on_a_header_sorts_and_a_second_one_turns_it_round(show: Any) -> None:
    browser = show(examples.report_input())
    click_header(browser, "nmse")
    ascending = column(browser, 4)
    numbers = [float(text) for text in ascending if text != NONE]
    assert numbers == sorted(numbers)
    assert ascending[-3:] == [NONE, NONE, NONE]
    click_header(browser, "nmse")
    descending = column(browser, 4)
    numbers = [float(text) for text in descending if text != NONE]
    assert numbers == sorted(numbers, reverse=True)
    assert descending[-3:] == [NONE, NONE, NONE]


def test_numbers_sort_as_numbers(show: Any) -> None:
    browser = show(examples.report_input())
    click_header(browser, "seq_len")
    assert list(dict.fromkeys(column(browser, 2))) == ["8", "32", "128"]


def test_the_status_filter_shows_that_status_alone(show: Any) -> None:
    from selenium.webdriver.support.select import Select

    browser = show(examples.report_input())
    Select(browser.find_element("id", "status-filter")).select_by_visible_text("failed")
    assert column(browser, 0) == ["failed"]
    assert browser.find_element("id", "shown-count").text == "1 of 54 trials"


def test_text_is_found_in_any_column_and_values_in_one(show: Any) -> None:
    browser = show(examples.report_input())
    find = browser.find_element("id", "text-filter")
    find.send_keys("no such file")
    assert column(browser, 0) == ["failed"]
    find.clear()
    find.send_keys("heads=4 seed=1")
    assert set(column(browser, 1)) == {"4"}
    assert len(column(browser, 1)) == 3
    find.clear()
    find.send_keys("nowhere")
    assert column(browser, 0) == []


def test_a_click_on_a_shape_finds_its_trials(show: Any) -> None:
    browser = show(examples.lean_input())
    browser.execute_script(
        "const plot = document.getElementById('figure-front-0');"
        "const trace = plot.data.find((item) => item.customdata);"
        "plot.emit('plotly_click', {points: [{customdata: trace.customdata[0]}]})"
    )
    assert len(column(browser, 0)) == len(examples.SEEDS)
    assert browser.find_element("id", "text-filter").get_property("value") == "heads=4 depth=2"


def test_rows_of_a_large_study_are_made_when_they_are_needed(show: Any) -> None:
    trials = pd.concat([examples.trials_frame()] * 186, ignore_index=True)
    browser = show(examples.report_input(trials=trials, reports=pd.DataFrame()))
    assert browser.find_element("id", "shown-count").text == "10,044 of 10,044 trials"
    assert len(column(browser, 0)) == 100
    browser.execute_async_script(
        "const done = arguments[0];"
        "const body = document.querySelector('#trials-table tbody');"
        "new MutationObserver(() => done()).observe(body, {childList: true});"
        "const box = document.getElementById('trials-scroll'); box.scrollTop = box.scrollHeight;"
    )
    assert len(column(browser, 0)) == 200


def test_only_web_addresses_become_links(show: Any) -> None:
    trials = examples.trials_frame()
    trials.loc[0, "mlflow_url"] = "javascript:window.injected=1"
    browser = show(examples.report_input(trials=trials))
    links = browser.find_elements("css selector", "#trials-table a")
    assert len(links) == len(trials) - 1
    assert all(link.get_attribute("href").startswith("https://") for link in links)


def test_script_in_names_and_values_never_runs(show: Any) -> None:
    attack = "<script>window.injected = 1</script><img src=x onerror='window.injected = 2'>"
    trials = examples.trials_frame().astype({"heads": object})
    trials.loc[7, ["reason", "heads", "stratum"]] = attack
    browser = show(
        examples.report_input(
            study=attack,
            question=attack,
            answer=attack,
            warnings=(attack,),
            trials=trials,
            transition=examples.transition_result(x=attack, by=attack, metric=attack),
        )
    )
    assert browser.execute_script("return window.injected === undefined")
    assert browser.find_element("tag name", "h1").text == attack
    assert browser.find_elements("css selector", "img") == []
    assert any(attack in text for text in column(browser, 1))
