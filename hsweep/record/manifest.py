"""The manifest of a study: its sweep and options, and all later additions and edits."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

NEW_SEED: Final = "with a new seed"
"""How an extension says that a trial is one more replicate of a point on record."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The sweep and options that a study began with, and its later additions and edits.

    Attributes:
        settings: what ``--set`` replaced, in order: (name, values).
        limits: the plan's bounds, by name.
        metric, goal, metrics: what decides, and all that is reported.
        budget: of every trial, as plain content.
        question: the analysis asked for, as plain content; None for none.
        description: the lab note.
        sweep_folder: whose modules the sweep file may import.
        storage: where checkpoints lie; None for the study's own folder.
        tracking_uri: of the MLflow store, without secrets.
        command: that started the study, without secrets.
        created: seconds since the epoch.
        provenance: versions, hardware, commits and data fingerprints.
        points: axis values that the space was restricted to; empty for all of it.
        train_metrics: at which reports metrics of training examples are measured (see ``Sweep``).
        probe: what is measured of the models' attention, as plain content; None for nothing.
        extensions: what was added after the study had run, oldest first (see
            ``hsweep.planning.extension``), each with its time, command and provenance.
        revisions: edited sweeps that were taken over, oldest first (see ``hsweep.running.change``),
            each with its time, command, provenance and what it replaced.
        accepted: changes of code that were accepted as changing no result, oldest first: each with
            its time, command, what was done (``kept`` or the study that trials were taken from),
            the number of trials, the changed files by the part of the code, and ``code``: digests
            that are taken for others in keys.
        training: the user's own function or command that trains the trials, and may report metrics
            beside ``metrics``; empty where this project's loop does.
        keep: whose final weights are kept (see ``Sweep.keep``).
        fixed_rate: the one learning rate that all trials have; None where they differ in it, or
            where it is not known.
        scouts: how many seeds of a point, the first ones, only chose its setting (``Asha.scouts``).
        own_folders: folders with packages of the user's that are called like this project's
            (see ``hsweep.user_packages``).
    """

    name: str
    sweep: str
    preset: str
    settings: Sequence[tuple[str, Sequence[Any]]]
    limits: Mapping[str, int | None]
    seed: int
    metric: str
    goal: str
    metrics: Sequence[str]
    budget: Mapping[str, Any]
    question: Mapping[str, Any] | None
    description: str
    axes: Sequence[str]
    sweep_folder: str
    storage: str | None
    tracking_uri: str
    command: str
    created: float
    provenance: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]] = field(default_factory=list)
    extensions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    train_metrics: str = "last"
    probe: Mapping[str, Any] | None = None
    revisions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    accepted: Sequence[Mapping[str, Any]] = field(default_factory=list)
    own_folders: Sequence[str] = field(default_factory=list)
    training: str = ""
    keep: str = "none"
    fixed_rate: float | None = None
    scouts: int = 0

    @property
    def accepted_code(self) -> dict[str, str]:
        """Digests of code that was accepted, each with that of the code whose keys its trials
        have."""
        return {new: old for change in self.accepted for new, old in change["code"].items()}

    @property
    def added_keys(self) -> frozenset[str]:
        """Keys of the trials that extensions asked to run to their end."""
        return frozenset(
            entry["key"] for extension in self.extensions for entry in extension["trials"]
        )

    @property
    def later_commands(self) -> list[str]:
        """The commands that added to the study or edited it after it began, in their order."""
        later = sorted(
            [*self.extensions, *self.revisions], key=lambda addition: addition.get("time", 0)
        )
        return [str(addition.get("command", "")) for addition in later]


def manifest_text(manifest: Manifest) -> str:
    content = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}
    return json.dumps(content, indent=1, default=str) + "\n"


def parse_manifest(text: str) -> Manifest:
    """Return the manifest that a text holds; ValueError says what is wrong with it."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"it holds {type(content).__name__} instead of an object")
    try:
        return Manifest(**content)
    except TypeError as error:
        raise ValueError(str(error).replace("Manifest.__init__() ", "")) from error
