"""Sweeps and studies in Python: ``hsweep.plan``, ``hsweep.run``, ``hsweep.load``."""

import html
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.command_line import command, recorded_as
from hsweep.errors import UserError, refusing_briefly, unknown_name
from hsweep.paths import Home
from hsweep.trained import StudyTrial

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    import plotly.graph_objects as go
    from rich.console import Console

    from analysis.answer import Answer
    from analysis.charts.chart import Chart
    from hsweep.design.sweep import Sweep
    from hsweep.planning.plan import Plan
    from hsweep.planning.prepare import Prepared
    from hsweep.record.study import StudyFolder as Record

_WIDTH: Final = 120
_AS_TEXT: Final = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'


def studies(home: str | Path | None = None) -> "pd.DataFrame":
    """Return one row a study of the home, the newest first: its name, state and how many of its
    trials have which status.

    Args:
        home: the folder that holds them; by default HSWEEP_HOME, else ``hsweep-home`` here.
    """
    import pandas as pd

    from hsweep.record.study import statuses

    rows = pd.DataFrame(statuses(home_at(home)))
    return rows.set_index("study") if len(rows) else rows


@refusing_briefly
def load(name: str, home: str | Path | None = None) -> "Study":
    """Return the study called ``name``, as it stands.

    Args:
        home: the folder that holds it; by default HSWEEP_HOME, else ``hsweep-home`` here.

    Raises:
        UserError: there is none of that name, or it cannot be read.
    """
    from hsweep.record.study import StudyFolder as Record

    return Study(Record.open(home_at(home), name))


def home_at(folder: str | Path | None) -> Home:
    """Return a home; None for HSWEEP_HOME, else ``hsweep-home`` here."""
    root = Path(folder or os.environ.get("HSWEEP_HOME") or "hsweep-home")
    return Home(root.expanduser().absolute())


@refusing_briefly
def plan(
    sweep: "Sweep | str | Path", *, home: str | Path | None = None, **options: Any
) -> "Planned":
    """Plan every trial of a sweep before any trains: shape, parameters, FLOPs, memory.

    Args:
        sweep: a ``SWEEP`` of this script, of a module or of a notebook's cells, the path of a
            sweep file, or the name of one that comes with hsweep.
        home: where measured speeds are kept; by default HSWEEP_HOME, else ``hsweep-home`` here.
        options: those of ``hsweep plan`` about the sweep, by their names in Python: preset,
            settings (a dictionary: ``{"heads": [1, 2], "epochs": 5}``), points, seed, max_params,
            min_params, max_memory, max_flops.

    Raises:
        UserError: the sweep, an option or the plan cannot be used.
    """
    from hsweep.options import options_from
    from hsweep.planning.options import SweepOptions
    from hsweep.planning.prepare import prepare
    from hsweep.sweep_from_python import sweep_file_of
    from hsweep.telemetry import disable_telemetry

    disable_telemetry()
    (sweep_options,) = options_from(options, SweepOptions)
    with sweep_file_of(sweep) as file:
        prepared = prepare(file.path, sweep_options, siblings=file.folder)
        file.check(prepared.loaded.sweep)
        return Planned(prepared, home_at(home))


