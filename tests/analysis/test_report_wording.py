"""The answer in one sentence says what was found, how sure it is, and no more than that."""

import dataclasses
import io
import math
import re
from collections.abc import Sequence

import pytest
import report_examples as examples
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console

from analysis.answer import Answer
from analysis.charts.chart import Band
from analysis.questions.lean.result import LeanResult
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.result import TransitionSettings
from analysis.questions.transition.text import numbers_table
from analysis.report.build import build_report
from analysis.runs.tuned import TunedSetting
from analysis.statistics.values import Interval
from analysis.terminal import show_answer
from analysis.text.numbers import (
    MINUS,
    NONE,
    cost_text,
    number_text,
    p_text,
    si_text,
    text_below,
)


def test_a_collapse_names_its_place_its_set_its_drop_and_what_shows_it() -> None:
    headline, place, growth = examples.finding(examples.transition_result()).sentences
    assert headline == (
        "The error collapses at heads = 4: there nmse is about 500 times smaller than at 3. That "
        "is more abrupt than diminishing returns: only 0.4% of declines without a collapse look "
        "so where single values scatter by 15%."
    )
    assert place == "Other seeds would put it at the same place (95% confidence)."
    assert growth == (
        "From there on a larger seq_len does not make the error larger (for a tenfold seq_len, in "
        f"decades: 0.01, 95% interval {MINUS}0.02 to 0.04)."
    )
    wide = examples.sentence(examples.transition_result(h_set=(3, 4, 5)))
    assert "With other seeds it may lie at heads = 3, 4 or 5 (95% confidence)." in wide
    moved = examples.sentence(examples.transition_result(h_star=5, bracket=(4, 5)))
    claim = "at heads = 5: at 4 nmse is about 500 times smaller than at 3, and at 5 it is smaller"
    assert claim in moved
    nats = examples.sentence(examples.transition_result(scale="loss"))
    assert "there nmse (nats) is 2.7 nats lower than at 3." in nats


@pytest.mark.parametrize(
    ("growth", "words"),
    [
        ("gone", "does not make the error larger"),
        ("stays", "still makes the error larger"),
        ("open", "it is not clear yet whether a larger seq_len makes the error larger"),
    ],
)
def test_growth_with_the_length_has_a_word_of_its_own(growth: str, words: str) -> None:
    assert words in examples.sentence(examples.transition_result(growth=growth))


def test_growth_too_small_to_count_is_not_denied() -> None:
    small = examples.sentence(examples.transition_result(gamma_above=Interval(0.05, 0.04, 0.06)))
    assert "hardly makes the error larger (for a tenfold seq_len, in decades: 0.05, " in small
    assert "0.04 to 0.06; up to 0.1 counts as no growth)." in small


def test_a_collapse_that_only_growth_shows_is_not_called_sudden() -> None:
    result = examples.transition_result(
        shown_by="growth", p=None, scatter=None, h_star=2, bracket=(1, 2)
    )
    sentence = examples.sentence(result)
    assert "Growth with seq_len ends there; that the fall is a sudden one is not shown." in sentence
    assert "abrupt" not in sentence


def test_a_later_rise_is_said() -> None:
    sentence = examples.sentence(examples.transition_result(later_rise=(6, 1.2)))
    assert "At heads = 6 the error is larger again, by 1.2 decades." in sentence


def test_a_suggestion_claims_nothing_and_says_what_would_test_it() -> None:
    sentence = examples.sentence(examples.suggested_result())
    assert sentence.startswith("A collapse at heads = 4 is suggested, not tested: the error falls")
    assert "but one seed a cell, so the noise between seeds is not measured." in sentence
    assert "36 more full-budget runs would test it." in sentence
    for claim in ("collapses", "abrupt", "95%", "{4}"):
        assert claim not in sentence
    rows = dict(row for row in numbers_table(examples.suggested_result()).rows)
    assert rows["verdict"] == "suggested, not tested"
    assert rows["95% set"] == "none: one seed a cell"
    assert "effective retrieval dimension" not in rows


def test_a_stated_seed_sd_is_part_of_the_answer() -> None:
    settings = TransitionSettings(max_growth=0.1, assumed_sd=0.05)
    stated = examples.transition_result(n1_assumed_sd=0.05, settings=settings)
    assert examples.sentence(stated).startswith(
        "With a stated seed sd of 0.05 decades: the error collapses at heads = 4"
    )
    measured = examples.transition_result(n1_assumed_sd=None, settings=settings)
    assert examples.sentence(measured).startswith("The error collapses")


