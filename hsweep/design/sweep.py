"""A sweep: one question as a frozen value, and its variants."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

from hsweep.design.budget import Budget
from hsweep.design.domain import AxisValue
from hsweep.design.early_stopping import Asha, EarlyStopping
from hsweep.design.fields import field_names, has_field, replacements, with_replaced
from hsweep.design.labels import listed
from hsweep.design.metric_names import goal_of, scale_of
from hsweep.design.point import Point
from hsweep.design.question import Question
from hsweep.design.recipe import Recipe
from hsweep.design.scales import Goal
from hsweep.design.search import Search, search_named
from hsweep.design.space import Space
from hsweep.design.trial import Resources
from hsweep.design.user_training import Command, TrainFunction, UserTraining
from hsweep.errors import (
    UserError,
    check_choice,
    check_whole,
    is_number,
    make_plain,
    shown,
    unknown_name,
)
from hsweep.paths import check_study_name
from models.base import AnyModelConfig
from models.conditioning import Conditioning, is_probed
from tasks.base import Metric, Task

DEFAULT_PRESET: Final = "quick"
RESERVED_AXES: Final = frozenset(
    {
        "key", "study", "sweep", "preset", "ordinal", "seed", "stratum", "status", "reason",
        "attempt", "failures", "reused_from", "orphaned", "micro_batch", "note",
        "reached", "budget", "num_params", "flops_per_example",
        "train_flops_per_example", "train_memory_bytes",
        "wall_seconds", "train_seconds", "data_seconds", "latency_seconds",
        "mlflow_run_id", "mlflow_url", "unit", "step", "epochs", "steps", "seconds",
        "report_every", "replicates", "cpus", "gpus", "num_points", "isolate", "keep",
        "train_metrics", "search", "final",
    }
)  # fmt: skip
"""Names with a meaning of their own in tables and on the command line."""

TrainMetrics = Literal["last", "always"]
"""The reports at which metrics of training examples are measured if the deciding metric is
another."""

Keep = Literal["none", "best", "last"]
"""The trials whose final weights a study keeps."""

FinalChoice = Literal["last", "best"]
"""The report of a trial that counts for it."""

_OWNERS: Final = {
    **dict.fromkeys(("keep", "train_metrics", "isolate", "replicates", "search", "final"), "sweep"),
    **dict.fromkeys(("cpus", "gpus", "processes", "spread"), "resources"),
    "report_every": "budget",
}
"""The field of a sweep that each setting belongs to."""
_WORDS: Final = {
    "goal": get_args(Goal),
    "train_metrics": get_args(TrainMetrics),
    "keep": get_args(Keep),
    "final": get_args(FinalChoice),
}
_OF_RECIPE: Final = "recipe."
"""The prefix of a recipe's fields in ``--set``."""

_KINDS: Final[dict[str, tuple[Any, str]]] = {
    "space": (Space, "built with grid(...), choice(...) and the like"),
    "metric": (str, "the name of a metric"),
    "budget": (Budget, "epochs(...), steps(...) or seconds(...)"),
    "question": ((Question, NoneType), "a Transition, lean(...), Pareto or None"),
    "early_stopping": ((EarlyStopping, NoneType), "an Asha(...), a Median(...) or None"),
    "search": (
        Search,
        "grid_search(), adaptive_search(), random_search(...) or optuna_search(...)",
    ),
    "probe": ((Conditioning, NoneType), "a Conditioning or None"),
    "isolate": (bool, "True or False"),
    "presets": (Mapping, "a dictionary of preset(...) by name"),
    "description": (str, "text"),
}
"""The types of a sweep's fields, and a description of valid values."""

_PER_POINT: Final[dict[str, tuple[type[Any], str]]] = {
    "recipe": (Recipe, _OF_RECIPE),
    "resources": (Resources, ""),
}
"""Fields of a sweep that may depend on the point, with the prefix of their settings."""
_LONGEST: Final = 10**9
"""The most seconds that an operating system's timer can wait."""

T = TypeVar("T")
PerPoint: TypeAlias = T | Callable[[Point], T]


@dataclass(frozen=True, slots=True)
class Preset:
    """A variant of a sweep: the fields it replaces, and what to know before running it."""

    changes: Mapping[str, Any]
    note: str = ""


def preset(note: str = "", **changes: Any) -> Preset:
    """Return a variant that replaces the given fields of a sweep.

    Raises:
        UserError: a field that a sweep does not have, or its name or presets.
    """
    names = {field.name for field in fields(Sweep)} - {"name", "presets"}
    for name in changes:
        if name not in names:
            raise unknown_name("sweep field in a preset", name, names)
    return Preset(MappingProxyType(dict(changes)), note)


