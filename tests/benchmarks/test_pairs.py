"""Two sides in turn: the ratio, the bar, and what is printed."""

import json
from typing import Literal

import click
import pytest
from click.testing import CliRunner

from benchmarks.pairs import (
    Pairing,
    Quantity,
    environment,
    in_process,
    in_turn,
    show,
)


def pairing(
    *pairs: tuple[float, float], is_better: Literal["less", "more"] = "less", bar: float = 1.0
) -> Pairing:
    return Pairing("a study", "ours", "theirs", "s", is_better, pairs, bar)


def test_less_is_better_where_their_time_is_longer() -> None:
    assert pairing((2.0, 6.0)).ratio == 3.0


def test_more_is_better_where_our_rate_is_higher() -> None:
    assert pairing((6.0, 2.0), is_better="more").ratio == 3.0


def test_the_median_of_the_pairs_ratios_counts_and_not_the_ratio_of_the_medians() -> None:
    # The machine was three times slower during the second pair, for both sides.
    found = pairing((1.0, 2.0), (3.0, 6.0), (1.0, 8.0))
    assert found.ratio == 2.0
    assert found.range == (2.0, 8.0)


def test_a_bar_is_missed_below_and_reached_at_it() -> None:
    assert not pairing((1.0, 5.9), bar=6.0).holds
    assert pairing((1.0, 6.0), bar=6.0).holds


@pytest.mark.parametrize("pairs", [(), ((1.0, 0.0),), ((float("nan"), 1.0),)])
def test_pairs_that_have_no_ratio_are_refused(pairs: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="a study: "):
        pairing(*pairs)


def test_every_second_pair_begins_with_the_other_side() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = in_turn(lambda: side("ours"), lambda: side("theirs"), 3)
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert found == ((1.0, 2.0), (4.0, 3.0), (5.0, 6.0))


def test_no_pair_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 pair"):
        in_turn(lambda: 1.0, lambda: 1.0, 0)


def test_one_table_and_one_line_of_json_are_printed() -> None:
    @click.command()
    def command() -> None:
        show(
            "study",
            [pairing((1.0, 5.0), bar=6.0)],
            environment(),
            quantities=[Quantity("share outside steps", 0.04, "", 0.05)],
            strict=True,
        )

    ended = CliRunner().invoke(command)
    assert ended.exit_code == 1
    printed = ended.output.strip().splitlines()
    assert sum(line.startswith("| --- |") for line in printed) == 1
    row = next(line for line in printed if line.startswith("| a study"))
    assert "5.00x" in row
    assert "at least 6x" in row
    assert row.endswith("| missed |")
    found = json.loads(printed[-1])
    assert found["holds"] is False
    assert found["pairings"][0]["pairs"] == [[1.0, 5.0]]
    assert found["quantities"][0]["holds"] is True
    assert {"versions", "cpu", "cores", "omp_threads", "load_average"} <= found[
        "environment"
    ].keys()


def test_a_side_has_a_process_of_its_own_and_its_variables() -> None:
    program = "import json, os; print('before'); print(json.dumps({'x': os.environ['SIDE']}))"
    ended = in_process(["-c", program], variables={"SIDE": "ours"})
    assert ended.result == {"x": "ours"}
    assert ended.seconds >= ended.cpu_seconds > 0
    assert ended.peak_mb > 1


def test_a_side_that_fails_says_what_it_said() -> None:
    with pytest.raises(RuntimeError, match="no grid"):
        in_process(["-c", "raise SystemExit('no grid')"])