def test_what_limits_an_answer_stands_below_it_and_not_among_the_other_warnings() -> None:
    limits = ("3 runs have not ended yet; the answer may change",)
    result = examples.transition_result(qualifications=limits, warnings=("other",))
    answer, command = examples.answer(transition=result), "hsweep run x --only-missing"
    page = build_report(
        examples.report_input(answer=dataclasses.replace(answer, settle_command=command))
    )
    shown = page[page.index('<section id="limits"') : page.index('<details class="fold"')]
    assert "3 runs have not ended yet; the answer may change." in shown
    assert "hsweep run x --only-missing" in shown
    assert page.count("3 runs have not ended yet") == 1
    console = Console(record=True, width=200, file=io.StringIO())
    show_answer(console, answer)
    lines = console.export_text().splitlines()
    assert "3 runs have not ended yet; the answer may change." in lines
    assert sum("3 runs have not ended" in line for line in lines) == 1
    content = answer.to_json()
    assert content["qualifications"].count("3 runs have not ended yet; the answer may change.") == 1
    assert content["warnings"] == ["other"]


def test_a_suggested_drop_is_framed_and_a_claimed_one_shaded() -> None:
    for result in (examples.suggested_result(), examples.transition_result()):
        charts = transition_charts(result)
        (band,) = [layer for layer in charts[0].layers if isinstance(layer, Band)]
        assert band.is_framed == result.suggested
        assert ("suggested, not tested" in charts[0].caption) == band.is_framed


def test_what_is_not_claimed_says_why_and_how_many_runs_are_missing() -> None:
    sentence = examples.sentence(examples.inconclusive_result())
    assert sentence.startswith(
        "Whether the error collapses along heads is open: 2 of 18 cells have no full-budget run."
    )
    assert "6 more full-budget runs would settle it." in sentence
    assert "heads = 4" not in sentence
    none = examples.sentence(examples.transition_result(verdict="none", reason="no abrupt drop"))
    assert none == "No collapse in heads is established: no abrupt drop."


def test_a_found_equivalent_names_shape_saving_interval_and_corrected_p_value() -> None:
    sentence = examples.sentence(examples.lean_result())
    assert "heads=8, depth=4" in sentence
    assert "does as well as heads=8, depth=6, with 33% fewer parameters" in sentence
    assert "it is established as at most 4 points worse in top1" in sentence
    assert re.search(r"Over 5 seeds it is [\d.]+ points? worse \(95% interval: ", sentence)
    assert "A shape that is 4 points worse would pass for as good in at most 0.5% of" in sentence
    assert "counting 5 cheaper shapes (Holm)" in sentence
    in_nats = dataclasses.replace(examples.lean_result(), is_share=False, metric="loss")
    assert "at most 0.04 worse in loss" in examples.sentence(in_nats)


def without_choice(verdict: str, outcomes: Sequence[str], needed: int | None = 9) -> LeanResult:
    """The example with no choice, its candidates' outcomes and the seeds they would take."""
    rows = examples.lean_result().table
    table = tuple(
        dataclasses.replace(row, outcome=outcome, seeds_needed=needed, p_worse=0.01)
        for row, outcome in zip(rows, outcomes, strict=True)
    )
    return examples.lean_result(verdict=verdict, choice=None, table=table)


def test_only_shapes_shown_to_be_worse_are_called_so() -> None:
    none = without_choice("excluded", ["excluded"] * 5)
    assert examples.sentence(none).startswith(
        "Each of the 5 cheaper shapes tried is more than 4 points worse in top1 than the baseline"
    )
    assert "(largest Holm p = 0.01)" in examples.sentence(none)
    assert examples.badge(none) == ("no leaner equivalent", "absent")


def test_what_is_not_established_is_not_called_worse() -> None:
    open_ = without_choice("undecided", ["excluded", *["undecided"] * 4])
    sentence = examples.sentence(open_)
    assert sentence.startswith("Undecided: of the 5 cheaper shapes tried, none is established")
    assert "but 1 is worse by more and 4 are undecided" in sentence
    assert "with a chance of 80% takes 9 seeds of each; there are 5." in sentence
    assert examples.badge(open_) == ("undecided", "unknown")


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        (None, "more than 50 seeds of each: widen the margin"),
        (4, "more likely worse by about the margin"),
    ],
)
def test_an_undecided_answer_says_what_it_would_take(needed: int | None, words: str) -> None:
    assert words in examples.sentence(without_choice("undecided", ["undecided"] * 5, needed))


def test_a_single_undecided_shape_is_spoken_of_as_one() -> None:
    result = without_choice("undecided", ["undecided"] * 5)
    sentence = examples.sentence(dataclasses.replace(result, table=result.table[:1]))
    assert sentence.startswith("Undecided: the cheaper shape tried is neither established")
    assert "nor shown to be worse by more." in sentence


def test_shapes_stopped_early_stand_in_an_undecided_answer() -> None:
    result = dataclasses.replace(without_choice("undecided", ["excluded"] * 5), stopped=("a", "b"))
    sentence = examples.sentence(result)
    assert "of the 7 cheaper shapes tried" in sentence
    assert "2 are not compared, being stopped early" in sentence


