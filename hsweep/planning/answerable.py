"""Finds the parts of a sweep's question that its plan cannot answer, or only weakly.

What an answer needs of points and seeds stands with the question (`Transition.needs`,
`Lean.needs`); here it is asked of a plan, and what the plan itself makes impossible is found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from hsweep.design.labels import listed, point_label
from hsweep.design.question import Concern, Lean, Transition, margin_problem
from hsweep.design.space import Point
from hsweep.design.template import fields_in
from hsweep.design.trial import Trial, cost_columns
from hsweep.design.user_training import TRAINING_PARTS, Command, UserTraining
from hsweep.errors import is_number, shown
from hsweep.planning.code import files_of, texts_named_in
from hsweep.planning.plan import Plan, comparison_of, shape_of
from hsweep.record.summary import RATES
from hsweep.reporting import SEED_VARIABLE
from tasks.base import DataError

_NOT_REPORTED: Final = (
    *("flops_per_example", "train_flops_per_example", "train_memory_bytes"),
    "latency_seconds",
)
"""Costs that no report of a user's training can tell."""
_TIMES: Final = ("wall_seconds", "train_seconds", "data_seconds")
_COSTS: Final = ("num_params", *_NOT_REPORTED, *_TIMES)
"""What a trial of this project's loop costs, besides axes and metrics."""
NO_SEED: Final = (
    f"the command has no {{seed}} and its files do not read {SEED_VARIABLE} from the environment"
)
_impossible = partial(Concern, "impossible")
_weak = partial(Concern, "weak")


def analysable(plan: Plan) -> list[Concern]:
    """Return the concerns about a plan's question: first the impossible parts, then the weak
    ones."""
    question = plan.sweep.question
    concerns = [*_of_the_metric(plan), *_of_seeds(plan)]
    if isinstance(question, Transition):
        concerns += _of_a_transition(plan, question)
    elif isinstance(question, Lean):
        concerns += _of_a_lean_question(plan, question)
    if question is None:
        return concerns
    if plan.sweep.replicates == 1 and plan.sweep.search.seeds is None:
        text = "with one seed the noise between seeds is not measured, so nothing is established"
        first = "pass {seed} to the command, then " if takes_no_seed(plan) else ""
        concerns.append(_weak(text, f"{first}--set replicates=3"))
    return sorted(concerns, key=lambda concern: concern.kind)


def _of_seeds(plan: Plan) -> Iterator[Concern]:
    """Yield that all seeds of a script that has none are one training."""
    seeds = plan.sweep.search.seeds or plan.sweep.replicates
    if seeds > 1 and takes_no_seed(plan):
        yield _impossible(
            f"{NO_SEED}, so its {seeds} seeds may be one training {seeds} times",
            "pass {seed} to it, let it read that, or set replicates=1; of a script that differs "
            "from run to run without a seed say so: command(..., varies=True)",
        )


def takes_no_seed(plan: Plan) -> bool:
    """Whether all seeds of a plan are one training, of a command that is given none."""
    train = plan.sweep.train
    if not isinstance(train, Command) or train.varies or "seed" in fields_in(train.template):
        return False
    return SEED_VARIABLE not in texts_named_in(plan.trials[0].parts[TRAINING_PARTS["command"]])


def fixed_rate(plan: Plan) -> float | None:
    """Return the learning rate that all trials share; None if they differ in it.

    Of a user's training only an axis called ``lr`` or ``learning_rate`` tells.
    """
    rates: set[float | None] = set()
    for trial in plan.trials:
        of_point = [trial.point[name] for name in RATES if is_number(trial.point.get(name))]
        is_users = isinstance(trial.task, UserTraining)
        rates.update((of_point or [None]) if is_users else [trial.recipe.lr])
    return float(rate) if len(rates) == 1 and (rate := rates.pop()) is not None else None


def notes(plan: Plan) -> list[str]:
    """Return the remarks on the trials' settings and code that hold whatever the results."""
    rate, remarks = fixed_rate(plan), list[str]()
    if plan.sweep.question is not None and rate is not None:
        remarks.append(
            f"every trial has the one learning rate {rate:g}, which is not tuned, and the answer "
            "will say so; an axis lr=tuned(LOW, HIGH) takes each shape at its best"
        )
    return [*remarks, *unfollowed(plan)]


