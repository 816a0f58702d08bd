"""Studies of tiny sweeps, made without the command line, and the files that define the sweeps."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from tiny import METRICS, tiny_sweep

from hsweep import Sweep
from hsweep.cli import main
from hsweep.coordination.recording import planned_row
from hsweep.design.trial import Report, Trial, TrialStatus
from hsweep.paths import Home
from hsweep.planning.identity import describe
from hsweep.planning.plan import make_plan
from hsweep.record.journal import Journal
from hsweep.record.study import Manifest, StudyFolder
from hsweep.record.tables import StudyTables
from hsweep.running.manifests import recorded_question

SWEEP_FILE = '''"""A tiny question."""
from tiny import tiny_sweep

SWEEP = tiny_sweep()
'''


def manifest(name: str = "mine", sweep: Sweep | None = None, **changes: Any) -> Manifest:
    sweep = sweep or tiny_sweep()
    content: dict[str, Any] = {
        "name": name,
        "sweep": sweep.name,
        "preset": "quick",
        "settings": [],
        "limits": {},
        "seed": 0,
        "metric": sweep.metric,
        "goal": sweep.direction,
        "metrics": [metric.name for metric in METRICS],
        "budget": describe(sweep.budget),
        "question": recorded_question(sweep.question),
        "description": sweep.description,
        "axes": list(sweep.space.axes),
        "sweep_folder": "/nowhere",
        "storage": None,
        "tracking_uri": "sqlite:////dev/null/mlflow.db",
        "experiment": sweep.name,
        "command": "hsweep run tiny.py",
        "created": 1_700_000_000.0,
        "provenance": {},
        "train_metrics": sweep.train_metrics,
    }
    return Manifest(**{**content, **changes})


def new_study(
    home: Home, name: str = "mine", sweep: Sweep | None = None, **changes: Any
) -> StudyFolder:
    """Make a study whose trials are planned and not begun, with ``changes`` of its manifest."""
    plan = make_plan(sweep or tiny_sweep(), preset="quick", study_seed=0)
    asked = manifest(name, plan.sweep, **changes)
    study = StudyFolder.create(home, asked, sweep_source=SWEEP_FILE, plan=plan.to_json())
    with Journal(study.paths.journal) as journal:
        journal.add_trials(planned_row(trial) for trial in plan.trials)
    return study


@contextmanager
def recording(
    study: StudyFolder, sweep: Sweep | None = None
) -> Iterator[tuple[Journal, list[Trial]]]:
    """Open a study's record for writing, with its trials."""
    plan = make_plan(sweep or tiny_sweep(), preset="quick", study_seed=0)
    with Journal(study.paths.journal) as journal:
        yield journal, list(plan.trials)


def finish(journal: Journal, trial: Trial, nmse: float) -> None:
    """Record that a trial ran to its end with this error."""
    attempt = journal.begin_attempt(trial.key)
    amount = trial.budget.amount
    report = Report(amount, 4 * amount, {"nmse": nmse, "fit": 1 - nmse}, 1.0, is_last=True)
    journal.record(trial.key, attempt, report, TrialStatus.FINISHED)


def trained(home: Path, folder: Path, source: str, *options: str, study: str = "demo") -> Home:
    """Run a sweep of this source, kept in a folder, by the command line; return the home."""
    (folder / "sweep.py").write_text(source)
    command = ["run", str(folder / "sweep.py"), "--runner", "inline", "--study", study]
    result = CliRunner().invoke(main, [*command, *options, "--home", str(home)])
    assert result.exit_code == 0, result.output
    return Home(home)


def put_on_record(study: StudyFolder, source: str) -> None:
    """Let the study's sweep be this one, as if its code had changed since it was planned."""
    with study.writer() as journal:
        journal.set_meta("file:sweep.py", source)
    study.export()


def tables_of(
    journal: Journal, metrics: Sequence[str], *, orphaned: bool = False
) -> tuple[pa.Table, pa.Table]:
    """Return the trials and the reports of a study called "mine"."""
    tables = StudyTables(journal, "mine", metrics, orphaned=orphaned)
    return tables.trials, tables.reports