def test_what_qualifies_an_answer_stands_in_its_sentence() -> None:
    setting = TunedSetting({"lr": 0.1}, 3, 0, 0, ("lr",), False)
    result = examples.lean_result(
        doubt="it is not known whether the baseline has learned anything",
        nuisance=("lr",),
        baseline_setting=setting,
    )
    sentence = examples.sentence(result)
    assert "at its best lr" in sentence
    assert "It is not known whether the baseline has learned anything." in sentence
    assert "The best setting is the last one tried (lr = 0.1 for the baseline" in sentence


def test_single_runs_are_unsupported_never_a_claim() -> None:
    sentence = examples.sentence(
        examples.lean_result(verdict="unsupported", reason="one run a shape proves nothing.")
    )
    assert sentence == "Unsupported: one run a shape proves nothing."


def test_a_front_counts_the_shapes_of_each_class() -> None:
    sentence = examples.sentence(examples.pareto_result())
    assert "2 of 6 shapes lie on the front: no other shape has both a better top1" in sentence
    assert "lower parameters (each with a probability of at least 0.95)" in sentence
    assert "Of 2 more these seeds do not tell." in sentence


def test_a_sweep_without_a_question_gets_no_verdict() -> None:
    assert "no question" in Answer().text
    page = build_report(examples.report_input(transition=None))
    unfinished = dataclasses.replace(Answer(), unfinished=3)
    waiting = build_report(
        examples.report_input(answer=unfinished, resume_command="hsweep resume x")
    )
    assert "3 runs have not ended yet; the answer may change." in waiting
    assert "hsweep resume x" in waiting
    assert "so far" in waiting
    assert 'class="answer unknown"' in page
    assert 'class="badge' not in page


def test_the_best_point_is_chosen_by_its_seeds_and_not_by_a_lucky_trial() -> None:
    trials = examples.trials_frame()
    lucky, alone = trials["heads"].eq(1), trials["heads"].eq(6)
    trials["nmse"] = 0.5 - 0.01 * trials["heads"] + 0.001 * trials["seed"]
    trials.loc[lucky & trials["seed"].eq(0), "nmse"] = 0.001
    trials.loc[alone, "nmse"] = 0.002
    trials["status"] = ["failed" if left else "finished" for left in alone & trials["seed"].gt(0)]
    single = trials[trials["seed"].eq(0)]
    for among, said in (
        (trials, "Its best point, by the median of its 3 seeds, has nmse 0.451, with heads=5, "),
        (single, "Its best trial has nmse 0.001, with heads=1, "),
    ):
        page = build_report(examples.report_input(transition=None, trials=among))
        assert f"The sweep asks no question. {said}" in re.sub("<[^>]+>", "", page)


@pytest.mark.parametrize(
    ("verdict", "badge"),
    [
        ("collapse", ("collapse at heads = 4", "found")),
        ("none", ("no collapse", "absent")),
        ("open", ("open", "unknown")),
    ],
)
def test_only_an_established_collapse_is_shown_as_found(
    verdict: str, badge: tuple[str, str]
) -> None:
    assert examples.badge(examples.transition_result(verdict=verdict)) == badge


def test_numbers_keep_three_digits_and_a_true_minus_sign() -> None:
    assert number_text(4.0) == "4"
    assert number_text(-0.04999) == f"{MINUS}0.05"
    assert number_text(1234.5) == "1234"
    assert number_text(123456) == "123456"
    assert number_text(0.0000123) == f"1.23e{MINUS}5"
    assert number_text(math.nan) == number_text(None) == NONE


def test_costs_carry_their_unit() -> None:
    assert cost_text("num_params", 86_567_656) == "86.6 M"
    assert cost_text("train_memory_bytes", 3.2e9) == "3.2 GB"
    assert cost_text("wall_seconds", 12.0) == "12 s"
    assert si_text(math.nan) == NONE


def test_a_tiny_p_value_is_a_bound() -> None:
    assert p_text(1e-9) == "p < 0.001"
    assert p_text(None) == "p not computed"


@given(st.floats(min_value=-1e300, max_value=1e300))
def test_a_printed_number_is_within_its_last_digit(value: float) -> None:
    printed = float(number_text(value).replace(MINUS, "-"))
    assert printed == pytest.approx(value, rel=6e-3, abs=1e-300)


@given(limit=st.floats(0.01, 10), share=st.floats(0, 1, exclude_max=True))
def test_what_is_below_a_limit_reads_as_below_it(limit: float, share: float) -> None:
    value = limit * share
    assume(value < limit)
    printed = float(text_below(value, limit))
    assert printed < limit
    assert printed == pytest.approx(value, abs=0.0051)


def test_a_value_below_a_limit_has_no_more_decimals_than_it_needs() -> None:
    assert text_below(0.4961, 0.5) == "0.496"
    assert text_below(0.31, 0.5) == "0.31"
