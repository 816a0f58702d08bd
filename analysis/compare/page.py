"""The page that shows studies side by side: one HTML file, offline, on a phone and in print."""

from pathlib import Path

from analysis.compare.charts import comparison_charts
from analysis.compare.result import Comparison
from analysis.compare.text import comparison_sentences, comparison_tables
from analysis.report.page import render, write_page
from analysis.text.numbers import sentence


def build_comparison_page(comparison: Comparison) -> str:
    labels = ", ".join(side.label for side in comparison.studies)
    return render(
        "compare.html.j2",
        comparison_charts(comparison),
        ("page", "figures"),
        title=f"{labels} · hsweep comparison",
        labels=labels,
        answers=[(side.label, side.answer) for side in comparison.studies],
        sentences=comparison_sentences(comparison),
        tables=comparison_tables(comparison),
        source_diff=comparison.source_diff,
        hv_note=sentence(comparison.front_note),
        warnings=comparison.warnings,
    )


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the page to ``path``, whole or not at all, and return ``path``."""
    return write_page(build_comparison_page(comparison), path)
