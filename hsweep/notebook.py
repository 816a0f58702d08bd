"""A study in Python, as in a notebook: ``hsweep.load("my_heads-quick")``."""

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsweep.errors import unknown_name
from hsweep.paths import Home
from hsweep.trained import Trial

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    import plotly.graph_objects as go

    from analysis.answer import Answer
    from analysis.charts.chart import Chart
    from hsweep.record.study import Study as Record


def load(name: str, home: str | Path | None = None) -> "Study":
    """Return the study called ``name``, as it stands.

    Args:
        home: the folder that holds it; by default HSWEEP_HOME, else ``hsweep-home`` here.

    Raises:
        UserError: there is none of that name, or it cannot be read.
    """
    from hsweep.record.study import Study as Record

    return Study(Record.open(home_at(home), name))


def home_at(folder: str | Path | None) -> Home:
    """Return a home; None for HSWEEP_HOME, else ``hsweep-home`` here."""
    root = Path(folder or os.environ.get("HSWEEP_HOME") or "hsweep-home")
    return Home(root.expanduser().absolute())


class Study:
    """A study on disk; get one by ``hsweep.load`` or ``hsweep.run``.

    What is asked of it is read from its record, also while it runs.
    """

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._read: tuple[int, Answer, list[Chart]] | None = None

    def __repr__(self) -> str:
        return f"<study {self.name} in {self._record.paths.home}>"

    def _repr_html_(self) -> str:
        status = self._record.status()
        still_open = status["not_needed"] + status["planned"] + status["running"]
        ended = status["trials"] - still_open
        failed = f", {status['failed']} of them failed" if status["failed"] else ""
        return (
            f"<b>{html.escape(self.name)}</b>: {status['state']}, {ended} of {status['runs']} "
            f"runs ended{failed}<br><code>{html.escape(status['folder'])}</code>"
        )

    @property
    def name(self) -> str:
        """The study's name."""
        return self._record.name

    @property
    def status(self) -> dict[str, Any]:
        """Its state (``running``, ``complete`` or ``interrupted``), and how many of its trials have
        which status."""
        return self._record.status()

    @property
    def trials(self) -> "pd.DataFrame":
        """One row a trial, in the order of the plan: its key, axes and seed, how it stands, the
        metrics of its last report, what it costs."""
        with self._record.reading() as tables:
            return tables.trials_frame()

    @property
    def reports(self) -> "pd.DataFrame":
        """One row a report, in the order they were recorded: its trial's key, axes, seed and
        budget, the budget units done, its metrics."""
        with self._record.reading() as tables:
            trials, reports = tables.trials_frame(), tables.reports.to_pandas()
        of_trial = ["key", *self._axes(trials), "seed", "budget"]
        joined: pd.DataFrame = trials[of_trial].merge(reports, on="key", how="right")
        return joined

    def best(self, number: int = 5) -> "pd.DataFrame":
        """Return the rows of the ``number`` best trials by the study's metric, the best first, of
        those that have finished."""
        manifest, trials = self._record.manifest, self.trials
        finished = trials.loc[trials["status"].eq("finished") & trials[manifest.metric].notna()]
        # Of equal ones the first of the plan, as everywhere.
        ranked = finished.sort_values(
            manifest.metric, ascending=manifest.goal == "min", kind="stable", ignore_index=True
        )
        return ranked.head(number)

    def trial(self, name: str) -> Trial:
        """Return the trial with this key, or the beginning of one, or called so in tables
        (``heads=2 #0``).

        Raises:
            UserError: there is none, or there are several.
        """
        from hsweep.record.trial_names import trial_named

        return Trial(self._record, trial_named(self._record, name, orphaned=True))

    def answer(self) -> "Answer":
        """Return what the study says to its question so far: ``print`` shows it in words,
        ``to_json()`` has the numbers."""
        return self._analysed()[0]

    @property
    def figures(self) -> tuple[str, ...]:
        """The kinds of figure that the study has numbers for, as its report shows them."""
        return tuple(chart.name for chart in self._analysed()[1])

    def figure(self, kind: str | None = None) -> "go.Figure":
        """Return a figure of the report; a notebook shows it.

        Args:
            kind: one of ``figures``; by default the first.

        Raises:
            UserError: there is none of that kind.
        """
        from analysis.charts.plotly_page import standalone_figure

        charts = {chart.name: chart for chart in self._analysed()[1]}
        name = next(iter(charts), "") if kind is None else kind
        if name not in charts:
            raise unknown_name(f"figure of the study {self.name!r}", name, charts)
        return standalone_figure(charts[name])

    def to_optuna(
        self, storage: "str | optuna.storages.BaseStorage | None" = None
    ) -> "optuna.Study":
        """Return the trials as a study of Optuna, for its plots and for optuna-dashboard.

        Each trial keeps its axes as parameters, its reports as intermediate values, and its key,
        seed, budget and costs as user attributes. One that was stopped early is pruned; one that
        diverged or failed has failed; one that waits is enqueued.

        Args:
            storage: where Optuna keeps it, such as ``sqlite:///optuna.db``; None for memory.

        Raises:
            UserError: the storage has a study of that name.
        """
        from hsweep.optuna_study import optuna_study

        with self._record.reading() as tables:
            return optuna_study(self._record.manifest, tables, storage)

    def delete(self) -> None:
        """Remove the study from its home, as ``hsweep delete`` does.

        Raises:
            UserError: it is running, or cannot be removed.
        """
        from hsweep.record.removal import remove

        remove(self._record.paths)

    def _axes(self, trials: "pd.DataFrame") -> list[str]:
        return [axis for axis in self._record.manifest.axes if axis in trials]

    def _analysed(self) -> "tuple[Answer, list[Chart]]":
        """Return the answer and the charts, worked out again where there is news on record."""
        from analysis.ask import answer_study
        from analysis.report.build import report_charts, report_input

        with self._record.reading() as tables:
            if self._read is None or self._read[0] != tables.last_seq:
                answer = answer_study(self._record, tables)
                charts = report_charts(report_input(self._record, answer, {}, tables))
                self._read = tables.last_seq, answer, charts
        return self._read[1:]
