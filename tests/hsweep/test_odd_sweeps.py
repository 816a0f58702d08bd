"""What a slip of the keyboard makes of a sweep, each with the words that say so."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tiny import TinyModel, TinyTask, tiny_sweep

from hsweep import Transition, grid, int_range, lean, log_uniform, random_search, uniform, zipped
from hsweep.design.budget import Budget, epochs
from hsweep.design.search import Search
from hsweep.errors import UserError, format_error, shown, unknown_name
from hsweep.planning.plan import MAX_TRIALS, make_plan
from tasks.base import Metric


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


LOOP: list[Any] = []
LOOP.append(LOOP)


@dataclass(frozen=True)
class Looped(TinyModel):
    more: Any = field(default_factory=lambda: LOOP)


class LeavingTask(TinyTask):
    def fingerprint(self) -> str:
        sys.exit(3)


class Nameless(TinyTask):
    @property
    def metrics(self) -> Any:
        return (1, 2)


class Directionless(TinyTask):
    @property
    def metrics(self) -> Any:
        return (Metric("nmse", "less", "error", "x"),)  # type: ignore[arg-type]


class Unscaled(TinyTask):
    @property
    def metrics(self) -> Any:
        return (Metric("nmse", "min", "log", "x"),)  # type: ignore[arg-type]


def leave(*given: Any) -> Any:
    sys.exit(0)


def planned(**changes: Any) -> None:
    make_plan(tiny_sweep(**changes), preset="quick", study_seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": 5}, r"budget must be epochs\(...\), steps\(...\) or seconds\(...\), not 5"),
        ({"metric": 5}, "metric must be the name of a metric, not 5"),
        ({"question": "heads"}, "question must be a Transition"),
        ({"early_stopping": 3}, r"early_stopping must be an Asha\(...\), a Median\(...\) or None"),
        ({"search": None}, r"search must be grid_search\(\), adaptive_search\(\)"),
        ({"max_failures": "x"}, "max_failures must be a whole number"),
        ({"max_failures": True}, "max_failures must be a whole number"),
        ({"report_timeout": 10**10}, "report_timeout must be a positive number of seconds up to"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds must be a number of at least 0"),
        ({"presets": 5}, "presets must be a dictionary"),
        ({"replicates": True}, "replicates must be .* at least 1, not True"),
        ({"replicates": 10**12}, "a study has at most 100,000 trials"),
        ({"search": random_search(10**12), "space": uniform(width=(1, 2))}, "at most 100,000"),
        ({"question": lean({"width": 1}, 0.1, nuisance=("lr",))}, "unknown nuisance axis .* 'lr'"),
        ({"model": leave}, "model function failed at .*: SystemExit"),
        ({"space": grid(width=[1]).where(leave)}, r"a where\(...\) function .* SystemExit"),
        ({"space": grid(width=[1]).derive(a=leave)}, r"a derive.* function .* SystemExit"),
        ({"model": lambda p: Looped(p.width)}, "holds itself, or nests without end"),
        (
            {"model": lambda p: Odd()},
            "model must be an nn.Module, or a model configuration: .* got a Odd",
        ),
        ({"task": LeavingTask()}, "task cannot be used: SystemExit"),
        ({"task": Directionless()}, "the goal of metric 'nmse' of task 'tiny' must be 'min' or"),
        ({"task": Unscaled()}, "of task 'tiny' must be 'error', 'accuracy', 'loss' or"),
        ({"task": Nameless()}, "task cannot be used: AttributeError"),
    ],
)
def test_a_field_that_cannot_be_is_refused_in_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        planned(**changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: grid(width=range(10**12)), "lists at most 100,000 values"),
        (lambda: grid(width=[10**400]), "at most 300 digits"),
        (lambda: grid(word=["\ud800"]), "text without control characters"),
        (lambda: grid(word=["\x1b[2J"]), r"text without control characters; got '\\x1b\[2J'"),
        (lambda: grid(word=["a\u2028b"]), "text without control characters"),
        (lambda: int_range(width=(0, 10**30)), "at most 62 bits"),
        (lambda: uniform(width=("a", "b")), "finite numbers low < high; got low='a'"),
        (lambda: log_uniform(width=(True, 2)), "finite numbers low < high; got low=True"),
        (lambda: zipped(a=[1] * 3), "listed twice"),
        (lambda: Budget(10**13), "at most 1,000,000,000,000"),
        (lambda: epochs(10**9), "more than 1,000,000 times; raise report_every to at least 1,000"),
        (lambda: Transition("heads", "heads"), "different axes"),
        (lambda: Transition(5), "x must name an axis"),  # type: ignore[arg-type]
        (lambda: Transition(eval_size=0), "eval_size must be a whole number"),
        (lambda: Transition(scale="x"), "scale must be"),  # type: ignore[arg-type]
        (lambda: lean({}, 1.0), "baseline must be axes with"),
        (lambda: lean({"heads": 1}, 1.0, costs=()), "costs must be a tuple of columns"),
        *(
            (lambda margin=margin: lean({"heads": 1}, margin), "margin must be positive")
            for margin in (0.0, -0.01, float("nan"), float("inf"))
        ),
        (lambda: lean({"heads": 1}, 1.0, nuisance="lr"), r"tuple of axes, as \('lr',\), not 'lr'"),  # type: ignore[arg-type]
        (lambda: lean({"heads": 1}, 1.0, nuisance=(3,)), "nuisance must name an axis"),  # type: ignore[arg-type]
        (lambda: lean({"lr": 1}, 1.0, nuisance=("lr",)), "'lr' is named by the baseline"),
        (lambda: lean({"h": 1}, 1.0, within="a", nuisance=("a",)), "parts the comparisons"),
        (lambda: lean({"h": 1}, 1.0, costs=("c",), nuisance=("c",)), "'c' is a cost"),
        (lambda: lean({"h": 1}, 1.0, nuisance=("a", "a")), "names an axis twice"),
        (lambda: Search("random", 2.5), "num_points of a random search must be a whole number"),  # type: ignore[arg-type]
        (lambda: Search("optuna", 2, (("a", "x"),)), "also must be pairs"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_where_it_is_made(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_a_space_without_end_is_refused_without_listing_it() -> None:
    space = grid(width=[1]) * int_range(a=(1, 10**6), b=(1, 10**6))
    with pytest.raises(UserError, match="1,000,000,000,000 combinations, of which at most"):
        space.points()
    assert len(space.sample(3, seed=0)) == 3
    # Sums are counted as sums, whatever a sampler has to choose from.
    sides = int_range(a=(1, 2000)) + int_range(a=(2001, 4000))
    assert len(list(sides.points())) == 4000


def test_many_values_are_told_apart_quickly() -> None:
    assert len(grid(width=range(MAX_TRIALS)).axes) == 1
    with pytest.raises(UserError, match="listed twice"):
        grid(width=[*range(50_000), 7])


def test_an_error_can_quote_anything() -> None:
    assert shown(Odd()) == "a Odd"
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("x" * 10**6)) < 400
    assert format_error(OddError()) == "OddError"
    assert format_error(KeyError("a")) == "KeyError: 'a'"
    assert "unknown axis 5; known: 1, heads" in str(unknown_name("axis", 5, ["heads", 1]))


def test_a_docstring_that_is_none_is_no_note(hsweep: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text("from tiny import tiny_sweep\n__doc__ = 5\nSWEEP = tiny_sweep()")
    assert hsweep("plan", file).exit_code == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--set", "width=0x" + "f" * 500), "at most 300 digits"),
        (("--set", "width={1}"), "axis values are numbers, strings"),
        (("--set", "width=1e999"), "axis values are finite"),
        (("--set", "replicates=1000000000000"), "at most 100,000 trials"),
        (("--point", "width={1}"), "axis values are numbers, strings"),
        (("--min-params", "9" * 500), "is no amount; write 60M, 1.5G or 200k, below"),
        (("--seed", "9" * 100), "--seed"),
    ],
)
def test_options_without_end_are_refused(
    hsweep: Callable[..., Result], tmp_path: Path, given: tuple[str, str], message: str
) -> None:
    file = tmp_path / "odd.py"
    file.write_text("from tiny import tiny_sweep\nSWEEP = tiny_sweep()")
    result = hsweep("plan", file, *given)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_a_time_without_end_is_refused(hsweep: Callable[..., Result], tmp_path: Path) -> None:
    result = hsweep("run", tmp_path / "odd.py", "--time-budget", "9" * 400 + "h")
    assert result.exit_code == 2
    assert "up to 100,000h" in result.stderr
