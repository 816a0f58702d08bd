"""The papers' printed numbers, and how a study's axes name the same things.

The numbers are in ``parameter_counts.json`` and ``results.json``. A setup is a group of published
results. It reads from a study's point, and from the tasks that the study has recorded, the settings
by which these results are told apart. Whatever the paper held fixed has to be so in the study too;
a study of another scale (digits for ImageNet) has no comparable number, and its differing setting
says why. No folder counts as a published data set, since its content is not known.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from analysis.values import AxisValue, Jsonable

Point = Mapping[str, Any]
Tasks = Sequence[Mapping[str, Any]]
"""What a study recorded of its tasks: their fields, the class under ``type``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedValue(Jsonable):
    """A published result.

    Attributes:
        paper: H, Q, L or N.
        source: table, figure or passage.
        settings: what distinguishes it from the others.
        upper: the upper end of a range.
        reading: printed, read off a figure (digitised, 1 to 2 % off), or approximate: an order of
            magnitude, or a marker that another one hides.
    """

    paper: str
    source: str
    settings: dict[str, AxisValue]
    metric: str
    value: float
    upper: float | None = None
    reading: Literal["printed", "digitised", "approximate"] = "printed"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A group of published results and the studies that repeat it.

    Attributes:
        name: what a user calls it.
        sweeps: names of the sweeps that are about it.
        tasks: classes of tasks that are about nothing else.
        fixed: what holds for all of these results and is not among their settings.
        defaults: what a result without this setting has, and a study without such an axis.
        families: a study's family to the published model.
        of_task: where the axis ``task`` says what is learned, the class of each task.
        best_of: seeds of which each printed value is the best; 1 is a single run, None the best of
            a number that is not given.
        instead: metrics to take where a study lacks the published one.
        notes: what differs even where all settings agree.
    """

    name: str
    title: str
    sweeps: tuple[str, ...]
    values: tuple[PrintedValue, ...]
    tasks: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)
    of_task: Mapping[str, str] = field(default_factory=dict)
    best_of: int | None = 1
    instead: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def requirements(self, value: PrintedValue) -> dict[str, Any]:
        """Return every setting that a study's point must have to be compared with ``value``."""
        return {**self.fixed, **self.defaults, **value.settings}

    def settings(self, point: Point, tasks: Tasks) -> dict[str, Any]:
        """Return a point's settings under the names of the results.

        What the point does not have is as all recorded tasks agree on it, else as by default. Of
        the data the tasks know better: they have found a hub's name in a folder.
        """
        plain = {name: _plain(value) for name, value in point.items()}
        if type_ := self.of_task.get(str(plain.get("task"))):
            tasks = [task for task in tasks if task.get("type") == type_]
        names = dict.fromkeys(name for value in self.values for name in self.requirements(value))
        values = {name: plain.get(name, _agreed(tasks, name)) for name in names}
        data = _agreed(tasks, "data")
        data = plain.get("data") if data is None else data
        values["data"] = _content("results")["data_names"].get(str(data), data)
        if self.families:
            family = plain.get("family", "vit")
            values["model"] = self.families.get(family, family)
        # Settings that no axis bears.
        match self.name:
            case "nearest_neighbor":
                values |= _heads_of_ranks(plain, tasks)
            case "bert":
                scored = _agreed([task for task in tasks if task.get("type") == "Glue"], "tasks")
                values["tasks"] = len(scored) if scored else "none of GLUE"
            case "gpt2":
                # Heads as wide as their share of the width, rounded down, as published.
                heads, width = plain.get("heads"), plain.get("embed_dim", 512)
                values["head_dim"] = plain.get("head_dim") or (width // heads if heads else None)
        return {**self.defaults, **{k: value for k, value in values.items() if value is not None}}


def _plain(value: Any) -> Any:
    """Return stages as one text, whichever way a table holds them, and whole numbers as such."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    if isinstance(value, list | tuple):
        return str(list(value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if value != value else value


def _agreed(tasks: Tasks, name: str) -> Any:
    values = [task.get(name) for task in tasks if name in task]
    return values[0] if values and all(value == values[0] for value in values) else None


def _heads_of_ranks(point: Point, tasks: Tasks) -> dict[str, Any]:
    """Return the heads of paper Q: a layer averages ``widening`` attentions."""
    rank, widening = point.get("rank", point.get("head_dim")), point.get("widening")
    dim, heads = point.get("dim", _agreed(tasks, "dim")), point.get("heads")
    if heads is None and None not in (rank, widening, dim):
        # Concatenated positions are as many numbers as the points have.
        heads = widening * dim * (2 if point.get("positions") == "concatenated" else 1) // rank
    return {"heads": heads, "head_dim": rank}


@cache
def setups() -> tuple[Setup, ...]:
    """Return every group of published results."""
    return tuple(map(_setup, _content("results")["groups"]))


def setup_of(sweep: str, tasks: Tasks) -> Setup | None:
    """Return the setup that a study is about: by its sweep's name, else by its only task."""
    for setup in setups():
        if sweep in setup.sweeps:
            return setup
    kinds = {str(task.get("type")) for task in tasks}
    matches = [setup for setup in setups() if kinds and kinds <= set(setup.tasks)]
    return matches[0] if len(matches) == 1 else None


@cache
def _content(name: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8"))


def _setup(group: dict[str, Any]) -> Setup:
    group = dict(group)
    kinds = group.pop("of_task", {})
    values = [
        *_scores(group),
        *(value for block in group.pop("values", ()) for value in _block(block)),
    ]
    for value in values:
        if kinds:
            value.settings.update(kinds[value.settings["task"]]["settings"])
    lists: dict[str, Any] = {
        name: tuple(group.pop(name, ())) for name in ("sweeps", "tasks", "notes")
    }
    of_task = {name: kind["type"] for name, kind in kinds.items()}
    return Setup(values=tuple(values), of_task=of_task, **lists, **group)


def _block(block: Mapping[str, Any]) -> list[PrintedValue]:
    """Return the rows of a block: what is no field of a value is one of its settings."""
    names = {field.name for field in fields(PrintedValue)}
    shared = {name: value for name, value in block.items() if name not in ("rows", "settings")}
    return [
        PrintedValue(
            **{**shared, **{name: value for name, value in row.items() if name in names}},
            settings={
                **block.get("settings", {}),
                **{name: value for name, value in row.items() if name not in names},
            },
        )
        for row in block["rows"]
    ]


def _scores(group: dict[str, Any]) -> list[PrintedValue]:
    """Return the scores that stand beside the parameter counts of the group's table."""
    tables, unasked = group.pop("counts", ()), group.pop("unasked", ())
    return [
        PrintedValue(
            paper="L",
            source=row["source"],
            settings={
                name: str(value) if isinstance(value, list) else value
                for name, value in {"model": row["model"], **row["settings"]}.items()
                if value is not None and name not in unasked
            },
            metric=row["metric"],
            value=row["score"],
            note=row.get("score_source", "apparently one run"),
        )
        for row in _content("parameter_counts")["rows"]
        if row["table"] in tables and "score" in row
    ]
