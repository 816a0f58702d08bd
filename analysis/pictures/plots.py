"""The figures for a paper, in matplotlib: the rows of `analysis.pictures.rows`, drawn and written.

Only the modules whose names end in ``plots`` or ``plotting`` know matplotlib, and they keep none of
its global state.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure

from analysis.pictures.attainment_plots import attainment_figure
from analysis.pictures.conditioning_plots import conditioning_figures
from analysis.pictures.curve_plots import curve_figure
from analysis.pictures.effect_plots import effect_plots, surrogate_plots
from analysis.pictures.front_plots import forest_figure, front_figures
from analysis.pictures.plotting import STYLE
from analysis.pictures.rows import forest_blocks
from analysis.pictures.transition_plots import transition_figures
from analysis.report import ReportInput

FORMATS: Final = ("png", "svg", "pdf")


def save_figures(
    report_input: ReportInput, folder: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw every picture and write each in every format, as ``folder/NAME.FORMAT``.

    Args:
        report_input: the finished study.
        folder: made if it is not there.
        formats: any of png, svg and pdf.

    Returns:
        The files written, in order; empty where nothing can be drawn.

    Raises:
        ValueError: an unknown format.
    """
    for name in formats:
        if name not in FORMATS:
            raise ValueError(f"formats must be among {', '.join(FORMATS)}; got {name!r}")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context(STYLE), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; the other figures are whole.
        warnings.filterwarnings("ignore", message=".*missing from font", category=UserWarning)
        for stem, figure in figures(report_input):
            for suffix in formats:
                path = folder / f"{stem}.{suffix}"
                figure.savefig(path, format=suffix, metadata=_undated(suffix))
                written.append(path)
    return written


def _undated(suffix: str) -> dict[str, Any]:
    """Return metadata that keep the date out of the file."""
    return {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})


def figures(report_input: ReportInput) -> list[tuple[str, Figure]]:
    """Return every figure with the name of its files, in the report's order."""
    found: list[tuple[str, Figure]] = []
    if report_input.transition is not None:
        found += transition_figures(report_input.transition)
    for front in report_input.fronts:
        found += front_figures(front)
        if spread := attainment_figure(front.result):
            found.append((front.named("spread-of-runs"), spread))
    if forest := forest_figure(forest_blocks(report_input.comparisons)):
        found.append(("candidates", forest))
    if report_input.conditioning is not None:
        found += conditioning_figures(report_input.conditioning)
    if report_input.effects is not None:
        found += effect_plots(report_input.effects)
    if report_input.surrogate is not None:
        found += surrogate_plots(report_input.surrogate)
    curves = curve_figure(
        report_input.learning_curves(), report_input.metric, report_input.budget_unit
    )
    if curves is not None:
        found.append(("learning-curves", curves))
    return found
