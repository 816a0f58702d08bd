"""The frame of every page: one HTML file that fetches nothing and runs only its own scripts.

The content security policy allows exactly the scripts written into the page, by their hashes;
all text from data is escaped.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from analysis.charts import palette
from analysis.charts.chart import Chart
from analysis.charts.picks import query_text
from analysis.text.glossary import TERMS, terms_in
from hsweep.files import write_text

_TEMPLATES: Final = Path(__file__).parent / "templates"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["explained"] = explained
    environment.filters["coded"] = coded
    return environment


def explained(text: str) -> Markup:
    """Return escaped text, in which each term is a link to its meaning and shows it on hover."""
    link = Markup('<a class="term" href="#{}" title="{}">{}</a>')
    return Markup("").join(
        escape(part) if term is None else link.format(term.place, term.meaning, part)
        for part, term in terms_in(text)
    )


def coded(text: str) -> Markup:
    """Return escaped text, in which the parts between backticks are code."""
    # As a plain string: what replaces a part of a Markup is escaped.
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def embed(value: object) -> Markup:
    """Return JSON that cannot end the script element it stands in."""
    return htmlsafe_json_dumps(value, allow_nan=False, separators=(",", ":"))


def render(
    template: str,
    charts: Sequence[Chart],
    scripts: Sequence[str],
    *,
    is_served: bool = False,
    **content: Any,
) -> str:
    """Return a page with its charts.

    Args:
        charts: drawn by plotly, whose library the page includes.
        scripts: names of further script files, without ``.js``.
        is_served: whether the page's scripts may request data from the page's own server.
        content: further variables of the template; escaped unless they are `Markup`.
    """
    # Here: what draws it need not be installed for an answer and its charts.
    from analysis.charts.plotly_page import figure_json, plotly_script

    texts = {name: (_TEMPLATES / f"{name}.js").read_text("utf-8") for name in scripts}
    library = plotly_script()
    figures = {chart.name: figure_json(chart) for chart in charts}
    picks = {
        chart.name: [
            {"title": pick.title, "query": query_text(dict(pick.at)), "links": pick.links}
            for pick in chart.picks
        ]
        for chart in charts
        if chart.picks
    }
    return (
        _environment()
        .get_template(template)
        .render(
            charts=charts,
            heights={name: figure["layout"].get("height") for name, figure in figures.items()},
            terms=TERMS,
            figures_json=embed(
                {"figures": figures, "picks": picks, "dark": palette.dark_partners()}
            ),
            css=Markup((_TEMPLATES / "page.css").read_text("utf-8")),
            policy=_content_policy(library, *texts.values(), is_served=is_served),
            plotly_script=Markup(library),
            scripts={name: Markup(text) for name, text in texts.items()},
            **content,
        )
    )


def _content_policy(*scripts: str, is_served: bool) -> str:
    """Return a policy that allows these scripts and the page's styles; if ``is_served``, also
    requests to the page's own server."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    connections = "; connect-src 'self'" if is_served else ""
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'{connections}"
    )


def write_page(page: str, path: Path) -> Path:
    """Write a page to ``path``, whole or not at all, and return ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path
