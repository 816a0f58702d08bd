"""MLflow's own pages in a real browser: what a study looks like there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import open_browser, wait_for
from mlflow_stores import Server, Tracked, client, report
from selenium.webdriver.common.by import By

from hsweep.design.trial import TrialStatus
from hsweep.record.journal import TrialRow
from hsweep.tracking.contents import STUDY_ID, study_tags
from hsweep.tracking.ui import run_address, view_address

pytestmark = pytest.mark.slow


@pytest.fixture
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def server(tracked: Tracked) -> Iterator[Server]:
    file = tracked.target.sqlite_file
    assert file is not None
    server = Server(file)
    server.start()
    yield server
    server.kill()


def test_the_charts_of_a_study_and_its_answer_are_on_the_pages(
    tracked: Tracked, server: Server, browser: Any
) -> None:
    for number, key in enumerate("abc"):
        point = {"heads": number + 1, "seq_len": 8}
        tracked.journal.add_trials([TrialRow(key, number, point, 0, "", 8, {"num_params": number})])
        report(tracked.journal, key, range(1, 5), TrialStatus.FINISHED)
    analysis = tracked.path.parent / "analysis.json"
    analysis.write_text(json.dumps({"answer": "It collapses at 3.", "numbers": {"h_star": 3.0}}))
    assert tracked.sync(artifacts=[Path(analysis)]).is_complete
    experiment, runs = tracked.state.experiment, tracked.state.runs
    study_id = study_tags(tracked.study)[STUDY_ID]

    browser.get(f"{server.uri}/{view_address(experiment, study_id)}")
    wait_for(
        browser,
        "the charts: by step, by heads, by parameters, parallel coordinates",
        "return document.querySelectorAll('.main-svg .xtick').length > 5"
        " && document.querySelectorAll('.main-svg .scatterlayer .trace').length >= 3",
    )
    page = browser.find_element(By.TAG_NAME, "body").text
    for label in ("heads=1 #0", "heads=2 #0", "heads=3 #0", "3 matching runs"):
        assert label in page

    browser.get("about:blank")
    browser.get(f"{server.uri}/{run_address(experiment, runs['parent'])}")
    wait_for(browser, "the answer", "return document.body.innerText.includes('It collapses at 3.')")
    link = browser.find_element(By.LINK_TEXT, "All trials in charts")
    assert link.get_attribute("href").endswith(view_address(experiment, study_id))
    assert client(tracked.target).get_run(runs["parent"]).data.metrics == {"h_star": 3.0}
