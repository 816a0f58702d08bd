"""The page is one file that says what was found, escapes what it is given and fetches nothing."""

import dataclasses
import os
import re
import stat
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import report_examples as examples
from markupsafe import Markup

from analysis.charts import palette
from analysis.charts.chart import Band
from analysis.charts.plotly_page import figure_json
from analysis.report.build import (
    ReportInput,
    build_report,
    paragraphs,
    report_charts,
    write_report,
)
from analysis.report.page import coded, explained
from analysis.text.glossary import TERMS as TERMS_EXPLAINED
from analysis.text.glossary import terms_in

ATTACK = "<script>window.injected = 1</script><img src=x onerror='window.injected = 2'>"


class Page(HTMLParser):
    """Collects elements, attributes and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._silent = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text += data


INPUTS = {
    "transition": examples.report_input,
    "none": lambda: examples.report_input(
        transition=examples.transition_result(verdict="none", reason="no abrupt drop")
    ),
    "inconclusive": lambda: examples.report_input(transition=examples.inconclusive_result()),
    "nothing read": lambda: examples.report_input(transition=examples.empty_result()),
    "one length": lambda: examples.report_input(
        transition=examples.transition_result(by=None, gamma={}, gamma_below=None, gamma_above=None)
    ),
    "lean": examples.lean_input,
    "several comparisons": examples.groups_input,
    "front only": lambda: examples.lean_input(lean=None),
    "empty front": lambda: examples.lean_input(lean=None, pareto=examples.pareto_result(table=())),
    "no question": lambda: examples.report_input(transition=None),
    "no trials": lambda: examples.report_input(
        transition=None, trials=pd.DataFrame(), reports=pd.DataFrame()
    ),
    "bare trials": lambda: examples.report_input(
        transition=None,
        trials=pd.DataFrame({"key": ["a"], "status": ["failed"]}),
        reports=pd.DataFrame(),
    ),
}


@cache
def page_of(name: str) -> str:
    """The page of one of the inputs."""
    return build_report(INPUTS[name]())


@cache
def parsed(name: str) -> Page:
    return Page(page_of(name))


@pytest.mark.parametrize("name", INPUTS)
def test_every_kind_of_study_gets_a_whole_page(name: str) -> None:
    report_input: ReportInput = INPUTS[name]()
    page = parsed(name)
    # Several comparisons stand in a list, whose lines the parser keeps.
    answer = report_input.answer
    is_asked = answer.leading is not None and not answer.instead
    for said in answer.sentences if is_asked else ["asks no question"]:
        assert " ".join(said.split()) in " ".join(page.text.split())
    headings = ("What qualifies it", "What to do next", "Trials", "Warnings", "Repeat the study")
    for heading in headings:
        assert heading in page.text
    assert report_input.repeat_command in page.text


def test_the_answer_comes_first_and_the_rest_is_folded_by_kind() -> None:
    html = page_of("transition")
    places = [
        html.index(text)
        for text in (
            "<h1>How many heads does retrieval need?</h1>",
            "The error collapses ",
            'data-figure="error"',
            "What qualifies it",
            "What to do next",
            *('<details class="fold" id="trials"', '<details class="fold" id="curves"'),
            *('<details class="fold" id="part-1"', '<details class="fold" id="endings"'),
            *('<details class="fold" id="warnings"', '<details class="fold" id="about"'),
            '<details class="fold" id="words"',
        )
    ]
    assert places == sorted(places)
    assert "<details open" not in html
    assert html.count('data-figure="error"') == 1


TERMS = re.compile(
    r"decade|bracket|95% set|nats|Holm|\bp [=<]|P\(front\)|\bcells?\b|AICc|slope|h\*"
)


@pytest.mark.parametrize("name", INPUTS)
def test_the_first_screen_uses_no_term_that_it_does_not_explain(name: str) -> None:
    html = page_of(name)
    first = html[html.index("<header>") : html.index('<details class="fold"')]
    assert "<h1>" in first
    plain = re.sub(r'<a class="term"[^>]* title="[^"]+">[^<]*</a>', "", first)
    # A term that stands twice in a text is explained where it first stands.
    blocks = re.findall(r"<(?:p|li|figcaption)[^>]*>(.*?)</(?:p|li|figcaption)>", first, re.DOTALL)
    for block in blocks:
        explained = {word.lower() for word in re.findall(r'class="term"[^>]*>([^<]*)<', block)}
        for found in TERMS.findall(re.sub(r"<[^>]*>", "", block)):
            assert any(found.lower().split(" ")[0] in word for word in explained), (found, block)
    assert "decade" not in plain


def test_every_term_is_found_where_it_stands_and_leads_to_its_meaning() -> None:
    text = "An abrupt drop of 2 decades, 95% set {3}, bracket (2, 3], Holm p < 0.001; 3 decades."
    terms = [(part, term.name) for part, term in terms_in(text) if term is not None]
    assert terms == [
        *(("abrupt", "abrupt"), ("decades", "decade"), ("95% set", "95% set")),
        *(("bracket", "bracket"), ("Holm p", "Holm")),
    ]
    assert "".join(part for part, _ in terms_in(text)) == text
    assert [part for part, term in terms_in("reset step-size nation") if term] == []
    of_a_space = "2 points: 2 runs; ended with 2 of 5 points: refused; 3 points were skipped"
    assert [part for part, term in terms_in(of_a_space) if term] == []
    assert [term.name for part, term in terms_in("66 points higher") if term] == ["point"]
    assert explained("<b> & nats") == Markup(
        f'&lt;b&gt; &amp; <a class="term" href="#word-nat" title="{TERM_OF["nat"]}">nats</a>'
    )


def test_code_between_backticks_is_marked_and_the_rest_is_escaped() -> None:
    assert coded("`a < b` & c") == "<code>a &lt; b</code> &amp; c"


TERM_OF = {term.name: term.meaning for term in TERMS_EXPLAINED}


def test_the_page_names_no_address_to_fetch_from() -> None:
    page = parsed("lean")
    fetched = [v for n, v in page.attributes if n in ("src", "srcset", "action", "poster")]
    links = [value for name, value in page.attributes if name == "href"]
    assert fetched == []
    assert all(link.startswith(("#", "data:")) for link in links)


def test_plotly_is_embedded_once_and_only_where_there_is_a_figure() -> None:
    assert page_of("transition").count("plotly.js v") == 1
    empty = page_of("no trials")
    assert "plotly.js v" not in empty
    assert "No trial has reported nmse yet" in empty


def test_text_from_data_cannot_become_markup() -> None:
    trials = examples.trials_frame().astype({"heads": object})
    trials.loc[0, ["reason", "heads", "stratum", "mlflow_url"]] = ATTACK
    hostile = examples.report_input(
        study=ATTACK,
        sweep=ATTACK,
        preset=ATTACK,
        question=f"{ATTACK}\n\n{ATTACK}",
        axes=("heads", ATTACK),
        trials=trials,
        warnings=(ATTACK,),
        provenance={ATTACK: {ATTACK: ATTACK}},
        repeat_command=ATTACK,
        budget_unit=ATTACK,
        transition=examples.transition_result(
            x=ATTACK, by=ATTACK, metric=ATTACK, reason=ATTACK, warnings=(ATTACK,)
        ),
    )
    clean, attacked = parsed("transition"), Page(build_report(hostile))
    assert attacked.tags.count("script") == clean.tags.count("script")
    assert "img" not in attacked.tags
    assert not any(name.startswith("on") for name, _ in attacked.attributes)
    assert ATTACK in attacked.text


def test_labels_of_shapes_are_escaped_for_plotly_too() -> None:
    front = examples.pareto_result()
    rows = tuple(dataclasses.replace(row, label="<a href=x>shape</a>") for row in front.table)
    report_input = examples.lean_input(pareto=examples.pareto_result(table=rows), lean=None)
    (chart,) = report_charts(report_input)
    traces = figure_json(chart)["data"]
    hovers = [text for trace in traces for text in trace.get("hovertext", ())]
    assert hovers
    assert all("<a href" not in text for text in hovers)
    assert all("&lt;a href=x&gt;" in text for text in hovers)


def test_a_transition_shows_two_charts_and_the_learning_curves() -> None:
    names = [chart.name for chart in report_charts(examples.report_input())]
    assert names == ["error", "slopes", "learning-curves"]


def test_shapes_show_a_front_for_each_cost_and_the_forest() -> None:
    names = [chart.name for chart in report_charts(examples.lean_input())]
    assert names == ["candidates", "front-num_params"]


def test_each_of_several_comparisons_has_a_forest_of_its_own() -> None:
    drawn = {chart.name: chart for chart in report_charts(examples.groups_input())}
    for family in ("vit", "xcit"):
        forest = drawn[f"candidates-family-{family}"]
        assert forest.title.endswith(f"family = {family}")
        assert sum(len(series.points) for series in forest.series) == 5
        assert all(dict(pick.at)["family"] == family for pick in forest.picks)
    front = drawn["front-num_params"].series
    marked = {series.name: len(series.points) for series in front}
    assert (marked["baseline"], marked["chosen"]) == (2, 1)


def test_every_point_of_a_run_or_a_shape_leads_to_its_trials_and_pages() -> None:
    for report_input, name in (
        (examples.report_input(), "error"),
        (examples.report_input(), "learning-curves"),
        (examples.lean_input(), "front-num_params"),
    ):
        (chart,) = (one for one in report_charts(report_input) if one.name == name)
        traces = figure_json(chart)["data"]
        numbers = [at for trace in traces for at in trace.get("customdata", ())]
        assert set(numbers) == set(range(len(chart.picks)))
        linked = [pick for pick in chart.picks if pick.links]
        assert len(linked) > 0.9 * len(chart.picks)
        assert all(address.startswith("https://") for pick in linked for _, address in pick.links)


def test_every_link_within_the_page_leads_somewhere() -> None:
    for page in map(parsed, ("transition", "several comparisons")):
        places = {value for name, value in page.attributes if name == "id"}
        links = {
            value[1:] for name, value in page.attributes if name == "href" and value[:1] == "#"
        }
        assert len(links) >= 7
        assert links <= places


def test_the_page_of_ten_thousand_trials_stays_small() -> None:
    trials = pd.concat([examples.trials_frame()] * 186, ignore_index=True)
    trials["key"] = [f"{number:016x}" for number in range(len(trials))]
    few = page_of("transition")
    many = examples.report_input(trials=trials, reports=examples.reports_frame(trials))
    html = build_report(many)
    assert len(html) - len(few) < 4_000_000
    tags = Page(html).tags
    assert len(tags) < len(parsed("transition").tags) + 50


def test_tables_of_many_shapes_are_cut_and_say_so() -> None:
    row = examples.pareto_result().table[0]
    rows = tuple(
        dataclasses.replace(row, label=f"shape {number}", p_front=number / 2000)
        for number in range(2000)
    )
    front = examples.pareto_result(table=rows)
    page = Page(build_report(examples.lean_input(pareto=front, lean=None)))
    assert page.tags.count("tr") < 500
    assert "The first 200 of 2,000 rows; analysis.json holds them all." in page.text
    assert "shape 1999" in page.text
    assert "shape 1000" not in page.text


def test_the_bracket_is_shaded_only_where_a_verdict_claims_one() -> None:
    def shaded(verdict: str) -> bool:
        result = examples.transition_result(verdict=verdict)
        error = report_charts(examples.report_input(transition=result))[0]
        return any(isinstance(layer, Band) for layer in error.layers)

    assert shaded("collapse")
    assert not shaded("none")
    assert not shaded("open")


def test_a_docstring_becomes_prose_without_breaks_and_commands_as_they_stand() -> None:
    blocks = paragraphs("How many\n    heads?\n\n    hsweep run x\n      --more\n\n\nEnd.\n")
    assert [(block.text, block.is_code) for block in blocks] == [
        ("How many heads?", False),
        ("hsweep run x\n  --more", True),
        ("End.", False),
    ]


def test_every_chart_says_how_to_read_it_and_names_both_axes() -> None:
    for chart in (*report_charts(examples.report_input()), *report_charts(examples.lean_input())):
        assert chart.caption.endswith(".")
        assert chart.x.title
        assert chart.y.title or chart.y.kind == "rows"


def test_every_colour_of_a_figure_has_a_dark_partner() -> None:
    partners = palette.dark_partners()
    for chart in (*report_charts(examples.report_input()), *report_charts(examples.lean_input())):
        colours = set(re.findall(r"#[0-9a-fA-F]{6}\b", str(figure_json(chart))))
        assert colours
        assert colours <= set(partners)


def test_warnings_of_study_and_result_are_listed_once() -> None:
    result = examples.transition_result(warnings=("few seeds", "one node went away"))
    page = build_report(examples.report_input(transition=result))
    listed = page[
        page.index('<ul class="warnings">') : page.index('<details class="fold" id="about"')
    ]
    shown = [re.sub("<[^>]*>", "", text) for text in re.findall("<li>(.*)</li>", listed)]
    assert shown == ["one node went away", "few seeds"]


def test_the_same_study_gives_the_same_page() -> None:
    assert build_report(examples.report_input()) == page_of("transition")


def test_the_file_appears_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "study" / "report.html"
    assert write_report(examples.report_input(), target) == target
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    assert target.read_text("utf-8").rstrip().endswith("</html>")


def test_who_may_read_the_file_follows_from_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        page = write_report(examples.report_input(), tmp_path / "report.html")
    finally:
        os.umask(before)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_a_failed_write_keeps_the_old_page(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    lone_surrogate = examples.report_input(study="\ud800")
    with pytest.raises(UnicodeEncodeError):
        write_report(lone_surrogate, target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
