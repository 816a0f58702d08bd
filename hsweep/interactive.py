"""Planning and running a sweep from a script or a notebook: ``hsweep.plan``, ``hsweep.run``."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.command_line import command, recorded_as
from hsweep.errors import UserError
from hsweep.notebook import Study, home_at, load

__all__ = ["load", "plan", "run"]

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from hsweep.design.sweep import Sweep
    from hsweep.given_sweep import GivenSweep
    from hsweep.paths import Home
    from hsweep.planning.options import SweepOptions
    from hsweep.planning.plan import Plan
    from hsweep.planning.prepare import Prepared
    from hsweep.running.options import RunOptions

_WIDTH: Final = 120
_AS_TEXT: Final = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'


class Planned:
    """A planned sweep, as ``hsweep.plan`` returns it; printed, it is what ``hsweep plan`` shows.

    Attributes:
        estimated_seconds: of training in all, by what was measured here; None where nothing was.
    """

    def __init__(self, prepared: "Prepared", home: "Home") -> None:
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

    def _rows(self, what: str) -> "pd.DataFrame":
        import pandas as pd

        rows = self._plan.to_json()[what]
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


def plan(sweep: "Sweep | str | Path", *, home: str | Path | None = None, **options: Any) -> Planned:
    """Plan every trial of a sweep before any trains: shape, parameters, FLOPs, memory.

    Args:
        sweep: a ``SWEEP`` of this script, of a module or of a notebook's cells, the path of a
            sweep file, or the name of one that comes with hsweep.
        home: where measured speeds are kept; by default HSWEEP_HOME, else ``hsweep-home`` here.
        options: those of ``hsweep plan`` that choose of a sweep, by their names in Python: preset,
            settings (a dictionary: ``{"heads": [1, 2], "epochs": 5}``), points, seed, max_params,
            min_params, max_memory, max_flops.

    Raises:
        UserError: anything about the sweep, the options or the plan.
    """
    from hsweep.given_sweep import sweep_given
    from hsweep.options import options_from
    from hsweep.planning.options import SweepOptions
    from hsweep.quiet import no_calls_home

    no_calls_home()
    (chosen,) = options_from(options, SweepOptions)
    with sweep_given(sweep) as given:
        return Planned(_prepared(given, chosen), home_at(home))


def run(
    sweep: "Sweep | str | Path",
    *,
    study: str | None = None,
    home: str | Path | None = None,
    storage: str | None = None,
    **options: Any,
) -> Study:
    """Plan a sweep, train it, print the answer to its question and return the study.

    A study of that name that is there goes on: finished trials stay. If the sweep or what is
    chosen of it has changed since, what that makes of its trials is shown first; those that are no
    longer in it are set aside with their results. Of a sweep in a notebook the study keeps the
    statements of the cells that it leads to, so that ``hsweep resume`` can go on with it, too.

    Args:
        sweep: as for ``plan``.
        study: the study's name; by default that of the sweep and its preset.
        home: where studies are kept; by default HSWEEP_HOME, else ``hsweep-home`` here.
        storage: a folder or URI for checkpoints, which all nodes see.
        options: those of ``plan`` and of ``hsweep run``, by their names in Python:
            ``runner="inline"``, ``time_budget="30m"``, ``reuse=False``, ...

    Raises:
        UserError: what ``hsweep run`` would refuse, or no trial has finished.
        KeyboardInterrupt: the run was interrupted; all that was reported is on record.
    """
    from hsweep.commands.conclusion import Conclusion, print_end
    from hsweep.commands.output import console_for
    from hsweep.given_sweep import sweep_given
    from hsweep.options import options_from
    from hsweep.planning.options import SweepOptions
    from hsweep.quiet import no_calls_home
    from hsweep.running.options import RunOptions
    from hsweep.running.run import run as run_job
    from hsweep.running.start import request

    no_calls_home()
    chosen, how = options_from(options, SweepOptions, RunOptions)
    _refuse_running_ray(how)
    place, console = home_at(home), console_for(as_json=False)
    with sweep_given(sweep) as given:
        asked = request(given.path, chosen, how, place, study, storage, siblings=given.folder)
        given.check(asked.loaded.sweep)
        file = place.study(asked.name).sweep_source if given.is_copy else given.path
        with recorded_as(["hsweep", "run", str(file), *chosen.words()]):
            job = asked.job(how, console)
            conclusion = Conclusion(job.target, console)
            record, outcome = run_job(job, how, place, console, conclusion, is_guest=True)
    print_end(console, record, outcome, conclusion, place)
    if outcome.was_interrupted:
        raise KeyboardInterrupt(f"the study {asked.name} has been interrupted")
    if outcome.is_in_trouble or not outcome.has_results:
        name, why = asked.name, outcome.stop_reason or "no trial has finished"
        raise UserError(
            f"{why}; what is on record of {name} is in hsweep.load({name!r}), and what failed "
            f"attempts raised in `{command('show', name, '--errors', home=place.root)}`"
        )
    return Study(record)


def _prepared(given: "GivenSweep", chosen: "SweepOptions") -> "Prepared":
    from hsweep.planning.prepare import prepare

    prepared = prepare(given.path, chosen, siblings=given.folder)
    given.check(prepared.loaded.sweep)
    return prepared


def _refuse_running_ray(how: "RunOptions") -> None:
    """Refuse to take over a Ray that this process uses for something else, and to end it."""
    ray = sys.modules.get("ray")
    if how.runner == "ray" and ray is not None and ray.is_initialized():
        raise UserError(
            "this process is connected to a Ray of its own, and a study starts one; call "
            'ray.shutdown() first, or give runner="inline"'
        )
