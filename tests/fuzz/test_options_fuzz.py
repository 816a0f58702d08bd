"""Whatever is typed for an option: a plan, or one line that says what is wrong with it."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fuzzing import at_home, many, refused_or_done, tries
from hypothesis import example, given
from hypothesis import strategies as st

from hsweep.cli import main

SWEEP = """
from hsweep import Lean, grid, lean
from hsweep.design.sweep import preset
from tiny import tiny_sweep

SWEEP = tiny_sweep(
    space=grid(width=[1, 2], dropout=[0.0, 0.1]),
    question=lean({"width": 2, "dropout": 0.0}, 0.1),
    presets={"two": preset(replicates=2)},
)
"""
ANY_TEXT = st.text(st.characters(codec=None), max_size=40)
LITERALS = st.recursive(
    st.one_of(
        st.integers(),
        st.floats(),
        st.booleans(),
        st.none(),
        st.text(max_size=5),
        st.binary(max_size=3),
        st.complex_numbers(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.integers(), inner, max_size=2),
        st.sets(st.integers(), max_size=3),
    ),
    max_leaves=6,
).map(repr)
NASTY = st.sampled_from(
    [
        *("nan", "inf", "-inf", "1e400", "-1e400", "1e-320", "0x" + "f" * 5000, "9" * 5000),
        *("[" * 300, "(" * 300 + ")" * 300, "-" * 5000 + "1", "1," * 3000 + "1", "{[]}", "..."),
        *("'\\ud800'", "'\\x1b[2J'", "'a\\nb'", "[red]", "1if 1else 2", "'\\d'", "\uff11", "1_000"),
        *("10**12", "1000000000000", "99999999999999999999", "1,1", "1.0,1", "True,1", "(1,2)"),
        *("[(1,2),(3,4)]", "((1,),)", "[]", "()", ",", "{}", "f'{1}'", "#", "1#2", "\t", "1\n2"),
        *("range(3)", "__import__('os')", "../../x", "~", "$HOME", "%s", "{0}", "=", "x=y"),
    ]
)
VALUES = st.one_of(ANY_TEXT, LITERALS, NASTY)
NAMES = st.one_of(
    st.sampled_from(
        [
            *("width", "dropout", "epochs", "steps", "seconds", "report_every", "replicates"),
            *("cpus", "gpus", "num_points", "seed", "name", "__class__", "", "Width", "widht"),
            *("recipe.lr", "recipe.betas", "recipe.", "recipe.compile", "recipe.ema.x"),
            *("margin", "costs", "nuisance", "baseline", "baseline.width", "baseline.x", "scale"),
        ]
    ),
    st.text(max_size=8),
)
PLAIN_OPTIONS = (
    *("--seed", "--max-params", "--min-params", "--max-memory", "--max-flops", "--preset"),
    *("--home", "--jump", "--simulated", "--study", "--data-root"),
)
RUN_OPTIONS = (
    *("--runner", "--max-concurrent", "--time-budget", "--tracking-uri", "--storage", "--study"),
    "--nonsense",
)
# Commands that serve pages until they are ended, or train, or ask other machines.
LASTING = ("ui", "watch", "doctor", "run", "resume", "join", "submit", "sync")


@pytest.fixture(scope="module", autouse=True)
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A sweep in an empty folder, which is also where relative paths would lead."""
    with at_home(tmp_path_factory.mktemp("fuzz")) as folder:
        (folder / "tiny_one.py").write_text(SWEEP)
        yield


def plan(*options: str) -> Result:
    return CliRunner().invoke(main, ["plan", "tiny_one.py", *options])


def a_setting(name: str, value: str) -> None:
    if refused_or_done(plan("--set", f"{name}={value}", "--json")):
        # What was planned can be shown, too.
        assert plan("--set", f"{name}={value}").exit_code == 0


def a_point(text: str) -> None:
    refused_or_done(plan("--point", text))


def an_option(option: str, value: str) -> None:
    refused_or_done(plan(f"{option}={value}"))


def a_run(option: str, value: str) -> None:
    # Nothing is trained: every point is refused, after the options have been.
    arguments = ["run", "tiny_one.py", "--max-params", "1", f"{option}={value}"]
    assert not refused_or_done(CliRunner().invoke(main, arguments))


@given(NAMES, VALUES)
@example("width", "1000000000000")
@example("replicates", "1000000000000")
@example("epochs", "0x" + "f" * 5000)
@example("cpus", "0x" + "f" * 5000)
@example("dropout", "'\\ud800'")
@tries(120)
def test_any_setting_is_planned_or_refused(name: str, value: str) -> None:
    a_setting(name, value)


@given(st.one_of(VALUES, st.tuples(NAMES, VALUES).map("=".join)))
@example("width={1}")
@example("width=" + "0x" + "f" * 5000)
@tries(60)
def test_any_point_is_planned_or_refused(text: str) -> None:
    a_point(text)


@given(st.sampled_from(PLAIN_OPTIONS), VALUES)
@example("--min-params", "9" * 5000)
@example("--min-params", "999999999999999999p")
@example("--home", "\udcff")
@tries(80)
def test_any_value_of_an_option_is_taken_or_refused(option: str, value: str) -> None:
    an_option(option, value)


@given(st.sampled_from(RUN_OPTIONS), VALUES)
@example("--time-budget", "9" * 400 + "h")
@tries(40)
def test_options_of_a_run_are_taken_or_refused(option: str, value: str) -> None:
    a_run(option, value)


@given(st.lists(st.one_of(ANY_TEXT, st.sampled_from([*main.commands, *PLAIN_OPTIONS])), max_size=4))
@tries(60)
def test_any_command_line_is_understood_or_refused(words: list[str]) -> None:
    harmless = [word for word in words if word not in LASTING]
    refused_or_done(CliRunner().invoke(main, harmless), done=(0, 1))


@given(NAMES, VALUES)
@many(1200)
def test_any_setting_at_length(name: str, value: str) -> None:
    a_setting(name, value)


@given(st.one_of(VALUES, st.tuples(NAMES, VALUES).map("=".join)))
@many(700)
def test_any_point_at_length(text: str) -> None:
    a_point(text)


@given(st.sampled_from(PLAIN_OPTIONS), VALUES, st.sampled_from(RUN_OPTIONS))
@many(700)
def test_any_option_at_length(option: str, value: str, other: Any) -> None:
    an_option(option, value)
    a_run(other, value)