@refusing_briefly
def run(
    sweep: "Sweep | str | Path",
    *,
    study: str | None = None,
    home: str | Path | None = None,
    **options: Any,
) -> "Study":
    """Plan a sweep, train it, print the answer to its question and return the study.

    An existing study of that name goes on: finished trials stay. If the sweep or its options have
    changed since, the changes to its trials are printed first; trials that are no longer in the
    sweep are set aside with their results. The study of a notebook keeps the statements that its
    sweep needs, so that ``hsweep resume`` can go on with it.

    Args:
        sweep: as for ``plan``.
        study: the study's name; by default that of the sweep and its preset.
        home: where studies are kept; by default HSWEEP_HOME, else ``hsweep-home`` here.
        options: those of ``plan`` and of ``hsweep run``, by their names in Python:
            ``runner="inline"``, ``time_budget="30m"``, ``storage="s3://bucket/folder"``,
            ``tags={"team": "vision"}``, ...

    Raises:
        UserError: what ``hsweep run`` would refuse, or no trial has finished.
        KeyboardInterrupt: the run was interrupted; all that was reported is on record.
    """
    from hsweep.commands.conclusion import Conclusion
    from hsweep.commands.output import console_for
    from hsweep.options import option_words, options_from
    from hsweep.planning.options import SweepOptions
    from hsweep.running.options import RunOptions, StudyOptions
    from hsweep.running.run import run as run_job
    from hsweep.running.start import request
    from hsweep.sweep_from_python import sweep_file_of
    from hsweep.telemetry import disable_telemetry

    disable_telemetry()
    kinds = SweepOptions, RunOptions, StudyOptions
    sweep_options, run_options, beginning = options_from(options, *kinds)
    ray = sys.modules.get("ray")
    if run_options.runner == "ray" and ray is not None and ray.is_initialized():
        raise UserError(  # it would be taken over, and ended
            "this process is connected to a Ray of its own, and a study starts one; call "
            'ray.shutdown() first, or give runner="inline"'
        )
    place, console = home_at(home), console_for(as_json=False)
    with sweep_file_of(sweep) as file:
        order = request(
            file.path, sweep_options, run_options, place, study, beginning, siblings=file.folder
        )
        file.check(order.loaded.sweep)
        source = place.study(order.name).sweep_source if file.is_copy else file.path
        with recorded_as(["hsweep", "run", str(source), *option_words(sweep_options)]):
            job = order.change(run_options, console)
            order.confirm(job)
            conclusion = Conclusion(job.target, console)
            record, outcome = run_job(job, run_options, place, console, conclusion, is_guest=True)
    conclusion.print_places(record, outcome, place)
    if outcome.was_interrupted:
        raise KeyboardInterrupt(f"the study {order.name} has been interrupted")
    if outcome.is_in_trouble or not outcome.has_results:
        name, why = order.name, outcome.stop_reason or "no trial has finished"
        raise UserError(
            f"{why}; what is on record of {name} is in hsweep.load({name!r}), and what failed "
            f"attempts raised in `{command('show', name, '--errors', home=place.root)}`"
        )
    return Study(record)


class Planned:
    """A planned sweep, as ``hsweep.plan`` returns it; printed, it is what ``hsweep plan`` shows.

    Attributes:
        estimated_seconds: of training in all, by what was measured here; None where nothing was.
    """

    def __init__(self, prepared: "Prepared", home: Home) -> None:
        from hsweep.running.forecast import forecast

        self._plan: Plan = prepared.plan
        self._expected = forecast(self._plan, home)
        self.estimated_seconds = self._expected.seconds

    @property
    def trials(self) -> "pd.DataFrame":
        """One row a trial: its key, axes, seed and budget, its parameters, FLOPs and bytes."""
        return self._rows("trials")

    @property
    def skipped(self) -> "pd.DataFrame":
        """One row a point that is not run, with the reason."""
        return self._rows("skipped")

    def _rows(self, group: str) -> "pd.DataFrame":
        import pandas as pd

        rows = self._plan.to_json()[group]
        points = pd.DataFrame([row.pop("point") for row in rows])
        return pd.concat([points, pd.DataFrame(rows)], axis="columns")

    def __repr__(self) -> str:
        return self._printed().export_text().rstrip()

    def _repr_html_(self) -> str:
        return self._printed().export_html(inline_styles=True, code_format=_AS_TEXT)

    def _printed(self) -> "Console":
        from hsweep.commands.plan import show_plan
        from hsweep.terminal import PlainConsole

        console = PlainConsole(record=True, file=io.StringIO(), width=_WIDTH, force_jupyter=False)
        show_plan(console, self._plan, self._expected)
        return console


