"""Finds the parts of a sweep's question that its plan cannot answer, or only weakly.

What an answer needs of points and seeds the question knows itself; here stands what holds for any
question.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from hsweep.design.labels import listed
from hsweep.design.question import Concern
from hsweep.design.template import fields_in
from hsweep.design.trial import Trial
from hsweep.design.user_training import TRAINING_PARTS, Command, UserTraining
from hsweep.errors import is_number
from hsweep.planning.code import files_of, texts_named_in
from hsweep.planning.plan import Plan
from hsweep.record.summary import RATES
from hsweep.reporting import SEED_VARIABLE
from tasks.base import DataError

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
    if question is None:
        return concerns
    concerns += question.concerns(plan)
    if plan.sweep.seeds == 1:
        text = "with one seed the noise between seeds is not measured, so nothing is established"
        first = "pass {seed} to the command, then " if takes_no_seed(plan) else ""
        concerns.append(_weak(text, f"{first}--set replicates=3"))
    return sorted(concerns, key=lambda concern: concern.kind)


def _of_seeds(plan: Plan) -> Iterator[Concern]:
    """Yield that all seeds of a script that has none are one training."""
    seeds = plan.sweep.seeds
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
    question = plan.sweep.question
    if question is not None and rate is not None:
        says_so = "" if question.is_own else ", and the answer will say so"
        remarks.append(
            f"every trial has the one learning rate {rate:g}, which is not tuned{says_so}; an axis "
            f"lr=tuned(LOW, HIGH) takes each {question.place} at its best"
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
    scale, is_by_scale = question.scale, question.is_by_scale
    # How another metric is drawn changes no answer, but for a logarithm of accuracies.
    if (
        metric is not None
        and (metric.scale == "accuracy") != (scale == "accuracy")
        and (is_by_scale or scale == "error")
    ):
        is_odd = True
        fitting = "'error' or 'loss'" if metric.scale == "count" else repr(metric.scale)
        yield _impossible(
            f"the question's scale is {scale!r}, and {declares} {metric.scale!r} for "
            f"{metric.name!r}",
            f"leave the question's scale out, or set it to {fitting}",
        )
    scale_goal = "max" if scale == "accuracy" else "min"
    if is_by_scale and not is_odd and sweep.goal != scale_goal:
        fitting = "'accuracy'" if sweep.goal == "max" else "'error' or 'loss'"
        yield _impossible(
            f"the scale {scale!r} needs goal {scale_goal!r}, and the sweep's is {sweep.goal!r}",
            f"set the question's scale to {fitting}",
        )
