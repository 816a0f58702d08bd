"""A new study of a sweep."""

from pathlib import Path

from rich.console import Console

from hsweep.command_line import command
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.answerable import refuse_unanswerable
from hsweep.planning.prepare import Prepared, refuse_unread_data
from hsweep.record.study import Study
from hsweep.redaction import refuse_secrets
from hsweep.running.job import Job
from hsweep.running.manifests import new_manifest, sweep_source
from hsweep.running.options import RunOptions
from hsweep.tracking.target import tracking_target


def new_study(
    prepared: Prepared,
    options: RunOptions,
    home: Home,
    name: str | None,
    storage: str | None,
    console: Console,
) -> Job:
    """Return the job of training a sweep in a new study, called by default after the sweep and its
    preset; what makes the answer weak is printed. UserError if the sweep cannot be answered as it
    is planned, or the name is taken."""
    plan = prepared.plan
    target = tracking_target(options.tracking_uri, home, plan.sweep.name)
    refuse_unread_data(plan)
    concerns = refuse_unanswerable(plan)
    name = f"{plan.sweep.name}-{plan.preset}" if name is None else name
    _refuse_taken(home, name, prepared.loaded.path)
    storage = _absolute(storage)

    def record() -> Study:
        return Study.create(
            home,
            new_manifest(name, prepared, storage=storage, target=target),
            sweep_source=sweep_source(prepared.loaded.path),
            plan=plan.to_json(),
        )

    for concern in concerns:
        console.print(concern.line, style="yellow", soft_wrap=True)
    return Job(name, prepared, target, record, storage, plan.trials)


def _refuse_taken(home: Home, name: str, file: Path) -> None:
    if home.study(name).manifest.exists():
        status = Study.open(home, name).status()
        done = status["trials"] - status["planned"] - status["running"]
        raise UserError(
            f"a study called {name!r} exists in {home.root} ({done} of {status['trials']} trials "
            f"done); go on with it by `{command('resume', name, home=home.root)}`, with an edited "
            f"sweep by `{command('resume', name, '--sweep', file, home=home.root)}`, or start "
            "another with --study NAME"
        )


def _absolute(storage: str | None) -> str | None:
    """A relative folder would mean another place on every node."""
    if storage == "":
        raise UserError("--storage is a folder or a URI, not an empty text; leave it out for none")
    if storage is None or "://" in storage:
        refuse_secrets(
            [storage],
            "--storage",
            "Give keys to every node another way: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
            "profile, or the role of the machine.",
        )
        return storage
    return str(Path(storage).expanduser().absolute())
