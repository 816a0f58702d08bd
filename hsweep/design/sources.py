"""The sources of a script's metrics, as frozen values of a sweep.

Each has the options of ``Options``. All paths are relative to the trial's folder (``{folder}`` in
the command) and may have wildcards, as in ``"lightning_logs/version_*/metrics.csv"``: the files
are read in the order of their names, numbers in them by size.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

from hsweep.errors import UserError, is_number, shown, unknown_name
from hsweep.reporting import OUTPUT_FILE, REPORTS_FILE

if TYPE_CHECKING:
    from hsweep.design.budget import BudgetUnit


class Options(TypedDict, total=False):
    """The options of every source.

    Attributes:
        unit: the key of the value that counts the budget; by default the one that a row has of
            ``COUNTERS``.
        offset: number that is added to that value: 1 for a script that counts from 0. By default
            the rows tell: a script with a row of unit 0 that ends by itself one unit before the
            budget counts from 0; in any other, that row was measured before training.
        per_unit: how many of the script's counts make one unit of the budget: 500 where it
            counts steps, the budget is in epochs and an epoch has 500 steps.
        metrics: other names for metrics, ``{"val_acc": "top1"}``: the script's name, then ours. A
            unit is reported once it has all these metrics and the metric of the sweep.
    """

    unit: str | None
    offset: float | None
    per_unit: float
    metrics: Mapping[str, str]


Kind = Literal["stdout", "json_lines", "csv_file", "tensorboard", "trainer_state"]

STEP: Final = "step"
"""The key of the step that TensorBoard's scalars have."""
COUNTERS: Final[Mapping["BudgetUnit", tuple[str, ...]]] = {
    "epochs": ("epoch",),
    "steps": (STEP, "iter"),
    "seconds": ("seconds",),
}
"""The keys that count a budget of each unit where ``unit`` names none, first choice first."""


@dataclass(frozen=True, slots=True)
class MetricSource:
    """Where metrics come from; see ``Options`` for the other attributes.

    Attributes:
        kind: lines of output, a file with one JSON object a line, a file with a line of names and
            rows of values, a folder with TensorBoard's event files, or the output folder of Hugging
            Face's Trainer.
        where: a pattern for lines, or the path of files or of a folder.
        unit: None for what the budget counts, and of TensorBoard's files for their steps.

    Raises:
        UserError: an option that cannot be used.
    """

    kind: Kind
    where: str
    unit: str | None = None
    offset: float | None = None
    per_unit: float = 1
    metrics: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.offset is not None and not is_number(self.offset):
            raise UserError(f"offset is a finite number, not {shown(self.offset)}")
        if not (is_number(self.per_unit) and self.per_unit > 0):
            raise UserError(
                f"per_unit is how many of the script's counts make one unit of the budget: a "
                f"finite number above 0, not {shown(self.per_unit)}"
            )
        names = [ours for _, ours in self.metrics]
        if len(set(names)) < len(names):
            raise UserError(
                f"metrics gives two of the script's metrics one name: {dict(self.metrics)}; give "
                "each a name of its own"
            )
        if self.kind == "stdout":
            self._check_pattern()
        else:
            self._check_path()

    def _check_pattern(self) -> None:
        try:
            groups = re.compile(self.where).groupindex
        except re.error as error:
            raise UserError(
                f"a pattern for lines is a regular expression; {shown(self.where)} is none: {error}"
            ) from None
        counters = [name for unit in COUNTERS for name in self.counters(unit)]
        if len(groups) < 2 or not groups.keys() & set(counters):
            raise self._no_unit(counters)

    def _no_unit(self, counters: Sequence[str]) -> UserError:
        groups = ", ".join(re.compile(self.where).groupindex) or "nothing"
        name = "" if self.unit else " (unit= says another name)"
        return UserError(
            "a pattern for lines names what it finds, a metric and what counts the budget at "
            rf"least, as in (?P<{counters[0]}>\d+){name}; {shown(self.where)} names {groups}"
        )

    def counters(self, unit: "BudgetUnit") -> tuple[str, ...]:
        """Return the keys that may count a budget of a unit, first choice first."""
        if self.unit is None and self.kind == "tensorboard":
            return (STEP,)
        return COUNTERS[unit] if self.unit is None else (self.unit,)

    def check_unit(self, unit: "BudgetUnit") -> None:
        """Raise UserError if nothing can count a budget of a unit."""
        counters = self.counters(unit)
        if renamed := [name for name in counters if name in dict(self.metrics)]:
            raise UserError(f"{shown(renamed[0])} counts the budget, so metrics cannot rename it")
        is_pattern = self.kind == "stdout"
        if is_pattern and not re.compile(self.where).groupindex.keys() & set(counters):
            raise self._no_unit(counters)

    def _check_path(self) -> None:
        path = PurePath(self.where)
        if not self.where or path.is_absolute() or ".." in path.parts:
            raise UserError(
                "where metrics come from is a path in the trial's folder, which the command names "
                f"as {{folder}}; {shown(self.where)} is outside it, and all trials would share it"
            )

    @property
    def files(self) -> str:
        """The path, in the trial's folder, that is read."""
        return OUTPUT_FILE if self.kind == "stdout" else self.where

    def may_have(self, metric: str) -> bool:
        """Whether its rows may hold a metric of this name of ours; of a pattern that is known."""
        names = dict(self.metrics)
        groups = re.compile(self.where).groupindex if self.kind == "stdout" else (metric,)
        return metric in {names.get(name, name) for name in groups}

    def row_unit(self, count: float) -> tuple[int, bool]:
        """Return the budget unit that one of the script's counts belongs to, and whether the count
        ends that unit."""
        exact = (count + (self.offset or 0)) / self.per_unit
        nearest = round(exact)
        is_end = math.isclose(exact, nearest, rel_tol=1e-9, abs_tol=1e-6)
        return (nearest if is_end else math.ceil(exact)), is_end


