"""The page that shows studies side by side: one HTML file, offline, on a phone and in print."""

from pathlib import Path

from markupsafe import Markup

from analysis.charts.plotly_page import plotly_script
from analysis.compare.charts import comparison_charts
from analysis.compare.result import Comparison, StudySide
from analysis.compare.text import comparison_sentences, comparison_tables
from analysis.page import (
    TEMPLATES,
    content_policy,
    embed,
    environment,
    figures_data,
    write_page,
)
from analysis.questions.lean.text import groups_sentences


def build_comparison_page(comparison: Comparison) -> str:
    """Return the whole page as HTML."""
    drawn = comparison_charts(comparison)
    figures = figures_data(drawn)
    script = (TEMPLATES / "report_figures.js").read_text("utf-8")
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            title=", ".join(side.label for side in comparison.studies),
            answers=[(side.label, _sentences(side)) for side in comparison.studies],
            sentences=comparison_sentences(comparison),
            charts=drawn,
            figures=figures["figures"],
            tables=comparison_tables(comparison),
            source_diff=comparison.source_diff,
            hv_note=comparison.hv_note,
            warnings=comparison.warnings,
            css=Markup((TEMPLATES / "report.css").read_text("utf-8")),
            policy=content_policy(plotly_script(), script),
            plotly_script=Markup(plotly_script()),
            figures_script=Markup(script),
            figures_json=embed(figures),
        )
    )


def _sentences(side: StudySide) -> list[str]:
    return [side.answer] if side.lean_groups is None else groups_sentences(side.lean_groups)


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the page to ``path``, whole or not at all, and return ``path``."""
    return write_page(build_comparison_page(comparison), path)
