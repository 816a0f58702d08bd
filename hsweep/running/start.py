"""Opens the study that a sweep file is run as, a new one or the existing one of that name."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from hsweep.design.sweep import DEFAULT_PRESET, Sweep
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.answerable import analysable, unfollowed
from hsweep.planning.options import LIMITED, SweepOptions
from hsweep.planning.prepare import (
    loaded_sweep,
    planned,
    recorded_options,
    refuse_unread_data,
    variant,
)
from hsweep.planning.revision import compare
from hsweep.ray_tune.environment import prepare_ray
from hsweep.record.study import StudyFolder, holds_a_study
from hsweep.running.change import Change, edit, refuse_another_sweep
from hsweep.running.manifests import new_manifest, sweep_source
from hsweep.running.options import RunOptions, StudyOptions
from hsweep.terminal import print_step
from hsweep.tracking.target import TrackingTarget, target_of, tracking_target
from hsweep.workspace import LoadedSweep, is_command, worker_environment


@dataclass(frozen=True, slots=True)
class Request:
    """A sweep with its options, and the study that runs it.

    Attributes:
        study: the existing one; None for a new study.
        beginning: with what it begins, if it is new.
    """

    loaded: LoadedSweep
    chosen: SweepOptions
    home: Home
    name: str
    study: StudyFolder | None
    target: TrackingTarget
    beginning: StudyOptions

    @property
    def is_answered(self) -> bool:
        """Whether the study is complete and its sweep unchanged, so that probably nothing is left
        to train (other files of the user's may have changed)."""
        study = self.study
        return (
            study is not None
            and study.status()["state"] == "complete"
            and sweep_source(self.loaded.path) == study.sweep_text()
            and not self._has_other_settings(study)
        )

    def _has_other_settings(self, study: StudyFolder) -> bool:
        return list(self.chosen.settings) != list(recorded_options(study.manifest).settings)

    def confirm(self, change: Change) -> bool:
        """Ask before other settings take trials with results from a complete study, whose answer
        they would replace; return whether the user was asked.

        Raises:
            UserError: the user does not want that, or there is no terminal to ask on.
        """
        study, orphaned = self.study, change.revision.orphaned.values()
        lost = sum(row.status is TrialStatus.FINISHED for rows in orphaned for row in rows)
        if study is None or self.beginning.yes or not lost or not self._has_other_settings(study):
            return False
        if study.status()["state"] != "complete":
            return False
        what = f"{lost} of the finished trials behind the answer of {self.name!r} are set aside"
        if not sys.stdin.isatty():
            raise UserError(
                f"{what} by these settings, and there is no terminal to ask on; give --study NAME "
                "for another study, which takes from this one what it has trained, or --yes"
            )
        if not click.confirm(f"{what} (--study NAME keeps both). Go on?", err=True):
            raise UserError("nothing is changed")
        return True

    def change(self, options: RunOptions, console: Console) -> Change:
        """Return the change that makes a new study, or that of the existing one, and print it, or
        what makes the answer of a new study weak; nothing is written.

        Raises:
            UserError: the sweep cannot be planned, is none that the study can go on with, or what
                is new can never be answered as it is planned.
        """
        if self.study is not None:
            change = edit(self.study, self.loaded, self.chosen, self.target, options)
            change.announce(self.study, console)
        else:
            change = self._new_study(options)
        concerns = analysable(change.prepared.plan) if change.new else []
        if lines := [concern.line for concern in concerns if concern.kind == "impossible"]:
            raise UserError("; ".join(lines))
        if self.study is None:
            remarks = [concern.line for concern in concerns] + unfollowed(change.prepared.plan)
            for line in remarks:
                console.print(line, style="yellow", soft_wrap=True)
        return change

    def _new_study(self, options: RunOptions) -> Change:
        """Return the change that makes a new study; UserError if the sweep cannot be planned, or
        its data cannot be read."""
        prepared = planned(self.loaded, self.chosen)
        refuse_unread_data(prepared.plan)
        if prepared.plan.sweep.search.start_from:
            from hsweep.coordination.search import earlier_results

            earlier_results(self.home, prepared.plan.sweep)  # raises where there are none
        manifest = new_manifest(
            *(self.name, prepared, self.target),
            storage=self.beginning.storage,
            tags=dict(self.beginning.tags),
            track=list(options.track),
        )
        source, revision = sweep_source(self.loaded.path), compare(prepared.plan, ())
        return Change(prepared, self.target, manifest, source, revision, new=revision.new)


def request(
    sweep_file: Path,
    chosen: SweepOptions,
    options: RunOptions,
    home: Home,
    name: str | None,
    beginning: StudyOptions,
    *,
    siblings: Path | None = None,
    to_run: bool = True,
) -> Request:
    """Load a sweep, and open its study if it exists.

    Args:
        name: the study's name; None for the name made of sweep and preset.
        siblings: folder from which the file may import modules; by default the file's folder.
        to_run: whether the caller will run the study.

    Raises:
        UserError: the file, the preset, a setting, the storage or the MLflow store is none, the
            name cannot be a study's, or the study is running or was started with another choice.
    """
    loaded = loaded_sweep(sweep_file, siblings)
    variant(loaded.sweep, chosen)
    name = default_name(loaded.sweep, chosen) if name is None else name
    if not holds_a_study(home.study(name)):
        beginning = replace(beginning, tags=list(beginning.all_tags().items()))
        experiment = beginning.experiment_for(loaded.sweep.name)
        target = tracking_target(options.tracking_uri, home, experiment)
        return Request(loaded, chosen, home, name, None, target, beginning)
    study = StudyFolder.open_to_run(home, name) if to_run else StudyFolder.open(home, name)
    # Settings may differ: with others the study goes on as an edited one.
    _refuse_another_choice(study, chosen, ("preset", "points", "seed", *LIMITED))
    _refuse_another_beginning(study, beginning)
    target = target_of(study, home, options.tracking_uri)
    return Request(loaded, chosen, home, name, study, target, beginning)


def _refuse_another_beginning(study: StudyFolder, beginning: StudyOptions) -> None:
    """Refuse what differs from that with which the study began."""
    manifest = study.manifest
    for what, asked, was in (
        ("storage", beginning.storage, manifest.storage),
        ("the experiment", beginning.experiment, manifest.experiment),
        *((f"the tag {name}", text, manifest.tags.get(name)) for name, text in beginning.tags),
    ):
        if asked not in (None, was):
            raise UserError(
                f"{what} is chosen when a study begins, and {study.name!r} has {was or 'none'}; "
                "leave it out, or begin another study with --study NAME"
            )


def _refuse_another_choice(study: StudyFolder, chosen: SweepOptions, names: Iterable[str]) -> None:
    """Refuse options that differ from those the study was started with."""
    before = recorded_options(study.manifest)
    for name in dict.fromkeys("settings" if name == "search" else name for name in names):
        was, now = getattr(before, name), getattr(chosen, name)
        if name == "preset":
            now = now or DEFAULT_PRESET
        elif name in ("points", "settings"):
            was, now = list(was), list(now)
        if now != was:
            raise UserError(
                f"the study {study.name!r} was started with {name}={was!r}, not {now!r}; give "
                "that again, or another name (--study NAME) for another study, which takes from "
                "this one what it has trained"
            )


def study_of(
    sweep_file: Path,
    name: str | None,
    home: Home,
    options: SweepOptions,
    named: Iterable[str],
    console: Console,
) -> StudyFolder:
    """Open the study of a sweep file, by default the study that ``hsweep run`` would begin. The
    study runs its own copy of the sweep.

    Args:
        named: names of the options that the user gave; their values must be those of the study.

    Raises:
        UserError: there is no such study, or one of these options is another.
    """
    sweep = loaded_sweep(sweep_file).sweep
    study = StudyFolder.open_to_run(home, name or default_name(sweep, options))
    refuse_another_sweep(study, sweep)
    _refuse_another_choice(study, options, named)
    if sweep_source(sweep_file) != study.sweep_text():
        console.print(
            f"{sweep_file} has changed since the study began; the study's own copy is run (without "
            "--only-missing the study goes on with the file)",
            style="yellow",
            soft_wrap=True,
        )
    return study


def default_name(sweep: Sweep, options: SweepOptions) -> str:
    return f"{sweep.name}-{options.preset or DEFAULT_PRESET}"


def start_early(options: RunOptions, folder: Path) -> None:
    """Start Ray and its workers in a thread, so that they import modules while the caller plans
    the sweep, unless this is a program that only uses this package. A process that ends because
    the plan is refused does not wait for Ray.

    Args:
        folder: folder of the sweep; the sweep is loaded, so workers get the environment variables
            that it set.
    """
    is_here = options.runner == "ray" and options.cluster is None and options.job is None
    if is_here and is_command():
        print_step("starting Ray")
        prepare_ray()
        from hsweep.ray_tune.local import StartingRay

        StartingRay(worker_environment(folder))