TRAINER_STATE_FILE: Final = "trainer_state.json"


def stdout(pattern: str, **options: Unpack[Options]) -> MetricSource:
    r"""Metrics from lines of the script's standard output and error.

    Args:
        pattern: a regular expression looked for in every line; its named groups are the unit and
            the metrics: ``r"epoch (?P<epoch>\d+) .* top1 (?P<top1>[\d.]+)"``. ``num_params``
            may stand in a line of its own, printed once: ``r"(?P<num_params>\S+) parameters|..."``
            with 1,234 or 1.2M.
        options: see ``Options``.

    Raises:
        UserError: no regular expression, or one that does not name the unit and a metric.
    """
    return MetricSource("stdout", pattern, **_options(options))


def json_lines(path: str, **options: Unpack[Options]) -> MetricSource:
    """Metrics from a file that the script appends one JSON object a line to."""
    return MetricSource("json_lines", path, **_options(options))


def csv_file(path: str, **options: Unpack[Options]) -> MetricSource:
    """Metrics from a CSV file that the script appends to or rewrites, separated by commas,
    semicolons or tabs. Rows of one unit are merged, empty cells are holes."""
    return MetricSource("csv_file", path, **_options(options))


def tensorboard(folder: str, **options: Unpack[Options]) -> MetricSource:
    """Metrics from the scalars of TensorBoard's event files, in a folder and those below it.

    The step counts the budget unless ``unit`` names a tag. A writer may hold values back for up to
    two minutes (``flush_secs``), which delays early stopping.
    """
    return MetricSource("tensorboard", folder, **_options(options))


def trainer_state(folder: str = ".", **options: Unpack[Options]) -> MetricSource:
    """Metrics from the ``trainer_state.json`` that Hugging Face's Trainer writes into its output
    folder's ``checkpoint-*`` folders, whenever it saves one; it has ``epoch`` and ``step``."""
    return MetricSource("trainer_state", folder, **_options(options))


def reports(**options: Unpack[Options]) -> MetricSource:
    """Metrics from the script's calls of ``hsweep.report(epoch=3, top1=0.81)``."""
    return MetricSource("json_lines", REPORTS_FILE, **_options(options))


def _options(options: Options) -> dict[str, Any]:
    for name in options:
        if name not in Options.__annotations__:
            raise unknown_name("option", name, Options.__annotations__)
    metrics = options.get("metrics", {})
    if not isinstance(metrics, Mapping):
        raise UserError(
            f'metrics maps the script\'s names to ours, {{"val_acc": "top1"}}, not {shown(metrics)}'
        )
    return {**options, "metrics": tuple(metrics.items())}
