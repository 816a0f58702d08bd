"""A new study of a sweep."""

from pathlib import Path

from rich.console import Console

from hsweep.command_line import command
from hsweep.design.labels import listed
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.answerable import refuse_unanswerable
from hsweep.planning.options import setting_text
from hsweep.planning.prepare import Prepared, recorded_options, refuse_unread_data
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
    _refuse_taken(home, name, prepared)
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


def _refuse_taken(home: Home, name: str, prepared: Prepared) -> None:
    if not home.study(name).manifest.exists():
        return
    study = Study.open(home, name)
    status = study.status()
    done = status["trials"] - status["not_needed"] - status["planned"] - status["running"]
    changed, options = _changes(study, prepared)
    edit = command("resume", name, *options, home=home.root)
    what = f"what has changed since ({listed(changed)})" if changed else "an edited sweep"
    raise UserError(
        f"a study called {name!r} exists in {home.root} ({done} of {status['runs']} runs "
        f"done); go on with it by `{command('resume', name, home=home.root)}`, "
        f"with {what} by `{edit}` (--dry-run only shows it), or start another with --study NAME"
    )


def _changes(study: Study, prepared: Prepared) -> tuple[list[str], list[object]]:
    """Return what of a request is not as a study has it, in words, and the options of ``resume``
    that go on with it."""
    before = dict(recorded_options(study.manifest).settings)
    now = dict(prepared.options.settings)
    given = [setting_text(name, values) for name, values in now.items()]
    new = [text for name, text in zip(now, given, strict=True) if now[name] != before.get(name)]
    gone = [name for name in before if name not in now]
    changed = [*new, *(f"{name} no longer set" for name in gone)]
    path = prepared.loaded.path
    if sweep_source(path) != study.sweep_text():
        changed.insert(0, f"{path.name} was edited")
    options = ["--sweep", path, *(word for text in new for word in ("--set", text))]
    return changed, [*options, *(word for name in gone for word in ("--unset", name))]


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
