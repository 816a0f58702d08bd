"""The manifest of a study: its sweep and options, and all later additions and edits."""

import hashlib
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
        settings: (name, values) of each ``--set``, in order.
        limits: bounds on a trial's costs, by name.
        metric, goal, metrics: the metric that decides, its direction, and all reported metrics.
        budget, question, probe: fields of the sweep as JSON; no question or probe is None.
        description: the lab note of the study.
        sweep_folder: folder from which the sweep file imports modules.
        storage: folder or URI of the checkpoints; None for the study's own folder.
        tracking_uri, experiment, tags: the MLflow store, without secrets, the experiment, and the
            user's tags of every run, ``mlflow.user`` among them.
        track: further places that show the runs (see ``hsweep.tracking.target``).
        command: the first command, without secrets.
        created: seconds since the epoch.
        provenance: versions, hardware, commits and data fingerprints.
        points: axis values to which the space was restricted; empty for the whole space.
        extensions: runs added to the study (see ``hsweep.planning.extension``), oldest first, each
            with time, command and provenance.
        revisions: edits of the sweep (see ``hsweep.running.change``), oldest first, each with time,
            command, provenance and the replaced values.
        accepted: changes of code accepted as changing no result, oldest first, each with time,
            command, number of trials, changed files by the part of the code, ``kept`` or the study
            that the trials came from, and in ``code`` the earlier digest for each new digest.
        training: the user's function or command that trains the trials and may report further
            metrics; empty for this project's training loop.
        train_metrics, keep, final: see ``Sweep``.
        fixed_rate: the learning rate of all trials; None where it differs or is unknown.
        scouts: number of the first seeds of a point, which only select its setting (see
            ``Asha.scouts``).
        search: how the points are chosen (see ``hsweep.design.search``).
        own_folders: folders of user packages that share a name with a package of this project
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
    tracking_uri: str
    experiment: str
    command: str
    created: float
    provenance: Mapping[str, Any]
    storage: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    track: Sequence[str] = field(default_factory=list)
    points: Sequence[Mapping[str, Any]] = field(default_factory=list)
    extensions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    train_metrics: str = "last"
    probe: Mapping[str, Any] | None = None
    revisions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    accepted: Sequence[Mapping[str, Any]] = field(default_factory=list)
    own_folders: Sequence[str] = field(default_factory=list)
    training: str = ""
    keep: str = "none"
    final: str = "last"
    fixed_rate: float | None = None
    scouts: int = 0
    search: str = "grid"

    @property
    def study_id(self) -> str:
        """Tells the study from every other one of its name."""
        return hashlib.sha256(f"{self.name}\n{self.created!r}".encode()).hexdigest()[:32]

    @property
    def place(self) -> str:
        """What the sweep's question compares, in a word."""
        return str((self.question or {}).get("place", "point"))

    @property
    def is_sequential(self) -> bool:
        """Whether the question has chosen the trials round by round."""
        return self.search == "adaptive"

    @property
    def accepted_code(self) -> dict[str, str]:
        """For each accepted digest of code, the earlier digest that its trials have in their
        keys."""
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
    try:
        return Manifest(**json.loads(text))
    except TypeError as error:
        raise ValueError(str(error).replace("Manifest.__init__() ", "")) from error
