"""The final weights that a study keeps: their files, one a trial, and which of them stay."""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial_status import TrialStatus
from hsweep.paths import WEIGHTS_HEADER, weights_file
from hsweep.record.manifest import Manifest
from hsweep.record.rows import TrialRow
from hsweep.training.storage import StorageError, Store

_NAME: Final = re.compile(r"(t[0-9a-f]{20})-(\d{5})\.safetensors")

File = tuple[str, int]
"""A file's name: the trial's key, and the attempt that wrote it (0 for another study's)."""


class WeightsFolder:
    """The weights below a folder or URI.

    Its methods raise a StorageError where the storage does not work.

    Raises:
        UnusableStorageError: a URI that pyarrow cannot use.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._files = Store(root, subject="weights")

    def sizes(self) -> dict[File, int]:
        """Return the size in bytes of each complete file."""
        matches = ((_NAME.fullmatch(name), size) for name, size in self._files.sizes().items())
        return {(match[1], int(match[2])): size for match, size in matches if match}

    def remove(self, file: File) -> None:
        """Remove a file if it exists; a file that cannot be removed costs only space."""
        self._files.remove(weights_file(*file))

    @contextlib.contextmanager
    def local(self, file: File) -> Iterator[Path]:
        """Yield the path of a file on this machine, a temporary copy if the folder is elsewhere."""
        if "://" not in self.root:
            yield Path(self._files.path, weights_file(*file))
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, weights_file(*file))
            path.write_bytes(self._content(file))
            yield path

    def take(self, other: "WeightsFolder", file: File, to: File) -> None:
        """Copy a file of another folder, under another name."""
        self._files.write(weights_file(*to), other._content(file))

    def _content(self, file: File) -> bytes:
        content = self._files.read(weights_file(*file))
        if content is None:
            raise StorageError(f"{weights_file(*file)} in {self.root} is no longer there")
        return content


def header_of(file: Path) -> dict[str, Any]:
    """Return the header of a file of weights (see ``Trial.result_at``)."""
    from safetensors import safe_open

    with safe_open(file, "pt") as content:
        header: dict[str, Any] = json.loads(content.metadata()[WEIGHTS_HEADER])
    return header


@dataclass(frozen=True, slots=True)
class FinalWeights:
    """The final weights of a trial that are kept: its key, the name and the path or URI of the
    file, and ``file``, the same on this machine; None where nothing reads it."""

    key: str
    name: str
    location: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Which weights a study keeps.

    Attributes:
        trials: trials whose weights are stored.
        missing: trials whose weights should be stored and are not.
        num_bytes: size of all files, superfluous ones included.
    """

    trials: tuple[TrialRow, ...]
    missing: tuple[TrialRow, ...]
    num_bytes: int


def best_keys(manifest: Manifest, rows: Iterable[TrialRow]) -> set[str]:
    """Return the keys of those finished trials that are the best of their stratum or the best
    baseline of their comparison; of trials with equal values the first in the plan counts."""
    question, best = manifest.question or {}, dict[tuple[str, Any], tuple[float, int, str]]()
    baseline = dict(question.get("baseline") or ())
    for row in rows:
        value = row.metrics.get(manifest.metric)
        # Trials of other budgets, such as those of a ladder, are not among the best.
        if row.budget != manifest.budget["amount"] or value is None:
            continue
        rank = (value if manifest.goal == "min" else -value, row.ordinal, row.key)
        groups: list[tuple[str, Any]] = [("stratum", row.stratum)]
        if baseline and all(row.point.get(axis) == number for axis, number in baseline.items()):
            groups.append(("baseline", row.point.get(question["within"])))
        for group in groups:
            best[group] = min(rank, best.get(group, rank))
    return {key for _, _, key in best.values()}


class WeightsKeeper:
    """Removes the weights that a study does not keep (see ``Sweep.keep``), once the end of their
    trial is on record.

    What stays follows from the record's values alone, in whatever order trials end and however
    often the study is interrupted. Weights of orphaned trials stay.
    """

    def __init__(self, manifest: Manifest, folder: WeightsFolder) -> None:
        self.folder = folder
        self._manifest = manifest
        self._kept: dict[str, TrialRow] = {}

    def recall(self, rows: Iterable[TrialRow]) -> None:
        """Add trials that have finished before this run, and remove their superfluous weights."""
        finished = {row.key: row for row in rows}
        self._keep(finished)
        # What cannot be removed costs only space.
        with contextlib.suppress(OSError):
            for key, attempt in self.folder.sizes():
                is_kept = key in self._kept and finished[key].attempt == attempt
                if key in finished and not is_kept:
                    self.folder.remove((key, attempt))

    def ended(self, row: TrialRow) -> None:
        """Note that a trial has ended, and remove the weights that are superfluous now."""
        if row.status is TrialStatus.FINISHED:
            for other in self._keep({**self._kept, row.key: row}):
                self.folder.remove((other.key, other.attempt))

    def _keep(self, rows: Mapping[str, TrialRow]) -> list[TrialRow]:
        """Keep what stays of the weights of these trials; return the others."""
        keep = self._manifest.keep
        best = best_keys(self._manifest, rows.values()) if keep == "best" else ()
        self._kept = {key: row for key, row in rows.items() if keep == "last" or key in best}
        return [row for key, row in rows.items() if key not in self._kept]

    def kept(self, rows: Iterable[TrialRow]) -> KeptWeights:
        """Return the trials whose weights are stored, and those whose weights are missing, of all
        trials of the study, orphaned ones included; StorageError if the storage cannot be read."""
        sizes = self.folder.sizes()
        finished = [row for row in rows if row.status is TrialStatus.FINISHED]
        self._keep({row.key: row for row in finished if not row.orphaned})
        stored = {row.key for row in finished if (row.key, row.attempt) in sizes}
        return KeptWeights(
            tuple(row for row in finished if row.key in stored),
            tuple(row for key, row in self._kept.items() if key not in stored),
            sum(sizes.values()),
        )
