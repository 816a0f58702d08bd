"""How further machines find the Ray of a running study: a note in the study's folder."""

import contextlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from hsweep.errors import UserError
from hsweep.files import replacing
from hsweep.paths import StudyPaths


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("hsweep", "ray")}
    return {"python": platform.python_version(), **packages}


@dataclass(frozen=True, slots=True)
class Membership:
    """What a machine needs to join a study's Ray: the head's HOST:PORT, token, versions."""

    address: str
    token: str | None
    versions: Mapping[str, str] = field(default_factory=_versions)

    def check_versions(self) -> None:
        """Refuse a machine whose versions are others; UserError names them."""
        for name, version in _versions().items():
            if self.versions.get(name) != version:
                raise UserError(
                    f"the study runs with {name} {self.versions.get(name)}, and here is {version}; "
                    "join with the environment that runs the study"
                )


@contextlib.contextmanager
def offering(paths: StudyPaths, address: str | None) -> Iterator[None]:
    """Let further machines of this user join the Ray at an address in the block, if any."""
    if address is None:
        yield
        return
    note = json.dumps(asdict(Membership(address, os.environ.get("RAY_AUTH_TOKEN"))))
    with replacing(paths.cluster) as temporary:
        temporary.touch(0o600)
        temporary.write_text(note, "utf-8")
    try:
        yield
    finally:
        paths.cluster.unlink(missing_ok=True)


def read_membership(paths: StudyPaths) -> Membership | None:
    """Return what it takes to join a study's Ray, None where none is offered; UserError where it is
    for somebody else."""
    try:
        return Membership(**json.loads(paths.cluster.read_text("utf-8")))
    except PermissionError:
        raise UserError(f"{paths.cluster} is for the user who runs the study") from None
    except (OSError, ValueError, TypeError):
        return None
