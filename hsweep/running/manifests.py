"""Makes the manifest of a new study, and its entry for an extension."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hsweep.command_line import running_command
from hsweep.design.question import Question
from hsweep.design.trial import Trial
from hsweep.design.user_training import TRAINING_PARTS, UserTraining
from hsweep.errors import UserError
from hsweep.planning.answerable import fixed_rate
from hsweep.planning.code import files_of
from hsweep.planning.extension import Extension
from hsweep.planning.identity import describe
from hsweep.planning.prepare import Prepared
from hsweep.record.provenance import collect
from hsweep.record.study import Manifest
from hsweep.tracking.target import TrackingTarget
from hsweep.user_packages import folders_in_use
from models.conditioning import METRICS as PROBED_METRICS


def recorded_question(question: Question | None) -> dict[str, Any] | None:
    """Return a question as its study has it on record."""
    return None if question is None else {**describe(question), **question.record}


def new_manifest(name: str, prepared: Prepared, target: TrackingTarget, **chosen: Any) -> Manifest:
    """Return the manifest of a new study, with what is ``chosen`` when it begins by field."""
    plan, options = prepared.plan, prepared.options
    sweep = plan.sweep
    provenance = _provenance(prepared.loaded.path, plan.trials)
    return Manifest(
        name=name,
        sweep=sweep.name,
        preset=plan.preset,
        settings=list(options.settings),
        limits=dict(plan.limits),
        seed=plan.study_seed,
        metric=sweep.metric,
        goal=sweep.direction,
        metrics=[
            *(metric.name for metric in plan.trials[0].task.metrics),
            *(PROBED_METRICS if sweep.probe is not None else ()),
        ],
        budget=describe(sweep.budget),
        question=recorded_question(sweep.question),
        description=sweep.description,
        axes=list(sweep.space.axes),
        sweep_folder=str(prepared.loaded.folder),
        own_folders=[str(folder) for folder in folders_in_use()],
        tracking_uri=target.shown_uri,
        experiment=target.experiment,
        command=shlex.join(provenance["command"]),
        created=time.time(),
        provenance=provenance,
        points=[dict(point) for point in options.points],
        training="" if sweep.train is None else sweep.user_training().text,
        probe=describe(sweep.probe),
        keep=sweep.keep,
        final=sweep.final,
        train_metrics=sweep.train_metrics,
        fixed_rate=fixed_rate(plan),
        scouts=sweep.num_scouts,
        search=sweep.search.method,
        **chosen,
    )


def extension_entry(extension: Extension, sweep_file: Path) -> dict[str, Any]:
    provenance = _provenance(sweep_file, extension.trials)
    return {
        "time": time.time(),
        "command": shlex.join(provenance["command"]),
        **extension.to_json(),
        "provenance": provenance,
    }


def _provenance(sweep_file: Path, trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        **collect(command=running_command(), sweep_file=sweep_file),
        **_user_training(trials[0]),
        "data": _tasks(trials),
    }


def _user_training(trial: Trial) -> dict[str, Any]:
    """Return the provenance of a user's training: its name and code; empty without one."""
    if not isinstance(trial.task, UserTraining):
        return {}
    code = trial.parts[TRAINING_PARTS[trial.task.part]]
    about = {**describe(trial.task), "code": code, "files": sorted(files_of(code) or ())}
    return {"training": about}


def _tasks(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the provenance of each task: content, fingerprint of the data, scores of a constant
    predictor, and the axis values of its trials where points have different tasks."""
    tasks = {repr(trial.task): trial.task for trial in trials}
    points = {name: [t.point for t in trials if repr(t.task) == name] for name in tasks}
    content = []
    for name, task in tasks.items():
        chances = {
            metric.name: metric.chance
            for metric in task.metrics
            if getattr(metric, "chance", None) is not None
        }
        at = {}
        for axis, value in points[name][0].items() if len(tasks) > 1 else ():
            values = {repr(point.get(axis)) for point in points[name]}
            if len(values) == 1 and {repr(trial.point.get(axis)) for trial in trials} != values:
                at[axis] = value
        known = {"fingerprint": task.fingerprint(), "chance": chances, "at": at}
        there = {name: value for name, value in known.items() if value}
        content.append({"task": describe(task), **there})
    return content


def sweep_source(path: Path) -> str:
    """Return a sweep file's text; UserError if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the sweep file {path} cannot be read: {error}") from error
