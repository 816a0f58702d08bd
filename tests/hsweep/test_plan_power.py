"""``plan --power``: what a sweep can find, told before it is run and again at the noise seen."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from hsweep import Sweep, Transition, grid, lean
from hsweep.paths import Home

HEADS = """from hsweep import Transition, grid
from tiny import tiny_sweep

SWEEP = tiny_sweep(
    space=grid(width=[1, 2, 3, 4, 5]), replicates=2, question=Transition(x="width", by=None)
)
"""
SHAPES = """from hsweep import grid, lean
from tiny import tiny_sweep

SWEEP = tiny_sweep(
    space=grid(width=[2, 4, 6, 8]), replicates=4, question=lean({"width": 8}, margin=0.05)
)
"""

Invoke = Callable[..., Result]


@pytest.fixture
def plan(hsweep: Invoke, tmp_path: Path) -> Invoke:
    """Plan a sweep of the given source."""

    def invoke(source: str, *arguments: object) -> Result:
        path = tmp_path / "question.py"
        path.write_text(source)
        return hsweep("plan", path, "--power", *arguments)

    return invoke


def record(home: Home, sweep: Sweep, sd: float) -> None:
    home.create()
    study = new_study(home, "mine", sweep)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            width, rng = trial.point.width, np.random.default_rng([trial.ordinal])
            error = 10 ** (-0.4 * width - 2.0 * (width >= 4) + sd * rng.standard_normal())
            finish(journal, trial, float(error))


def test_the_own_design_is_in_the_table_and_a_smallest_one_is_recommended(plan: Invoke) -> None:
    result = plan(HEADS, "--jump", 1.5, "--simulated", 4)
    assert result.exit_code == 0, result.output
    assert "2 seeds (this sweep)" in result.output
    assert "Noise assumed: nothing has been run yet" in result.output
    assert "For a jump of 1.5 decades the smallest design with power of at least 80%" in (
        result.output
    )


def test_json_holds_the_plan_and_its_power(plan: Invoke) -> None:
    content = json.loads(plan(HEADS, "--jump", 1.5, "--simulated", 3, "--json").stdout)
    assert content["totals"]["trials"] == 10
    power = content["power"]
    assert power["settings"]["sweeps"] == 3
    assert [row["trials"] for row in power["table"] if row["design"]["is_own"]] == [10]
    assert set(power["recommended"]) == {"1.5"}


def test_a_study_gives_the_noise_and_the_place_of_the_collapse(plan: Invoke, home: Home) -> None:
    record(
        home,
        tiny_sweep(
            space=grid(width=[1, 2, 3, 4, 5]),
            replicates=4,
            question=Transition(x="width", by=None),
        ),
        sd=0.03,
    )
    options = ("--study", "mine", "--jump", 1.5, "--simulated", 2, "--json")
    power = json.loads(plan(HEADS, *options).stdout)["power"]
    assert power["noise"]["source"] == "seen in 20 full-budget runs"
    assert power["noise"]["seed_sd"] == pytest.approx(0.03, rel=0.5)
    assert power["collapse"]["h_star"] == 4


def test_a_lean_question_counts_its_cheaper_shapes(plan: Invoke, home: Home) -> None:
    power = json.loads(plan(SHAPES, "--json").stdout)["power"]
    assert (power["candidates"], power["own_seeds"], power["sd"]) == (3, 4, None)
    assert plan(SHAPES).output.count("seeds (this sweep)") == 1


def test_settings_of_a_nuisance_axis_are_no_candidates(plan: Invoke, home: Home) -> None:
    rates = SHAPES.replace("space=grid(", "space=grid(lr=[0.1, 0.01]) * grid(").replace(
        "margin=0.05", "margin=0.05, nuisance=('lr',)"
    )
    assert rates.count("lr") == 2
    rates = rates.replace("replicates", "recipe=lambda p: Recipe(lr=p.lr), replicates")
    power = json.loads(plan(rates.replace("import", "import Recipe,", 1), "--json").stdout)["power"]
    assert power["candidates"] == 3


def test_a_lean_study_gives_its_seed_sd(plan: Invoke, home: Home) -> None:
    sweep = tiny_sweep(
        space=grid(width=[2, 4, 6, 8]), replicates=4, question=lean({"width": 8}, margin=0.05)
    )
    record(home, sweep, sd=0.05)
    power = json.loads(plan(SHAPES, "--study", "mine", "--json").stdout)["power"]
    assert power["sd"] > 0
    assert list(power["power"]) == [repr(power["margin"] / power["sd"])]


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ("from tiny import tiny_sweep\nSWEEP = tiny_sweep()\n", [], "asks no question"),
        (HEADS, ["--study", "nowhere"], "no study called 'nowhere'"),
        (HEADS, ["--jump", -1], "a jump must be above 0"),
        (HEADS, ["--set", "width=3"], "width has one value"),
    ],
)
def test_what_has_no_power_says_why(
    plan: Invoke, source: str, arguments: list[object], message: str
) -> None:
    result = plan(source, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_another_question_s_noise_is_refused(plan: Invoke, home: Home) -> None:
    record(home, tiny_sweep(question=lean({"width": 3}, margin=0.1)), sd=0.1)
    result = plan(HEADS, "--study", "mine")
    assert result.exit_code == 2
    assert "asks a Lean question" in result.stderr


def test_its_options_mean_nothing_without_it(hsweep: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "question.py"
    path.write_text(HEADS)
    result = hsweep("plan", path, "--jump", 1)
    assert (result.exit_code, "belong to --power" in result.stderr) == (2, True)


TUNED = """from hsweep import Asha, Recipe, Transition, grid
from tiny import tiny_sweep

SWEEP = tiny_sweep(
    space=grid(width=[1, 2, 3, 4, 5]) * grid(lr=[0.001, 0.01, 0.1]), replicates=4,
    recipe=lambda point: Recipe(lr=point.lr, batch_size=8),
    question=Transition(x="width", by=None, nuisance=("lr",)), early_stopping=STOPPING,
)
"""


def test_seeds_that_choose_a_rate_do_not_count_and_those_that_cross_scatter_more(
    plan: Invoke,
) -> None:
    asked = ("--jump", 1.5, "--simulated", 3, "--json")
    found = {}
    for name, stopping in (("scouts", "Asha(scouts=1)"), ("crossed", "None")):
        shown = plan(TUNED.replace("STOPPING", stopping), *asked)
        assert shown.exit_code == 0, shown.output
        found[name] = json.loads(shown.stdout)["power"]
    own = {
        name: next(row for row in power["table"] if row["design"]["is_own"])
        for name, power in found.items()
    }
    # Five widths: three rates by one scout each and three more seeds; or four seeds at each rate.
    assert (own["scouts"]["design"]["seeds"], own["scouts"]["trials"]) == (3, 5 * (3 + 3))
    assert (own["crossed"]["design"]["seeds"], own["crossed"]["trials"]) == (4, 5 * 4 * 3)
    assert found["crossed"]["choice"] == {"settings": 3, "scouts": 0}
    lean_source = TUNED.replace(
        'Transition(x="width", by=None, ', 'lean({"width": 5}, margin=0.05, '
    )
    lean_source = lean_source.replace("Transition, grid", "grid, lean").replace("STOPPING", "None")
    tuned = json.loads(plan(lean_source, "--json").stdout)["power"]
    single = lean_source.replace("[0.001, 0.01, 0.1]", "[0.01]")
    fixed = json.loads(plan(single, "--json").stdout)["power"]
    assert tuned["power"]["2"]["4"] < fixed["power"]["2"]["4"]
