"""Removes a study from its home."""

import contextlib
import shutil

from hsweep.errors import UserError
from hsweep.paths import StudyPaths, below
from hsweep.record.index import remove_index
from hsweep.record.lease import holding
from hsweep.record.mirror import remove_copy
from hsweep.record.study import StudyFolder


def loss_lines(paths: StudyPaths) -> list[str]:
    """Return lines that say which files a removal deletes and which it leaves."""
    lines = []
    with contextlib.suppress(UserError):  # damaged, which may be why it goes
        study = StudyFolder.at(paths)
        status = study.status()
        lines.append(
            f"the record of {status['trials'] + status['orphaned']} trials, "
            f"{status['finished']} of them finished, with checkpoints and final weights"
        )
        if study.manifest.storage is not None:
            lines.append(f"what it has in {below(study.manifest.storage, paths.name)}")
        lines.append(
            f"What stays: its runs in MLflow ({study.manifest.tracking_uri}), and what other "
            "studies have taken from it"
        )
    size = sum(path.lstat().st_size for path in paths.root.rglob("*"))
    return [f"{paths.root}: {size / 1e6:,.1f} MB", *lines]


def remove(paths: StudyPaths) -> None:
    """Remove a study: its folder and its files in the storage; UserError if it is running, or a
    part cannot be removed."""
    # Under a name that no study can have, so that a kill leaves none half removed.
    trash = paths.root.with_name(f".{paths.name}.removed")
    try:
        with holding(paths):
            with contextlib.suppress(UserError):
                storage = StudyFolder.at(paths).manifest.storage
                if storage is not None:
                    remove_copy(storage, paths.name, paths.home)
            shutil.rmtree(trash, ignore_errors=True)
            remove_index(paths.index)
            paths.root.rename(trash)
    except OSError as error:
        raise UserError(
            f"the study {paths.name!r} cannot be removed: {error}; make that writable and give the "
            "command again"
        ) from error
    shutil.rmtree(trash, ignore_errors=True)
