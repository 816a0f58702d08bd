"""``hsweep watch`` as it is used: a process that serves pages, looked at in a real browser."""

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import DRAWN, open_browser, wait_for
from cli_process import Driver, Workplace
from click.testing import Result
from tiny_studies import new_study

from benchmarks.large_studies import write_study
from hsweep.paths import Home

pytestmark = pytest.mark.xdist_group("browser")
STATE = "return document.querySelector('#now .now-state').textContent === '{}'"
CURVE_OF_TWO = (
    "return document.querySelectorAll('#figure-growing .scatterlayer .point').length === 2"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Watched:
    """A home and what serves its pages."""

    workplace: Workplace
    server: Driver
    address: str

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"{self.address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def starts(self, name: str) -> Driver:
        """Start a study, and return once its first trial waits in its third epoch."""
        self.workplace.hold()
        sweep = str(self.workplace.sweep)
        driver = self.workplace.start(
            *("run", sweep, "--runner", "inline", "--no-reuse", "--study", name)
        )
        driver.until(lambda: bool(self.workplace.waiting()))
        return driver


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    workplace = Workplace(tmp_path_factory.mktemp("watched"))
    port = free_port()
    server = workplace.start("watch", "--port", str(port))
    server.until(lambda: "watch it at" in server.stdout())
    yield Watched(workplace, server, f"http://127.0.0.1:{port}")
    workplace.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def test_a_page_follows_its_study_to_the_end(watched: Watched, browser: Any) -> None:
    assert "There is none yet" in watched.get("/")[1]
    driver = watched.starts("live")
    browser.get(f"{watched.address}/")
    browser.find_element("link text", "live").click()
    wait_for(browser, "the study", STATE.format("running"))
    wait_for(browser, "the curve", CURVE_OF_TWO)
    # As at each further report.
    ends = browser.execute_async_script(
        "const bottom = (selector) => "
        "document.querySelector(selector).getBoundingClientRect().bottom;"
        "document.dispatchEvent(new Event('hsweep:changed'));"
        "requestAnimationFrame(() => requestAnimationFrame(() => "
        "arguments[0](['#figure-growing svg.main-svg', '#training'].map(bottom))))"
    )
    assert ends[0] <= ends[1], "the curves lie over what follows"
    # In one step: the table is filled anew with every event.
    cells = browser.execute_script(
        "return Array.from(document.querySelectorAll('#training-table td'), (c) => c.textContent)"
    )
    assert cells[:2] == ["width=4 #0", "2 of 4 epochs"]
    assert "so far" in browser.find_element("id", "answer").text
    assert "The study is running." in browser.find_element("id", "next").text
    with urllib.request.urlopen(f"{watched.address}/studies/live/events", timeout=60) as stream:
        event = json.loads(stream.readline().decode().removeprefix("data: "))
    assert event["now"]["state"] == "running"
    assert event["now"]["curves"][0]["units"] == [1, 2]
    browser.execute_script("window.marked = true; document.getElementById('lately').open = true")
    watched.workplace.let_go()
    assert driver.wait() == 0
    # It loads itself again, since there are results, and what was open stays open.
    wait_for(browser, "the end", STATE.format("complete"))
    wait_for(browser, "the new page", "return window.marked === undefined")
    wait_for(
        browser,
        "the answer",
        "return !document.getElementById('answer').textContent.includes('so far')",
    )
    assert browser.execute_script("return document.getElementById('lately').open")
    ended = browser.find_elements("css selector", "#lately-table td:nth-child(2)")
    assert [cell.text for cell in ended] == ["width=1 #0", "width=2 #0", "width=4 #0"]
    wait_for(browser, "the figures", DRAWN)
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_who_types_is_not_interrupted(watched: Watched, browser: Any) -> None:
    driver = watched.starts("typing")
    browser.get(f"{watched.address}/studies/typing")
    wait_for(browser, "the study", STATE.format("running"))
    browser.execute_script("window.marked = true; document.getElementById('trials').open = true")
    browser.find_element("id", "text-filter").send_keys("width=4")
    watched.workplace.let_go()
    assert driver.wait() == 0
    button = browser.find_element("id", "renew")
    wait_for(browser, "the offer", "return !document.querySelector('.now-news').hidden")
    assert browser.execute_script("return window.marked")
    button.click()
    wait_for(browser, "the new page", "return window.marked === undefined")
    wait_for(browser, "the table", "return Boolean(document.getElementById('text-filter').value)")
    assert browser.find_element("id", "shown-count").text.startswith("1 of 3")


def test_only_its_own_pages_are_served_and_only_under_its_own_name(watched: Watched) -> None:
    status, said = watched.get("/studies/nowhere")
    assert status == 404
    assert "no study called 'nowhere'" in said
    assert watched.get("/studies/..%2Fhome")[0] == 404
    assert watched.get("/studies/.hidden")[0] == 404
    assert watched.get("/", Host="elsewhere.example")[0] == 400
    assert watched.get("/", Host="localhost:8050")[0] == 200


@pytest.mark.parametrize(
    ("command", "page", "seen"), [("watch", "", "Studies"), ("ui", "?first", "MLflow")]
)
def test_others_see_what_is_served_to_them_by_the_token_alone(
    tmp_path: Path, command: str, page: str, seen: str
) -> None:
    workplace = Workplace(tmp_path)
    port = free_port()
    server = workplace.start(command, "--host", "0.0.0.0", "--port", str(port))
    try:
        server.until(lambda: "?token=" in server.stdout())
        (shown,) = re.findall(r"http://\S+:\d+/\?token=\S+(?=;)", server.stdout())
        place, token = shown.split("?token=")
        place = f"http://127.0.0.1:{port}/"
        cookies = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

        def answer(
            to: str, ask: Callable[..., Any] = urllib.request.urlopen, **headers: str
        ) -> str:
            try:
                with ask(urllib.request.Request(to, headers=headers), timeout=90) as given:
                    return str(given.read().decode())
            except urllib.error.HTTPError as refused:
                return f"{refused.code}: {refused.read().decode()}"

        for guess in ("", "?token=", f"?token={token}x"):
            assert "403: open the address that was printed" in answer(
                place + guess, Host="a.example"
            )
        assert seen in answer(f"{place}?token={token}", cookies.open, Host="a.example")
        assert seen in answer(place + page, cookies.open)
        assert seen in answer(place + page, Authorization=f"Bearer {token}")
    finally:
        workplace.close()


def test_a_study_that_cannot_be_read_is_listed_with_the_reason(watched: Watched) -> None:
    folder = watched.workplace.home / "studies" / "torn"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text("{")
    (folder / "journal").mkdir()
    _, said = watched.get("/")
    assert "torn" in said
    assert "cannot be read: the record" in said
    assert watched.get("/studies/torn")[0] == 404


def test_what_cannot_be_served_is_refused_before(
    hsweep: Callable[..., Result], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_study(home, "mine")
    refused = hsweep("watch", "yours")
    assert (refused.exit_code, "studies there: mine" in refused.output) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for words in (("watch", "mine"), ("ui",)):
            refused = hsweep(*words, "--port", port)
            assert refused.exit_code == 2
            message = f"cannot be served at 127.0.0.1:{port} (Address already in use)"
            assert message in refused.output
            assert "choose another with --port" in refused.output
    assert not home.mlflow_database.exists()


@pytest.mark.slow
def test_ten_thousand_trials_are_watched(tmp_path: Path, browser: Any) -> None:
    workplace = Workplace(tmp_path)
    write_study(Home(workplace.home), "transition", 10_000, 10, "large")
    port = free_port()
    server = workplace.start("watch", "large", "--port", str(port))
    try:
        server.until(lambda: "watch it at" in server.stdout())
        browser.get(f"http://127.0.0.1:{port}/studies/large")
        wait_for(browser, "the study", STATE.format("complete"))
        wait_for(browser, "the figures", DRAWN)
        assert "finished" in browser.find_element("css selector", ".now-counts").text
        rows = json.loads(
            browser.execute_script("return document.getElementById('trials-data').textContent")
        )
        assert len(rows["rows"]) == 10_000
    finally:
        workplace.close()
