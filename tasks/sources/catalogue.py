"""The public data sets that tasks learn from: what they are, and where they would be found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tasks.base import DataError
from tasks.sources.digest import folder_digest
from tasks.sources.hub import ROOT_VARIABLE, downloaded, downloads_allowed, resolved

Origin = Literal["hub", "path", "installed", "generated"]
"""On the Hugging Face hub; handed out by others, given by path; with a package; made by a task."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set that a task can be given.

    Attributes:
        name: the folder it is looked for in under HSWEEP_DATA.
        source: name on the Hugging Face hub, a package, or who hands it out.
        tasks: classes of tasks that read it.
        content: what it holds, in a few words.
        licence: its terms, in a few words.
        origin: where it comes from.
        configs: configurations that are read; empty for the default one.
    """

    name: str
    source: str
    tasks: tuple[str, ...]
    content: str
    licence: str
    origin: Origin = "hub"
    configs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Where a data set lies on this machine.

    Attributes:
        data_set: which.
        folder: its folder; None where there is none.
        num_files: files in it.
        num_bytes: their size together.
    """

    data_set: DataSet
    folder: Path | None
    num_files: int = 0
    num_bytes: int = 0

    @property
    def is_there(self) -> bool:
        """Whether a task can be given it now; what is generated always is."""
        return self.folder is not None or self.data_set.origin in ("installed", "generated")

    def fingerprint(self) -> str | None:
        """Return a hash of every file's name and content, of what comes with a package that of its
        content; None where there is nothing, or where settings and seeds decide what is generated.
        """
        if self.data_set.origin == "installed":
            return _installed_digest(self.data_set.name)
        return None if self.folder is None else folder_digest(self.folder)


CATALOGUE: Final = (
    DataSet(
        "digits",
        "scikit-learn",
        ("Images", "Pixels"),
        "1,797 grey 8x8 images of digits",
        "BSD-3-Clause",
        origin="installed",
    ),
    DataSet(
        "docstrings",
        "Python's standard library",
        ("Stories", "MaskedText", "Passages"),
        "some 4,000 docstrings",
        "PSF-2.0",
        origin="installed",
    ),
    DataSet(
        "cifar10",
        "uoft-cs/cifar10",
        ("Images", "Pixels"),
        "60,000 colour 32x32 images in 10 classes",
        "none stated; cite Krizhevsky 2009",
    ),
    DataSet(
        "imagenet-1k",
        "ILSVRC/imagenet-1k",
        ("StreamedImages",),
        "1.3 million photographs in 1,000 classes",
        "research only, to be accepted on the hub",
    ),
    DataSet(
        "msmarco",
        "mteb/msmarco",
        ("Passages",),
        "queries, 8.8 million passages and judgements",
        "non-commercial research",
        configs=("default", "corpus", "queries"),
    ),
    DataSet(
        "tinystories",
        "roneneldan/TinyStories",
        ("Stories", "MaskedText"),
        "2.1 million generated short stories",
        "CDLA-Sharing-1.0",
    ),
    DataSet(
        "minipile",
        "JeanKaddour/minipile",
        ("MaskedText", "Stories"),
        "a million documents of the Pile",
        "as its parts; see its card",
    ),
    DataSet(
        "glue",
        "nyu-mll/glue",
        ("Glue",),
        "nine tasks of language understanding",
        "differs by task; see its card",
    ),
    DataSet(
        "imdb",
        "stanfordnlp/imdb",
        ("ByteText",),
        "50,000 film reviews, good or bad",
        "none stated; cite Maas et al. 2011",
    ),
    DataSet(
        "aan",
        "ACL Anthology Network (new_aan_pairs.*.tsv)",
        ("DocumentPairs",),
        "pairs of papers, citing or not",
        "not redistributable",
        origin="path",
    ),
    DataSet(
        "retrieval",
        "tasks.synthetic.retrieval",
        ("Retrieval",),
        "sums of maxima over normal vectors",
        "none needed",
        origin="generated",
    ),
    DataSet(
        "nearest_neighbor",
        "tasks.synthetic.nearest_neighbor",
        ("NearestNeighbor",),
        "points on a sphere, in a stream",
        "none needed",
        origin="generated",
    ),
    DataSet(
        "listops",
        "tasks.lra.listops",
        ("ListOps",),
        "nested expressions of list operations, kept in the cache",
        "none needed",
        origin="generated",
    ),
    DataSet(
        "pathfinder",
        "tasks.lra.pathfinder",
        ("Pathfinder",),
        "drawings of dashed contours, kept in the cache",
        "none needed",
        origin="generated",
    ),
)


def find(data_set: DataSet) -> Found:
    """Return where a data set lies: under HSWEEP_DATA, by its short name or its hub name; else,
    where downloads are turned on, among those of the hub."""
    if data_set.origin in ("installed", "generated"):
        return Found(data_set, None)
    names = (data_set.source, data_set.name) if data_set.origin == "hub" else (data_set.name,)
    folders = [Path(resolved(name)) for name in names]
    if data_set.origin == "hub" and downloads_allowed():
        folders.append(downloaded(data_set.source))
    for folder in folders:
        if folder.is_dir():
            files = [path for path in folder.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files)
            return Found(data_set, folder, len(files), size)
    return Found(data_set, None)


def _installed_digest(name: str) -> str:
    if name == "digits":
        from tasks.vision.image_arrays import digits_digest

        return digits_digest()
    from tasks.sources.docstrings import docstrings_digest

    return docstrings_digest()


def by_name(name: str) -> DataSet:
    """Return the data set of that short name or source.

    Raises:
        DataError: there is none.
    """
    for data_set in CATALOGUE:
        if name in (data_set.name, data_set.source):
            return data_set
    names = ", ".join(data_set.name for data_set in CATALOGUE)
    raise DataError(
        f"there is no data set {name!r} in the catalogue; it has {names}. Other data are given "
        f"to a task by their folder, or found by name under {ROOT_VARIABLE}"
    )
