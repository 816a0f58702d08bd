"""What a store is told of a study besides its log."""

import getpass
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hsweep.record.manifest import Manifest
from hsweep.tracking.names import SCOUTS, STUDY_ID, acceptable


@dataclass(frozen=True, slots=True)
class TrackedStudy:
    """A study as a store knows it.

    Attributes:
        tags: of each of its runs.
        metric: the main one.
        goal: ``min`` or ``max``.
        unit: of budgets; the parameter with a trial's budget has that name.
        is_log: whether the metric is an error, which charts show in powers of ten.
        created: when it began, in seconds since the epoch.
        description: the lab note.
        data: what is recorded of each task (see ``Manifest.provenance``), the newest first.
    """

    name: str
    tags: Mapping[str, str]
    metric: str
    goal: str = "min"
    unit: str = "budget"
    is_log: bool = False
    created: float = 0.0
    description: str = ""
    data: Sequence[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, manifest: Manifest) -> "TrackedStudy":
        later = [each.get("provenance", {}) for each in manifest.extensions]
        return cls(
            name=manifest.name,
            tags=study_tags(manifest),
            metric=manifest.metric,
            goal=manifest.goal,
            unit=str(manifest.budget.get("unit", "budget")),
            is_log=(manifest.question or {}).get("scale") == "error",
            created=manifest.created,
            description=manifest.description,
            data=[
                task
                for provenance in (*reversed(later), manifest.provenance)
                for task in provenance.get("data", ())
            ],
        )


LADDER: Final = "hsweep.ladder"
"""The tag with the budgets of a study that trains each point to several."""


def study_tags(manifest: Manifest) -> dict[str, str]:
    identity = f"{manifest.name}\n{manifest.created!r}"
    tags = {
        "hsweep.sweep": manifest.sweep,
        "hsweep.preset": manifest.preset,
        STUDY_ID: hashlib.sha256(identity.encode()).hexdigest()[:32],
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": str(manifest.provenance.get("sweep_file") or "hsweep"),
        **_user(),
    }
    if ladder := manifest.budget.get("ladder"):
        tags[LADDER] = f"{', '.join(map(str, ladder))} {manifest.budget['unit']}"
    if manifest.scouts:
        tags[SCOUTS] = str(manifest.scouts)
    if manifest.training:
        tags["hsweep.training"] = acceptable(manifest.training)
    for name in ("tool", "sweep"):
        if state := manifest.provenance.get(name):
            tags[f"hsweep.{name}_commit"] = state["commit"] + ("-dirty" if state["dirty"] else "")
    if state := manifest.provenance.get("sweep"):
        tags["mlflow.source.git.commit"] = state["commit"]
        tags["mlflow.source.git.dirty"] = str(state["dirty"]).lower()
    return tags


def _user() -> dict[str, str]:
    try:
        return {"mlflow.user": getpass.getuser()}
    except (OSError, KeyError):  # no name for the number of a container's user
        return {}