def unfollowed(plan: Plan) -> list[str]:
    """Return a remark on files whose changes would make no other trials; none without such."""
    if not (files := _unfollowed(plan.trials[0], Path(plan.sweep.folder))):
        return []
    return [
        f"the training's code names {listed(files)}, which no import leads to: a change there "
        f"makes no other trials, unless the sweep has depends_on={files}"
    ]


def _unfollowed(trial: Trial, folder: Path) -> list[str]:
    """Return the files that a user's training may execute or read as its configuration, and that
    are neither followed nor named by ``depends_on``."""
    task = trial.task
    if not isinstance(task, UserTraining):
        return []
    digest = trial.parts[TRAINING_PARTS[task.part]]
    known = {folder / name for name in files_of(digest) or ()} | set(map(Path, task.depends_on))
    return [
        name
        for name in sorted(texts_named_in(digest))
        if (folder / name).is_file() and known.isdisjoint([folder / name, *(folder / name).parents])
    ]


def _of_the_metric(plan: Plan) -> Iterator[Concern]:
    """Yield the contradictions between goal, scale and the declared metric."""
    sweep, question = plan.sweep, plan.sweep.question
    try:
        metrics = plan.trials[0].task.metrics
    except DataError:  # they depend on data that are not there
        metrics = ()
    metric = next((metric for metric in metrics if metric.name == sweep.metric), None)
    declares = "the task declares" if sweep.train is None else "metrics=, or else the goal, says"
    is_odd = metric is not None and metric.goal != sweep.goal
    if metric is not None and is_odd:
        yield _impossible(
            f"the sweep's goal is {sweep.goal!r}, and {declares} {metric.goal!r} for "
            f"{metric.name!r}",
            f"leave goal out, or set goal={metric.goal!r}",
        )
    if question is None or question.scale is None:
        return
    scale, is_transition = question.scale, isinstance(question, Transition)
    # How a lean question's metric is drawn changes no answer, but for a logarithm of accuracies.
    if (
        metric is not None
        and (metric.scale == "accuracy") != (scale == "accuracy")
        and (is_transition or scale == "error")
    ):
        is_odd = True
        fitting = "'error' or 'loss'" if metric.scale == "count" else repr(metric.scale)
        yield _impossible(
            f"the question's scale is {scale!r}, and {declares} {metric.scale!r} for "
            f"{metric.name!r}",
            f"leave the question's scale out, or set it to {fitting}",
        )
    scale_goal = "max" if scale == "accuracy" else "min"
    if is_transition and not is_odd and sweep.goal != scale_goal:
        fitting = "'accuracy'" if sweep.goal == "max" else "'error' or 'loss'"
        yield _impossible(
            f"the scale {scale!r} needs goal {scale_goal!r}, and the sweep's is {sweep.goal!r}",
            f"set the question's scale to {fitting}",
        )


def _of_a_transition(plan: Plan, question: Transition) -> Iterator[Concern]:
    tried: dict[Any, dict[str, set[Any]]] = {}
    for trial in plan.trials:
        group = tried.setdefault(comparison_of(question, trial.point), {})
        for axis in filter(None, (question.x, question.by)):
            if not is_number(value := trial.point.get(axis)):
                yield _impossible(
                    f"{axis} must be numbers to be put in order, and takes {shown(value)}",
                    f"give {axis} numbers",
                )
                return
            group.setdefault(axis, set()).add(value)
    by = question.by
    if by is not None and (least := min(min(group[by]) for group in tried.values())) <= 0:
        yield _impossible(
            f"{by} holds {least}; its logarithm is used, so it must be above 0",
            f"leave that value out (--set {by}=...), or ask with another axis",
        )
    yield from _of_settings(plan, question)
    yield from _of_rivals(plan, question)
    if not plan.is_adaptive:  # else which values are tried is not known yet
        designs = (
            question.needs(sorted(group[question.x]), () if by is None else sorted(group[by]))
            for group in tried.values()
        )
        yield from dict.fromkeys(chain.from_iterable(designs))