@dataclass(frozen=True)
class Sweep:
    """The axes to vary, the training of each point, and the question that the results shall answer.

    Trials are trained by this project's loop, over a ``task`` and a ``model``, or by the user's own
    training, ``train``. ``task``, ``model``, ``recipe`` and ``resources`` are values, or functions
    of the point. A function that raises ValueError declares its point impossible: the plan lists
    it with the reason, and it is not run.

    Attributes:
        name: also the default name of its studies.
        space: the points.
        budget: how long a trial trains when nothing stops it; a ladder has a trial of each length.
        metric: the metric that decides; by default the task's first. A user's training names one.
        goal: whether smaller or larger is better; by default as the metric is declared, or as its
            name tells.
        task: what is learned.
        model: how a point becomes a model.
        train: a user's training in place of task, model and recipe: a function ``train(point,
            run)`` (see ``hsweep.Run``), or ``command(...)``.
        describe: the cost of a point, known before its training: a function of the point that
            returns the number of parameters, a ``Cost``, a model configuration, an ``nn.Module``
            (which may be on the meta device) or ``models.base.Counts``.
        metrics: declarations of a user's metrics: their scales and chance levels. A metric without
            a declaration counts as an accuracy if it is maximised, else as a loss.
        depends_on: files and folders, from the sweep's folder, whose content the results of a
            user's training depend on, such as data and configurations. The code of a function, and
            the script and the files of up to 1 MiB that a command names, count without.
        question: what the analysis shall answer; None draws curves only.
        recipe: optimizer and schedule.
        replicates: seeds a point runs with.
        early_stopping: None lets every trial run to its end.
        resources: what one trial occupies.
        search: how points are chosen.
        max_failures: restarts of a trial that fails, before it is recorded as failed.
        checkpoint_seconds: work at risk: the most training time between two checkpoints of a trial,
            which follow reports; where these are further apart, each has one.
        report_timeout: seconds without a report after which a trial counts as hung: its process is
            ended and the trial tried again from its checkpoint; None waits for ever. Preparing the
            data counts as time to the first report, starting a process does not (it has 5 minutes
            at least). For the Ray runner: the inline runner cannot end itself.
        probe: what to measure, now and then, of the conditioning of each model's attention (see
            ``models.conditioning``); None measures nothing. The trials are the same with and
            without it, and so are their other numbers, but its time counts as theirs.
        train_metrics: when the task's metrics of training examples are measured, which costs as
            much as an evaluation: ``last``: at a trial's last report, and at every one where such a
            metric decides; ``always``: at every report. Each report has the mean loss of the
            updates before it anyway. It is no part of a trial's key.
        isolate: whether every trial has a fresh process, which costs seconds each. Otherwise
            processes train one trial after another; what a trial changes of its process is put back
            (see ``hsweep.training.process_state``), so this is for models and tasks with libraries
            that keep state of their own. The inline runner has but one process and refuses it.
        keep: whose final weights the study keeps: ``none``; ``best``: of the best trial of each
            stratum, and of the best baseline of a lean question, at the longest budget; ``last``:
            of all trials that finish. Of training by a function it is the checkpoint of the last
            report. It is no part of a trial's key.
        final: which report of a user's training counts for a trial, at its end and at the rungs of
            early stopping: its ``last`` or its ``best`` so far. A training may end by itself before
            its budget.
        presets: variants by name; the sweep as it stands is the preset ``quick``.
        description: the lab note; the loader fills in the file's docstring.
        folder: where ``depends_on`` and a command start from; the loader fills in the file's.

    Raises:
        UserError: fields that do not go together.
    """

    name: str
    space: Space
    budget: Budget
    metric: str = ""
    goal: Goal | None = None
    task: PerPoint[Task] | None = None
    model: PerPoint[AnyModelConfig] | None = None
    train: TrainFunction | Command | None = None
    describe: Callable[[Point], Any] | None = None
    metrics: Sequence[Metric] = ()
    depends_on: Sequence[str | Path] = ()
    question: Question | None = None
    recipe: PerPoint[Recipe] = field(default_factory=Recipe)
    replicates: int = 1
    early_stopping: EarlyStopping | None = None
    resources: PerPoint[Resources] = field(default_factory=Resources)
    search: Search = field(default_factory=Search)
    max_failures: int = 2
    checkpoint_seconds: float = 30.0
    report_timeout: float | None = None
    probe: Conditioning | None = None
    train_metrics: TrainMetrics = "last"
    isolate: bool = False
    keep: Keep = "none"
    final: FinalChoice = "last"
    presets: Mapping[str, Preset] = field(default_factory=dict)
    description: str = ""
    folder: str = ""

    def __post_init__(self) -> None:
        make_plain(self)
        check_study_name(self.name)
        self._check_fields()
        for axis in self.space.axes:
            if axis in RESERVED_AXES or (self.probe is not None and is_probed(axis)):
                raise UserError(
                    f"axis name {axis!r} has a meaning of its own in tables; choose another "
                    "(several seeds of each point: replicates=)"
                )
        self._check_training()
        if self.search.also and self.early_stopping is not None:
            raise UserError(
                "a search with several objectives cannot stop trials early, since a rung compares "
                "one number; set early_stopping=None"
            )
        if self.search.lists_points and not self.space.is_finite:
            next(iter(self.space.points()))  # raises, naming the infinite axis
        self._check_rungs()
        self._check_question()

    def _check_fields(self) -> None:
        """Refuse fields of another type, which would fail far from where they were given."""
        for name, (kinds, description) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
                raise UserError(f"{name} must be {description}, not {shown(value)}")
        for name, choices in _WORDS.items():
            if name != "goal" or self.goal is not None:
                check_choice(name, getattr(self, name), choices)
        check_whole("replicates", self.replicates, 1)
        check_whole("max_failures", self.max_failures, 0)
        seconds, timeout = self.checkpoint_seconds, self.report_timeout
        if not (is_number(seconds) and seconds >= 0):
            raise UserError(
                f"checkpoint_seconds must be a number of at least 0, not {shown(seconds)}"
            )
        if timeout is not None and not (is_number(timeout) and 0 < timeout <= _LONGEST):
            raise UserError(
                f"report_timeout must be a positive number of seconds up to {_LONGEST:,}, or None, "
                f"not {shown(timeout)}"
            )
        for name, variant in self.presets.items():
            if not isinstance(variant, Preset):
                raise UserError(f"preset {name!r} must be made by preset(...), not {variant!r}")

    def _check_rungs(self) -> None:
        """Refuse early stopping without rungs or with two kinds of rungs, and a ladder in a search
        that proposes points."""
        stopping, has_ladder = self.early_stopping, bool(self.budget.ladder)
        if has_ladder and self.search.method == "optuna":
            raise UserError(
                f"a search that proposes its points learns from one budget, and the ladder has "
                f"{self.budget}; give one budget, or a search that lists or draws its points"
            )
        if stopping is None:
            return
        if self.search.is_sequential and stopping.scouts is None:
            raise UserError(
                "an adaptive search says itself which trials go on, and early stopping would wait "
                "for others; set early_stopping=None, or Asha(scouts=...)"
            )
        stopping.check(self)

    def _check_training(self) -> None:
        """Refuse a sweep with no training or with two: a task and model, or ``train``."""
        if self.train is None:
            for name in ("task", "model"):
                if getattr(self, name) is None:
                    raise UserError(
                        f"a sweep needs a task and a model, or train=...; {name} is missing"
                    )
            for name in ("describe", "metrics", "depends_on", "final"):
                if getattr(self, name) not in (None, (), [], "last"):
                    raise UserError(
                        f"{name} belongs to training of your own (train=...); a task and a model "
                        "say it themselves"
                    )
            return
        named = [name for name in ("task", "model", "probe") if getattr(self, name) is not None]
        named += ["recipe"] if self.recipe != Recipe() else []
        named += ["train_metrics"] if self.train_metrics != "last" else []
        if named:
            raise UserError(
                f"train=... is all of the training, so {listed(named)} cannot be given beside it"
            )
        if not (self.describe is None or callable(self.describe)):
            raise UserError(f"describe must be a function of the point, not {shown(self.describe)}")
        for name, kind, description in (
            ("metrics", Metric, "Metric(...) objects"),
            ("depends_on", (str, Path), "paths of files and folders"),
        ):
            listing = getattr(self, name)
            is_list = isinstance(listing, (tuple, list))
            if not (is_list and all(isinstance(item, kind) for item in listing)):
                raise UserError(f"{name} is a tuple or list of {description}, not {shown(listing)}")
        if isinstance(self.train, Command) and self.keep != "none":
            raise UserError(
                f"keep={self.keep!r} keeps weights that hsweep is given, and a command gives none: "
                'what it writes stays in each trial\'s {folder}; leave keep="none"'
            )
        if self.final == "best" and self.keep != "none":
            raise UserError(
                f'keep={self.keep!r} keeps the last report\'s checkpoint, and final="best" counts '
                'another report; leave keep="none", or final="last"'
            )
        self.user_training()
        if isinstance(self.train, Command):
            self.train.metrics.check_unit(self.budget.unit)

    def user_training(self) -> UserTraining:
        """Return the user's training as a task; UserError if ``train`` is neither a function nor a
        command."""
        assert self.train is not None
        declared = {metric.name: metric for metric in self.metrics}
        deciding = declared.pop(self.metric, None) or self._undeclared_metric()
        places = tuple(str(Path(self.folder, path)) for path in self.depends_on)
        return UserTraining(self.train, (deciding, *declared.values()), places, self.folder)

    def _undeclared_metric(self) -> Metric:
        if not self.metric:
            raise UserError(
                "train=... needs the name of the metric that decides, one that it reports, as in "
                'metric="top1"'
            )
        goal = self.goal or goal_of(self.metric)
        if goal is None:
            raise UserError(
                f"whether smaller or larger values of {self.metric!r} are better is not known: "
                'give goal="min" or goal="max"'
            )
        return Metric(self.metric, goal, scale_of(self.metric, goal), "")

    @property
    def direction(self) -> Goal:
        """The goal of a sweep that has been planned."""
        assert self.goal is not None
        return self.goal

    def _check_question(self) -> None:
        """Refuse a question of axes that the space does not have."""
        question = self.question
        if self.search.is_sequential and (question is None or question.seeds is None):
            asks = "no question" if question is None else f"a {type(question).__name__} question"
            raise UserError(
                "search=adaptive trains what the sweep's question needs, round by round, and this "
                f"sweep asks {asks}, which asks for no rounds; give search=grid"
            )
        if question is None:
            return
        if question.is_own and type(question).answer is Question.answer:
            raise UserError(
                f"the question {type(question).__name__} has no answer(study), so that its runs "
                "would be paid for and not answered; define it (docs/extending.md has an example)"
            )
        named = {**question.axes, "nuisance axis in the sweep's question": question.nuisance}
        for kind, axes in named.items():
            for axis in axes:
                if axis not in self.space.axes:
                    raise unknown_name(kind, axis, self.space.axes)

    @property
    def seeds(self) -> int:
        """The seeds of each point; where the question asks for rounds, the most that may count."""
        question = self.question
        if self.search.is_sequential and question is not None and question.seeds is not None:
            return question.seeds
        return self.replicates

    @property
    def num_scouts(self) -> int:
        """The replicates of a point, from the first on, that only choose its setting."""
        return 0 if self.early_stopping is None else self.early_stopping.scouts or 0

    def with_tuned_axes(self) -> "Sweep":
        """Return the sweep with the tuned axes of its space as nuisance axes of the question, and,
        unless it sets early stopping, with scouts that tune them. A search that asks for trials
        round by round has scouts for any nuisance axes: its runs are those of one setting.

        Raises:
            UserError: an axis that has another part in the question.
        """
        question = self.question
        if question is None:
            return self
        axes = self.space.tuned_axes
        if not (axes or (self.search.is_sequential and question.nuisance)):
            return self
        nuisance = tuple(dict.fromkeys((*question.nuisance, *axes)))
        stopping = self.early_stopping
        if stopping is None and self.seeds > 1 and self.search.method != "optuna":
            scouts = question.selection_seeds(self.seeds)
            stopping = Asha(scouts=scouts, reduction_factor=2)
        question = question.with_fields(nuisance=nuisance)
        return replace(self, question=question, early_stopping=stopping)

    def with_preset(self, name: str | None) -> "Sweep":
        """Return the variant called ``name`` (None: the default, ``quick``); UserError if there is
        none."""
        name = DEFAULT_PRESET if name is None else name
        if name == DEFAULT_PRESET and name not in self.presets:
            return self
        if name not in self.presets:
            raise unknown_name("preset", name, {DEFAULT_PRESET, *self.presets})
        return replace(self, **cast(dict[str, Any], dict(self.presets[name].changes)))

    def with_settings(self, settings: Sequence[tuple[str, Sequence[AxisValue]]]) -> "Sweep":
        """Return the sweep with the settings of ``--set NAME=VALUE`` replaced, all at once, since
        some values are valid only together: axes, the budget, fields of the recipe (``recipe.lr``)
        or of the question (``margin``), resources, and the like. If a name comes twice, the last
        value counts. UserError for an unknown name, or values it cannot take."""
        space = self.space
        groups: dict[str, dict[str, Sequence[AxisValue]]] = defaultdict(dict)
        for name, values in settings:
            if name in space.axes:
                space = space.override(name, values)
            else:
                groups[self._owner_of(name)][name.removeprefix(_OF_RECIPE)] = values
        changes: dict[str, Any] = {"space": space}
        for owner, chosen in groups.items():
            before = getattr(self, owner, self)
            if owner == "budget":
                changes[owner] = _changed_budget(self.budget, chosen)
            elif owner == "sweep":
                changes |= replacements(self, chosen)
                if "search" in changes:
                    changes["search"] = search_named(changes["search"])
            elif owner in _PER_POINT:
                kind, prefix = _PER_POINT[owner]
                new = replacements(kind(), chosen, prefix=prefix)
                if "gpus" in new:
                    # By default one process for each of the devices that there are now.
                    new = {"processes": 0, **new}
                changes[owner] = _changed(before, kind, partial(with_replaced, changes=new))
            else:
                changes[owner] = with_replaced(before, replacements(before, chosen))
        return replace(self, **changes)

    def _owner_of(self, name: str) -> str:
        """Return the field of which a setting changes a part, ``sweep`` for a setting that is a
        whole field; UserError for an unknown name."""
        owners = {**_OWNERS, self.budget.unit: "budget"}
        if not self.search.lists_points:
            owners["num_points"] = "search"
        if self.question is not None and has_field(self.question, name):
            return "question"
        if name in owners:
            return owners[name]
        has_recipe = self.train is None
        field = name.removeprefix(_OF_RECIPE)
        if has_recipe and field != name and has_field(Recipe(), field):
            if field in self.space.axes:
                raise UserError(
                    f"{field} is an axis of the space, and the record would show its values where "
                    f"{name} replaced them: set the axis, --set {field}=..."
                )
            return "recipe"
        of_recipe = {f"{_OF_RECIPE}{field}" for field in field_names(Recipe()) if has_recipe}
        if has_recipe and field != name:
            raise unknown_name("field of the recipe", name, of_recipe)
        names = {*owners, *self.space.axes, *([f"{_OF_RECIPE}FIELD"] if has_recipe else ())}
        names |= set(() if self.question is None else field_names(self.question))
        raise unknown_name("setting", name, names, unlisted=of_recipe)

    def with_points(self, points: Sequence[Mapping[str, Any]]) -> "Sweep":
        """Return the sweep restricted to the points that have all the values of one of ``points``,
        if there are any; UserError for an axis the space does not have, or values that none of its
        points has."""
        if not points:
            return self
        for selection in points:
            for axis in selection:
                if axis not in self.space.axes:
                    raise unknown_name("axis in --point", axis, self.space.axes)

        if self.space.is_finite:
            all_points = list(self.space.points())
            for selection in points:
                if not any(point.has(selection) for point in all_points):
                    named = ",".join(f"{axis}={value}" for axis, value in selection.items())
                    raise UserError(
                        f"no point of the space has {named} (--set gives an axis other values)"
                    )
        subspace = self.space.where(lambda point: any(point.has(selection) for selection in points))
        return replace(self, space=subspace)


