"""The answer in one sentence says what was found, how sure it is, and no more than that."""

import dataclasses
import io
import math
from collections.abc import Sequence
from typing import Any

import pytest
import report_examples as examples
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console

from analysis.answer import Answer
from analysis.charts.chart import Band
from analysis.questions.lean.group_text import plain_groups
from analysis.questions.lean.plain import plain_lean
from analysis.questions.lean.result import LeanGroups, LeanResult
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.plain import plain_transition
from analysis.questions.transition.result import (
    MissingTrials,
    TransitionResult,
    TransitionSettings,
)
from analysis.questions.transition.text import reading_table
from analysis.report.build import build_report
from analysis.runs.tuned import TunedSetting
from analysis.statistics.values import Interval
from analysis.terminal import show_answer
from analysis.text.numbers import (
    MINUS,
    NONE,
    chance_text,
    cost_text,
    number_text,
    p_text,
    si_text,
    text_below,
)


def test_a_transition_names_its_place_its_set_its_drop_and_its_p_value() -> None:
    sentence = examples.sentence(examples.transition_result())
    assert "collapses at heads = 4" in sentence
    assert "95% set {4}" in sentence
    assert "bracket (3, 4]" in sentence
    assert "2.7 decades" in sentence
    assert "p = 0.004" in sentence
    assert "no longer grows with seq_len" in sentence
    assert f"95% interval {MINUS}0.02 to 0.04" in sentence


def test_growth_that_is_only_not_shown_is_not_called_absent() -> None:
    unsure = examples.transition_result(gamma_above=Interval(0.05, -0.1, 0.2))
    sentence = examples.sentence(unsure)
    assert "no longer grows" not in sentence
    assert "neither shown nor excluded" in sentence


def test_a_jump_says_that_growth_goes_on() -> None:
    jump = examples.transition_result(verdict="jump_only", gamma_above=Interval(0.4, 0.3, 0.5))
    sentence = examples.sentence(jump)
    assert "still grows with seq_len" in sentence
    assert "not a full transition" in sentence


def test_a_threshold_says_that_abruptness_could_not_be_tested() -> None:
    threshold = examples.transition_result(
        verdict="threshold", abrupt_testable=False, p_abrupt=None, h_star=2, bracket=(1, 2)
    )
    sentence = examples.sentence(threshold)
    assert "cannot be tested for abruptness" in sentence
    assert "a transition is not claimed" in sentence
    assert "collapses" not in sentence


def test_a_suggestion_claims_nothing_and_says_what_would_test_it() -> None:
    sentence = examples.sentence(examples.suggested_result())
    assert sentence.startswith("A collapse at heads = 4 is suggested, not tested: one seed a cell")
    assert "p = 0.004 if seeds scatter by 0.1 decades, which is assumed" in sentence
    assert "36 more full-budget trials would test it: three seeds in every cell." in sentence
    for claim in ("collapses", "abruptly", "95%", "bracket", "{4}"):
        assert claim not in sentence
    few = examples.suggested_result(n1_assumed_sd=None, noise_gap="3 of 18 cells hold two runs")
    assert "3 of 18 cells hold two runs" in examples.sentence(few)
    assert "p = 0.004 by the few seeds there are" in examples.sentence(few)


def test_a_suggestion_has_no_set_no_dimension_and_no_test_in_the_tables() -> None:
    rows = dict(row for row in reading_table(examples.suggested_result()).rows)
    assert rows["verdict"] == "suggested"
    assert rows["95% set"] == "none: one seed a cell"
    assert rows["abruptness, p"] == "0.004 if seeds scatter by 0.1 decades (no test)"
    assert "effective retrieval dimension" not in rows
    plateau = dict(row for row in reading_table(examples.plateau_result()).rows)
    assert plateau["effective retrieval dimension"] == "at most 2"


def test_a_plateau_says_what_is_known_and_what_would_tell_more() -> None:
    sentence = examples.sentence(examples.plateau_result())
    assert sentence.startswith("A plateau from heads = 2 on: the error drops by 2.7 decades")
    assert "larger values lower it by no more than 0.12 decades (95% bound)" in sentence
    assert "there it still grows with seq_len" in sentence
    assert "cannot be told from diminishing returns, and heads has no smaller value" in sentence
    assert "above the largest" not in sentence
    wanted = (MissingTrials(1, 8, 3, "below"), MissingTrials(3, 8, 3, "below"))
    room = examples.plateau_result(bracket=(2, 4), h_star=4, missing=wanted)
    assert "6 trials at heads = 1, 3 would tell" in examples.sentence(room)


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
    result = examples.transition_result(qualifications=limits, warnings=(*limits, "other"))
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
    assert lines[1] == "3 runs have not ended yet; the answer may change."
    assert sum("3 runs have not ended" in line for line in lines) == 1
    content = answer.to_json()
    assert content["qualifications"] == ["3 runs have not ended yet; the answer may change."]
    assert content["warnings"] == ["other"]


