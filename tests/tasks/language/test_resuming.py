"""Pre-training and language modelling under a budget of seconds, and interrupted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stepped_trial import train_stepwise
from task_contract import same
from text_tables import sentences, write_table
from tiny_runs import assignment_of, content, planned

from hsweep import Recipe, Sweep, grid, lean, seconds, steps
from hsweep.design.trial import Report, Trial
from hsweep.training import trial_run as timed
from hsweep.training.checkpoints import CheckpointStore
from models.decoder import Decoder
from models.encoder import CrammedBert
from tasks.base import Task
from tasks.language.glue import Glue
from tasks.language.masked_text import MaskedText
from tasks.language.stories import Stories

SIZE = 300
SHAPE: dict[str, Any] = {"embed_dim": 16, "depth": 1, "heads": 2, "seq_len": 24, "dropout": 0.2}

Make = Callable[[Path, Path], Task]


def windows(texts: Path, _: Path) -> Task:
    return Stories(str(texts), seq_len=24, vocab_size=SIZE, layout="windows")


def glue(texts: Path, folder: Path) -> Task:
    for split, count in (("train", 60), ("validation", 30)):
        columns = {"sentence": sentences(count, words=5), "label": [n % 2 for n in range(count)]}
        write_table(folder, split, columns)
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: cola\n  data_files:\n"
        "  - {split: train, path: train-*}\n  - {split: validation, path: validation-*}\n---\n"
    )
    pretraining = MaskedText(str(texts), seq_len=24, vocab_size=SIZE)
    return Glue(
        pretraining, str(folder), ("cola",), every_report=True, epochs=1, seq_len=24, dropout=0.3
    )


def trial_of(task: Task) -> Trial:
    shape = Decoder if isinstance(task, Stories) else CrammedBert
    sweep = Sweep(
        name="texts",
        space=grid(heads=[2]),
        task=task,
        model=shape(**SHAPE, vocab_size=SIZE),
        recipe=Recipe(lr=3e-3, batch_size=8, warmup_fraction=0.2, clip_norm=1.0),
        metric=task.metrics[0].name,
        goal=task.metrics[0].goal,
        budget=steps(9, report_every=3),
        replicates=1,
        question=lean(baseline={"heads": 2}, margin=0.05),
    )
    return planned(sweep)[0]


def finished(trial: Trial, folder: Path, stops: list[int]) -> tuple[list[Any], dict[str, Any]]:
    """Train a trial that is interrupted after so many reports of each attempt, and return all its
    reports and the last state that is kept."""
    reports: list[Report] = []
    for attempt, stop in enumerate([*stops, 99], start=1):
        generator = train_stepwise(
            assignment_of(
                trial,
                folder,
                attempt=attempt,
                recorded_through=reports[-1].unit if reports else 0,
            ),
        )
        for number, report in enumerate(generator, start=1):
            reports.append(report)
            if number == stop or report.is_last:
                generator.close()
    state = CheckpointStore(str(folder), trial.key, attempt=99).search().state
    assert state is not None
    return [content(report) for report in reports], state


class Ticking:
    """A clock that every look moves on by a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize("make", [windows, glue])
def test_a_budget_of_seconds_repeats_where_the_clock_does(
    make: Make, tiny_texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", Ticking())
    trial = replace(
        trial_of(make(tiny_texts, tmp_path / "glue")), budget=seconds(12, report_every=4)
    )
    reports, state = finished(trial, tmp_path / "whole", [])
    again, resumed = finished(trial, tmp_path / "parts", [1, 1])
    assert again == reports
    assert same(state["model"], resumed["model"])
    steps_done = [report[1] for report in reports]
    assert [report[2]["tokens_seen"] for report in reports] == [8 * 24 * n for n in steps_done]


def test_tokens_seen_are_right_where_an_update_outlasts_the_time_between_two_reports(
    tiny_texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "time", Ticking())
    trial = replace(trial_of(windows(tiny_texts, tmp_path)), budget=seconds(4, report_every=1))
    reports, _ = finished(trial, tmp_path / "parts", [1, 1, 1])
    seen = [(report[1], report[2]["tokens_seen"]) for report in reports]
    assert len({step for step, _ in seen}) < len(seen)
    assert all(tokens == 8 * 24 * step for step, tokens in seen)


def test_gradients_are_no_part_of_fine_tuning(tiny_texts: Path, tmp_path: Path) -> None:
    task = glue(tiny_texts, tmp_path / "glue")
    often, never = trial_of(task), trial_of(replace(task, every_report=False))  # type: ignore[type-var]
    _, with_it = finished(often, tmp_path / "often", [])
    _, without = finished(never, tmp_path / "never", [])
    assert same(with_it["model"], without["model"])
    assert torch.equal(
        with_it["optimizer"]["state"][0]["exp_avg"], without["optimizer"]["state"][0]["exp_avg"]
    )
