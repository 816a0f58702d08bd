"""Ray's dashboard as a user meets it: during a study, in a browser, with what is printed."""

import contextlib
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import open_browser
from cli_process import Workplace
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

_SWEEP = """
import time
from pathlib import Path

from hsweep import Sweep, epochs, grid

FOLDER = Path(__file__).parent / "traces"


def train(config, run):
    print("width", config["width"], "begins to train", flush=True)
    (FOLDER / f"waiting-{config['width']}").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.1)
    run.report(1, error=1 / config["width"])


SWEEP = Sweep(
    name="printing",
    space=grid(width=[4]),
    train=train,
    metric="error",
    goal="min",
    budget=epochs(1),
)
"""
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]
SECONDS = 400


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.close()


def test_a_study_is_watched_in_the_dashboard_with_what_is_printed(workplace: Workplace) -> None:
    (workplace.root / "printing.py").write_text(_SWEEP)
    with contextlib.ExitStack() as taken:
        # Of the dashboard, and of the agent that reads logs for it.
        for port in (8265, 52365):
            bound = taken.enter_context(socket.socket())
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):  # another process has it, which is as good
                bound.bind(("127.0.0.1", port))
                bound.listen()
        # Its trial waits for as long as this looks at it.
        driver = workplace.start("run", "printing.py", "--study", "mine")
        driver.until(lambda: "Ray dashboard" in driver.stdout())
        assert "port 8265 is taken, so Ray's dashboard has another" in driver.stderr()
    (line,) = (line for line in driver.stdout().splitlines() if line.startswith("Ray dashboard"))
    said = re.fullmatch(r"Ray dashboard  (\S+)  \(.* paste what this prints: (.*)\)", line)
    assert said is not None, line
    asked = subprocess.run(said[2], shell=True, capture_output=True, text=True, check=True)
    assert asked.stdout not in driver.stdout() + driver.stderr(), "a file holds no secret"
    with open_browser() as browser:
        wait = WebDriverWait(browser, SECONDS)

        def shows(text: str) -> None:
            wait.until(lambda _: text in browser.find_element(By.TAG_NAME, "body").text, text)

        def click(text: str) -> None:
            found = f"//*[text()='{text}']"
            wait.until(lambda _: browser.find_elements(By.XPATH, found))[0].click()

        browser.get(said[1])
        field = wait.until(lambda _: browser.find_element(By.CSS_SELECTOR, "[type=password]"))
        field.send_keys(asked.stdout)
        click("Submit")
        wait.until(lambda _: not browser.find_elements(By.CSS_SELECTOR, "[type=password]"))
        browser.get(f"{said[1]}/#/actors")
        shows("hsweep-worker")
        link = "tbody a[href*='#/actors/']"
        wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, link))[0].click()
        click("stdout")
        shows("width 4 begins to train")
        click("Tasks History")
        shows("width=4 #0")
        shows("RUNNING")
    workplace.let_go()
    assert driver.wait() == 0