def test_a_suggested_drop_is_framed_and_not_shaded() -> None:
    for result in (examples.suggested_result(), examples.plateau_result()):
        charts = transition_charts(result)
        (band,) = [layer for layer in charts[0].layers if isinstance(layer, Band)]
        assert band.is_framed == (result.verdict == "suggested")
        assert ("suggested, not tested" in charts[0].caption) == band.is_framed
        assert ("location" in [chart.name for chart in charts]) == (result.verdict == "plateau")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("above_range", "above the largest heads"),
        ("below_range", "Either the smallest heads tried is enough or none tried is"),
    ],
)
def test_no_transition_says_where_one_could_still_be(kind: str, words: str) -> None:
    none = examples.transition_result(verdict="none", reason="no abrupt drop", none_kind=kind)
    sentence = examples.sentence(none)
    assert sentence.startswith("No transition in heads is established: no abrupt drop.")
    assert words in sentence


def test_an_inconclusive_sweep_says_why_and_how_many_trials_are_missing() -> None:
    sentence = examples.sentence(examples.inconclusive_result())
    assert sentence.startswith("Inconclusive: 2 of 18 cells have no full-budget run.")
    assert "6 more full-budget trials" in sentence
    assert "heads = 4" not in sentence


def test_a_found_equivalent_names_shape_saving_interval_and_corrected_p_value() -> None:
    sentence = examples.sentence(examples.lean_result())
    assert "heads=8, depth=4" in sentence
    assert "33.3% of parameters" in sentence
    assert "Holm p = 0.005 over 5 cheaper shapes, 5 seeds" in sentence
    assert "95% interval" in sentence


def without_choice(verdict: str, outcomes: Sequence[str], needed: int | None = 9) -> LeanResult:
    """The example with no choice, its candidates' outcomes and the seeds they would take."""
    rows = examples.lean_result().table
    table = tuple(
        dataclasses.replace(row, outcome=outcome, seeds_needed=needed, p_worse=0.01)
        for row, outcome in zip(rows, outcomes, strict=True)
    )
    return examples.lean_result(verdict=verdict, choice=None, choice_config=None, table=table)


def test_only_shapes_shown_to_be_worse_are_called_so() -> None:
    none = without_choice("excluded", ["excluded"] * 5)
    assert examples.sentence(none).startswith(
        "Each of the 5 cheaper shapes tried is worse than the"
    )
    assert "(largest Holm p = 0.01)" in examples.sentence(none)
    assert examples.badge(none) == ("no leaner equivalent", "absent")


def test_what_is_not_established_is_not_called_worse() -> None:
    open_ = without_choice("undecided", ["excluded", *["undecided"] * 4])
    sentence = examples.sentence(open_)
    assert sentence.startswith("Undecided: of the 5 cheaper shapes tried, none is established")
    assert "but 1 is worse by more, 4 are undecided" in sentence
    assert "with a power of 80% takes 9 seeds of each; there are 5." in sentence
    assert examples.badge(open_) == ("undecided", "unknown")


