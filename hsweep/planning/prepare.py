"""A sweep file, the options beside it and what they lead to: every trial, planned."""

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hsweep.design.sweep import DEFAULT_PRESET
from hsweep.errors import UserError
from hsweep.planning.extension import with_extensions
from hsweep.planning.identity import Accepted
from hsweep.planning.plan import Limits, Plan, apply_settings, make_plan
from hsweep.record.study import Study
from hsweep.redaction import refuse_secrets
from hsweep.workspace import LoadedSweep, load_sweep

Settings = list[tuple[str, list[Any]]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sweep, planned."""

    loaded: LoadedSweep
    plan: Plan
    settings: Settings
    limits: Limits
    points: Sequence[Mapping[str, Any]] = ()


def prepare(
    sweep_file: Path,
    *,
    preset: str | None,
    settings: Settings,
    seed: int,
    points: Sequence[Mapping[str, Any]] = (),
    siblings: Path | None = None,
    own_folders: Iterable[Path] = (),
    accepted: Accepted | None = None,
    **limits: int | None,
) -> Prepared:
    """Load a sweep file and plan its trials.

    Raises:
        UserError: anything about the file, the preset, the settings or the plan.
    """
    bounds = Limits(**limits)
    # Standard output is for what was asked for: what a sweep file prints must not mix with JSON.
    with contextlib.redirect_stdout(sys.stderr):
        loaded = load_sweep(sweep_file, siblings=siblings, own_folders=own_folders)
        sweep = apply_settings(loaded.sweep, preset, settings).with_points(points)
        plan = make_plan(
            sweep,
            preset=preset or DEFAULT_PRESET,
            study_seed=seed,
            limits=bounds,
            sweep_module=loaded.module.__name__,
            accepted=accepted,
        )
    refuse_secrets(
        (value for trial in plan.trials for value in trial.point.values()),
        "The value of an axis",
        "Give the axis a name that the task looks up, for example in the environment.",
    )
    return Prepared(loaded, plan, list(settings), bounds, list(points))


def prepare_again(study: Study, accepted: Accepted | None = None) -> Prepared:
    """Plan a study's trials again from its own record, those added after it began included.

    Args:
        study: as it is on disk.
        accepted: code to take for other code, beside what the study has accepted before.

    Raises:
        UserError: its sweep file can no longer be planned.
    """
    manifest = study.manifest
    prepared = prepare(
        study.sweep_file(),
        preset=manifest.preset,
        settings=[(name, list(values)) for name, values in manifest.settings],
        seed=manifest.seed,
        points=manifest.points,
        siblings=Path(manifest.sweep_folder),
        own_folders=map(Path, manifest.own_folders),
        accepted={**manifest.accepted_code, **(accepted or {})},
        **dict(manifest.limits),
    )
    if not manifest.extensions:
        return prepared
    plan = with_extensions(prepared.plan, prepared.limits, manifest.extensions)
    return replace(prepared, plan=plan)


def refuse_unread_data(plan: Plan) -> None:
    """Refuse to train on data that could not be read.

    Raises:
        UserError: there are such data.
    """
    if plan.data_problems:
        raise UserError("; ".join(plan.data_problems))
