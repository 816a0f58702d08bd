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

from analysis.pictures.curve_plots import curve_figure
from analysis.pictures.plotting import STYLE
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
    findings, trials = report_input.answer.findings, report_input.trials
    found = [figure for finding in findings for figure in finding.print_figures(trials)]
    curves = curve_figure(
        report_input.learning_curves(), report_input.metric, report_input.budget_unit
    )
    if curves is not None:
        found.append(("learning-curves", curves))
    return found