class Study:
    """A study on disk; get one by ``hsweep.load`` or ``hsweep.run``.

    Its properties and methods read its record, also while it runs.
    """

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._read: tuple[int, Answer, list[Chart]] | None = None

    def __repr__(self) -> str:
        from hsweep.record.summary import num_ended

        try:
            status = self._record.status()
        except UserError as error:  # deleted since, or unreadable: a debugger asks, too
            return f"<study {self.name}: {error}>"
        failed = f", {status['failed']} of them failed" if status["failed"] else ""
        runs = f"{num_ended(status)} of {status['runs']} runs ended{failed}"
        return f"<study {self.name} in {self._record.paths.home}: {status['state']}, {runs}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how it stands, its answer and the figure behind that."""
        stand = f"<p><code>{html.escape(repr(self).strip('<>'))}</code></p>"
        try:
            return stand + self.answer()._repr_html_()
        except UserError:
            return stand

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
        axes = [axis for axis in self._record.manifest.axes if axis in trials]
        of_trial = ["key", *axes, "seed", "budget"]
        table: pd.DataFrame = trials[of_trial].merge(reports, on="key", how="right")
        return table

    @property
    def points(self) -> "pd.DataFrame":
        """One row a point, in the order of the plan: its axes, how many seeds have their full
        budget, and the mean of the study's metric over these, with sd, lowest and highest."""
        from analysis.questions.base import StudyRuns
        from analysis.runs.statuses import FULL

        manifest = self._record.manifest
        with self._record.reading() as tables:
            trials = StudyRuns(manifest, tables).trials
        axes = [axis for axis in manifest.axes if axis in trials]
        full = trials[manifest.metric].where(trials["status"].isin(FULL))
        by = full.groupby([trials[axis] for axis in axes], dropna=False, sort=False)
        table: pd.DataFrame = by.agg(["count", "mean", "std", "min", "max"]).reset_index()
        return table.set_axis(
            [*axes, "seeds", manifest.metric, "sd", "lowest", "highest"], axis="columns"
        )

    def best(self, number: int = 5) -> "pd.DataFrame":
        """Return the rows of the ``number`` best trials by the study's metric, the best first, of
        those that have finished."""
        with self._record.reading() as tables:
            best = tables.journal.best_trials(number, self._record.manifest)
            trials = tables.trials_frame().set_index("key", drop=False)
        return trials.loc[[row.key for row in best]].reset_index(drop=True)

    @refusing_briefly
    def trial(self, name: str) -> StudyTrial:
        """Return the trial with this key, or the beginning of one, or called so in tables
        (``heads=2 #0``).

        Raises:
            UserError: there is none, or there are several.
        """
        return StudyTrial(self._record, self._record.trial_named(name, orphaned=True))

    def answer(self) -> "Answer":
        """Return what the study says to its question so far: ``print`` shows it in words,
        ``to_json()`` has the numbers."""
        return self._analysis()[0]

    @refusing_briefly
    def analyze(self, kind: str, **options: Any) -> "Answer":
        """Return what the study says to another question than its own, as ``hsweep analyze --kind``
        does: ``analyze("pareto", cost="flops_per_example")``.

        Args:
            kind: ``transition``, ``lean``, ``pareto``, ``effects`` or ``conditioning``.
            options: those of the command, by their names in Python: ``cost`` and ``nuisance`` (one
                column, or a list), ``baseline`` (a dictionary of axis values), ``margin``, ``x``,
                ``by``, ``scale``, and ``settings``, a dictionary.

        Raises:
            UserError: there is no such question or option, or it cannot be answered.
        """
        from analysis.ask import ask_study, asked_in_python

        return ask_study(self._record, *asked_in_python(kind, options))

    @property
    def report(self) -> Path:
        """The file of its report, written again with what is on record now."""
        from hsweep.commands.conclusion import write_study_report
        from hsweep.tracking.target import target_of

        target = target_of(self._record, home_at(self._record.paths.home))
        with self._record.reading() as tables:
            return write_study_report(self._record, self.answer(), target, tables)

    @property
    def figures(self) -> tuple[str, ...]:
        """The kinds of figure that the study has numbers for, as its report shows them."""
        return tuple(chart.name for chart in self._analysis()[1])

    @refusing_briefly
    def figure(self, kind: str | None = None) -> "go.Figure":
        """Return a figure of the report; a notebook shows it.

        Args:
            kind: one of ``figures``; by default the first.

        Raises:
            UserError: there is none of that kind.
        """
        from analysis.charts.plotly_page import standalone_figure

        charts = {chart.name: chart for chart in self._analysis()[1]}
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

    def _analysis(self) -> "tuple[Answer, list[Chart]]":
        """Return the answer and the charts, worked out again where there is news on record."""
        from analysis.ask import answer_study
        from analysis.report.build import report_charts, report_input
        from hsweep.planning.prepare import own_question

        with self._record.reading() as tables:
            if self._read is None or self._read[0] != tables.journal.last_seq():
                answer = answer_study(self._record, tables, own=own_question(self._record))
                charts = report_charts(report_input(self._record, answer, {}, tables))
                self._read = tables.journal.last_seq(), answer, charts
        return self._read[1:]