@pytest.mark.parametrize(
    ("needed", "words"),
    [(None, "more than 50 seeds of each: widen the margin"), (4, "more likely somewhat worse")],
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
    assert "2 were stopped early and not compared" in sentence


def test_what_qualifies_an_answer_stands_in_its_sentence() -> None:
    setting = TunedSetting({"lr": 0.1}, 3, 0, 0, ("lr",), False)
    result = examples.lean_result(
        doubt="it is not known whether the baseline has learned anything",
        nuisance=("lr",),
        baseline_setting=setting,
    )
    sentence = examples.sentence(result)
    assert "each shape at its best lr" in sentence
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


def test_an_empty_front_says_so() -> None:
    assert "no front" in examples.sentence(examples.pareto_result(table=()))


def test_a_sweep_without_a_question_gets_no_verdict() -> None:
    assert "no question" in Answer().text
    page = build_report(examples.report_input(transition=None))
    assert "The sweep asks no question. Its best trial has nmse " in page
    unfinished = dataclasses.replace(Answer(), unfinished=3)
    waiting = build_report(
        examples.report_input(answer=unfinished, resume_command="hsweep resume x")
    )
    assert "3 runs have not ended yet; the answer may change." in waiting
    assert "hsweep resume x" in waiting
    assert "so far" in waiting
    assert 'class="answer unknown"' in page
    assert 'class="badge' not in page


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [
        ("transition", "found"),
        ("jump_only", "partial"),
        ("threshold", "partial"),
        ("plateau", "partial"),
        ("suggested", "unknown"),
        ("none", "absent"),
        ("inconclusive", "unknown"),
    ],
)
def test_only_an_established_transition_is_shown_as_found(verdict: str, tone: str) -> None:
    assert examples.badge(examples.transition_result(verdict=verdict))[1] == tone


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


def plain(result: Any) -> list[str]:
    if isinstance(result, TransitionResult):
        return plain_transition(result)
    return plain_groups(result) if isinstance(result, LeanGroups) else plain_lean(result)


def test_a_collapse_in_everyday_words_claims_what_the_exact_sentence_claims() -> None:
    headline, *rest = plain(examples.transition_result())
    assert headline == (
        "The error collapses at heads = 4: there nmse is about 500 times smaller than at 3."
    )
    assert rest == [
        "Other seeds would put it at the same place (95% confidence).",
        "The fall is a sudden one: without one, about 1 in 250 such studies would show a fall as "
        "abrupt.",
        "From there on, a larger seq_len does not make the error larger.",
    ]
    unsure = plain(examples.transition_result(h_set=(3, 4, 5), gamma_above=Interval(0.05, -0.1, 1)))
    assert "With other seeds it may lie at heads = 3, 4 or 5 (95% confidence)." in unsure
    assert any("is not clear yet" in text for text in unsure)
    nats = plain(examples.transition_result(scale="loss"))[0]
    assert nats.endswith("there nmse (nats) is 2.7 nats lower than at 3.")


@pytest.mark.parametrize(
    ("result", "said", "not_said"),
    [
        (examples.suggested_result(), "may collapse at heads = 4, which is not tested", "sudden"),
        (examples.plateau_result(), "From heads = 2 on, more heads gains little", "collapses"),
        (examples.inconclusive_result(), "Inconclusive: 2 of 18 cells", "smaller than"),
        (
            examples.transition_result(verdict="threshold"),
            "That the fall is a sudden one is not shown",
            "collapses",
        ),
        (
            examples.transition_result(verdict="none", reason="no abrupt drop"),
            "No transition in heads is established",
            "collapses",
        ),
    ],
)
def test_what_is_not_claimed_is_not_claimed_in_everyday_words(
    result: Any, said: str, not_said: str
) -> None:
    text = " ".join(plain(result))
    assert said in text
    assert not_said not in text


def test_a_lean_choice_in_everyday_words_says_what_as_well_means() -> None:
    result = examples.lean_result()
    headline, meaning, chance, *_ = plain(result)
    assert headline == (
        "heads=8, depth=4 does as well as heads=8, depth=6, with 33% fewer parameters."
    )
    assert "worse by less than 0.04 in top1, the margin" in meaning
    assert "0.024 worse on average" in meaning
    assert "0.032 worse to 0.016 worse; 5 seeds" in meaning
    assert chance == (
        "Were it worse by the margin, about 1 in 200 such studies would make it look this good."
    )
    groups = plain(examples.lean_groups())
    assert groups[:4] == [
        "A cheaper shape does as well as its baseline in 1 of 3 comparisons, one for each family; "
        "in 1 none tried does and 1 is undecided.",
        "vit: heads=8, depth=4, with 33% fewer parameters.",
        "xcit: every cheaper shape tried is worse.",
        "deit: no answer, the baseline has no full-budget run.",
    ]
    undecided = plain(dataclasses.replace(result, verdict="undecided", choice=None))
    assert undecided[0].startswith("The runs do not tell yet whether any of the 5 cheaper shapes")


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0004, "fewer than 1 in 1,000"), (0.004, "about 1 in 250"), (0.31, "about 3 in 10")],
)
def test_a_p_value_is_a_count_of_studies(p: float, text: str) -> None:
    assert chance_text(p) == text
