"""How further machines find the Ray of a running study: a note in the study's folder."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from hsweep.errors import UserError
from hsweep.files import replacing
from hsweep.paths import StudyPaths


@dataclass(frozen=True, slots=True)
class Membership:
    """What a machine needs to join a study's Ray: the head's HOST:PORT, and the token."""

    address: str
    token: str | None


@contextlib.contextmanager
def offering(paths: StudyPaths, address: str | None) -> Iterator[None]:
    """Let further machines of this user join the Ray at an address in the block, if any."""
    if address is None:
        yield
        return
    note = Membership(address, os.environ.get("RAY_AUTH_TOKEN"))
    with replacing(paths.cluster) as temporary:
        temporary.touch(0o600)
        temporary.write_text(json.dumps(asdict(note)), "utf-8")
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
