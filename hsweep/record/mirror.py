"""A study's copy in its storage: whose it is."""

import json
import platform

from hsweep.errors import UserError
from hsweep.paths import Home, below
from hsweep.record.manifest import Manifest
from hsweep.training.storage import StorageError, Store

OWNER = "study.json"
"""Says which study a folder of a storage belongs to."""


def check_storage(manifest: Manifest) -> None:
    """Refuse a study's storage before anything is recorded.

    Raises:
        UserError: nothing can be written there, or another study has the folder.
    """
    assert manifest.storage is not None
    Store(manifest.storage, patience=0).check_writable()
    folder = below(manifest.storage, manifest.name)
    content = Store(folder).read(OWNER)
    if content is None:
        return
    try:
        owner = json.loads(content)
        study, place = owner["study"], f"{owner['home']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        study, place = "", "a home that its study.json does not tell"
    if study != manifest.study_id:
        raise UserError(
            f"{folder} belongs to another study called {manifest.name!r}, of {place}; go on with "
            f"that one by `hsweep resume {manifest.name} --from {manifest.storage}`, choose "
            "another name with --study NAME, or remove that folder"
        )


def mark_storage(manifest: Manifest, home: Home) -> None:
    """Write down that a folder of the storage is this study's; UserError if that fails."""
    assert manifest.storage is not None
    owner = {"study": manifest.study_id, "home": str(home.root), "host": platform.node()}
    try:
        store = Store(below(manifest.storage, manifest.name), "the study's copy")
        store.write(OWNER, json.dumps(owner).encode())
    except StorageError as error:
        raise UserError(str(error)) from error
