"""While a study runs, part of its runs establishes nothing, whatever kind of question it asks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from analysis.answer import Answer
from analysis.ask import answer_study
from hsweep import Sweep, Transition, grid, lean
from hsweep.paths import Home

WIDTHS: dict[str, Any] = {
    "space": grid(width=[1, 2, 3, 4, 5]),
    "replicates": 3,
    "question": Transition(x="width"),
}
SHAPES: dict[str, Any] = {
    "space": grid(width=[2, 4, 6, 8]),
    "replicates": 4,
    "question": lean({"width": 8}, margin=0.05),
}


def noise(width: int, replicate: int) -> float:
    return float(np.random.default_rng([width, replicate]).standard_normal())


def answered(tmp_path: Path, sweep: Sweep, value: Any, *, seeds: int) -> Answer:
    """Return the answer where that many seeds of each point have finished."""
    study = new_study(Home(tmp_path / "home").create(), "s", sweep)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            if trial.replicate < seeds:
                finish(journal, trial, value(trial.point.width, trial.replicate))
    return answer_study(study)


@pytest.mark.parametrize(
    ("value", "label", "first"),
    [
        (
            lambda w, r: 10 ** (-0.4 * w - 2 * (w > 3) + 0.08 * noise(w, r)),
            "collapse at width = 4",
            "the error collapses at width = 4: ",
        ),
        (
            lambda w, r: 0.5 + 0.01 * r + 1e-3 * noise(w, r),
            "no collapse",
            "no collapse in width is established: ",
        ),
    ],
)
def test_a_transition(tmp_path: Path, value: Any, label: str, first: str) -> None:
    sweep = tiny_sweep(**WIDTHS)
    part = answered(tmp_path / "part", sweep, value, seeds=2)
    assert part.leading is not None
    assert part.leading.badge == (f"so far: {label}", "unknown")
    assert part.sentences[0].startswith(f"So far, {first}")
    assert "not ended yet; the answer may change." in part.text
    assert part.numbers == {}
    whole = answered(tmp_path / "whole", sweep, value, seeds=3)
    assert whole.leading is not None
    badge = whole.leading.badge
    assert badge is not None
    assert badge[0].startswith(label)
    assert badge[1] != "unknown"
    assert whole.sentences[0].lower().startswith(first)


def test_every_finding_of_a_lean_study(tmp_path: Path) -> None:
    def tones(seeds: int) -> set[str]:
        answer = answered(
            tmp_path / str(seeds),
            tiny_sweep(**SHAPES),
            lambda w, r: 0.5 - 0.05 * w + 0.004 * noise(w, r),
            seeds=seeds,
        )
        return {finding.badge[1] for finding in answer.findings if finding.badge is not None}

    assert tones(3) == {"unknown"}
    assert "unknown" not in tones(4)