def _of_settings(plan: Plan, question: Transition) -> Iterator[Concern]:
    """Yield the concerns about the settings of a transition's cells."""
    cells: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in plan.trials:
        cells.setdefault(tuple(trial.point[axis] for axis in question.cell), []).append(trial)
    varying = dict.fromkeys(
        axis
        for trials in cells.values()
        for axis in trials[0].point
        if len({repr(trial.point.get(axis)) for trial in trials}) > 1
    )
    unnamed = [axis for axis in varying if axis not in question.nuisance]
    if unnamed:
        nuisance = tuple(dict.fromkeys((*question.nuisance, *unnamed)))
        subject = "each has" if len(unnamed) > 1 else "it has"
        yield _impossible(
            f"{listed(unnamed)} varies within the cells of {listed(question.cell)}, and the "
            "question does not say what becomes of that",
            f"ask with nuisance={nuisance!r}, which takes each cell at its best setting, or with "
            f"within={unnamed[0]!r}, which asks anew at each of its values, or see that {subject} "
            f"one value in a cell (--set {unnamed[0]}=...)",
        )
    tuned = [axis for axis in question.nuisance if axis in varying]
    stopping = plan.sweep.early_stopping
    if (
        tuned
        and stopping is not None
        and stopping.scouts is None
        and stopping.milestones(plan.sweep.budget)
        and stopping.compete == "trials"
    ):
        yield _weak(
            f"early stopping stops single runs, so settings of {listed(tuned)} lose some of their "
            "seeds and cannot be compared",
            'give Asha compete="points"',
        )


def _of_rivals(plan: Plan, question: Transition) -> Iterator[Concern]:
    """Yield the concerns about early stopping in a transition where cells compete."""
    stopping = plan.sweep.early_stopping
    if stopping is None or not stopping.milestones(plan.sweep.budget):
        return
    strata: dict[str, list[Trial]] = {}
    for trial in plan.trials:
        strata.setdefault(trial.stratum, []).append(trial)
    competing: set[str] = set()
    for trials in strata.values():
        contenders = {
            trial.point if stopping.compete == "points" else (trial.point, trial.replicate)
            for trial in trials
        }
        if len(contenders) > stopping.num_survivors:
            competing |= {
                axis for axis in question.cell if len({trial.point[axis] for trial in trials}) > 1
            }
    for axis in [axis for axis in question.cell if axis in competing][:1]:
        effect = "lengths at which the error is larger are lost"
        if axis == question.x:
            effect = "those that are supposed to lose never reach the full budget"
        yield Concern(
            "impossible" if axis == question.x else "weak",
            f"early stopping lets trials of different {axis} compete, so {effect}",
            f"give Asha strata={question.cell!r}",
        )


def _of_a_lean_question(plan: Plan, question: Lean) -> Iterator[Concern]:
    groups = comparisons(question, plan.trials)
    of_groups: list[Concern] = []
    most_candidates = 0
    for name, shapes in groups.items():
        baselines = [trial for trial in shapes.values() if question.is_baseline(trial.point)]
        where = "" if question.within is None else f" at {question.within}={name}"
        if len(baselines) != 1:
            of_groups.append(_without_one_baseline(plan, question, baselines, where))
            continue
        candidates = num_cheaper(question, shapes)
        most_candidates = max(most_candidates, candidates)
        if not candidates:
            text = f"no planned shape has a lower {question.costs[0]} than the baseline{where}, "
            remedy = "add smaller shapes, or ask for another cost"
            of_groups.append(_weak(f"{text}so none can be leaner", remedy))
    yield from _of_the_margin(plan, question)
    # A comparison that stands by itself is answered whatever becomes of the others.
    some_stand = sum(concern.kind == "impossible" for concern in of_groups) < len(groups)
    yield from (replace(concern, kind="weak") if some_stand else concern for concern in of_groups)
    yield from _of_unknown_costs(plan, question)
    seeds = plan.sweep.search.seeds or plan.sweep.replicates
    yield from question.needs(most_candidates, seeds, len(groups))


