"""The benchmark of training steps compares like with like, and works from end to end."""

import json

import pytest
import torch
from click.testing import CliRunner

from benchmarks.step_cases import CASES, Case
from benchmarks.steps import (
    LEAST_STEPS,
    QUICK,
    cases_of,
    command,
    seconds_a_step,
    training_step,
)
from models.torchvision_compat import make_torchvision_importable

# What a library's model has beside ours (biases, maps) or lacks, as a share of the parameters.
MOST_DIFFERENCE = 0.01


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_sides_have_nearly_as_many_parameters_and_equally_many_outputs(case: Case) -> None:
    make_torchvision_importable()
    models = case.ours(), case.theirs()
    x = case.inputs()[:2]
    with torch.no_grad():
        shapes = [model.train()(x).shape for model in models]
    params = [sum(each.numel() for each in model.parameters()) for model in models]
    assert params[0] == pytest.approx(params[1], rel=MOST_DIFFERENCE)
    assert shapes[0] == shapes[1]


def test_a_step_trains() -> None:
    (case,) = cases_of(["retrieval, T = 8"])
    torch.manual_seed(0)
    model = case.ours()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    training_step(model, case.inputs(), case.loss)()
    after = model.state_dict()
    assert not any(torch.equal(value, after[name]) for name, value in before.items())


def test_a_few_steps_are_taken_however_little_time_there_is() -> None:
    taken: list[int] = []
    assert seconds_a_step(lambda: taken.append(1), seconds=0.0) >= 0
    assert len(taken) == LEAST_STEPS


def test_families_are_chosen_by_the_beginning_of_their_name() -> None:
    assert {case.name for case in cases_of(["vit", "GPT"])} == {
        case.name for case in CASES if case.name.startswith(("ViT", "GPT"))
    }
    with pytest.raises(ValueError, match="no model family begins with 'resnet'; there are"):
        cases_of(["resnet"])
    names = {case.name for case in CASES}
    assert len(names) == len(CASES)
    assert names >= {*QUICK}


@pytest.mark.slow
def test_the_benchmark_works_from_end_to_end() -> None:
    ended = CliRunner().invoke(command, ["--quick", "--pairs", "1"])
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.output.strip().splitlines()[-1])
    assert found["benchmark"] == "steps"
    assert [row["name"] for row in found["pairings"]] == [*QUICK]
