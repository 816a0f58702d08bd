"""What options take: times, amounts, bytes, settings."""

import contextlib
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsweep.commands.resume import resume
from hsweep.commands.run import run
from hsweep.errors import UserError
from hsweep.options import BYTES, COUNT, DURATION, SETTING
from hsweep.running.options import RunOptions

CLAIM = settings(deadline=None, derandomize=True, max_examples=200)
ANY_TEXT = st.text(max_size=10) | st.text("0123456789.hmskMGTB,_ -=", max_size=8)


def read(kind: click.ParamType[Any], text: str) -> Any:
    return kind.convert(text, None, None)


class TestDuration:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("90", 90),
            ("90s", 90),
            ("30m", 1800),
            ("2h", 7200),
            ("1h30m", 5400),
            ("1h1m1s", 3661),
            ("1.5h", 5400),
            (" 2H ", 7200),
            ("0.5", 0.5),
        ],
    )
    def test_times_are_seconds(self, text: str, seconds: float) -> None:
        assert read(DURATION, text) == seconds

    @pytest.mark.parametrize("text", ["", "soon", "-5", "1m30", "30m2h", "5d", "1e3", "nan", "inf"])
    def test_what_is_no_time_shows_how_to_write_one(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match="is no time; write 90s, 30m, 2h or 1h30m"):
            read(DURATION, text)

    @pytest.mark.parametrize("text", ["0", "0s", "0h0m"])
    def test_no_time_at_all_is_refused(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match="is no time"):
            read(DURATION, text)


class TestCountAndBytes:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("60M", 60_000_000),
            ("1.5G", 1_500_000_000),
            ("200k", 200_000),
            ("200K", 200_000),
            ("1,000", 1000),
            ("1_000", 1000),
            ("0", 0),
            ("9007199254740993", 9007199254740993),
            ("0.1k", 100),
        ],
    )
    def test_prefixes_are_decimal_and_numbers_exact(self, text: str, number: int) -> None:
        assert read(COUNT, text) == number
        assert read(BYTES, text) == number
        assert read(BYTES, f"{text}B") == number

    @pytest.mark.parametrize("text", ["", "many", "-1", "1e6", "5X", "M", "1.2.3", "nan"])
    def test_what_is_no_amount_shows_how_to_write_one(self, text: str) -> None:
        for kind in (COUNT, BYTES):
            with pytest.raises(click.BadParameter, match="is no amount; write 60M"):
                read(kind, text)

    def test_bytes_are_no_count(self) -> None:
        with pytest.raises(click.BadParameter, match="is no amount"):
            read(COUNT, "8GB")


class TestSetting:
    @pytest.mark.parametrize(
        ("text", "setting"),
        [
            ("heads=1,2,4", ("heads", [1, 2, 4])),
            (" lr = 1e-3 ", ("lr", [1e-3])),
            ("data=/some/path=x", ("data", ["/some/path=x"])),
            ("act='gelu'", ("act", ["gelu"])),
        ],
    )
    def test_a_name_and_its_values(self, text: str, setting: tuple[str, list[Any]]) -> None:
        assert read(SETTING, text) == setting

    @pytest.mark.parametrize("text", ["heads", "=1", "heads=", " = ", ""])
    def test_anything_else_shows_the_form(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match="is not of the form NAME=VALUE"):
            read(SETTING, text)


@CLAIM
@given(ANY_TEXT)
def test_any_text_is_a_value_that_can_be_or_refused(text: str) -> None:
    for kind, can_be in (
        (DURATION, lambda seconds: seconds > 0),
        (COUNT, lambda number: isinstance(number, int) and number >= 0),
        (SETTING, lambda setting: setting[0] and isinstance(setting[1], list)),
    ):
        with contextlib.suppress(click.BadParameter, UserError):
            assert can_be(read(kind, text))


def test_run_and_resume_offer_every_option_of_a_run_and_one_definition_has_their_defaults() -> None:
    names = set(RunOptions.__dataclass_fields__)
    defaults = RunOptions()
    for command in (run, resume):
        offered = {each.name: each for each in command.params if each.name in names}
        assert offered.keys() == names
        for name, each in offered.items():
            assert each.default == getattr(defaults, name)
