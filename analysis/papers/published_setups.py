"""Which studies repeat which published results, and how their axes name the same things.

A setup belongs to a group of published results. It reads from a study's point, and from the tasks
that the study has recorded, the settings by which these results are told apart. Whatever the paper
held fixed has to be so in the study too; a study of another scale (digits for ImageNet) has no
comparable number, and its differing setting says why.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from analysis.papers.published_results import (
    LEAN,
    NEAREST_NEIGHBOR,
    NYSTROMFORMER,
    REAL_DATA,
    RETRIEVAL,
    PublishedResult,
)

Point = Mapping[str, Any]
Tasks = Sequence[Mapping[str, Any]]
"""What a study recorded of its tasks: their fields, the class under ``type``."""

UNKNOWN_NUMBER: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A group of published results and the studies that repeat it.

    Attributes:
        name: what a user calls it.
        title: paper and subject.
        sweeps: names of the sweeps that are about it.
        tasks: classes of tasks that are about nothing else.
        results: what was published.
        read: gives a point's settings under the names of the results; None is a setting that the
            point does not have.
        fixed: what holds for all of these results and is not among their settings.
        defaults: what a result without this setting has, and a study without such an axis.
        best_of: seeds of which each printed value is the best; 1 is a single run,
            ``UNKNOWN_NUMBER`` the best of some.
        instead: metrics to take where a study lacks the published one.
        notes: what differs even where all settings agree.
    """

    name: str
    title: str
    sweeps: tuple[str, ...]
    tasks: tuple[str, ...]
    results: tuple[PublishedResult, ...]
    read: Callable[[Point, Tasks], Mapping[str, Any]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    best_of: int = 1
    instead: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("fixed", "defaults", "instead"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def wanted(self, result: PublishedResult) -> dict[str, Any]:
        """Return every setting that a study's point must have to be compared with ``result``."""
        return {**self.fixed, **self.defaults, **result.settings}

    def settings(self, point: Point, tasks: Tasks) -> dict[str, Any]:
        """Return a point's settings; what it does not say is as by default."""
        plain = {name: _unpacked(value) for name, value in point.items()}
        said = {name: value for name, value in self.read(plain, tasks).items() if value is not None}
        return {**self.defaults, **said}


def _unpacked(value: Any) -> Any:
    """Return a tuple that a table holds as text, and whole numbers as such."""
    if isinstance(value, str) and value.startswith("["):
        try:
            return tuple(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if value != value else value


def _said(point: Point, tasks: Tasks, *names: str) -> dict[str, Any]:
    """Return settings as the point has them, else as all recorded tasks agree on them."""
    return {name: point.get(name, _agreed(tasks, name)) for name in names}


def _agreed(tasks: Tasks, name: str, type_: str | None = None) -> Any:
    values = [
        task.get(name) for task in tasks if name in task and type_ in (None, task.get("type"))
    ]
    return values[0] if values and all(value == values[0] for value in values) else None


def _data(point: Point, tasks: Tasks) -> Any:
    """Return the data that the tasks have found, which may be a folder for a hub's name."""
    recorded = _agreed(tasks, "data")
    return point.get("data") if recorded is None else recorded


def _named(data: Any, known: Mapping[str, str]) -> Any:
    """Return a data set's name in the paper; another one, or a folder, stays what it is."""
    return known.get(str(data), data)


def _retrieval(point: Point, tasks: Tasks) -> dict[str, Any]:
    names = ("dim", "seq_len", "outer", "sets", "samples", "num_train")
    shape = {name: point.get(name) for name in ("heads", "depth", "embed_dim")}
    return {**_said(point, tasks, *names), **shape}


def _cifar10(point: Point, tasks: Tasks) -> dict[str, Any]:
    shape = {name: point.get(name) for name in ("heads", "depth", "head_dim", "patch_size")}
    data = _data(point, tasks)
    return {
        **shape,
        "seq_len": point.get("seq_len"),
        "data": _named(data, {"uoft-cs/cifar10": "CIFAR-10"}),
        "max_train": _agreed(tasks, "max_train"),
    }


def _passages(point: Point, tasks: Tasks) -> dict[str, Any]:
    shape = {name: point.get(name) for name in ("heads", "depth")}
    data = _data(point, tasks)
    return {
        **shape,
        **_said(point, tasks, "seq_len", "max_train"),
        "data": _named(data, {"mteb/msmarco": "MS MARCO"}),
    }


def _nearest_neighbor(point: Point, tasks: Tasks) -> dict[str, Any]:
    said = _said(point, tasks, "dim", "seq_len", "points", "doubled")
    rank, widening = point.get("rank", point.get("head_dim")), point.get("widening")
    positions, dim = point.get("positions"), said["dim"]
    heads = point.get("heads")
    if heads is None and None not in (rank, widening, dim):
        heads = widening * dim * (2 if positions == "concatenated" else 1) // rank
    return {
        **said,
        "heads": heads,
        "head_dim": rank,
        "depth": point.get("depth"),
        "positions": positions,
    }


_TABLE_4: Final = {
    "vit": "vit_base",
    "deit": "deit_base",
    "xcit": "xcit_medium",
    "tnt": "tnt_base",
    "volo": "volo_d3",
    "davit": "davit_base",
}
_TABLE_5: Final = {
    "vit": "vit_large",
    "deit": "deit_large",
    "xcit": "xcit_large",
    "volo": "volo_d4",
    "davit": "davit_large",
}
_IMAGENET: Final = {"imagenet-1k": "ImageNet-1k", "ILSVRC/imagenet-1k": "ImageNet-1k"}


def _images(families: Mapping[str, str]) -> Callable[[Point, Tasks], dict[str, Any]]:
    def read(point: Point, tasks: Tasks) -> dict[str, Any]:
        shape = {name: point.get(name) for name in ("depth", "heads", "head_dim", "mlp_ratio")}
        data = _data(point, tasks)
        family = point.get("family", "vit")
        return {**shape, "model": families.get(family, family), "data": _named(data, _IMAGENET)}

    return read


def _bert(point: Point, tasks: Tasks) -> dict[str, Any]:
    scored = _agreed(tasks, "tasks", "Glue")
    return {
        "depth": point.get("depth"),
        "heads": point.get("heads"),
        "embed_dim": point.get("embed_dim"),
        "tasks": len(scored) if scored else "none of GLUE",
    }


def _gpt2(point: Point, tasks: Tasks) -> dict[str, Any]:
    data = _data(point, tasks)
    heads, width = point.get("heads"), point.get("embed_dim", 512)
    return {
        "depth": point.get("depth"),
        "heads": heads,
        # As published, heads are the width's share rounded down.
        "head_dim": point.get("head_dim") or (width // heads if heads else None),
        "embed_dim": width,
        "data": _named(data, {"roneneldan/TinyStories": "TinyStories"}),
        **_said(point, tasks, "seq_len", "layout", "max_documents"),
    }


_ARENA: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "listops": ("ListOps", {"num_train": 96_000, "max_length": 2_000}),
    "text": ("ByteText", {"max_bytes": 4_000, "data": "IMDB"}),
    "retrieval": ("DocumentPairs", {"max_bytes": 4_000, "data": "AAN"}),
    "image": ("Pixels", {"image_size": 32, "data": "CIFAR-10"}),
    "pathfinder": ("Pathfinder", {"num_train": 160_000, "contour_length": 14}),
}
_ARENA_DATA: Final = {"stanfordnlp/imdb": "IMDB", "aan": "AAN", "uoft-cs/cifar10": "CIFAR-10"}


def _arena(point: Point, tasks: Tasks) -> dict[str, Any]:
    name = str(point.get("task"))
    type_, published = _ARENA.get(name, (name, {}))
    recorded = {key: _agreed(tasks, key, type_) for key in published}
    if "data" in recorded:
        recorded["data"] = _named(recorded["data"], _ARENA_DATA)
    shape = {key: point.get(key) for key in ("depth", "heads", "head_dim")}
    return {**recorded, **shape, "task": name, "model": "lra"}


def _of(tables: tuple[str, ...]) -> tuple[PublishedResult, ...]:
    return tuple(result for result in LEAN if result.source.endswith(tables))


_ONE_RUN: Final = "printed values are apparently single runs"

SETUPS: Final = (
    Setup(
        name="retrieval",
        title="paper H, the synthetic example and its ablations",
        sweeps=("retrieval_heads",),
        tasks=("Retrieval",),
        results=RETRIEVAL,
        read=_retrieval,
        fixed={"outer": "sum", "sets": "all", "samples": "fixed", "num_train": 8_000},
        defaults={
            **{"depth": 1, "embed_dim": None, "num_train": 8_000},
            **{"outer": "sum", "sets": "all", "samples": "fixed"},
        },
        best_of=UNKNOWN_NUMBER,
        notes=(
            "the paper states neither optimiser and epochs nor the width of a head and of the "
            "token encoder",
        ),
    ),
    Setup(
        name="cifar10",
        title="paper H, CIFAR-10",
        sweeps=("cifar10_heads",),
        tasks=(),
        results=tuple(result for result in REAL_DATA if result.task == "cifar10"),
        read=_cifar10,
        fixed={"data": "CIFAR-10", "patch_size": 8, "max_train": None},
        defaults={"depth": 4, "max_train": None},
        best_of=UNKNOWN_NUMBER,
        notes=("the paper states neither recipe and epochs nor the rule of the border",),
    ),
    Setup(
        name="passages",
        title="paper H, MS MARCO",
        sweeps=("msmarco_heads",),
        tasks=("Passages",),
        results=tuple(result for result in REAL_DATA if result.task == "passages"),
        read=_passages,
        fixed={"data": "MS MARCO", "max_train": None},
        defaults={"depth": 2, "max_train": None},
        best_of=UNKNOWN_NUMBER,
        notes=("the paper states neither the width of a head nor recipe, queries and pooling",),
    ),
    Setup(
        name="nearest_neighbor",
        title="paper Q, figure 1 and the figures on length and positions",
        sweeps=("nearest_neighbor_rank",),
        tasks=("NearestNeighbor",),
        results=NEAREST_NEIGHBOR,
        read=_nearest_neighbor,
        fixed={"points": "iid", "doubled": False},
        defaults={"positions": "none", "points": "iid", "doubled": False},
        best_of=5,
        instead={"train_squared_error": "squared_error"},
        notes=(
            "published values are the least over epochs, of training batches that repeat; without "
            "`replay` the study's are of held-out sequences at the end",
        ),
    ),
    Setup(
        name="lean_base",
        title="paper L, table 4",
        sweeps=("vision_families", "vit_lean"),
        tasks=(),
        results=_of(("table 4",)),
        read=_images(_TABLE_4),
        fixed={"data": "ImageNet-1k"},
        defaults={"head_dim": None},
        notes=(_ONE_RUN,),
    ),
    Setup(
        name="lean_large",
        title="paper L, table 5",
        sweeps=("vision_large",),
        tasks=(),
        results=_of(("table 5",)),
        read=_images(_TABLE_5),
        fixed={"data": "ImageNet-1k"},
        defaults={"head_dim": None},
        notes=(_ONE_RUN,),
    ),
    Setup(
        name="bert",
        title="paper L, table 1",
        sweeps=("crammed_bert",),
        tasks=("Glue",),
        results=tuple(
            replace(result, settings={k: v for k, v in result.settings.items() if k != "model"})
            for result in _of(("table 1",))
        ),
        read=_bert,
        fixed={"embed_dim": 768, "tasks": 8},
        defaults={"embed_dim": 768},
        notes=(_ONE_RUN, "pre-training text, batch and its growth are not the published ones"),
    ),
    Setup(
        name="gpt2",
        title="paper L, table 2",
        sweeps=("gpt2_tinystories",),
        tasks=("Stories",),
        results=tuple(
            replace(result, settings={k: v for k, v in result.settings.items() if k != "model"})
            for result in _of(("table 2",))
        ),
        read=_gpt2,
        fixed={
            **{"embed_dim": 512, "seq_len": 64, "data": "TinyStories"},
            **{"layout": "windows", "max_documents": 12_000},
        },
        notes=(_ONE_RUN, "here the whole validation text is used, there 200 random batches of it"),
    ),
    Setup(
        name="lra",
        title="paper L, table 3, and the published Nyströmformer",
        sweeps=("lra_nystromformer",),
        tasks=(),
        results=tuple(
            replace(result, settings={**result.settings, **_ARENA[result.settings["task"]][1]})
            for result in (*_of(("table 3",)), *NYSTROMFORMER)
        ),
        read=_arena,
        defaults={"attention": "nystrom"},
        notes=(
            _ONE_RUN,
            "published test accuracy is that of the checkpoint best on the development set; here "
            "it is that of the last report",
        ),
    ),
)
"""Every setup. None counts a folder as a published data set, since its content is not known."""


def setup_of(sweep: str, tasks: Tasks) -> Setup | None:
    """Return the setup that a study is about: by its sweep's name, else by its only task."""
    for setup in SETUPS:
        if sweep in setup.sweeps:
            return setup
    kinds = {str(task.get("type")) for task in tasks}
    found = [setup for setup in SETUPS if kinds and kinds <= set(setup.tasks)]
    return found[0] if len(found) == 1 else None
