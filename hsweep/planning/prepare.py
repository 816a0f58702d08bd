"""From a sweep file and the options of a command to the planned trials."""

import contextlib
import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsweep.design.domain import as_value
from hsweep.design.question import Question
from hsweep.design.sweep import DEFAULT_PRESET, Sweep
from hsweep.errors import UserError
from hsweep.paths import StudyPaths
from hsweep.planning.identity import Accepted
from hsweep.planning.options import SweepOptions
from hsweep.planning.plan import Plan, make_plan
from hsweep.record.study import Manifest, StudyFolder, holds_a_study
from hsweep.secrets import refuse_secrets
from hsweep.workspace import LoadedSweep, another_sweep, load_sweep


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sweep, planned."""

    loaded: LoadedSweep
    plan: Plan
    options: SweepOptions


def prepare(sweep_file: Path, options: SweepOptions, *, siblings: Path | None = None) -> Prepared:
    """Load a sweep file and plan its trials; UserError if the file or what ``planned`` takes cannot
    be used."""
    return planned(loaded_sweep(sweep_file, siblings), options)


def planned(
    loaded: LoadedSweep, options: SweepOptions, *, accepted: Accepted | None = None
) -> Prepared:
    """Plan the trials of a sweep, with code that is ``accepted`` for other code; UserError if the
    preset, the settings or the plan cannot be used."""
    # Standard output is for what was asked for: what a sweep prints must not mix with JSON.
    with contextlib.redirect_stdout(sys.stderr):
        plan = make_plan(
            variant(loaded.sweep, options),
            preset=options.preset or DEFAULT_PRESET,
            study_seed=options.seed,
            limits=options.limits,
            sweep_module=loaded.module.__name__,
            accepted=accepted,
        )
    refuse_secrets(
        (value for trial in plan.trials for value in trial.point.values()),
        "The value of an axis",
        "Give the axis a name that the task looks up, for example in the environment.",
    )
    return Prepared(loaded, plan, options)


def variant(sweep: Sweep, options: SweepOptions) -> Sweep:
    result = sweep.with_preset(options.preset).with_settings(options.settings)
    return result.with_points(options.points)


def recorded_options(manifest: Manifest) -> SweepOptions:
    limits: dict[str, Any] = dict(manifest.limits)
    return SweepOptions(
        preset=manifest.preset,
        settings=[
            (name, [as_value(value) for value in values]) for name, values in manifest.settings
        ],
        points=[dict(point) for point in manifest.points],
        seed=manifest.seed,
        **limits,
    )


def loaded_sweep(sweep_file: Path, siblings: Path | None = None) -> LoadedSweep:
    """Import a sweep file, which may import the modules in ``siblings``, by default those beside
    it; a study's own copy those beside the original. UserError if it cannot be loaded."""
    own_folders: Iterable[Path] = ()
    # What is no file, such as a link that leads to itself, is refused by the loader.
    if sweep_file.is_file():
        paths = StudyPaths(sweep_file.resolve().parent)
        if sweep_file.resolve() == paths.sweep_source and holds_a_study(paths):
            manifest = StudyFolder.at(paths).manifest
            siblings, own_folders = Path(manifest.sweep_folder), map(Path, manifest.own_folders)
            # Of a study from another machine, whose folder may be missing or another one here.
            brought = [file.relative_to(paths.code) for file in paths.code.rglob("*")]
            if brought and not all((siblings / file).exists() for file in brought):
                siblings = paths.code
    with contextlib.redirect_stdout(sys.stderr):
        return load_sweep(sweep_file, siblings=siblings, own_folders=own_folders)


def own_sweep(study: StudyFolder) -> LoadedSweep:
    """Import a study's own sweep file, so that its classes and those beside the original are there;
    UserError if it can no longer be loaded."""
    return loaded_sweep(study.sweep_file())


def own_question(study: StudyFolder) -> Question | None:
    """Return the question of a study if it is one of the user's own; None for any other.

    Raises:
        UserError: the study's sweep can no longer be loaded, or has no such question.
    """
    content = study.manifest.question or {}
    module = content.get("module", "analysis")
    if module.split(".")[0] == "analysis":
        return None
    with another_sweep():
        own_sweep(study)
        kind = getattr(importlib.import_module(module), content["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, Question)):
        raise UserError(
            f"the question of the study {study.name!r} is a {content['type']} of {module}, which "
            "has no such class any more; give it back its name"
        )
    return kind.recorded(content)


def refuse_unread_data(plan: Plan) -> None:
    """Refuse to train on data that could not be read, with UserError."""
    if plan.data_problems:
        raise UserError("; ".join(plan.data_problems))
