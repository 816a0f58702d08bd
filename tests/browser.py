"""A real browser for tests of pages, and what it asked the network for."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


@contextmanager
def open_browser() -> Iterator[Any]:
    """A headless chromium that logs what it fetches and what fails."""
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


DRAWN = (
    "return Array.from(document.querySelectorAll('[data-figure]'))"
    ".filter((holder) => !holder.closest('details:not([open])'))"
    ".every((holder) => holder.querySelector('svg.main-svg :is(.xtick, .annotation)'))"
)


def wait_for(browser: Any, what: str, script: str) -> None:
    """Wait until ``script`` returns true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60, poll_frequency=0.05).until(
        lambda driver: driver.execute_script(script), f"waited in vain for {what}"
    )


def requested(browser: Any) -> list[str]:
    """Return every address that the page asked for; the browser's own first tab is none of it."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    urls = [each["request"]["url"] for each in sent if each["documentURL"].startswith("file:")]
    assert browser.current_url in urls
    return urls


def open_page(browser: Any, path: Path, *, unfolded: bool = True) -> None:
    """Open a page from its file, its logs empty before, and wait until the figures in sight are
    drawn: all of them where it is ``unfolded``."""
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())
    if unfolded:
        browser.execute_script(
            "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
        )
    wait_for(browser, "the figures", DRAWN)