def _of_the_margin(plan: Plan, question: Lean) -> Iterator[Concern]:
    """Yield that the margin is as wide as the metric's range, where that is declared."""
    sweep = plan.sweep
    try:  # The scale of an undeclared metric is a guess: top1 may count percent.
        metrics = sweep.metrics if sweep.train is not None else plan.trials[0].task.metrics
    except DataError:  # they depend on data that are not there
        return
    for metric in metrics:
        if metric.name == sweep.metric and metric.scale != "count":
            is_share = metric.scale == "accuracy"
            margin, chance = question.margin, metric.chance
            if problem := margin_problem(margin, metric.name, chance, is_share=is_share):
                yield _impossible(problem, "narrow it")


def _of_unknown_costs(plan: Plan, question: Lean) -> Iterator[Concern]:
    """Yield the costs that no trial has, and those of a user's training that are not known before
    it and may never be."""
    if plan.sweep.train is None:
        metrics = (metric.name for metric in plan.trials[0].task.metrics)
        named = (*_COSTS, *plan.sweep.space.axes, *metrics)
        for cost in question.costs:
            if cost not in named:
                remedy = f"ask for {listed(_COSTS, 'or')}"
                yield _impossible(f"{shown(cost)} is no cost of a trial", remedy)
        return
    train = plan.sweep.train
    known = set.intersection(*({*cost_columns(trial), *trial.point} for trial in plan.trials))
    axes = [
        axis
        for axis in plan.sweep.space.axes
        if axis != question.within
        and all(is_number(trial.point.get(axis)) for trial in plan.trials)
    ]
    example = f", as costs=({axes[0]!r},)" if axes else ""
    described = "let the sweep's describe= return it (see Cost), or ask for one that is known"
    for cost in question.costs:
        if cost in known or cost in _TIMES:
            continue
        can_be_read = cost not in _NOT_REPORTED
        remedy = described + example
        if can_be_read and not (isinstance(train, Command) and not train.metrics.may_have(cost)):
            yield _weak(f"{cost} is known only of trials whose reports have it", remedy)
        else:
            of_line = f", or let the lines that are read name it: (?P<{cost}>...)"
            text = f"no report of this training tells {cost}"
            yield _impossible(text, remedy + of_line * can_be_read)


def _without_one_baseline(
    plan: Plan, question: Lean, baselines: Sequence[Trial], where: str
) -> Concern:
    label = point_label(dict(question.baseline))
    if baselines:
        examples = "; ".join(point_label(trial.point) for trial in baselines[:3])
        return _impossible(
            f"the baseline {label} fits {len(baselines)} shapes{where}, for example {examples}",
            "name one by fixing every axis that varies, or call axes that are no part of a shape "
            "nuisance=(...)",
        )
    for point, reason in plan.skipped.items():
        if question.is_baseline(point):
            return _impossible(
                f"the baseline {label} is skipped{where}: {reason}", "make it possible"
            )
    remedy = "add its values to the axes, or name a planned shape"
    if not plan.sweep.search.lists_points:
        remedy = (
            "a search begins with the baseline where it names a value, within its range, of every "
            "axis that varies: name all of them"
        )
    return _impossible(f"no planned trial has the baseline {label}{where}", remedy)


def comparisons(question: Lean, trials: Iterable[Trial]) -> dict[Any, dict[Point, Trial]]:
    """Return a trial of each shape, by the comparisons that the shapes belong to."""
    shapes: dict[Any, dict[Point, Trial]] = {}
    for trial in trials:
        group = shapes.setdefault(comparison_of(question, trial.point), {})
        group.setdefault(shape_of(question, trial.point), trial)
    return shapes


def num_cheaper(question: Lean, shapes: Mapping[Point, Trial]) -> int:
    """Return the number of shapes of a comparison that cost less than its baseline.

    Where only a run can tell the cost, all shapes but the baseline count.
    """
    costs = {trial.point: cost_columns(trial).get(question.costs[0]) for trial in shapes.values()}
    limits = [cost for point, cost in costs.items() if question.is_baseline(point)]
    if not limits or limits[0] is None:
        return len(costs) - len(limits)
    return sum(cost is None or cost < limits[0] for cost in costs.values())