def _changed_budget(budget: Budget, chosen: Mapping[str, Sequence[AxisValue]]) -> Budget:
    """Return a budget with other amounts (several are a ladder) or another ``report_every``."""
    amounts: Any = chosen.get(budget.unit, budget.ladder or (budget.amount,))
    if any(type(amount) is not int for amount in amounts):
        raise UserError(f"{budget.unit} takes whole numbers, not {shown(list(amounts))}")
    interval = min(budget.report_every, max(1, min(amounts)))
    field_values = {name: values for name, values in chosen.items() if name != budget.unit}
    whole = {"report_every": interval, **replacements(budget, field_values)}
    return Budget(max(amounts), budget.unit, ladder=amounts if len(amounts) > 1 else (), **whole)


def _changed(value: PerPoint[T], kind: type[T], change: Callable[[T], T]) -> PerPoint[T]:
    """Return a field of a sweep with a change; a field that depends on the point is changed at
    every point."""
    if isinstance(value, kind):
        return change(value)
    per_point = cast(Callable[[Point], T], value)

    def changed(point: Point) -> T:
        result = per_point(point)
        # What it is instead is said where the point is planned.
        return change(result) if isinstance(result, kind) else result

    return changed


def resolve(value: PerPoint[T], point: Point) -> T:
    """Return the value of a field of a sweep at ``point``."""
    # Models and tasks are values that may themselves be callable, but a sweep's functions are not
    # dataclasses.
    if callable(value) and not hasattr(value, "__dataclass_fields__"):
        return value(point)
    return cast(T, value)
