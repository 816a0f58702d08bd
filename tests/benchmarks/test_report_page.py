"""The made-up studies of the report's benchmark are whole, and the same every time."""

import html
import re

import pytest

from analysis.report.build import build_report
from benchmarks.report_page import BUDGET, KINDS, Kind, study


@pytest.mark.parametrize("kind", KINDS)
def test_a_made_up_study_has_its_trials_reports_and_answer(kind: Kind) -> None:
    made = study(kind, 600)
    assert len(made.trials) == 600
    assert len(made.reports) == 600 * BUDGET
    assert set(made.trials["status"]) == {"finished", "stopped_early", "failed"}
    # Terms in it are links to their meanings.
    text = html.unescape(re.sub("</?a[^>]*>", "", build_report(made)))
    assert made.answer.sentence in text


def test_the_transition_that_was_put_in_is_found() -> None:
    assert "heads = 4" in study("transition", 600).answer.sentence


def test_a_made_up_study_depends_on_its_seed_alone() -> None:
    first, again, other = (study("shapes", 400, seed=seed) for seed in (1, 1, 2))
    assert first.trials.equals(again.trials)
    assert not first.trials.equals(other.trials)
